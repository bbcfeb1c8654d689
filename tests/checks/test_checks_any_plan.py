"""Whatever stands in a plan, checks answer with findings, never with an exception; and broken communication is noticed."""

from __future__ import annotations

import random
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.builders.correct_programs import PROGRAMS
from tests.builders.plan_findings import findings_of_plan, findings_of_text
from tests.checks.test_scenarios import SCENARIOS
from tests.sampling import sampled
from tvlint.analyses.dataflow.def_use import reads
from tvlint.ir.operators import Collective, Communicate, Group, Operator, Peer, Receive, Send
from tvlint.ir.plan import Plan, Program, Step
from tvlint.readers.document import ReadError
from tvlint.readers.plan_text import reader as plan_text

_VALUES: dict[str, list[Any]] = {
    "inputs": [(), ("nowhere",), ("x", "x", "x", "x")],
    "outputs": [(), ("nowhere",), ("x",), ("x", "y", "z")],
    "group": [Group(ranks=(99,)), Group(ranks=(0, 1, 1)), Group(axes=("no-axis",)), Group(name="nobody"), Group(ranks=(-1, 0))],
    "peer": [Peer(rank=77), Peer(rank=-1), Peer(axis="no-axis", offset=1), Peer(rank=0)],
    "dim": [None, -9, 9, -1],
    "concat_dim": [None, 7, -3],
    "root": [None, 5, -1],
    "splits": [(1, 2, 3), (-1,)],
    "handle": ["", "h0", "other"],
    "stream": ["", "side"],
    "kind": list(Collective),
    "reduce": ["", "max", "avg", "nonsense"],
    "in_place": [(5,), (-1,)],
    "weights": [(), ("nowhere",)],
    "tensor": ["nowhere", "x"],
    "tag": [0, 3],
    "batch": ["", "b"],
    "event": ["e"],
    "op": ["torch.nothing", "softmax", "view", "add"],
}


def _plan(name: str) -> Plan:
    plan = plan_text.read(name, PROGRAMS[name]).plan
    assert plan is not None
    return plan


def _with_operators(plan: Plan, segment: str, operators: tuple[Operator, ...]) -> Plan:
    return replace(plan, segments={**plan.segments, segment: replace(plan.segments[segment], operators=operators)})


def _garbled(plan: Plan, chance: random.Random) -> Plan:
    name = chance.choice([name for name, segment in plan.segments.items() if segment.operators])
    operators = list(plan.segments[name].operators)
    at = chance.randrange(len(operators))
    known = [each.name for each in fields(operators[at]) if each.name in _VALUES]
    chosen = chance.choice(known)
    operators[at] = replace(operators[at], **{chosen: chance.choice(_VALUES[chosen])})
    garbled = _with_operators(plan, name, tuple(operators))
    if chance.random() < 0.3:
        first = garbled.programs[0]
        steps = chance.choice([(), (Step("nowhere"),), first.steps * 2, tuple(reversed(first.steps))])
        garbled = replace(garbled, programs=(Program(chance.choice([first.ranks, (), (99,)]), steps), *garbled.programs[1:]))
    return garbled


@pytest.mark.parametrize("name", sampled(PROGRAMS, 3))
def test_a_garbled_plan_gives_findings_only(name: str) -> None:
    chance = random.Random(name)
    plan = _plan(name)
    for _ in range(40):
        plan_or_again = _garbled(plan, chance)
        for finding in findings_of_plan(_garbled(plan_or_again, chance)):
            assert finding.message
            assert finding.message[0] != finding.message[0].upper() or not finding.message[0].isalpha()


def _without_each_communication() -> list[tuple[str, str, int]]:
    """Messages, and all-reduces whose result goes on into operators that the table knows."""
    found = []
    for name in PROGRAMS:
        if "by hand" in name or "loss" in name:
            continue
        read = {used for segment in _plan(name).segments.values() for each in segment.operators for used in reads(each)}
        for segment in _plan(name).segments.values():
            for index, operator in enumerate(segment.operators):
                message = isinstance(operator, (Send, Receive)) and not operator.peer.wrap
                sums = isinstance(operator, Communicate) and operator.kind is Collective.ALL_REDUCE
                if message or (sums and isinstance(operator, Communicate) and operator.outputs[0] in read):
                    found.append((name, segment.name, index))
    return found


