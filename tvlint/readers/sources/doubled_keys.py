"""Keys that stand twice in one mapping of YAML."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.findings import Edit, Finding, Fix, Related, Severity
from tvlint.ir.location import Location
from tvlint.readers.sources.yaml_nodes import Visits, YamlNode, YamlScalar, mappings


def doubled_keys(root: YamlNode, visits: Visits) -> Iterator[Finding]:
    """Yield a finding for each key that stands in a mapping already."""
    for _, mapping in mappings(root, visits):
        first: dict[str, tuple[YamlScalar, YamlNode]] = {}
        for key, value in mapping.entries:
            if not isinstance(key, YamlScalar) or key.text == "<<":
                continue
            if key.text not in first:
                first[key.text] = (key, value)
                continue
            counts = "both times with the same value" if _is_same(value, first[key.text][1]) else "and only the last one counts"
            yield Finding(
                "yaml-duplicate-key",
                Severity.NOTE if _is_same(value, first[key.text][1]) else Severity.WARNING,
                f"`{key.text[:120]}` is set twice in one mapping, {counts}",
                key.location,
                "remove one of the two",
                (Related("first set here", first[key.text][0].location),),
                fixes=_without(*first[key.text]),
            )


def _is_same(one: YamlNode, other: YamlNode) -> bool:
    return isinstance(one, YamlScalar) and isinstance(other, YamlScalar) and one.text == other.text and one.plain == other.plain


def _without(key: YamlScalar, value: YamlNode) -> tuple[Fix, ...]:
    """Return the fix that takes out an entry which counts for nothing, where it is a line of its own."""
    line = key.location.line
    if line is None or not isinstance(value, YamlScalar) or value.location.line != line:
        return ()
    whole = Location(key.location.path, line, 1, line + 1, 1)
    return (Fix("remove the first one, which does not count", (Edit(whole, ""),), is_safe=True),)
