"""Rules as SARIF `reportingDescriptor`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvlint.findings import Severity
from tvlint.home import page_of
from tvlint.rule import Rule, RuleKind, labelled

_WITHOUT_PAGE = {
    "refuted-proof": (
        Severity.ERROR,
        "the parallel plan does not train the same model as its reference plan",
        "The equivalence proof found a defect: a value or gradient of the parallel plan differs from the reference plan. "
        "The result names the operator, the ranks, what is expected there and what the plan computes instead.",
    ),
    "unreadable-input": (
        Severity.ERROR,
        "a file could not be read",
        "What cannot be read is not judged: nothing that other runs found in this file is known to be fixed. The result says "
        "what is wrong with the file.",
    ),
    "unknown-proof": (
        Severity.WARNING,
        "it is not decided whether the parallel plan trains the same model as its reference plan",
        "The equivalence proof met something that it cannot decide. Unknown is not a pass: the result names what is missing.",
    ),
}
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "recommendation"}
_SHORT = 1024
"""GitHub's limit on descriptions."""


def rule_object(name: str, rule: Rule | None, version: str, explanation: Callable[[Rule], str]) -> dict[str, Any]:
    """Return the descriptor of a rule, of one of the two outcomes of a proof, or of a name that has no page."""
    if rule is not None:
        text = "\n\n".join(part for part in (_sentence(rule.summary), labelled(explanation(rule).strip())) if part)
        described = _descriptor(name, rule.severity, rule.summary, text, rule.kind.value)
        if rule.kind is RuleKind.PROOF:
            described["deprecatedIds"] = ["refuted-proof", "unknown-proof"]
        return {**described, "helpUri": page_of(rule, version)} if rule.path else described
    severity, summary, text = _WITHOUT_PAGE.get(name, (Severity.ERROR, name.replace("-", " "), name.replace("-", " ")))
    return _descriptor(name, severity, summary, text, "proof" if name.endswith("-proof") else "input")


def _descriptor(name: str, severity: Severity, summary: str, text: str, kind: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": _sentence(summary)[:_SHORT]},
        "fullDescription": {"text": _sentence(summary)[:_SHORT]},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": severity.value},
        "properties": {
            "tags": ["distributed-training", kind],
            "precision": "very-high",
            "problem.severity": _LEVEL[severity],
        },
    }


def _sentence(summary: str) -> str:
    text = (summary.strip() or "no description").rstrip(".")
    return f"{text[0].upper()}{text[1:]}."
