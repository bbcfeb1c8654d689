"""Compare two versions of a configuration: as written, and as derived."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvlint.findings import Comparison, Difference
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.rulebook.change import written
from tvlint.rulebook.language.functions import show
from tvlint.run.judge.topology import configuration_topology
from tvlint.topology.topology import Topology, facts

_BYTES = frozenset({"most_weights_per_rank", "most_gradients_per_rank", "most_optimizer_per_rank"}) | {
    "most_activations_per_rank",
    "most_total_per_rank",
}
_LAYERS = Pattern(r"([a-zA-Z])\1{3,}")
"""So many layers in a row have their number behind them, as in layouts of Megatron (`t*24`)."""
_WRITTEN = frozenset({"tp", "pp", "cp", "ep", "dp", "expert_pp"})
"""Sizes that a setting gives, or that have another name besides."""
_NAMES = {
    "most_parameters_per_rank": "parameters on the fullest rank",
    "most_weights_per_rank": "weights on the fullest rank",
    "most_gradients_per_rank": "gradients on the fullest rank",
    "most_optimizer_per_rank": "optimizer state on the fullest rank",
    "most_activations_per_rank": "activations on the fullest rank",
    "most_total_per_rank": "memory on the fullest rank",
    "bubble": "pipeline bubble",
}
_OF_RANKS = frozenset({"data_parallel_size", "global_batch_size", "micro_batches", "bubble", "dp", "expert_dp"}) | _BYTES
"""What depends on how many ranks run."""


def compared(before: Configuration, after: Configuration, path: str) -> Comparison:
    """Return both configurations by what they write and by what follows; of two values that are not known, nothing is said.

    Where neither says how many ranks run, both are taken to run on the fewest that suit both.
    """
    changed = written(before, after)
    names = {name for name, _, _ in changed}
    lines = [Difference(_written(old, new), _given(old), _given(new)) for _, old, new in changed if not _alike(old, new)]
    supposed = _ranks_for_both(before, after)
    old_facts, new_facts = (_facts(_on(configuration, supposed)) for configuration in (before, after))
    follows = tuple(
        Difference(_named(name, supposed), _shown(name, old_facts.get(name)), _shown(name, value))
        for name, value in new_facts.items()
        if value != old_facts.get(name)
        and name not in names | _WRITTEN
        and not isinstance(value, Unknown)
        and not isinstance(old_facts.get(name), Unknown)
    )
    lines.extend(_differing(after.beside, before.beside))
    lines.extend(_differing(after.environment, before.environment))
    return Comparison(path, after.section, tuple(lines), tuple(follow for follow in follows if follow.before != follow.after))


def _ranks_for_both(before: Configuration, after: Configuration) -> int | None:
    """Return the fewest ranks that both suit, where neither says how many run; None where one does, or they are not known."""
    fewest = 1
    for configuration in (before, after):
        topology = configuration_topology(configuration)
        if not isinstance(topology, Topology) or isinstance(topology.world, Unknown) or not topology.world.minimal:
            return None
        fewest = math.lcm(fewest, topology.world.size)
    return fewest


def _on(configuration: Configuration, ranks: int | None) -> Configuration:
    if ranks is None:
        return configuration
    at = configuration.location or Location(configuration.path)
    size = Setting("world_size", ranks, "world size", at, at)
    return replace(configuration, settings={**configuration.settings, "world_size": size})


def _named(name: str, ranks: int | None) -> str:
    said = _NAMES.get(name, name.replace("_", " "))
    return f"{said} on {ranks} rank{'s' * (ranks != 1)}" if ranks is not None and name in _OF_RANKS else said


def _alike(old: Setting | None, new: Setting | None) -> bool:
    """Return whether neither value is known, for the same reason, wherever that stands."""
    values = [setting.value if setting is not None else None for setting in (old, new)]
    reasons = {value.cause for value in values if isinstance(value, Unknown)}
    return all(isinstance(value, Unknown) for value in values) and len(reasons) == 1


def _differing(after: Mapping[str, Setting], before: Mapping[str, Setting]) -> Iterator[Difference]:
    """Yield what has another value, where both values are known."""
    for name in dict.fromkeys((*after, *before)):
        old, new = before.get(name), after.get(name)
        if any(setting is not None and isinstance(setting.value, Unknown) for setting in (old, new)):
            continue
        if _given(old) != _given(new):
            yield Difference(name, _given(old), _given(new))


def _facts(configuration: Configuration) -> dict[str, object]:
    topology = configuration_topology(configuration)
    return dict(facts(topology)) if isinstance(topology, Topology) else {}


def _written(old: Setting | None, new: Setting | None) -> str:
    setting = new or old
    return setting.written if setting is not None else ""


def _given(setting: Setting | None) -> str:
    if setting is None:
        return ""
    if setting.value is False and setting.written.startswith("--no-"):
        return "given"
    return setting.value.reason if isinstance(setting.value, Unknown) else show(setting.value)


def _shown(name: str, value: object) -> str:
    if isinstance(value, Unknown) or value is None:
        return "?"
    if name in _BYTES and isinstance(value, int):
        return f"{value / (1 << 30):.1f} GiB"
    if name == "bubble" and isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, tuple):
        said = " ".join(map(str, value))
        return _LAYERS.sub(lambda found: f"{found[1]}*{len(found[0])}", said) if name == "layers_by_stage" else said
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
