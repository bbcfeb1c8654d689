"""The values of a topology as words, for people: what both the terminal and the page say."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.ir.mesh import Mesh
from tvlint.plurals import counted
from tvlint.reporters.escape.visible import visible
from tvlint.topology import activations, optimizer, schedule
from tvlint.topology.fit import Change
from tvlint.topology.quantity import need
from tvlint.topology.stages import Chunk
from tvlint.topology.topology import Topology

GIB = 2**30


def shown(value: int | Unknown) -> str:
    """Return a number with its thousands apart; `?` where it is not known."""
    return "?" if isinstance(value, Unknown) else f"{value:,}"


def shown_fact(value: SettingValue | Unknown) -> str:
    """Return a value of any kind, or why there is none."""
    if isinstance(value, Unknown):
        return f"? ({value.reason})"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def gibibytes(value: int | Unknown) -> str:
    """Bytes in GiB with two digits."""
    return "?" if isinstance(value, Unknown) else f"{value / GIB:,.2f}"


def large(value: int) -> str:
    """Return a number of parameters as people say it: `8.03 B`, `540 M`."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return str(value)


def sizes(mesh: Mesh) -> str:
    """`tp 8 × cp 1 × dp 4 × pp 2`, fastest axis first."""
    return " × ".join(f"{axis.name} {axis.size:,}" for axis in reversed(mesh.axes))


def world(topology: Topology) -> str:
    """Return how many ranks, and whether that was given."""
    found = topology.world
    if isinstance(found, Unknown):
        return f"? ({found.reason})"
    if found.minimal:
        why = found.reason.removeprefix("`world_size`: ")
        return f"{counted(found.size, 'rank')}, the fewest that fit ({why}; `--world-size N` tells)"
    spare = f", a multiple of {found.smallest:,}" if not isinstance(found.smallest, Unknown) else ""
    return f"{counted(found.size, 'rank')}{spare}"


def grid(topology: Topology) -> list[tuple[str, str]]:
    """Return the grids and their order."""
    found = topology.grid
    if isinstance(found, Unknown):
        return [("grid", f"? ({found.reason})")]
    rows = [("rank order", f"{found.order}, the first varies fastest"), ("grid", sizes(found.dense))]
    return rows if found.expert is None else [*rows, ("expert grid", sizes(found.expert))]


def replicas(topology: Topology) -> list[tuple[str, str]]:
    """Return into how many copies of the model an inference engine divides its ranks."""
    found = topology.grid
    if isinstance(found, Unknown):
        return [("replicas", f"? ({found.reason})")]
    ranks = need(topology.ranks_of_replica)
    axes = [f"{axis.name} {axis.size}" for axis in found.dense.axes if axis.name in ("tp", "pp") and axis.size > 1]
    shape = f" ({' × '.join(axes)})" if axes else ""
    return [
        ("replicas", f"{found.dense.size // ranks:,} of {counted(ranks, 'rank')}{shape}, to draw samples: nothing is trained")
    ]


def batch(topology: Topology) -> list[tuple[str, str]]:
    """Batch and micro-batches."""
    found = topology.batch
    parts = [found.micro_batches, found.micro, found.data_parallel]
    steps = next((part.reason for part in parts if isinstance(part, Unknown)), "")
    rows = [
        (
            "global batch",
            f"? ({found.whole.reason})"
            if isinstance(found.whole, Unknown)
            else f"{counted(found.whole, 'sample')} = micro-batch of {shown(found.micro)} × dp {shown(found.data_parallel)}"
            f" × {shown(found.micro_batches)}",
        ),
        ("micro-batches", f"? ({steps})" if steps else f"{shown(found.micro_batches)} per step and rank"),
    ]
    if not isinstance(found.sequence, Unknown):
        tokens = "" if isinstance(found.whole, Unknown) else f", {large(found.sequence * found.whole)} tokens a step"
        rows.append(("sequence", f"{found.sequence:,} tokens{tokens}"))
    if found.sizes:
        first, last = found.sizes[0], found.sizes[-1]
        steps = f"{shown(first[1])} to {shown(last[1])} micro-batches"
        rows.append(("batch schedule", f"{len(found.sizes)} sizes from {first[0]:,} to {last[0]:,} samples, {steps}"))
        rows += [
            ("", f"a size of {size:,}: ? ({steps_.reason})") for size, steps_ in found.sizes if isinstance(steps_, Unknown)
        ][:3]
    return rows


