"""Topologies of the configurations of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvlint.ir.configuration import Configuration
from tvlint.readers.document import Document
from tvlint.rulebook.values import Values
from tvlint.run.check import as_project_says, as_stated
from tvlint.run.project import Project
from tvlint.run.world_size import stated
from tvlint.topology.of_configuration import topology_of
from tvlint.topology.of_plan import PlanTopology, topology_of_nnscaler, topology_of_plan
from tvlint.topology.quantity import Lookup
from tvlint.topology.topology import Topology

NNSCALER = "nnscaler"


def topologies(
    document: Document, world_size: int | None = None, project: Project | None = None
) -> tuple[Topology | PlanTopology, ...]:
    """The topology of every configuration of `document`, or of its plan.

    Where a configuration does not say how many ranks run, a comment of the file does, then `world_size`, then the project.
    """
    if document.plan is not None:
        return (topology_of_plan(document.plan),)
    if not document.configurations:
        return ()
    known = project or Project(Path())
    known = replace(known, world_size=world_size) if world_size is not None else known
    comments = stated(document.path)
    return tuple(configuration_topology(as_project_says(as_stated(found, comments), known)) for found in document.configurations)


def configuration_topology(configuration: Configuration) -> Topology | PlanTopology:
    """What follows from one configuration."""
    if configuration.framework == NNSCALER:
        whole = replace(configuration, complete=True)
        return topology_of_nnscaler(whole, _lookup(whole))
    return topology_of(configuration, _lookup)


def _lookup(configuration: Configuration) -> Lookup:
    return Values(configuration).value
