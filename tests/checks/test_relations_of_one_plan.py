"""What the relations of a plan on its own show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.operation_counts import operations
from tests.builders.page_examples import read_examples
from tests.builders.plan_findings import RULES, findings_of_text
from tests.checks.test_scenarios import SCENARIOS
from tests.scenarios.scenario import Scenario
from tests.shared import SHARED, needs_shared
from tvlint.analyses.relations.derivation import single_plan
from tvlint.analyses.relations.derivation.localisation.coverage import coverage_of
from tvlint.analyses.relations.derivation.single_plan import Alone, derive_alone, sure_defects
from tvlint.analyses.relations.findings import OF_RELATIONS
from tvlint.checkout.opening import instead
from tvlint.findings import Severity
from tvlint.ir.coverage import Coverage
from tvlint.ir.plan import Plan
from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle
from tvlint.readers.plan_text import reader as plan_text
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project

PAGES = [
    Scenario(f"{rule.name}:{example.line}", example.text, frozenset() if example.valid else frozenset({rule.name}))
    for rule in RULES.values()
    for example in read_examples(rule)
    if example.language == "plan"
]
RIGHT = [each for each in (*SCENARIOS, *PAGES) if not each.rules]


def plan_of(text: str) -> Plan:
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return plan


def alone(text: str) -> Alone:
    found = derive_alone(plan_of(text))
    assert isinstance(found, Alone)
    return found


@pytest.mark.parametrize("scenario", RIGHT, ids=lambda each: each.name)
def test_nothing_is_sure_to_be_wrong_with_a_right_plan(scenario: Scenario) -> None:
    found = derive_alone(plan_of(scenario.text))
    assert isinstance(found, str) or [defect.message for defect in sure_defects(found)] == []


@needs_shared
def test_nothing_is_sure_to_be_wrong_with_right_exported_plans() -> None:
    assert SHARED is not None
    for path in sorted((SHARED / "plans" / "good").glob("*.pkl.xz")):
        plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
        assert plan is not None
        found = derive_alone(plan)
        assert isinstance(found, Alone), path.name
        assert (path.name, [defect.message for defect in sure_defects(found)]) == (path.name, [])
        coverage = coverage_of(found.plan, found.derived)
        assert coverage.understood == coverage.operators > 0, path.name


CROSSED = """
mesh tp=2
weight w f32[16,8] tp:S(1)
weight v f32[16,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  p = linear(x, w)
  a = gelu(p)
  s = add(a, 1.0)
  q = linear(x, v)
  b = gelu(q)
  c = add(s, b)
"""


def test_the_derivation_goes_on_with_what_an_operator_wants() -> None:
    found = sorted((own.name, own.subject) for own in sure_defects(alone(CROSSED)) if own.rank == 0)
    assert found == [("missing-allreduce", "p"), ("missing-allreduce", "q")]


GIVEN = """
mesh tp=2
weight w f32[8,16]
input x f32[4,16] tp:{part}
output y f32[4,8]
program
  s = all-reduce {reduce}(x) over tp
  a = gelu(s)
  y = linear(a, w)
"""


@pytest.mark.parametrize(
    ("part", "reduce", "wrong"),
    [
        ("P", "sum", set()),
        ("P", "avg", {"wrong-reduce-op"}),
        ("P(avg)", "avg", set()),
        ("P(avg)", "sum", {"wrong-reduce-op"}),
        ("P(max)", "max", set()),
        ("P(max)", "sum", {"wrong-reduce-op"}),
        ("R", "sum", {"doubled-allreduce"}),
        ("R", "avg", set()),
    ],
)
def test_given_parts_are_trusted(part: str, reduce: str, wrong: set[str]) -> None:
    assert {own.name for own in sure_defects(alone(GIVEN.format(part=part, reduce=reduce)))} == wrong


UNKNOWN = """
mesh tp=2
weight w f32[16,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  p = linear(x, w)
  k{type} = my_kernel(p)
  a = gelu(k)
  b = gelu(p)
"""


def test_what_follows_from_an_unknown_operator_is_unknown_and_the_rest_is_not() -> None:
    found = alone(UNKNOWN.format(type=""))
    assert coverage_of(found.plan, found.derived) == Coverage(2, 4)
    assert {own.subject for own in sure_defects(found)} == {"p"}


def test_what_a_plan_declares_of_an_unknown_result_is_taken() -> None:
    found = alone(UNKNOWN.format(type=": f32[4,16] tp:P"))
    assert coverage_of(found.plan, found.derived) == Coverage(4, 4)
    assert {own.subject for own in sure_defects(found)} == {"k", "p"}


STEPPED = """
mesh dp=2
weight w f32[8,8]
state m f32[8,8] dp:S(0)
state v f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dh f32[8,8] dp:S(0)
program
  h = linear(x, w)
  _, grad(w) = backward h (dh)
  g = reduce-scatter(grad(w), dim={dim}) over dp
  ws = chunk(w, dim=0) over dp
  adam_step(ws!, g, m!, v!)
  w = all-gather(ws, dim=0) over dp
"""

QUERIES = """
mesh cp=2
input q f32[2,4,8,16]
input k f32[2,4,8,16]{keys}
input v f32[2,4,8,16]{keys}
output o
program
  o = scaled_dot_product_attention(q, k, v)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (STEPPED.format(dim=0), STEPPED.format(dim=1), "state-of-another-shard"),
        (QUERIES.format(keys=""), QUERIES.format(keys=" cp:S(2)"), "attention-over-local-keys"),
    ],
)
def test_one_mistake_is_one_finding_for_all_ranks(right: str, wrong: str, rule: str) -> None:
    assert findings_of_text(right) == []
    assert [(own.rule, own.ranks) for own in findings_of_text(wrong)] == [(rule, (0, 1))]


