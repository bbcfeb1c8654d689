"""Plan and schedule rules: `check` in `<topic>/<rule_name>.py` checks what the page of that topic and name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from tvlint.findings import Finding
from tvlint.rule import Rule


def load_check(rule: Rule) -> Callable[[Any], Iterator[Finding]]:
    """Return the function that checks a plan rule or a schedule rule; it takes the facts of a plan or of a schedule.

    A page with a message of its own says how the defect of its name is told that the placement analysis finds.
    """
    if rule.message:
        from tvlint.analyses.placement.findings import report_as_page_says

        return partial(report_as_page_says, rule=rule)
    module = ".".join((__name__, *rule.topic.split("/"), rule.name)).replace("-", "_")
    return partial(import_module(module).check, rule=rule)
