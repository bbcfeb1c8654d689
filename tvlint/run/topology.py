"""Topologies of the configurations of a file."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.readers.document import Document
from tvlint.rulebook.values import Values
from tvlint.topology.of_configuration import topology_of
from tvlint.topology.quantity import Lookup
from tvlint.topology.topology import Topology


def topologies(document: Document, world_size: int | None = None) -> tuple[Topology, ...]:
    """The topology of every configuration of `document`; `world_size` holds where the file does not say."""
    return tuple(topology_of(with_world_size(found, world_size), _lookup) for found in document.configurations)


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