FOLDED_CUT = """
mesh dp=2 tp=2
replicate dp
weight v f32[8,16] tp:S(1)
input x f32[8,16] dp:S(DIM) tp:S(1)
program
  y = linear(x, v)
  z = gelu(y)
"""


def not_evaluated(text: str) -> dict[str, str]:
    """Return what the rules that could not be evaluated on a plan would need, by their names."""
    candidates = Candidates(("example.plan",), frozenset({"example.plan"}))
    with instead({"example.plan": text.encode()}):
        report, _ = check(candidates, RULES, RULES, Project(Path.cwd()))
    return {each.rule: each.reason for each in report.not_evaluated}


def test_a_plan_that_is_not_derived_is_said_to_be_judged_by_fewer_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not_evaluated(CROSSED) == {}
    monkeypatch.setattr(single_plan, "_MOST_RUNS", 9)
    found = not_evaluated(CROSSED)
    assert found.keys() == OF_RELATIONS
    assert {*found.values()} == {
        "the plan runs 12 operators on its ranks in one micro-batch, more than the 9 that `check` derives"
    }


def test_folded_replicas_hold_slices_of_an_input_that_is_declared_whole() -> None:
    right = FOLDED_CUT.replace("DIM", "0")
    assert {found.rule for found in findings_of_text(right)} == {"partial-through-nonlinear"}
    assert not_evaluated(right.replace("tp:S(1)", "")) == not_evaluated(right) == {}
    elsewhere = not_evaluated(right.replace("weight v f32[8,16] tp:S(1)", "weight v f32[8,16] dp:S(0)"))
    assert {*elsewhere.values()} == {
        "`v` has another placement in each replica along `dp`; one stands for all: write out all ranks"
    }


SWAPPED = """
weight v f32[8,8]
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
gradient da f32[8,8] grad-of a
gradient db f32[8,8] grad-of b
program
  a = linear(x, v)
  b = linear(x, w)
  g = {op}(a, b)
  l = sum(g)
  dg = backward l (grad(l))
  db, da = backward g (dg)
  _, grad(v) = backward a (da)
  _, grad(w) = backward b (db)
"""


@pytest.mark.parametrize(("op", "wrong"), [("mul", {"swapped-gradients"}), ("sub", {"swapped-gradients"}), ("add", set())])
def test_gradients_that_are_the_same_may_stand_in_each_others_places(op: str, wrong: set[str]) -> None:
    assert {own.name for own in sure_defects(alone(SWAPPED.format(op=op)))} == wrong


RESIDUAL = """
mesh tp=2
weight w f32[8,16] tp:S(1)
input h f32[4,16] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program
  p = linear(h, w)
  {sum}
  d = dropout(r, 0.1)
  y = {end}
"""

PACKED = """
mesh tp=2
weight w f32[16,8] tp:S(0,parts={parts})
input x f32[2,8]
output q f32[2,8] tp:S(1)
program
  h = linear(x, w)
  q, k, v = split(h, [4, 2, 2], dim=-1)
"""