def model(topology: Topology) -> list[tuple[str, str]]:
    """Vocabulary and parameters."""
    vocabulary, parameters, precision = topology.vocabulary, topology.parameters, topology.precision
    if isinstance(vocabulary, Unknown):
        rows = [("vocabulary", f"? ({vocabulary.reason})")]
    else:
        given = (
            "as given" if vocabulary.given is None else f"{vocabulary.given:,} padded to a multiple of {vocabulary.multiple:,}"
        )
        given = f"already a multiple of {vocabulary.multiple:,}" if vocabulary.given == vocabulary.padded else given
        rows = [("padded vocabulary", f"{vocabulary.padded:,} ({given})")]
    if isinstance(parameters, Unknown):
        rows.append(("parameters", f"? ({parameters.reason})"))
    elif isinstance(parameters.total, Unknown) or isinstance(parameters.active, Unknown):
        known = f"{large(parameters.without_vocabulary)} ({parameters.without_vocabulary:,}) without the vocabulary"
        rows.append(("parameters", known))
    else:
        active = "" if parameters.active == parameters.total else f", {large(parameters.active)} of them active for a token"
        rows.append(("parameters", f"{large(parameters.total)} ({parameters.total:,}){active}"))
    if isinstance(precision, Unknown):
        rows.append(("precision", f"? ({precision.reason})"))
    else:
        optimizer_is = "distributed optimizer" if precision.distributed else "optimizer state on every rank"
        rows.append(("precision", f"{precision.name}, {optimizer_is}: {precision.formula()} bytes a parameter"))
    return rows


def bubble(topology: Topology) -> str:
    """Return the schedule and how long its ranks idle."""
    found = topology.bubble
    if isinstance(found, Unknown):
        return f"? ({found.reason})"
    if found.stages == 1:
        return "none: there is one pipeline stage"
    return f"{found.schedule}: ranks idle {found.of_step:.1%} of a step, {found.of_work:.1%} of its work"


def fitting(topology: Topology) -> list[tuple[str, str]]:
    """Return whether the memory of the accelerator is enough and by how much, as a row; none where no accelerator was named."""
    found = topology.fit
    if found is None:
        return []
    if isinstance(found, Unknown):
        return [("GPU memory", f"? ({found.reason})")]
    gpu = found.accelerator
    needed, whole = gibibytes(found.needed), gibibytes(gpu.memory)
    least = " at least" if found.open else ""
    most = "" if found.most is None else f" to {gibibytes(found.most)}"
    needs = f"a rank of pp {found.stage} needs{least} {needed}{most} of {whole} GiB of `{visible(gpu.name)}`"
    if found.fits is None and found.open:
        return [("GPU memory", f"? ({needs}; not known: {', '.join(found.open)})")]
    if found.fits is None and found.most is not None:
        return [("GPU memory", f"? ({needs}: the vocabulary decides)")]
    if found.fits is None:
        return [("GPU memory", f"? ({needs}, and the CUDA context, communicators and the allocator may take a tenth)")]
    if found.fits:
        left = f"{'at least ' if most else ''}{gibibytes(gpu.memory - (found.most or found.needed))}"
        return [("GPU memory", f"fits: {needs}; {left} GiB are left for buffers, which this estimate does not count")]
    over = f"{'at least ' if most else ''}{gibibytes(found.needed - gpu.memory)}"
    return [("GPU memory", f"does not fit: {needs}, {over} GiB too much"), *map(_change, found.changes)]


def _change(change: Change) -> tuple[str, str]:
    """Return the row of a change that makes a configuration fit."""
    flags = " ".join(_as_written(name, value) for name, value in change.settings)
    return ("fits with", f"`{flags}`: {gibibytes(change.needed)} GiB")


def _as_written(name: str, value: str | int | bool) -> str:
    if name.startswith("-"):
        return visible(name if value is True else f"{name} {value}")
    return visible(f"{name}: {str(value).lower() if isinstance(value, bool) else value}")


def chunk(held: Chunk) -> str:
    """Return what a virtual stage holds: `embedding, 0-5`, `42-47, loss`, `nothing`."""
    parts = ["embedding"] if held.embedding else []
    if held.layers:
        parts.append(str(held.first) if held.layers == 1 else f"{held.first}-{held.first + held.layers - 1}")
    if held.extra:
        parts.append(f"{held.extra} mtp")
    if held.loss:
        parts.append("loss")
    return ", ".join(parts) or "nothing"


def sources(topology: Topology) -> list[str]:
    """Return where the formulas come from, and what was taken for granted."""
    said = []
    memory = topology.memory
    if not isinstance(topology.precision, Unknown) and not isinstance(memory, Unknown):
        said.append(f"weights, gradients, optimizer: {optimizer.SOURCE}")
    if not isinstance(memory, Unknown) and any(not isinstance(stage.activations, Unknown) for stage in memory):
        said.append(f"activations: {activations.SOURCE}")
    if not isinstance(topology.bubble, Unknown) and topology.bubble.stages > 1:
        said.append(f"bubble: {schedule.BUBBLE_SOURCE}")
    return [*said, *topology.notes]


def alike(rows: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Runs of equal rows, as first and last index."""
    runs: list[list[int]] = []
    for number, row in enumerate(rows):
        if runs and rows[runs[-1][0]] == row:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [(first, last) for first, last in runs]
