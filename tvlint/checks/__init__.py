"""Plan and schedule rules, one function a rule: `<topic>/<rule_name>.py` checks what the page of that topic and name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from tvlint.findings import Finding
from tvlint.rule import Rule


def load_check(rule: Rule) -> Callable[[Any], Iterator[Finding]]:
    """Return the function that checks a plan rule or a schedule rule; it takes the facts of a plan or of a schedule."""
    module = ".".join((__name__, *rule.topic.split("/"), rule.name)).replace("-", "_")
    check: Callable[[Any], Iterator[Finding]] = import_module(module).check
    return check