CUT = """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight g f32[8]
input h f32[4,16] tp:S(1)
output y f32[4,8] tp:S(0)
program
  p = linear(h, w)
  s = {cut}(p, dim=0) over tp
  y = rms_norm(s, [8], g)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "rule", "line"),
    [
        (
            RESIDUAL.format(sum="r = all-reduce(p) over tp", end="add(d, x)"),
            RESIDUAL.format(sum="r = add(p, x)", end="all-reduce(d) over tp"),
            "missing-allreduce",
            9,
        ),
        (PACKED.format(parts="[8,4,4]"), PACKED.format(parts="[4,4,8]"), "packed-split-across-shards", 8),
        (CUT.format(cut="reduce-scatter"), CUT.format(cut="chunk"), "missing-allreduce", 9),
    ],
)
def test_a_part_of_a_sum_or_of_what_is_packed_is_named_where_it_went_wrong(
    right: str, wrong: str, rule: str, line: int
) -> None:
    assert findings_of_text(right) == []
    assert [(own.rule, own.location.line) for own in findings_of_text(wrong)] == [(rule, line)]


@pytest.mark.parametrize(
    ("declared", "operators"),
    [
        ("weight w f32[8,8] tp:S(1)\ninput x f32[4,8] tp:S(1)\n", "  y#N = linear(x, w)\n"),
        ("weight w f32[8,8]\ninput x f32[4,8]\n", "  y#N = linear(x, w)\n  z#N = all-reduce(y#N) over tp\n"),
        ("weight w f32[8,8]\ninput x f32[4,8] tp:S(0)\n", "  y#N = linear(x, w)\n  z#N = softmax(y#N, dim=0)\n"),
    ],
    ids=["results that are parts of sums", "results that are summed twice", "splits of one dimension"],
)
def test_what_is_wrong_is_found_in_time_linear_in_the_operators(declared: str, operators: str) -> None:
    def count(size: int) -> int:
        lines = "".join(operators.replace("#N", str(number)) for number in range(size))
        returned = "".join(f"output y{number}\n" for number in range(size))
        plan = plan_text.read("a.plan", f"mesh tp=2\n{declared}{returned}program\n{lines}").plan
        assert plan is not None

        def work() -> None:
            alone = derive_alone(plan)
            assert isinstance(alone, Alone)
            list(sure_defects(alone))

        return sum(operations(work).values())

    few, more, many = map(count, (40, 80, 160))
    assert many - more <= 2.4 * (more - few)


NORM = """
mesh tp=2
weight w f32[16,8] tp:S(0)
weight g f32[16]
weight per_head f32[8]
input x f32[4,8]
program
  h = linear(x, w)
  part = chunk(g, dim=0) over tp
  n = rms_norm(h, [8], part)
"""


@pytest.mark.parametrize(
    ("norm", "found"),
    [
        ("rms_norm(h, [8], part)", {("norm-over-shards", Severity.WARNING)}),
        ("rms_norm(h, part)", {("norm-over-shards", Severity.ERROR)}),
        ("rms_norm(h, [8], per_head)", set()),
        ("rms_norm(h, [8])", set()),
    ],
)
def test_a_norm_that_states_the_size_of_its_shard_may_be_one_of_a_group(norm: str, found: set[tuple[str, Severity]]) -> None:
    spoken = findings_of_text(NORM.replace("rms_norm(h, [8], part)", norm))
    assert {(finding.rule, finding.severity) for finding in spoken if finding.rule == "norm-over-shards"} == found


COUNTED = """
mesh tp=2
input x f32[4,16] tp:S(1)
output y f32[4,16] tp:S(1)
program
  q = mul(x, x)
  s = sum(q, dim=-1, keepdim=True)
  t = all-reduce(s) over tp
  v = div(t, 8)
  r = rsqrt(v)
  y = mul(x, r)
"""


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("  v = div(t, 8)\n", True),
        ("  v = mul(t, 0.125)\n", True),
        ("  v = div(t, 16)\n", False),
        ("  v = div(t, 4)\n", False),
        ("  u = div(t, 8)\n  v = div(u, 2)\n", False),
    ],
    ids=["divided by the local count", "multiplied", "by that of all", "by another number", "scaled again"],
)
def test_a_sum_of_all_ranks_is_divided_by_the_number_of_elements_on_one(written: str, found: bool) -> None:
    spoken = findings_of_text(COUNTED.replace("  v = div(t, 8)\n", written))
    named = [finding for finding in spoken if finding.rule == "mean-by-local-count"]
    assert [(finding.severity, finding.ranks) for finding in named] == [(Severity.WARNING, (0, 1))] * found
    assert len(spoken) == len(named)


POSITIONS = """
mesh cp=2
buffer f f32[1,4]
weight e f32[16,4]
input q f32[2,8,4] cp:S(1)
output y f32[2,8,4] cp:S(1)
program cp=0
  i: i64[4] = arange(0, 4)
  p = embedding(i, e)
  y = add(q, p)
