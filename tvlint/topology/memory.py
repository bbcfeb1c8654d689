"""Memory of the ranks of each pipeline stage."""

from __future__ import annotations

from math import prod

from tvlint.ir.configuration import Unknown
from tvlint.topology.activations import Running, of_stage
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import WEIGHT_SHARDS, Grid
from tvlint.topology.optimizer import Precision
from tvlint.topology.quantity import Settings, attempt, divide, need
from tvlint.topology.schedule import in_flight
from tvlint.topology.stages import Chunk
from tvlint.topology.topology import Parameters, Pipeline
from tvlint.topology.transformer import (
    Count,
    Model,
    Split,
    alike,
    embedding,
    extra_layer,
    idle,
    layer,
    norm,
    vocabulary,
    without_vocabulary,
)


def parameters(model: Model) -> Parameters:
    """Return how many parameters the model has; without a known vocabulary, those of its layers."""
    layers, unused = without_vocabulary(model).total, idle(model)
    if model.vocabulary is None:
        missing = Unknown("`vocab_size` is not given: the tokenizer decides")
        return Parameters(missing, missing, layers)
    whole = layers + vocabulary(model)
    return Parameters(whole, whole - unused, layers)


def memory(
    settings: Settings,
    model: Model,
    grid: Grid,
    pipeline: Pipeline,
    precision: Precision | Unknown,
    running: Running | Unknown,
    micro_batches: int | Unknown,
) -> tuple[StageMemory, ...]:
    """Return what a rank of each pipeline stage holds; equal stages share one computation."""
    if grid.dense.axis_size(WEIGHT_SHARDS) > 1 or (grid.expert is not None and grid.expert.axis_size(WEIGHT_SHARDS) > 1):
        raise ValueError("memory with generalised tensor parallelism is not derived")
    group = settings.count("micro_batch_group", 1)
    split = _split(grid)
    steps = None if isinstance(micro_batches, Unknown) else micro_batches
    counted: dict[tuple[Chunk, ...], Count | Unknown] = {}
    found = []
    for number, held in enumerate(pipeline.stages):
        if held not in counted:
            counted[held] = attempt(lambda held=held: stage_count(model, held, split))  # type: ignore[misc]
        in_stage = in_flight(number, len(pipeline.stages), pipeline.virtual, group, steps)
        kept = attempt(lambda held=held, times=in_stage: of_stage(need(running), model, held, times))  # type: ignore[misc]
        found.append(_stage(counted[held], precision, grid, kept))
    return tuple(found)


def _split(grid: Grid) -> Split:
    if grid.expert is None:
        return Split(grid.dense.axis_size("tp"))
    return Split(grid.dense.axis_size("tp"), grid.expert.axis_size("ep"), grid.expert.axis_size("tp"))


def stage_count(model: Model, held: tuple[Chunk, ...], split: Split) -> Count:
    """Return the parameters on one rank of a pipeline stage, copies of the embedding for its other users included.

    The stage with the loss has the output layer, or where it is tied a copy of the embedding; a stage that predicts more
    tokens embeds too (megatron/core/models/gpt/gpt_model.py:173, :289).
    """
    count = Count()
    for chunk in held:
        for number, times in alike(model, range(chunk.first, chunk.first + chunk.layers)):
            count += layer(model, number, split) * times
        if chunk.extra:
            count += extra_layer(model, split) * min(chunk.extra, model.extra_layers)
        embeds = chunk.embedding or chunk.extra > 0
        if embeds:
            count += Count(embedding(model, split.tp) + model.positions * model.hidden)
        if chunk.loss:
            count += Count(norm(model))
            if not (model.tied and embeds):
                count += Count(embedding(model, split.tp))
    return count


def _stage(count: Count | Unknown, precision: Precision | Unknown, grid: Grid, activations: int | Unknown) -> StageMemory:
    if isinstance(count, Unknown):
        return StageMemory(count, count, count, count, activations)
    if isinstance(precision, Unknown):
        return StageMemory(count.total, precision, precision, precision, activations)
    weights, gradients = count.total * precision.weight, count.total * precision.gradient
    optimizer = attempt(lambda: state_bytes(count, precision, grid))
    return StageMemory(count.total, weights, gradients, optimizer, activations)


def state_bytes(count: Count, precision: Precision, grid: Grid) -> int:
    """Return the optimizer state of a rank; a distributed optimizer splits it over the dp-cp group, that of experts over
    expert-dp.
    """
    held = precision.state * (1 - precision.offloaded)
    if not precision.distributed:
        return round(count.total * held)
    ranks = divide(prod(grid.dense.axis_size(name) for name in ("dp", "cp")), precision.instances, "the dp-cp group:")
    state = count.dense * held / ranks
    if grid.expert is not None:
        state += count.experts * held / divide(grid.expert.axis_size("dp"), precision.instances, "the expert-dp group:")
    return round(state)
