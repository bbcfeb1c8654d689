"""Every reason that refutes has its row in docs/soundness.md, and what makes no difference on numbers refutes nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.grounds import FOUND_BY_READERS, REFUTING, Ground
from tvlint.equivalence.side_conditions.hazards_and_deadlock import KINDS_THAT_REFUTE, TOLD
from tvlint.findings import Outcome
from tvlint.identity import FORMER_NAMES
from tvlint.rule import RuleKind
from tvlint.rulebook.pages import load_rules

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `([a-z-]+)` \| (fails|races|states|differs) \| \S.* \|$", re.MULTILINE)


def test_every_reason_that_refutes_is_argued_for() -> None:
    rows = ROW.findall((ROOT / "docs" / "soundness.md").read_text())
    assert rows == sorted((name, ground.name.lower()) for name, ground in REFUTING.items())


def test_lemmas_and_definitions_are_numbered_in_order_and_those_that_are_named_are_there() -> None:
    text = (ROOT / "docs" / "soundness.md").read_text()
    for letter in "DL":
        numbers = [int(number) for number in re.findall(rf"^(?:- )?\*\*{letter}(\d+) ", text, re.MULTILINE)]
        assert numbers == [*range(1, len(numbers) + 1)]
        assert {int(number) for number in re.findall(rf"\b{letter}(\d+)\b", text)} <= {*numbers}


def told(refuting: bool) -> set[str]:
    """Return the names of all that the prover tells; with `refuting` those of what may refute alone.

    What is matched on the relations of one plan is no reason of a pair.
    """
    found: set[str] = set(KINDS_THAT_REFUTE) if refuting else {name for name, _ in TOLD.values()}
    for room in ("analyses/relations", "equivalence", "run"):
        paths = (path for path in (ROOT / "tvlint" / room).rglob("*.py") if path.parent.name != "matchers")
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS:
                    found.update(_named(node, refuting))
    return found


def _named(call: ast.Call, refuting: bool) -> set[str]:
    refutes = next((own.value for own in call.keywords if own.arg == "refutes"), call.args[1] if len(call.args) > 1 else None)
    if refuting and isinstance(refutes, ast.Constant) and refutes.value is False:
        return set()
    name = call.args[0] if call.args else next(own.value for own in call.keywords if own.arg == "name")
    if isinstance(name, ast.Constant):
        return {str(name.value)}
    if isinstance(name, ast.JoinedStr):
        (start, _) = name.values
        assert isinstance(start, ast.Constant)
        return {f"{start.value}{what}" for what in ("message", "collective")}
    return set()


MAKERS = ("Defect", "Mismatch", "Reason", "_of_many", "_reason")
"""What makes a reason, with its name first."""
ENDS = {"missing-collective-member", "unmatched-receive", "unmatched-send"}
COMPUTED = {"send-recv-deadlock", "other-constant", "other-operator"} | ENDS | set(FOUND_BY_READERS)
"""Names that are put together, or that a number makes refute."""
OPEN = {"outside-micro-batches", "renamed-value", "send-needs-buffering"}
"""Names that are put together, of what never refutes."""


def test_what_is_argued_for_is_what_may_refute() -> None:
    assert told(refuting=True) - {"undecided-gradient", "other-gradient"} | COMPUTED == REFUTING.keys()


def test_every_reason_is_a_rule_with_a_page() -> None:
    reasons = told(refuting=False) | COMPUTED | OPEN
    pages = load_rules()
    assert reasons <= pages.keys()
    assert {name for name, rule in pages.items() if rule.kind is RuleKind.PROOF} <= reasons
    assert {pages[name].kind for name in reasons - set(FOUND_BY_READERS)} == {RuleKind.PROOF, RuleKind.PLAN}
    assert {pages[name].kind for name in FOUND_BY_READERS} == {RuleKind.INPUT}


def test_a_former_name_of_a_reason_is_no_name_any_more() -> None:
    pages = load_rules()
    assert not FORMER_NAMES.keys() & pages.keys()
    assert set(FORMER_NAMES.values()) <= pages.keys()


def linear(operators: str, split: bool) -> str:
    mesh, placed = ("mesh tp=2\n", "tp:S(1)") if split else ("", "")
    reduced = "  y = all-reduce(q) over tp || same\n" if split else "  y = identity(q)\n"
    return with_backward(f"""{mesh}weight w f32[8,8] {placed}
input x f32[4,8] {placed}
loss l f32[]
program
  p = linear(x, w)
{operators}{reduced}  z = gelu(y)
  l: f32[] = sum(z)
""")


HARMLESS = {
    "a power of one": "  q = pow(p, 1)\n",
    "a leak of one": "  q = leaky_relu(p, 1.0)\n",
    "bounds that nothing reaches": "  q = clamp(p, min=-inf, max=inf)\n",
    "the logarithm of a power": "  e = exp(p)\n  q = log(e)\n",
    "both halves of a rectifier": "  a = relu(p)\n  n = neg(p)\n  c = relu(n)\n  q = sub(a, c)\n",
    "a value times zero": "  g = gelu(p)\n  q = mul(g, 0)\n",
    "a value without itself": "  g = gelu(p)\n  q = sub(g, g)\n",
    "a magnitude with its sign": "  a = abs(p)\n  s = sign(p)\n  q = mul(a, s)\n",
    "the greater of a value and itself": "  q = maximum(p, p)\n",
}

HARMFUL = {
    "a square": "  q = pow(p, 2)\n",
    "a leak": "  q = leaky_relu(p, 0.5)\n",
    "a bound": "  q = clamp(p, min=0, max=inf)\n",
    "a power": "  q = exp(p)\n",
    "half of a rectifier": "  q = relu(p)\n",
    "a magnitude": "  q = abs(p)\n",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_makes_no_difference_does_not_refute(name: str) -> None:
    verdict = verdict_on(linear(HARMLESS[name], split=True), linear(HARMLESS[name], split=False))
    assert verdict.outcome is not Outcome.REFUTED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("name", HARMFUL)
def test_what_makes_one_does(name: str) -> None:
    verdict = verdict_on(linear(HARMFUL[name], split=True), linear(HARMFUL[name], split=False))
    assert verdict.outcome is Outcome.REFUTED
    assert "missing-allreduce" in [reason.name for reason in verdict.reasons]


def test_a_verdict_says_that_it_was_run() -> None:
    name = "a leak of one"
    verdict = verdict_on(linear(HARMLESS[name], split=True), linear(HARMLESS[name], split=False))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "the reference's in 3 runs on random numbers" in verdict.reasons[0].message
    assert verdict.stages.refuted == 0


def test_a_plan_that_does_not_run_is_not_run() -> None:
    wrong = linear(HARMLESS["a power of one"], split=True).replace("pow(p, 1)", "pow(k, 1)")
    verdict = verdict_on(wrong, linear(HARMLESS["a power of one"], split=False))
    assert verdict.outcome is Outcome.REFUTED
    assert REFUTING[verdict.reasons[0].name] is Ground.FAILS