program cp=1
  i: i64[4] = arange(4, 8)
  p = embedding(i, e)
  y = add(q, p)
"""


def test_positions_that_each_rank_counts_from_zero_meet_a_shard() -> None:
    assert findings_of_text(POSITIONS) == []
    (found,) = findings_of_text(POSITIONS.replace("arange(4, 8)", "arange(0, 4)"))
    assert (found.rule, found.severity, found.ranks) == ("mismatched-shards", Severity.WARNING, (1,))
    assert "indices 4:8 of 8" in found.message
    assert "positions 0:4" in found.message
    assert found.help == "count from the first index of the shard"


@pytest.mark.parametrize("moved", ["add(j, 4)", "sub(j, -4)", "add(j, c)"])
def test_positions_that_a_rank_moves_to_its_shard_are_right(moved: str) -> None:
    text = f"  j: i64[4] = arange(0, 4)\n  c: i64[4] = full([4], 4)\n  i: i64[4] = {moved}\n"
    assert findings_of_text(POSITIONS.replace("  i: i64[4] = arange(4, 8)\n", text)) == []


CAUSAL = """
mesh cp=2
input q f32[2,2,8,4] cp:S(2)
input k f32[2,2,8,4]
input v f32[2,2,8,4]
output y f32[2,2,8,4] cp:S(2)
program cp=0
  y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
program cp=1
  i: f32[4] = arange(4, 8)
  j: f32[8] = arange(0, 8)
  u = reshape(i, [4,1])
  m = ge(u, j)
  y = F.scaled_dot_product_attention(q, k, v, m)
"""


def test_the_first_shard_of_queries_may_count_from_zero() -> None:
    assert findings_of_text(CAUSAL) == []
    everywhere = CAUSAL[: CAUSAL.index("program cp=1")].replace("program cp=0", "program")
    (found,) = findings_of_text(everywhere)
    assert found.rule == "scan-over-shards"


def test_rotary_angles_of_positions_from_zero_meet_a_shard() -> None:
    turned = """  i: f32[4] = arange(0, 4)
  u = reshape(i, [4,1])
  a = mul(u, f)
  p = cos(a)
  y = mul(q, p)
"""
    (found,) = findings_of_text(POSITIONS.split("program")[0] + "program\n" + turned)
    assert (found.rule, found.severity, found.ranks) == ("mismatched-shards", Severity.WARNING, (1,))


PLACES = """
mesh tp=2
input q f32[2,8,8] tp:S(SPLIT)
output y f32[2,8,8] tp:S(SPLIT)
program
  i: f32[4] = arange(0, 4)
  MADE
  c = cos(p)
  y = mul(q, c)
"""


@pytest.mark.parametrize(
    ("split", "made"),
    [
        ("2", "p = mul(i, 0.1)"),
        ("1", "r = remainder(i, 4)\n  p = reshape(r, [4,1])"),
        ("1", "r = add(i, i)\n  p = reshape(r, [4,1])"),
    ],
    ids=["features of one head a rank", "places in a window", "something is added"],
)
def test_places_that_each_rank_may_count_from_zero_are_right(split: str, made: str) -> None:
    assert findings_of_text(PLACES.replace("SPLIT", split).replace("MADE", made)) == []


VIEWED = """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
output y f32[4,4,4] tp:S(2)
program
  h = linear(x, w)
  y = reshape(h, [4,4,2])
"""


def test_a_view_is_declared_to_hold_other_elements() -> None:
    (found,) = findings_of_text(VIEWED)
    assert (found.rule, found.severity) == ("wrong-placement-claim", Severity.WARNING)
    assert "a piece of a whole [4, 8, 2], not of [4, 4, 4]" in found.message
    assert findings_of_text(VIEWED.replace("tp:S(2)", "tp:S(1)").replace("[4,4,2]", "[4,2,4]")) == []
