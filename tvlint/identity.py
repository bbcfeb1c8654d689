"""Identity of findings, independent of line, file and value.

A finding is its rule and what it is about: the section of the file that a configuration stands in, or the operators, tensors
and settings that its message names. Where several are equal, a count tells them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tvlint.findings import Finding, Reason
from tvlint.ir.patterns import Pattern

_NAME = Pattern(r"`([^`]*)`")
_GENERATED = Pattern(r"(?<![.\d])_?\d+(?:_\d+)*$")
"""The number at the end of a name that a tracer made: `t550`, `linear_25_1`; the next trace gives another one."""
_LINE = Pattern(r"line \d+")
"""A section that has no name but the line at which it starts."""
CONDITION = ", unless "
"""What stands in a message before what may make it untrue: a finding is the same with it and without."""

FORMER_NAMES: Mapping[str, str] = {
    "alias-read-in-flight": "buffer-in-flight",
    "deadlock": "send-recv-deadlock",
    "gathers-partial-sums": "gather-of-partial",
    "gathers-wrong-dimension": "wrong-gather-dim",
    "incomplete-gradient": "missing-gradient-reduction",
    "members-disagree": "mismatched-collective",
    "mismatched-slices": "mismatched-shards",
    "missing-value": "use-before-definition",
    "needs-buffered-sends": "send-needs-buffering",
    "never-waited": "handle-never-waited",
    "partial-used-as-complete": "missing-allreduce",
    "pieces-out-of-order": "pieces-not-in-rank-order",
    "read-before-made": "use-before-definition",
    "read-in-flight": "missing-wait",
    "reduce-operator": "wrong-reduce-op",
    "reduced-too-early": "reducer-before-last-backward",
    "reissued": "handle-reissued",
    "scaled-gradient": "wrong-gradient-scale",
    "unmatched-collective": "missing-collective-member",
    "unmatched-message": "unmatched-send",
    "updated-too-early": "update-before-final-gradient",
    "waited-twice": "double-wait",
    "write-over-read": "buffer-in-flight",
    "write-over-write": "buffer-in-flight",
    "wrong-group": "wrong-collective-group",
    "wrong-shape": "wrong-shape-claim",
}
"""The rules that say what reasons of verdicts said under names of their own, by those names."""

_FIRST_NAMES = {rule: name for name, rule in reversed(tuple(FORMER_NAMES.items()))}
"""The name that stands in the print of a reason, so that baselines and alerts from before a rule took its place hold."""


def fingerprint(finding: Finding) -> str:
    """Return the print of the finding; equal findings of a file have the same."""
    return _printed((finding.rule, *names(finding)))


def names(finding: Finding) -> tuple[str, ...]:
    """Return the names of what the finding is about, without what another trace, or a line more, changes of them."""
    section = () if finding.section is None or _LINE.fullmatch(finding.section) else (finding.section,)
    return (*section, *_without_numbers(_subjects(finding.message) if finding.about is None else finding.about))


def reason_fingerprint(reason: Reason) -> str:
    """Return the print of a reason of a verdict."""
    return _printed((_FIRST_NAMES.get(reason.name, reason.name), reason.operator, *_without_numbers(_quoted(reason.message))))


def numbered(prints: Iterable[str]) -> Sequence[str]:
    """Return each print with `:1`, `:2` and so on, for the first, second and so on of its equals."""
    seen: Counter[str] = Counter()
    found = []
    for name in prints:
        seen[name] += 1
        found.append(f"{name}:{seen[name]}")
    return found


def _subjects(message: str) -> list[str]:
    return _quoted(message.partition(CONDITION)[0])


def _quoted(message: str) -> list[str]:
    return _NAME.findall(message)


def _without_numbers(names: Iterable[str]) -> Iterable[str]:
    return (_GENERATED.sub("", name) for name in names)


def _printed(parts: Iterable[str]) -> str:
    from hashlib import sha256

    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