@pytest.mark.parametrize(("name", "segment", "index"), _without_each_communication())
def test_a_communication_that_is_left_out_is_noticed(name: str, segment: str, index: int) -> None:
    plan = _plan(name)
    operators = list(plan.segments[segment].operators)
    operator = operators[index]
    if isinstance(operator, Communicate):
        source, result = operator.inputs[0], operator.outputs[0]
        renamed = [_reading(other, result, source) for other in operators[:index] + operators[index + 1 :]]
        mutant = _with_operators(plan, segment, tuple(renamed))
    else:
        mutant = _with_operators(plan, segment, tuple(operators[:index] + operators[index + 1 :]))
    assert findings_of_plan(mutant) != []


def _reading(operator: Operator, old: str, new: str) -> Operator:
    inputs = getattr(operator, "inputs", None)
    if inputs is None or old not in inputs:
        return operator
    return replace(operator, inputs=tuple(new if name == old else name for name in inputs))  # type: ignore[call-arg]


EMPTY = {
    "a segment that says what it gives and has nothing": """
micro-batches 2
tensor h f32[4,8]
segment f forward () -> (h)
segment b forward (h) -> (y)
  y: f32[4,8] = gelu(h)
program
  run b micro-batch 0
  run f micro-batch 0
  run f micro-batch 1
  run b micro-batch 1
""",
    "a convolution over stacked numbers": """
weight k f32[3,3,3]
input a f32[]
input b f32[]
program
  c = stack([a, b], dim=0)
  o = conv1d(c, k)
""",
    "a convolution with a weight without dimensions over joined numbers": """
weight k f32[]
input a f32[]
program
  c = cat([a, a], dim=0)
  o = conv1d(c, k)
""",
    "a dimension of nothing that is put together again": """
mesh dp=2
input x f32[4,0] dp:S(1)
tensor a f32[4,0]
tensor b f32[4,0]
program
  g: f32[4,0] = all-gather(x, dim=1) over dp
  a = narrow(g, 1, 0, 0)
  b = narrow(g, 1, 0, 0)
  y = cat(b, a, dim=1)
""",
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_is_judged(name: str) -> None:
    rules = {finding.rule for finding in findings_of_text(EMPTY[name])}
    assert rules == ({"use-before-definition"} if "segment" in name else set())


def _damaged(text: str, drawn: random.Random) -> str:
    """The text with another number, another name, or lines that are gone or elsewhere."""
    lines, kind = text.split("\n"), drawn.randrange(4)
    if kind < 2:
        found = list(re.finditer(r"\d+" if kind else r"\b[a-z]\w*", text))
        place = drawn.choice(found)
        new = drawn.choice(("0", "1", "3", "100000000")) if kind else drawn.choice(found)[0]
        return text[: place.start()] + new + text[place.end() :]
    one, other = drawn.randrange(len(lines)), drawn.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines if kind == 3 else [*lines[:one], *lines[one + 1 :]])


@pytest.mark.parametrize("seed", sampled(range(20), 3))
def test_checks_end_on_damaged_scenarios(seed: int) -> None:
    drawn = random.Random(seed)
    judged = 0
    for _ in range(60):
        text = drawn.choice(SCENARIOS).text
        for _ in range(drawn.choice((1, 1, 2))):
            text = _damaged(text, drawn)
        try:
            plan = plan_text.read("damaged.plan", text).plan
        except ReadError:
            continue
        assert plan is not None
        findings_of_plan(plan)
        judged += 1
    assert judged > 10


def test_parts_of_splits_of_other_sizes_do_not_fit() -> None:
    text = "input x f32[4,8]\ninput z f32[3,8]\nprogram\n  a, b = split(x, 4, dim=1)\n"
    text += "  c, d = split(z, 4, dim=1)\n  y = add(a, c)\n"
    assert [finding.rule for finding in findings_of_text(text)] == ["shape-mismatch"]


def test_a_gradient_of_two_values_may_be_given_to_a_third() -> None:
    text = (
        "weight a f32[8,8]\nweight n f32[8]\ninput x f32[4,8]\nloss l\nprogram\n"
        "  h = layer_norm(x, [8], n)\n  u = linear(h, a)\n"
        "  y = add(x, u)\n  z = add(y, x)\n  l = sum(z)\n  dz = backward l (grad(l))\n  dy, dx1 = backward z (dz)\n"
        "  dx2, du = backward y (dy)\n  dh, grad(a) = backward u (du)\n  dx3, grad(n) = backward h (dx2)\n  update a, n\n"
    )
    assert {finding.rule for finding in findings_of_text(text)} == {"gradient-of-another-tensor"}


def test_a_table_of_one_number_is_looked_up_in_by_nothing() -> None:
    (finding,) = findings_of_text("weight e f32[]\ninput t i64[4]\nprogram\n  x = embedding(t, e)\n")
    assert finding.rule == "shape-mismatch"
