"""Topologies as JSON, for programs; `schemas/topology.schema.json` describes it. What is not known is `{"unknown": reason}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.ir.mesh import Mesh
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.text.topology_words import sources
from tvlint.topology.fit import Fit
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import GroupKind
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.stages import Chunk
from tvlint.topology.topology import Batch, Topology

LISTED_RANKS = 4096
"""Groups of larger worlds are given by their offsets, without a list of all members."""


def write(topologies: Sequence[Topology | PlanTopology], rank: int | None = None) -> Escaped:
    """Every topology of a file; `rank` adds its groups to each."""
    content = [_plan(found) if isinstance(found, PlanTopology) else _topology(found, rank) for found in topologies]
    return data({"topologies": content})


def _fit(found: Fit) -> dict[str, Any]:
    return {
        "gpu": found.accelerator.name,
        "gpuMemory": found.accelerator.memory,
        "pipelineStage": found.stage,
        "needed": found.needed,
        "neededAtMost": found.most,
        "unknownParts": list(found.open),
        "fits": found.fits,
        "changes": [{"settings": dict(change.settings), "needed": change.needed} for change in found.changes],
    }


def _topology(found: Topology, rank: int | None) -> dict[str, Any]:
    world, grid, bubble = found.world, found.grid, found.bubble
    content: dict[str, Any] = {
        "kind": "configuration",
        "path": found.path,
        "section": found.section,
        "framework": found.framework,
        "role": found.role.value,
        "worldSize": _value(world if isinstance(world, Unknown) else world.size),
        "worldSizeGiven": not isinstance(world, Unknown) and not world.minimal,
        "minimumWorldSize": _value(world if isinstance(world, Unknown) else world.smallest),
        "grid": _value(grid)
        if isinstance(grid, Unknown)
        else {
            "order": grid.order,
            "axes": _axes(grid.dense),
            "expertAxes": None if grid.expert is None else _axes(grid.expert),
        },
        "groups": [_group(kind) for kind in found.groups],
        "pipeline": _value(found.pipeline)
        if isinstance(found.pipeline, Unknown)
        else {"stages": [[_chunk(chunk) for chunk in held] for held in found.pipeline.stages]},
        "batch": _batch(found.batch),
        "vocabulary": _value(found.vocabulary)
        if isinstance(found.vocabulary, Unknown)
        else {"given": found.vocabulary.given, "multiple": found.vocabulary.multiple, "padded": found.vocabulary.padded},
        "parameters": _value(found.parameters)
        if isinstance(found.parameters, Unknown)
        else {
            "total": _value(found.parameters.total),
            "active": _value(found.parameters.active),
            "withoutVocabulary": found.parameters.without_vocabulary,
        },
        "precision": _value(found.precision)
        if isinstance(found.precision, Unknown)
        else {
            "name": found.precision.name,
            "distributedOptimizer": found.precision.distributed,
            "bytesPerParameter": found.precision.formula(),
        },
        "memory": _value(found.memory)
        if isinstance(found.memory, Unknown)
        else [_memory(number, stage) for number, stage in enumerate(found.memory)],
        "megatronEstimate": _value(found.megatron)
        if isinstance(found.megatron, Unknown)
        else {
            "weightsAndOptimizer": found.megatron.weights_and_optimizer,
            "activations": found.megatron.activations,
        },
        "bubble": _value(bubble)
        if isinstance(bubble, Unknown)
        else {"schedule": bubble.schedule, "ofStep": round(bubble.of_step, 6), "ofWork": round(bubble.of_work, 6)},
        "fit": None if found.fit is None else _value(found.fit) if isinstance(found.fit, Unknown) else _fit(found.fit),
        "notes": sources(found),
    }
    if rank is not None:
        content["rank"] = _rank(found, rank)
    return content


def _value(value: SettingValue | Unknown) -> Any:
    return {"unknown": value.reason} if isinstance(value, Unknown) else value


def _axes(mesh: Mesh) -> dict[str, int]:
    """Return the sizes by axis, fastest first."""
    return {axis.name: axis.size for axis in reversed(mesh.axes)}


def _group(kind: GroupKind) -> dict[str, Any]:
    listed = kind.mesh.size <= LISTED_RANKS
    return {
        "name": kind.name,
        "axes": list(kind.axes),
        "count": kind.count,
        "size": kind.size,
        "first": list(kind.group(0)),
        "members": [list(kind.group(index)) for index in range(kind.count)] if listed else None,
    }


def _chunk(chunk: Chunk) -> dict[str, Any]:
    return {
        "firstLayer": chunk.first,
        "layers": chunk.layers,
        "embedding": chunk.embedding,
        "mtpLayers": chunk.extra,
        "loss": chunk.loss,
    }


def _batch(batch: Batch) -> dict[str, Any]:
    return {
        "sequenceLength": _value(batch.sequence),
        "microBatchSize": _value(batch.micro),
        "dataParallelSize": _value(batch.data_parallel),
        "globalBatchSize": _value(batch.whole),
        "microBatches": _value(batch.micro_batches),
        "schedule": [{"globalBatchSize": size, "microBatches": _value(steps)} for size, steps in batch.sizes],
    }


def _memory(number: int, stage: StageMemory) -> dict[str, Any]:
    return {
        "pipelineStage": number,
        "parameters": _value(stage.parameters),
        "weights": _value(stage.weights),
        "gradients": _value(stage.gradients),
        "optimizer": _value(stage.optimizer),
        "activations": _value(stage.activations),
        "total": _value(stage.total),
    }


def _rank(found: Topology, rank: int) -> Any:
    if isinstance(found.grid, Unknown):
        return _value(found.grid)
    if rank >= found.grid.dense.size:
        return _value(Unknown(f"there are {found.grid.dense.size} ranks, numbered from 0"))
    expert = found.grid.expert
    return {
        "rank": rank,
        "coordinates": found.grid.dense.coordinates(rank),
        "expertCoordinates": None if expert is None else expert.coordinates(rank),
        "groups": {kind.name: list(kind.of(rank)) for kind in found.groups},
    }


def _plan(found: PlanTopology) -> dict[str, Any]:
    return {
        "kind": "plan",
        "path": found.path,
        "section": found.section,
        "format": found.format,
        "axes": _value(found.mesh) if isinstance(found.mesh, Unknown) else _axes(found.mesh),
        "facts": {name: _value(value) for name, value in found.facts},
        "groups": [_group(kind) for kind in found.groups],
        "used": [
            {
                "axes": list(used.axes),
                "size": used.size,
                "groups": [list(group) for group in used.groups],
                "operations": dict(used.operations),
            }
            for used in found.used
        ],
        "stages": [
            {
                "pipelineStage": stage.number,
                "ranks": list(stage.ranks),
                "forward": list(stage.forward),
                "backward": list(stage.backward),
            }
            for stage in found.stages
        ],
        "schedule": [{"ranks": list(lane.ranks), "steps": list(lane.steps)} for lane in found.lanes],
    }
