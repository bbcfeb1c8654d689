"""Topologies of the configurations of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tvlint.frameworks.core_defaults import DEFAULTS, NOTE, OF_FRAMEWORK
from tvlint.frameworks.kin import DISTINCT
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.readers.document import Document
from tvlint.rulebook.language.values import Values
from tvlint.run.judge.known_settings import as_project_says, as_stated
from tvlint.run.project.nested import judging
from tvlint.run.project.project_file import Project
from tvlint.run.project.world_size import stated
from tvlint.topology.of_configuration import topology_of
from tvlint.topology.of_plan import PlanTopology, topology_of_nnscaler, topology_of_plan
from tvlint.topology.published_models import with_sizes
from tvlint.topology.quantity import Lookup
from tvlint.topology.topology import Topology

MEGATRON = "megatron-lm"
PRIMUS = "primus"
PARSER_NOTE = "what neither the file nor its presets set has the defaults of Megatron-LM's command line"
NNSCALER = "nnscaler"
TopologyOf = Callable[[Configuration], Topology | PlanTopology]


def topologies(
    document: Document, world_size: int | None = None, project: Project | None = None, of: TopologyOf | None = None
) -> tuple[Topology | PlanTopology, ...]:
    """Return the topology of every configuration of `document`, or of its plan.

    Where a configuration does not say how many ranks run, a comment of the file does, then `world_size`, then the project.
    `of` gives the topology of one configuration.
    """
    if document.plan is not None:
        return (topology_of_plan(document.plan),)
    if not document.configurations:
        return ()
    known = judging(document.path, project or Project(Path()))
    known = replace(known, world_size=world_size) if world_size is not None else known
    comments = stated(document.path)
    completed = (as_project_says(as_stated(found, comments), known) for found in document.configurations)
    return tuple(map(of or configuration_topology, completed))


def configuration_topology(configuration: Configuration) -> Topology | PlanTopology:
    """Return what follows from one configuration."""
    if configuration.framework == NNSCALER:
        whole = replace(configuration, complete=True)
        return topology_of_nnscaler(whole, _lookup(whole))
    if configuration.framework == PRIMUS and configuration.complete:
        passed_on = topology_of(replace(configuration, framework=MEGATRON), _lookup)
        return replace(passed_on, framework=PRIMUS, notes=(*passed_on.notes, PARSER_NOTE))
    sized, notes = with_sizes(configuration)
    filled = _with_core_defaults(sized)
    found = topology_of(filled, _lookup)
    return replace(found, notes=(*found.notes, *notes, *(() if filled is sized else (NOTE,))))


def _with_core_defaults(configuration: Configuration) -> Configuration:
    """Return the configuration of a framework on Megatron core, with core's defaults where those of the framework are not
    known.
    """
    if configuration.framework in {MEGATRON, *DISTINCT} or configuration.format == "hydra":
        return configuration
    value = _lookup(replace(configuration, complete=True))
    at = configuration.location or Location(configuration.path)
    missing = {
        name: Setting(name, default, name, at, at)
        for name, default in {**DEFAULTS, **OF_FRAMEWORK.get(configuration.framework, {})}.items()
        if name not in configuration.settings and isinstance(value(name), Unknown)
    }
    return replace(configuration, settings={**configuration.settings, **missing}) if missing else configuration


def _lookup(configuration: Configuration) -> Lookup:
    return Values(configuration).value
