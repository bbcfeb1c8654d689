"""The topology of one configuration: every value of it, or why it is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.topology.fit import Fit
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import Grid, GroupKind
from tvlint.topology.optimizer import Precision
from tvlint.topology.role import Role
from tvlint.topology.schedule import Bubble
from tvlint.topology.stages import Chunk


@dataclass(frozen=True, slots=True)
class World:
    """The number of ranks. Where the file does not state it, it is that of the smallest world, and `minimal` is set."""

    size: int
    minimal: bool
    smallest: int | Unknown
    reason: str = ""
    """Why the file does not say."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The split of a global batch into micro-batches, each value by itself known or not.

    `sizes` are the global batch sizes of a schedule or ramp-up with their micro-batches, empty for a constant size.
    """

    sequence: int | Unknown
    micro: int | Unknown
    data_parallel: int | Unknown
    whole: int | Unknown
    micro_batches: int | Unknown
    sizes: tuple[tuple[int, int | Unknown], ...] = ()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The vocabulary as given and padded to a multiple; `given` is None where the file gives the padded size itself."""

    given: int | None
    multiple: int
    padded: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The virtual stages of each pipeline stage."""

    stages: tuple[tuple[Chunk, ...], ...]

    @property
    def virtual(self) -> int:
        return len(self.stages[0])

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of each pipeline stage."""
        return tuple(sum(chunk.layers for chunk in held) for held in self.stages)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The numbers of parameters of the model: in all, those that one token passes, and those outside of the vocabulary."""

    total: int | Unknown
    active: int | Unknown
    without_vocabulary: int


@dataclass(frozen=True, slots=True)
class MegatronEstimate:
    """The theoretical memory footprint that Megatron prints, in bytes of the most loaded rank."""

    weights_and_optimizer: int
    activations: int


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that follows from one configuration."""

    path: str
    section: str
    framework: str
    format: str
    world: World | Unknown
    grid: Grid | Unknown
    pipeline: Pipeline | Unknown
    batch: Batch
    vocabulary: Vocabulary | Unknown
    parameters: Parameters | Unknown
    precision: Precision | Unknown
    memory: tuple[StageMemory, ...] | Unknown
    megatron: MegatronEstimate | Unknown
    bubble: Bubble | Unknown
    groups: tuple[GroupKind, ...] = ()
    notes: tuple[str, ...] = field(default=())
    role: Role = Role.TRAINS
    between: tuple[tuple[StageMemory, ...], tuple[StageMemory, ...]] | None = None
    """The memory with the smallest and with the largest vocabulary of `known.VOCABULARIES`, where only that is not known."""
    fit: Fit | Unknown | None = None
    """The need of the fullest rank against an accelerator, where one was named."""

    @property
    def ranks_of_replica(self) -> int | Unknown:
        """Over how many ranks a copy of the model lies that an inference engine holds."""
        if isinstance(self.grid, Unknown):
            return self.grid
        return self.grid.dense.axis_size("tp") * self.grid.dense.axis_size("pp")


def facts(topology: Topology) -> dict[str, SettingValue | Unknown]:
    """Return the topology as single values by name, for comparing two of them; groups are given by sizes and rank order."""
    return dict(_facts(topology))


def _facts(topology: Topology) -> Iterator[tuple[str, SettingValue | Unknown]]:
    world, grid, batch, pipeline = topology.world, topology.grid, topology.batch, topology.pipeline
    yield "world_size", world if isinstance(world, Unknown) else world.size
    if topology.role is Role.SERVES:
        ranks = topology.ranks_of_replica
        yield "ranks_of_a_replica", ranks
        yield "replicas", ranks if isinstance(ranks, Unknown) or isinstance(grid, Unknown) else grid.dense.size // ranks
        return
    yield "minimum_world_size", world if isinstance(world, Unknown) else world.smallest
    yield "rank_order", grid if isinstance(grid, Unknown) else grid.order
    if not isinstance(grid, Unknown):
        for prefix, mesh in (("", grid.dense), ("expert_", grid.expert)):
            for axis in reversed(mesh.axes) if mesh is not None else ():
                yield f"{'' if axis.name == 'ep' else prefix}{axis.name}", axis.size
    yield "sequence_length", batch.sequence
    yield "micro_batch_size", batch.micro
    yield "data_parallel_size", batch.data_parallel
    yield "global_batch_size", batch.whole
    yield "micro_batches", batch.micro_batches
    yield "batch_sizes", tuple(size for size, _ in batch.sizes)
    yield "layers_by_stage", pipeline if isinstance(pipeline, Unknown) else _letters(pipeline)
    yield "virtual_stages", pipeline if isinstance(pipeline, Unknown) else pipeline.virtual
    vocabulary, parameters, precision = topology.vocabulary, topology.parameters, topology.precision
    yield "padded_vocabulary", vocabulary if isinstance(vocabulary, Unknown) else vocabulary.padded
    yield "parameters", parameters if isinstance(parameters, Unknown) else parameters.total
    yield "active_parameters", parameters if isinstance(parameters, Unknown) else parameters.active
    yield "parameters_without_vocabulary", parameters if isinstance(parameters, Unknown) else parameters.without_vocabulary
    yield "precision", precision if isinstance(precision, Unknown) else precision.name
    yield "bytes_per_parameter", precision if isinstance(precision, Unknown) else precision.formula()
    memory = topology.memory
    for name in ("parameters", "weights", "gradients", "optimizer", "activations", "total"):
        yield f"most_{name}_per_rank", memory if isinstance(memory, Unknown) else _most(memory, name)
    bubble = topology.bubble
    yield "schedule", bubble if isinstance(bubble, Unknown) else bubble.schedule
    yield "bubble", bubble if isinstance(bubble, Unknown) else round(bubble.of_step, 6)


def _letters(pipeline: Pipeline) -> tuple[SettingValue, ...]:
    return tuple("|".join(chunk.letters for chunk in held) for held in pipeline.stages)


def _most(memory: tuple[StageMemory, ...], name: str) -> int | Unknown:
    """Return the largest value over all pipeline stages; unknown where one of them is."""
    most = 0
    for stage in memory:
        value: int | Unknown = getattr(stage, name)
        if isinstance(value, Unknown):
            return value
        most = max(most, value)
    return most
