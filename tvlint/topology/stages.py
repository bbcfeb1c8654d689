"""Assign layers to virtual pipeline stages.

What a stage holds is written in the letters of Megatron's layouts: `E` the embedding, `t` a layer, `m` a multi-token-prediction
layer, `L` the loss. A tuple of such texts is in model order: virtual stage v of pipeline stage p is number `v * pp + p`
(megatron/core/transformer/pipeline_parallel_layer_layout.py:53).
"""

from __future__ import annotations

from tvlint.ir.values import dataclass
from tvlint.topology.quantity import divide

MOST_LAYERS = 100_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """The content of one virtual pipeline stage: layers from `first` on, and whether it embeds, predicts more tokens, or
    ends.
    """

    first: int
    layers: int
    embedding: bool = False
    extra: int = 0
    """Multi-token-prediction layers."""
    loss: bool = False

    @property
    def letters(self) -> str:
        return "E" * self.embedding + "t" * self.layers + "m" * self.extra + "L" * self.loss


@dataclass(frozen=True, slots=True)
class Ends:
    """The layers of the first and the last pipeline stage where they are given, and whether embedding and loss count as one."""

    first: int | None = None
    last: int | None = None
    embedding: bool = False
    loss: bool = False


def split_layers(layers: int, pp: int, virtual: int, ends: Ends, extra: int) -> tuple[str, ...]:
    """Return the stages of a model without a layout of its own (get_num_layers_to_build of megatron/core/transformer).

    `extra` multi-token-prediction layers go to the last stage. Raises `ValueError` where the layers do not split so.
    """
    if not 0 < layers <= MOST_LAYERS or not 0 < pp <= MOST_LAYERS or not 0 < virtual <= MOST_LAYERS or extra > MOST_LAYERS:
        raise ValueError("the number of layers or of pipeline stages is none of a real model")
    if virtual * pp > 2 * MOST_LAYERS:
        raise ValueError("there are more virtual pipeline stages than in any real run")
    held = _by_stage(layers, pp, ends)
    virtual = virtual if pp > 1 else 1
    counts = [divide(number, virtual, "the layers of a pipeline stage:") for _ in range(virtual) for number in held]
    counts[0] -= ends.embedding
    counts[-1] -= ends.loss
    if min(counts) < 0 or sum(counts) != layers:
        raise ValueError(f"the pipeline stages hold {sum(counts):,} layers, the model has {layers:,}")
    return _with_ends(counts, extra)


def _by_stage(layers: int, pp: int, ends: Ends) -> list[int]:
    first, last = ends.first, ends.last
    if first is None and last is None:
        return [divide(layers + ends.embedding + ends.loss, pp, "the number of layers:")] * pp
    if ends.embedding or ends.loss:
        raise ValueError("an uneven first or last stage and a stage that counts the embedding or the loss exclude each other")
    middle = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    each = divide(rest, middle, "the number of layers left for the middle pipeline stages:") if middle > 0 else 0
    held = [each] * pp
    if first is not None:
        held[0] = first
    if last is not None:
        held[-1] = last
    return held


def hybrid_stages(pattern: str, pp: int, first: int | None, last: int | None) -> tuple[str, ...]:
    """The stages of a hybrid pattern: `|` ends a stage, a pattern without any is split like layers; `/` begins a prediction.

    The source is megatron/core/models/hybrid/hybrid_layer_allocation.py, select_pipeline_segment.
    """
    if any(character in pattern for character in "$'\" "):
        raise ValueError("the pattern is quoted or holds a variable")
    main, *predictions = pattern.split("/")
    segments = main.split("|")
    if len(segments) == 1:
        return split_layers(len(main), pp, 1, Ends(first, last), len(predictions))
    divide(len(segments), pp, "the number of pipeline segments of the hybrid pattern:")
    return _with_ends([len(segment) for segment in segments], len(predictions))


def _with_ends(counts: list[int], extra: int) -> tuple[str, ...]:
    end = len(counts) - 1
    return tuple(
        "E" * (number == 0) + "t" * count + ("m" * extra + "L") * (number == end) for number, count in enumerate(counts)
    )


def chunks(stages: tuple[str, ...], pp: int) -> tuple[tuple[Chunk, ...], ...]:
    """Return the virtual stages of each pipeline stage; raises `ValueError` where they do not divide over `pp`."""
    divide(len(stages), pp, "the number of virtual pipeline stages:")
    found: list[list[Chunk]] = [[] for _ in range(pp)]
    first = 0
    for number, held in enumerate(stages):
        chunk = Chunk(first, held.count("t"), "E" in held, held.count("m"), "L" in held)
        found[number % pp].append(chunk)
        first += chunk.layers
    return tuple(map(tuple, found))
