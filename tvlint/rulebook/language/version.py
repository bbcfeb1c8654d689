"""Version ranges of frameworks: `*`, `>=0.12`, `<0.15`, `>=0.12,<0.15`, `!<0.9`."""

from __future__ import annotations

from functools import lru_cache

from tvlint.frameworks.megatron import since
from tvlint.frameworks.releases import RELEASES, is_fresh
from tvlint.ir.configuration import AFTER_RELEASE, IN_DEVELOPMENT, Configuration, Unknown
from tvlint.ir.patterns import Pattern

_BOUND = Pattern(r"\s*(>=|!<|<)\s*(\d+(?:\.\d+)*)\s*")
_VERSION = Pattern(r"\D{0,20}(\d{1,9}(?:\.\d{1,9})*)")

ELSEWHERE_BEFORE = frozenset(
    {"fim_rate", "fim_split_sample", "fim_spm_rate", "muon_momentum", "muon_nesterov", "trust_remote_code"}
)
"""Settings that forks of old versions (Megatron-DeepSpeed, bigcode's Megatron-LM) had before Megatron had them."""


def bounds(version_range: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the bounds of a range; empty for `*`. Raises `ValueError` where it is not a range.

    `!<` is a release that is so old that a version which is not known is taken for a later one without a word.
    """
    if version_range == "*":
        return ()
    found = []
    for part in version_range.split(","):
        bound = _BOUND.fullmatch(part)
        if bound is None:
            raise ValueError(f"`{version_range}` is not a version range")
        found.append((bound[1], _numbers(bound[2])))
    return tuple(found)


@lru_cache(maxsize=1024)
def holds_for(version_range: str, version: str) -> bool | Unknown:
    """Return whether `version` lies in the range; a version that is not known counts as the newest, so an upper bound is
    unknown, as the next release is to a version that holds some of what came after its own.
    """
    needed = bounds(version_range)
    if not needed:
        return True
    read = _VERSION.match(version)
    if read is None:
        bounded = any(operator == "<" for operator, _ in needed)
        return Unknown("the version of the framework is not known") if bounded else True
    numbers = _numbers(read[1])
    if not all(numbers < bound if operator == "<" else numbers >= bound for operator, bound in needed):
        return False
    following = min(filter(numbers.__lt__, _RELEASES), default=None)
    if version.endswith(AFTER_RELEASE) and ("<", following) in needed:
        return Unknown("the version may hold a part of the next release")
    return True


def is_assumed(version_range: str, version: str) -> bool:
    """Return whether judging by the range took something for granted: the newest version, or all of one that is being
    developed.
    """
    needed = bounds(version_range)
    read = _VERSION.match(version)
    if read is None:
        return any(operator != "!<" for operator, _ in needed)
    return version.endswith(IN_DEVELOPMENT) and any(
        bound == _numbers(read[1]) for operator, bound in needed if operator == ">="
    )


def is_of_fresh_release(version_range: str, version: str) -> bool:
    """Return whether the range begins with a release that hardly anyone runs yet, and nothing tells which one runs, or a tree
    that is developed towards it.
    """
    read = _VERSION.match(version)
    if read is not None and not version.endswith(IN_DEVELOPMENT):
        return False
    begins = [bound for operator, bound in bounds(version_range) if operator == ">="]
    return any(is_fresh(".".join(map(str, bound))) and (read is None or bound == _numbers(read[1])) for bound in begins)


def shown_by(version_range: str, configuration: Configuration) -> str:
    """Return a setting, as written, that Megatron has only in versions of the range; empty where there is none."""
    needed = bounds(version_range)
    if any(operator == "<" for operator, _ in needed) or configuration.version.endswith(IN_DEVELOPMENT):
        return ""
    for setting in configuration.settings.values():
        first = since(setting.name)
        if first and setting.name not in ELSEWHERE_BEFORE and all(_numbers(first) >= bound for _, bound in needed):
            return setting.written
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


_RELEASES = tuple(_numbers(release) for _, release in RELEASES)
