"""Topologies of the configurations of a file."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.readers.document import Document
from tvlint.rulebook.values import Values
from tvlint.topology.of_configuration import topology_of
from tvlint.topology.of_plan import PlanTopology, topology_of_nnscaler, topology_of_plan
from tvlint.topology.quantity import Lookup
from tvlint.topology.topology import Topology

NNSCALER = "nnscaler"


def topologies(document: Document, world_size: int | None = None) -> tuple[Topology | PlanTopology, ...]:
    """The topology of every configuration of `document`, or of its plan; `world_size` holds where the file does not say."""
    if document.plan is not None:
        return (topology_of_plan(document.plan),)
    return tuple(_of(found, world_size) for found in document.configurations)


def _of(configuration: Configuration, world_size: int | None) -> Topology | PlanTopology:
    if configuration.framework == NNSCALER:
        whole = replace(configuration, complete=True)
        return topology_of_nnscaler(whole, _lookup(whole))
    return topology_of(with_world_size(configuration, world_size), _lookup)


def with_world_size(configuration: Configuration, world_size: int | None) -> Configuration:
    """The configuration run by `world_size` ranks, if that is known and the file says nothing else for sure."""
    given = configuration.settings.get("world_size")
    if world_size is None or (given is not None and isinstance(given.value, int)):
        return configuration
    at = configuration.location or Location(configuration.path)
    setting = Setting("world_size", world_size, "--world-size", at, at)
    return replace(configuration, settings={**configuration.settings, "world_size": setting})


def _lookup(configuration: Configuration) -> Lookup:
    return Values(configuration).value
