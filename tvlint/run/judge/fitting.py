"""Whether a configuration fits the memory of an accelerator, and the changes of how it is run that make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.judge import judge_all
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.topology import configuration_topology
from tvlint.topology.fit import Change, Fit, fit
from tvlint.topology.known import Accelerator
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.quantity import Lookup
from tvlint.topology.topology import Topology

MOST_CHANGES = 3
RECOMPUTED: Mapping[str, str | int] = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}


def fitted(configuration: Configuration, accelerator: Accelerator) -> Topology | PlanTopology:
    """Return the topology of a configuration with its fit; where it does not fit, with the changes after which it does."""
    found = configuration_topology(configuration)
    if isinstance(found, PlanTopology):
        return found
    judged = fit(found.memory, accelerator, found.between)
    if isinstance(judged, Fit) and judged.fits is False:
        judged = replace(judged, changes=_changes(configuration, accelerator))
    return replace(found, fit=judged)


def _changes(configuration: Configuration, accelerator: Accelerator) -> tuple[Change, ...]:
    """Return the first changes that make it fit and break no rule: one at a time, or two where no single one does."""
    value = Values(replace(configuration, complete=True)).value
    single = tuple(_single(value))
    rules = [rule for rule in load_rules().values() if rule.kind is RuleKind.CONFIG]
    before = _broken(configuration, rules)
    for count in (1, 2):
        found = list[Change]()
        for chosen in combinations(single, count):
            settings = {name: new for each in chosen for name, new in each.items() if value(name) != new}
            changed = _with(configuration, settings)
            after = configuration_topology(changed)
            judged = None if isinstance(after, PlanTopology) else fit(after.memory, accelerator, after.between)
            if isinstance(judged, Fit) and judged.fits and _broken(changed, rules) <= before:
                written = tuple((changed.settings[name].written, new) for name, new in settings.items())
                found.append(Change(written, judged.most or judged.needed))
        if found:
            return tuple(found[:MOST_CHANGES])
    return ()


def _single(value: Lookup) -> Iterator[Mapping[str, str | int | bool]]:
    """Yield changes that keep what is trained: those first that cost nothing but communication."""
    tensor, pipeline, micro = (
        number if isinstance(number := value(name), int) else 0
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size")
    )
    if value("use_distributed_optimizer") is False:
        yield {"use_distributed_optimizer": True}
    if tensor > 1 and value("sequence_parallel") is False:
        yield {"sequence_parallel": True}
    if micro > 1 and micro % 2 == 0:
        yield {"micro_batch_size": micro // 2}
    if value("recompute_granularity") != "full":
        yield RECOMPUTED
    if tensor:
        yield {"tensor_model_parallel_size": tensor * 2, "sequence_parallel": True}
    if pipeline:
        yield {"pipeline_model_parallel_size": pipeline * 2}


def _with(configuration: Configuration, values: Mapping[str, str | int | bool]) -> Configuration:
    """Return the configuration with other values, written as it writes its settings."""
    settings = dict(configuration.settings)
    at = configuration.location or Location(configuration.path)
    is_command = any(setting.written.startswith("--") for setting in settings.values())
    for name, value in values.items():
        written = f"--{name.replace('_', '-')}" if is_command else name
        known = settings.get(name)
        settings[name] = Setting(name, value, written, at, at) if known is None else replace(known, value=value)
    return replace(configuration, settings=settings)


def _broken(configuration: Configuration, rules: list[Rule]) -> frozenset[str]:
    return frozenset(rule.name for rule, outcome in judge_all(rules, Values(configuration)) if outcome is False)
