"""Find trainer arguments that nnScaler refuses or never reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tvlint.findings import Edit, Finding, Fix, Related, Severity
from tvlint.frameworks.nnscaler import COMPUTE, EARLY_COMPUTE, FURTHER_POLICY, POLICY, SHIPPED, TRAINER_FIELDS
from tvlint.ir.location import Location
from tvlint.near_names import nearest
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, YamlSequence, merged

LONGEST = 80
MISSPELT = 0.88
"""From this share of common letters on, a key is another one with a letter or two changed."""
OF_MODULES = frozenset(
    {
        *("constant_folding", "trace_strategy", "use_zero", "zero_ngroups", "zero_use_reduce_scatter", "use_async_reducer"),
        *("reducer_bucket_cap_mb", "pas_config", "user_config", "zero_param_level_sharding", "use_fbw", "use_async_comm"),
        *("reducer_replicated_params", "reducer_none_grad"),
    }
)
"""What a parallel module sets of `ComputeConfig` for itself (nnscaler/parallel.py:1317)."""

Entries = Sequence[tuple[YamlScalar, YamlNode]]


def surplus_settings(compute: Entries, policy: str, visits: Visits) -> Iterator[Finding]:
    """Yield findings about keys that `compute_config` does not have, and about keys that its policy does not read."""
    yield from _unknown(compute, {**COMPUTE, **EARLY_COMPUTE}, "settings of a policy belong in `pas_config`")
    for key, value in compute:
        if key.text != "pas_config" or not isinstance(value, YamlMapping) or policy not in SHIPPED:
            continue
        for inner, _ in merged(value, visits):
            if not inner.text.startswith("_") and inner.text not in POLICY and inner.text not in FURTHER_POLICY:
                message = f"the policy {policy} does not read `pas_config.{inner.text[:LONGEST]}`"
                near = nearest(inner.text, (*POLICY, *FURTHER_POLICY))
                help = f"did you mean `{near}`?" if near else "remove it"
                yield Finding(
                    "unread-policy-setting", Severity.WARNING, message, inner.location, help, fixes=_respelled(inner, near)
                )


def misspelled_arguments(entries: Entries) -> Iterator[Finding]:
    """Yield findings about arguments of the trainer that are misspelt; a project may have more of its own."""
    free = TRAINER_FIELDS - {key.text for key, _ in entries}
    for key, _ in entries:
        near = nearest(key.text, free, MISSPELT) if key.text not in TRAINER_FIELDS else ""
        if near:
            message = f"the trainer has no argument `{key.text[:LONGEST]}`"
            help = f"did you mean `{near}`?"
            fixes = _respelled(key, near)
            yield Finding("unknown-trainer-argument", Severity.ERROR, message, key.location, help, fixes=fixes)


def module_mistakes(entries: Entries, visits: Visits) -> Iterator[Finding]:
    """Yield findings about the `parallel_modules` of a trainer's `model`."""
    model = next((value for key, value in entries if key.text == "model"), None)
    inner = merged(model, visits) if isinstance(model, YamlMapping) else []
    modules = next((value for key, value in inner if key.text == "parallel_modules"), None)
    kind = next((value for key, value in inner if key.text == "type"), None)
    seen = {kind.text: kind.location} if isinstance(kind, YamlScalar) and kind.text else {}
    for module in modules.items if isinstance(modules, YamlSequence) else ():
        if isinstance(module, YamlMapping):
            yield from _module(merged(module, visits), seen, visits)


def _module(entries: Entries, seen: dict[str, Location], visits: Visits) -> Iterator[Finding]:
    given = {key.text: (key, value) for key, value in entries}
    kind = given["type"][1] if "type" in given else None
    if isinstance(kind, YamlScalar) and kind.text in seen:
        message = f"`{kind.text[:LONGEST]}` is parallelised twice"
        elsewhere = (Related("here as well", seen[kind.text]),)
        yield Finding("parallel-module-repeated", Severity.ERROR, message, kind.location, "name each type once", elsewhere)
    elif isinstance(kind, YamlScalar) and kind.text:
        seen[kind.text] = kind.location
    if all(_is_given(given, name) for name in ("tracing_from_weights", "tracing_from_weights_prefix")):
        message = "`tracing_from_weights` and `tracing_from_weights_prefix` exclude each other"
        place = given["tracing_from_weights_prefix"][0].location
        elsewhere = (Related("`tracing_from_weights`", given["tracing_from_weights"][0].location),)
        yield Finding("parallel-module-weights-given-twice", Severity.ERROR, message, place, "keep one of the two", elsewhere)
    text = given["compute_config"][1] if "compute_config" in given else None
    if isinstance(text, YamlMapping):
        yield from _unknown(merged(text, visits), OF_MODULES, "a module sets its own degrees nowhere")


def _is_given(given: dict[str, tuple[YamlScalar, YamlNode]], name: str) -> bool:
    value = given[name][1] if name in given else None
    return isinstance(value, YamlScalar) and value.text not in ("", "null", "~")


def _unknown(compute: Entries, known: Collection[str], otherwise: str) -> Iterator[Finding]:
    for key, _ in compute:
        if key.text not in known and not key.text.startswith("_"):
            message = f"`compute_config` has no setting `{key.text[:LONGEST]}`"
            near = nearest(key.text, known)
            help = f"did you mean `{near}`?" if near else otherwise
            fixes = _respelled(key, near)
            yield Finding("unknown-compute-setting", Severity.WARNING, message, key.location, help, fixes=fixes)


def _respelled(key: YamlScalar, near: str) -> tuple[Fix, ...]:
    return (Fix(f"write `{near}`", (Edit(key.location, near),)),) if near else ()
