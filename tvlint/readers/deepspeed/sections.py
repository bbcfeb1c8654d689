"""Settings and duplicate keys of a mapping that DeepSpeed reads, whether it stands in JSON or in YAML."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise

from tvlint.findings import Edit, Finding, Fix, Related, Severity
from tvlint.frameworks.deepspeed import BATCH, NESTED, ZERO
from tvlint.ir.configuration import Setting, SettingValue, Unknown
from tvlint.near_names import are_swapped, by_slips, is_a_letter_off, near
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, plain_values

PLACEHOLDER = "auto"


def settings_of(mapping: YamlMapping, names: Collection[str]) -> dict[str, Setting]:
    """Return the settings among `names` that the mapping gives, those of its sections too; the last of a name counts."""
    found: dict[str, Setting] = {}
    elastic = False
    for key, node in mapping.entries:
        if not isinstance(key, YamlScalar):
            continue
        name = key.text.replace("-", "_")
        elastic = elastic or (name == "elasticity" and isinstance(node, YamlMapping))
        if name in names:
            found[name] = Setting(name, plain_values(node, _value), key.text, node.location, key.location)
        elif name in NESTED and isinstance(node, YamlMapping):
            for inner, each in node.entries:
                if isinstance(inner, YamlScalar) and inner.text in NESTED[name] and f"{name}_{inner.text}" in names:
                    written = f"{key.text}.{inner.text}"
                    value = plain_values(each, _value)
                    setting = Setting(f"{name}_{inner.text}", value, written, each.location, inner.location)
                    found[setting.name] = setting
    for name in BATCH & set(found) if elastic else ():
        other = found[name]
        unknown = Unknown("elastic training chooses it")
        found[name] = Setting(name, unknown, other.written, other.location, other.name_location)
    return found


def _value(node: YamlScalar) -> SettingValue | Unknown:
    if node.text == PLACEHOLDER:
        return Unknown("filled in later (`auto`)", given=True)
    if "$" in node.text or "{{" in node.text:
        return Unknown("depends on a variable that is substituted later")
    return yaml_typed(None, node.text, node.plain)


def _without(key: YamlScalar, behind: YamlNode) -> Iterator[Fix]:
    """Yield the fix that takes out an entry of an object, up to the key behind it."""
    start, end = key.location, behind.location
    if start.column is not None and end.column is not None:
        span = replace(start, column=start.column - 1, end_line=end.line, end_column=end.column - 1)
        yield Fix("remove the first one", (Edit(span, ""),))


def misspelled_keys(root: YamlMapping, topmost: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each key that is a slip away from one of DeepSpeed's: it refuses one of `zero_optimization`, and
    passes over any other.
    """
    yield from _misspelled(root, topmost, Severity.WARNING)
    for key, node in root.entries:
        if isinstance(key, YamlScalar) and isinstance(node, YamlMapping) and key.text in NESTED:
            is_zero = key.text == "zero_optimization"
            severity = Severity.ERROR if is_zero else Severity.WARNING
            yield from _misspelled(node, ZERO if is_zero else NESTED[key.text], severity)


def _misspelled(mapping: YamlMapping, names: Collection[str], severity: Severity) -> Iterator[Finding]:
    given = {key.text: key for key, _ in mapping.entries if isinstance(key, YamlScalar)}
    known = by_slips(names)
    for text, key in given.items():
        alike = near(text, known) if text not in names else ()
        meant = [name for name in alike if name not in given and (is_a_letter_off(text, name) or are_swapped(text, name))]
        if len(meant) == 1:
            fix = Fix(f"write `{meant[0]}`", (Edit(key.location, meant[0]),), is_safe=True)
            message, help = f"DeepSpeed has no setting `{text[:120]}`", f"did you mean `{meant[0]}`?"
            yield Finding("misspelled-option", severity, message, key.location, help, fixes=(fix,))


def duplicates(root: YamlNode) -> Iterator[Finding]:
    """Yield the keys that stand twice in one object; DeepSpeed refuses them."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, YamlSequence):
            pending += node.items
        if not isinstance(node, YamlMapping):
            continue
        first: dict[str, YamlScalar] = {}
        behind = {id(key): later for (key, _), (later, _) in pairwise(node.entries)}
        for key, value in node.entries:
            pending.append(value)
            if not isinstance(key, YamlScalar):
                continue
            if key.text not in first:
                first[key.text] = key
                continue
            yield Finding(
                "json-duplicate-key",
                Severity.ERROR,
                f"`{key.text[:120]}` is set twice in one object",
                key.location,
                "remove one of the two",
                (Related("first set here", first[key.text].location),),
                fixes=tuple(_without(first[key.text], behind[id(first[key.text])])),
            )
