"""The topology of a configuration, from its settings and from what the rules derive of them.

What rules use as well (`minimum_world_size`, `data_parallel_size`, `micro_batches`, `stage_layouts`, `padded_vocabulary`) is
asked for by the names under which the rulebook derives them; nothing of that is stated here again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import WEIGHT_SHARDS, Grid, grid, groups_of
from tvlint.topology.known import VOCABULARIES, with_tokens
from tvlint.topology.memory import memory, parameters
from tvlint.topology.model import model
from tvlint.topology.optimizer import precision
from tvlint.topology.quantity import Lookup, Settings, attempt, divide, need
from tvlint.topology.role import Role, role_of
from tvlint.topology.running import running
from tvlint.topology.schedule import bubble
from tvlint.topology.stages import MOST_LAYERS, chunks
from tvlint.topology.theoretical import theoretical
from tvlint.topology.topology import Batch, Pipeline, Topology, Vocabulary, World
from tvlint.topology.transformer import Model

MOST_RANKS = 2**18


@dataclass(frozen=True, slots=True)
class _Asked:
    """A configuration with its world, and where its values come from."""

    configuration: Configuration
    world: World | Unknown
    settings: Settings
    notes: tuple[str, ...] = ()


def topology_of(configuration: Configuration, values: Callable[[Configuration], Lookup]) -> Topology:
    """Everything that follows from `configuration`; `values` gives what a name is worth in one.

    Where the file does not say how many ranks run, it is derived for the smallest number that fits. What a file leaves to be
    set elsewhere is taken at its default, and a note says so.
    """
    asked = _asked(configuration, values)
    settings, world = asked.settings, asked.world
    grids = attempt(lambda: _grid(settings, need(world)))
    pipeline = attempt(lambda: _pipeline(settings))
    sizes = attempt(lambda: model(settings))
    kept = attempt(lambda: precision(settings))
    batch = _batch(settings)
    said = attempt(lambda: running(settings))
    role = role_of(configuration)
    held = attempt(lambda: memory(settings, need(sizes), need(grids), need(pipeline), kept, said, batch.micro_batches))
    between = None
    if not isinstance(held, Unknown) and not isinstance(sizes, Unknown) and sizes.vocabulary is None:
        least, most = (
            attempt(
                lambda tokens=tokens: memory(  # type: ignore[misc]
                    settings,
                    _with_vocabulary(sizes, settings, tokens),
                    need(grids),
                    need(pipeline),
                    kept,
                    said,
                    batch.micro_batches,
                )
            )
            for tokens in VOCABULARIES
        )
        between = None if isinstance(least, Unknown) or isinstance(most, Unknown) else (least, most)
    if role is not Role.TRAINS:
        held = held if isinstance(held, Unknown) else tuple(map(_forward_alone, held))
        between = between and (tuple(map(_forward_alone, between[0])), tuple(map(_forward_alone, between[1])))
    return Topology(
        path=configuration.path,
        section=configuration.section,
        framework=configuration.framework,
        format=configuration.format,
        world=world,
        grid=grids,
        pipeline=pipeline,
        batch=batch,
        vocabulary=attempt(lambda: _vocabulary(settings)),
        parameters=attempt(lambda: parameters(need(sizes))),
        precision=kept,
        memory=held,
        megatron=attempt(lambda: theoretical(settings, batch.micro_batches)),
        bubble=attempt(lambda: bubble(_stages(settings), _virtual(pipeline, settings), need(batch.micro_batches))),
        groups=() if isinstance(grids, Unknown) else groups_of(grids),
        role=role,
        between=between,
        notes=(*asked.notes, *_notes(configuration, settings, held)),
    )


def _with_vocabulary(sizes: Model, settings: Settings, tokens: int) -> Model:
    """Return the model with so many tokens, padded as Megatron does."""
    multiple = settings.count("vocabulary_multiple", 1)
    return replace(sizes, vocabulary=-(-tokens // multiple) * multiple)


def _forward_alone(stage: StageMemory) -> StageMemory:
    """Return what a rank holds of a model that is not trained."""
    return replace(stage, gradients=0, optimizer=0, activations=Unknown("what a forward alone holds is not counted"))


def _asked(configuration: Configuration, values: Callable[[Configuration], Lookup]) -> _Asked:
    configuration, notes = with_tokens(replace(configuration, complete=True))
    settings = Settings(values(configuration))
    smallest = attempt(lambda: settings.count("minimum_world_size", 1))
    given = attempt(lambda: settings.count("world_size", 1))
    if not isinstance(given, Unknown):
        return _Asked(configuration, attempt(lambda: _world(given, False, smallest)), settings, notes)
    if isinstance(smallest, Unknown):
        return _Asked(configuration, smallest, settings, notes)
    least = smallest
    at = configuration.location or Location(configuration.path)
    assumed = Setting("world_size", smallest, "minimum world size", at, at)
    supposed = replace(configuration, settings={**configuration.settings, "world_size": assumed})
    world = attempt(lambda: _world(least, True, least, given.reason))
    return _Asked(configuration, world, Settings(values(supposed)), notes)


def _world(size: int, minimal: bool, smallest: int | Unknown, reason: str = "") -> World:
    if size > MOST_RANKS:
        raise ValueError(f"{size:,} ranks are more than any cluster has")
    if not isinstance(smallest, Unknown) and size % smallest:
        raise ValueError(f"the world size {size:,} is not a multiple of {smallest:,}, the smallest that fits")
    return World(size, minimal, smallest, reason)


def _grid(settings: Settings, world: World) -> Grid:
    """Return both grids; the data parallel axes are what the others leave (megatron/core/parallel_state.py:827, :885)."""
    shards = settings.count("weight_shards", 1)
    tp, pp = settings.count("tensor_model_parallel_size", 1), _stages(settings)
    cp = settings.count("context_parallel_size", 1)
    dense = {"tp": tp, "cp": cp, "pp": pp, "dp": divide(settings.count("data_parallel_size", 1), shards)}
    ep = settings.count("expert_model_parallel_size", 1)
    experts = None
    if ep > 1 or settings.flag("has_experts"):
        experts = {
            "tp": settings.count("effective_expert_tensor_parallel_size", 1),
            "ep": ep,
            "dp": settings.count("expert_data_parallel_size", 1),
            "pp": pp,
            WEIGHT_SHARDS: settings.count("expert_weight_shards", 1),
        }
    return grid(settings.text("rank_order"), {**dense, WEIGHT_SHARDS: shards}, experts)


def _stages(settings: Settings) -> int:
    pp = settings.count("pipeline_model_parallel_size", 1)
    if pp > MOST_LAYERS:
        raise ValueError(f"{pp:,} pipeline stages are more than any model has")
    return pp


def _pipeline(settings: Settings) -> Pipeline:
    if not any(settings.text(name) for name in ("hybrid_layer_pattern", "pipeline_model_parallel_layout")):
        settings.count("num_layers", 1)
    layout = need(settings.lookup("stage_layouts"))
    if not isinstance(layout, tuple):
        raise ValueError("the layers of the pipeline stages are not known")
    return Pipeline(chunks(tuple(map(str, layout)), _stages(settings)))


def _virtual(pipeline: Pipeline | Unknown, settings: Settings) -> int:
    return settings.count("virtual_stages", 1) if isinstance(pipeline, Unknown) else pipeline.virtual


def _batch(settings: Settings) -> Batch:
    micro = attempt(lambda: settings.count("micro_batch_size", 1))
    per_step = attempt(lambda: need(micro) and settings.count("batch_per_step", 1))
    return Batch(
        sequence=attempt(lambda: settings.count("seq_length", 1)),
        micro=micro,
        data_parallel=attempt(lambda: settings.count("data_parallel_size", 1)),
        whole=attempt(lambda: settings.optional("global_batch_size", 1) or need(per_step)),
        micro_batches=attempt(lambda: need(per_step) and settings.count("micro_batches", 1)),
        sizes=tuple((size, attempt(lambda size=size: divide(size, need(per_step)))) for size in _sizes(settings)),  # type: ignore[misc]
    )


def _sizes(settings: Settings) -> tuple[int, ...]:
    """Return the global batch sizes of a schedule; none where there is no schedule, or it is not known."""
    found = settings.lookup("scheduled_batch_sizes")
    if not isinstance(found, tuple):
        return ()
    return tuple(size for size in found if isinstance(size, int) and not isinstance(size, bool) and size > 0)


def _vocabulary(settings: Settings) -> Vocabulary:
    given = attempt(lambda: settings.optional("vocab_size", 1))
    padded = attempt(lambda: settings.optional("padded_vocab_size", 1))
    if given is None and padded is None:
        raise ValueError("`vocab_size` is not given: the tokenizer decides")
    return Vocabulary(
        None if isinstance(given, Unknown) else given,
        settings.count("vocabulary_multiple", 1),
        settings.count("padded_vocabulary", 1),
    )


def _notes(configuration: Configuration, settings: Settings, held: tuple[StageMemory, ...] | Unknown) -> list[str]:
    """Return what was taken for granted."""
    said = []
    if not configuration.complete:
        said.append("settings may also come from elsewhere (`$@`, another file): what the file does not set is at its default")
    tokenizer = settings.lookup("tokenizer_type")
    given = "vocab_size" in configuration.settings
    if given and isinstance(tokenizer, str) and tokenizer not in ("NullTokenizer", "NullMultimodalTokenizer", "TikTokenizer"):
        said.append(f"`vocab_size` is taken for the size that `{tokenizer[:40]}` really has")
    reported = not isinstance(held, Unknown) and any(not isinstance(stage.activations, Unknown) for stage in held)
    if reported and settings.lookup("keeps_attention_scores") is False and settings.lookup("use_flash_attn") is not True:
        said.append("attention is taken to be fused, so that its scores are not kept")
    return said
