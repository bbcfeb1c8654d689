"""Settings and duplicate keys of a mapping that DeepSpeed reads, whether it stands in JSON or in YAML."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from tvlint.findings import Edit, Finding, Fix, Related, Severity
from tvlint.frameworks.deepspeed import BATCH, DEVICES, NESTED, OFFLOAD, OFFLOADS, PARAMS, SECTIONS, TYPES, ZERO
from tvlint.ir.configuration import Setting, SettingValue, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.near_names import by_slips, has_same_words, is_a_slip, near
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, plain_values


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number, or the text of one."""
    return value.is_integer() if isinstance(value, float) else isinstance(value, int) or str(value).strip().isdecimal()


PLACEHOLDER = "auto"
LONGEST = 80
NUMBER = Pattern(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
FILLER = frozenset({"use", "num", "train", "model", "enable"})
"""Words that a key is remembered with."""
SHORTEST = 4
"""A shorter word is another one with another letter."""
WORDS = frozenset({"true", "false", "t", "f", "yes", "no", "y", "n", "on", "off", "1", "0"})
CONVERTED: Mapping[str, Callable[[object], bool]] = {
    "int": _is_whole,
    "float": lambda value: isinstance(value, int | float) or NUMBER.fullmatch(str(value)) is not None,
    "bool": lambda value: isinstance(value, bool) or value in (0, 1) or str(value).lower() in WORDS,
}
"""What becomes a value of the type: DeepSpeed reads numbers and truth values in quotes too."""
EXACT: Mapping[str, Callable[[object], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
}
"""What is a value of the type: GPT-NeoX converts none."""
MEANT = {
    "int": ("option-value-not-a-number", "an integer"),
    "float": ("option-value-not-a-number", "a number"),
    "bool": ("option-value-not-a-choice", "`true` or `false`"),
}


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


def _is_slip(value: str, choice: str) -> bool:
    joined = value.replace("-", "").replace("_", "") == choice.replace("-", "").replace("_", "")
    return joined or (len(choice) >= SHORTEST and is_a_slip(value.lower(), choice.lower()))


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


def slips(mapping: YamlMapping, names: Collection[str], severity: Severity, framework: str) -> Iterator[Finding]:
    """Yield a finding for each key that is a slip away from one of the names, which have underscores where it has hyphens."""
    given = {key.text.replace("-", "_"): key for key, _ in mapping.entries if isinstance(key, YamlScalar)}
    known = by_slips(names)
    for text, key in given.items():
        alike = near(text, known) if text not in names else ()
        meant = [name for name in alike if name not in given and (is_a_slip(text, name) or has_same_words(text, name))]
        if not meant and text not in names and (longer := _without_filler(text)) in names and longer not in given:
            message, help = f"{framework} has no setting `{key.text[:120]}`", f"did you mean `{longer}`?"
            yield Finding("misspelled-option", Severity.WARNING, message, key.location, help)
        if len(meant) == 1:
            written = meant[0].replace("_", "-") if "-" in key.text else meant[0]
            fix = Fix(f"write `{written}`", (Edit(key.location, written),), is_safe=True)
            message, help = f"{framework} has no setting `{key.text[:120]}`", f"did you mean `{written}`?"
            yield Finding("misspelled-option", severity, message, key.location, help, fixes=(fix,))


def _without_filler(name: str) -> str:
    first, _, rest = name.partition("_")
    return rest if first in FILLER else ""


def mistaken_sections(root: YamlMapping) -> Iterator[Finding]:
    """Yield a finding for each key and value of a section that DeepSpeed refuses; it passes over keys of some."""
    for name, node in _mappings(root):
        if name in SECTIONS:
            is_zero = SECTIONS[name] is ZERO
            yield from hyphened(node, SECTIONS[name], Severity.ERROR if is_zero else Severity.WARNING)
            yield from slips(node, SECTIONS[name], Severity.ERROR if is_zero else Severity.WARNING, "DeepSpeed")
            yield from mistaken_values(node, SECTIONS[name], {}, CONVERTED)
            for inner, section in _mappings(node):
                if is_zero and inner in OFFLOADS:
                    yield from slips(section, OFFLOAD, Severity.ERROR, "DeepSpeed")
                    yield from mistaken_values(section, OFFLOAD, DEVICES, CONVERTED)


def hyphened(section: YamlMapping, names: Collection[str], severity: Severity) -> Iterator[Finding]:
    """Yield a finding for each key of a section that is one of the names but for its hyphens, which no section may have."""
    for key, _ in section.entries:
        meant = key.text.replace("-", "_") if isinstance(key, YamlScalar) else ""
        if isinstance(key, YamlScalar) and meant != key.text and meant in names:
            fix = Fix(f"write `{meant}`", (Edit(key.location, meant),), is_safe=True)
            message = f"DeepSpeed has no setting `{key.text[:120]}`"
            yield Finding("misspelled-option", severity, message, key.location, f"did you mean `{meant}`?", fixes=(fix,))


def _mappings(root: YamlMapping) -> Iterator[tuple[str, YamlMapping]]:
    for key, node in root.entries:
        if isinstance(key, YamlScalar) and isinstance(node, YamlMapping):
            yield key.text, node


def mistaken_values(
    mapping: YamlMapping, kinds: Mapping[str, str], choices: Mapping[str, str], takes: Mapping[str, Callable[[object], bool]]
) -> Iterator[Finding]:
    """Yield a finding for each value of another type, as `takes` knows it by its name in `kinds`, or none of the choices."""
    for key, node in mapping.entries:
        name = key.text.replace("-", "_") if isinstance(key, YamlScalar) else ""
        value = _value(node) if isinstance(node, YamlScalar) else None
        if isinstance(value, Unknown) or value is None or not isinstance(key, YamlScalar):
            continue
        is_taken = takes.get(kinds.get(name, ""))
        taken = choices.get(name, "").split()
        if taken and str(value).lower() not in map(str.lower, taken):
            message = f"`{key.text[:LONGEST]}` does not take `{str(value)[:LONGEST]}`"
            meant = next((each for each in taken if _is_slip(str(value), each)), "")
            help = f"did you mean `{meant}`?" if meant else f"one of {', '.join(f'`{each}`' for each in taken)}"
            fixes = (Fix(f"write `{meant}`", (Edit(node.location, meant),)),) if meant else ()
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, node.location, help, fixes=fixes)
        elif is_taken is not None and not is_taken(value):
            rule, word = MEANT[kinds[name]]
            message = f"`{key.text[:LONGEST]}` takes {word}, not `{str(value)[:LONGEST]}`"
            yield Finding(rule, Severity.ERROR, message, node.location, f"write {word}")


def _is_below_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1


def mistaken_types(root: YamlMapping) -> Iterator[Finding]:
    """Yield a finding for each type of an optimizer or a schedule that is a slip away from one that is known."""
    for name, node in _mappings(root):
        if name in TYPES:
            yield from (each for each in mistaken_values(node, {}, {"type": TYPES[name]}, CONVERTED) if each.fixes)
            for inner, section in _mappings(node):
                yield from slips(section, PARAMS, Severity.WARNING, "DeepSpeed") if inner == "params" else ()


def too_small(root: YamlMapping) -> Iterator[Finding]:
    """Yield a finding for each batch of less than one sample, which DeepSpeed refuses."""
    for key, node in root.entries:
        value = _value(node) if isinstance(node, YamlScalar) and isinstance(key, YamlScalar) else None
        if isinstance(key, YamlScalar) and key.text.replace("-", "_") in BATCH and _is_below_one(value):
            message = f"`{key.text}` is {value}"
            yield Finding("option-value-out-of-range", Severity.ERROR, message, node.location, "use 1 or more")


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
