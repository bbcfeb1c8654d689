"""Lookups in a part of a table with masks for the rest: proved in any spelling, and refuted where a mask is off by one."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.terms.terms_at_indices import FOUND
from tvlint.equivalence.verdict.masked_lookups import with_stated_ranges
from tvlint.equivalence.verdict.masked_places import with_compared_places
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.plan import Plan

pytestmark = pytest.mark.usefixtures("without_repairs")

TABLE = "weight e f32[8,4]{placed}\ninput x i64[2,3]\nloss l\n"
ENDS = "t = tanh(h)\nl: f32[1] = sum(t)\n"
LOOKUP = with_backward(TABLE.format(placed="") + "program\nh = embedding(x, e)\n" + ENDS)

EITHER = "below = lt(x, {a}) || none\nabove = ge(x, {b}) || none\nm = logical_or(below, above) || none\n"
BOTH = "above = ge(x, {a}) || none\nbelow = lt(x, {b}) || none\nk = logical_and(above, below) || none\n"
SHIFT = "s = sub(x, {a}) || none\n"
MASKED = {
    "a mask that is filled": EITHER
    + SHIFT
    + "i = masked_fill(s, m, 0) || none\nr = embedding(i, e)\nw = unsqueeze(m, -1) || none\nh0 = masked_fill(r, w, 0.0)\n",
    "flags that are multiplied": BOTH
    + SHIFT
    + "i = mul(s, k) || none\nr = embedding(i, e)\nw = unsqueeze(k, -1) || none\nh0 = mul(r, w)\n",
    "choices": BOTH
    + SHIFT
    + "i = where(k, s, 0) || none\nr = embedding(i, e)\nw = unsqueeze(k, 2) || none\nh0 = where(w, r, 0.0)\n",
    "choices between tensors": BOTH + SHIFT + "z = zeros_like(s) || none\ni = where(k, s, z) || none\nr = embedding(i, e)\n"
    "w = unsqueeze(k, 2) || none\nh0 = where(w, r, 0.0)\n",
    "choices beside zeros": BOTH
    + SHIFT
    + 'z = zeros([2,3], dtype="int64") || none\ni = where(k, s, z) || none\nr = embedding(i, e)\nw = unsqueeze(k, 2) || none\n'
    + "y = zeros([2,3,4]) || none\nh0 = where(w, r, y)\n",
    "bounds that are compared": SHIFT + 'i = clamp(s, 0, 3) || none\nk = eq(i, s) || none\nf = to(k, "float32") || none\n'
    "r = embedding(i, e)\nw = unsqueeze(f, 2) || none\nh0 = mul(r, w)\n",
    "no mask, turned": BOTH
    + "m = logical_not(k) || none\n"
    + SHIFT
    + "i = masked_fill(s, m, 1) || none\nr = embedding(i, e)\nw = unsqueeze(m, -1) || none\nh0 = masked_fill(r, w, 0)\n",
    "bounds": SHIFT + "above = ge(s, 0) || none\nbelow = le(s, 3) || none\nk = logical_and(above, below) || none\n"
    "i = clamp(s, 0, 3) || none\nr = embedding(i, e)\nw = unsqueeze(k, -1) || none\nh0 = where(w, r, 0.0)\n",
    "another comparison": "below = le(x, {c}) || none\nabove = gt(x, {d}) || none\nm = logical_or(below, above) || none\n"
    + SHIFT
    + "i = masked_fill(s, m, 0) || none\nr = embedding(i, e)\nw = unsqueeze(m, -1) || none\nh0 = masked_fill(r, w, 0.0)\n",
}

WRONG = [
    ("a mask that is filled", "lt(x, {a})", "le(x, {a})"),
    ("a mask that is filled", "ge(x, {b})", "gt(x, {b})"),
    ("a mask that is filled", "sub(x, {a})", "sub(x, {c})"),
    ("a mask that is filled", "masked_fill(r, w, 0.0)", "masked_fill(r, w, 1.0)"),
    ("flags that are multiplied", "logical_and", "logical_or"),
    ("choices", "where(k, s, 0)", "where(k, 0, s)"),
    ("choices beside zeros", "y = zeros(", "y = ones("),
    ("choices beside zeros", "where(w, r, y)", "where(w, y, r)"),
    ("choices beside zeros", "ge(x, {a})", "gt(x, {a})"),
]


def split(lines: str) -> str:
    ranks = (
        f"program tp={a // 4}\n{lines.format(a=a, b=a + 4, c=a - 1, d=a + 3)}h = all-reduce(h0) over tp\n{ENDS}" for a in (0, 4)
    )
    return with_backward("mesh tp=2\n" + TABLE.format(placed=" tp:S(0)") + "".join(ranks))


def operators(plan: Plan) -> list[Compute]:
    return [own for segment in plan.segments.values() for own in segment.operators if isinstance(own, Compute)]


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_lookup_is_a_lookup_in_a_range(name: str) -> None:
    verdict = verdict_on(split(MASKED[name]), LOOKUP)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, reference = plans(split(MASKED[name]), LOOKUP)
    assert on_numbers_of(parallel, reference) == Agreement()
    stated = with_stated_ranges(parallel)
    ranges = [(own.attributes["start"], own.attributes["stop"]) for own in operators(stated) if "start" in own.attributes]
    assert ranges == [(0, 4), (4, 8)]
    assert on_numbers_of(stated, reference) == Agreement()


@pytest.mark.parametrize(("name", "before", "after"), WRONG)
def test_a_mask_that_is_off_is_no_range(name: str, before: str, after: str) -> None:
    assert before in MASKED[name]
    wrong = split(MASKED[name].replace(before, after))
    parallel, reference = plans(wrong, LOOKUP)
    assert not any("start" in own.attributes for own in operators(with_stated_ranges(parallel)))
    assert verdict_on(wrong, LOOKUP).outcome is not Outcome.PROVED
    assert on_numbers_of(parallel, reference) != Agreement()


@pytest.mark.parametrize("name", MASKED)
def test_a_lookup_that_gets_no_gradient_leaves_the_table_without_one(name: str) -> None:
    text = split(MASKED[name])
    given = "backward r (grad(r))"
    assert text.count(given) == 2
    first = text.index(given)
    verdict = verdict_on(text[:first] + "backward r (_)" + text[first + len(given) :], LOOKUP)
    assert verdict.outcome is not Outcome.PROVED


OTHER_GRADIENTS = {
    "another mask": ("backward h0 ", "backward {} of h0 = masked_fill(r, z2, 0.0)"),
    "another value": ("backward h0 ", "backward {} of h0 = masked_fill(r, w, 1.0)"),
    "another operator": ("backward h0 ", "backward {} of h0 = mul(r, 2.0)"),
    "another index": ("backward r ", "backward {} of r = embedding(s, e)"),
}


@pytest.mark.parametrize("name", OTHER_GRADIENTS)
def test_a_gradient_of_another_operator_than_the_one_that_ran_is_not_proved(name: str) -> None:
    before, after = OTHER_GRADIENTS[name]
    masks = "n2 = lt(x, 99) || none\nw2 = unsqueeze(n2, -1) || none\nz2 = logical_not(w2) || none\n"
    text = split(masks + MASKED["a mask that is filled"])
    lines = [line.partition(before) for line in text.splitlines()]
    wrong = "\n".join(head + (after.format(tail) if found else "") for head, found, tail in lines)
    assert wrong.count(after.partition("{}")[2]) == 2
    parallel, _ = plans(wrong, LOOKUP)
    assert with_stated_ranges(parallel) is parallel
    verdict = verdict_on(wrong, LOOKUP)
    assert verdict.outcome is not Outcome.PROVED
    assert "other-operator" in {reason.name for reason in verdict.reasons}


IN_BETWEEN = {
    "a message": "h1 = all-reduce(s) over tp || none\n",
    "an index that is changed": "add(s!, 1) || none\n",
}


@pytest.mark.parametrize("name", IN_BETWEEN)
def test_what_has_an_effect_between_the_operators_keeps_them(name: str) -> None:
    lines = MASKED["a mask that is filled"].replace("h0 = ", IN_BETWEEN[name] + "h0 = ")
    parallel, _ = plans(split(lines), LOOKUP)
    assert with_stated_ranges(parallel) is parallel


@pytest.mark.parametrize("operator", ["i = masked_fill(s, m, 0)", "w = unsqueeze(m, -1)", "r = embedding(i, e)"])
def test_an_operator_on_another_stream_stays(operator: str) -> None:
    lines = MASKED["a mask that is filled"]
    assert operator in lines
    parallel, _ = plans(split(lines.replace(operator, f"{operator} on side")), LOOKUP)
    assert with_stated_ranges(parallel) is parallel


@pytest.mark.parametrize("count", [8, 40, 3000])
def test_an_index_of_many_operators_ends_in_an_answer(count: int) -> None:
    chain = "".join(f"c{n + 1} = add(c{n}, 0) || none\n" for n in range(count))
    lines = "c0 = add(x, 0) || none\n" + chain + MASKED["a mask that is filled"].replace("x, {a}", f"c{count}, {{a}}")
    lines = lines.replace("ge(x", f"ge(c{count}")
    parallel, _ = plans(split(lines), LOOKUP)
    assert (with_stated_ranges(parallel) is parallel) == (count > 32)


def test_a_result_that_is_read_before_the_mask_stays() -> None:
    lines = MASKED["a mask that is filled"].replace("h0 = masked_fill", "z = tanh(r) || none\nh0 = masked_fill")
    parallel, _ = plans(split(lines), LOOKUP)
    assert with_stated_ranges(parallel) is parallel


SCORES = "weight w f32[8,4]{placed}\ninput x f32[3,4]\ninput y i64[3]\nloss l\n"
LOSS = with_backward(SCORES.format(placed="") + "program\nz = linear(x, w)\nl: f32[1] = cross_entropy(z, y)\n")
PARTS = """u = copy(x) over tp
z = linear(u, w)
m0 = amax(z, dim=-1, keepdim=True) || none
m = all-reduce max(m0) over tp || none
c = sub(z, m)
below = lt(y, {a}) || none
above = ge(y, {b}) || none
k = logical_or(below, above) || none
s = sub(y, {a}) || none
i = masked_fill(s, k, 0) || none
j = unsqueeze(i, -1) || none
p0 = gather(c, -1, j)
p1 = squeeze(p0, -1)
p2 = masked_fill(p1, k, 0.0)
p = all-reduce(p2) over tp
e = exp(c)
q0 = sum(e, dim=-1)
q = all-reduce(q0) over tp
g = log(q)
d = sub(g, p)
l: f32[1] = mean(d)
"""


def scores(lines: str) -> str:
    programs = "".join(f"program tp={rank}\n{lines.format(a=4 * rank, b=4 * rank + 4)}" for rank in (0, 1))
    return with_backward("mesh tp=2\n" + SCORES.format(placed=" tp:S(0)") + programs)


def test_scores_of_targets_are_picked_in_a_range() -> None:
    verdict = verdict_on(scores(PARTS), LOSS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, reference = plans(scores(PARTS), LOSS)
    assert on_numbers_of(parallel, reference) == on_numbers_of(with_stated_ranges(parallel), reference) == Agreement()


ELSEWHERE = [("ge(y, {b})", "gt(y, {b})"), ("mean(d)", "sum(d)"), ("sub(y, {a})", "sub(y, 1)")]


@pytest.mark.parametrize(("before", "after"), ELSEWHERE)
def test_scores_that_are_picked_elsewhere_are_refuted(before: str, after: str) -> None:
    assert before in PARTS
    verdict = verdict_on(scores(PARTS.replace(before, after)), LOSS)
    assert verdict.outcome is not Outcome.PROVED


GRADIENT_OF_VIEW = "grad(p0) = backward p1 (grad(p1))"


def test_the_gradient_of_a_view_in_a_masked_lookup_is_a_view() -> None:
    plan = scores(PARTS).replace(GRADIENT_OF_VIEW, "grad(p0) = view(grad(p1), [3, 1])")
    verdict = verdict_on(plan, LOSS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, reference = plans(plan, LOSS)
    assert on_numbers_of(parallel, reference) == on_numbers_of(with_stated_ranges(parallel), reference) == Agreement()
    stated = [own.attributes["start"] for own in operators(with_stated_ranges(parallel)) if "start" in own.attributes]
    assert stated == [0, 4]


OTHER_VIEWS = (
    "h = neg(grad(p1))\ngrad(p0) = view(h, [3, 1])",
    "h = mul(grad(p1), 2)\ngrad(p0) = view(h, [3, 1])",
    "h = flip(grad(p1), [0])\ngrad(p0) = view(h, [3, 1])",
    "h = view(grad(p1), [3, 1])\ngrad(p0) = mul(h, 2)",
    "grad(p0) = view(grad(p), [3, 1])",
    "grad(p0) = view(grad(g), [3, 1])",
    "grad(p0) = view(g, [3, 1])",
    "h = view(grad(p1), [3, 1])\ngrad(p0) = add(h, h)",
    "h = view(grad(p1), [1, 3])\ngrad(p0) = transpose(h, 0, 1)\ngrad(p0) = view(grad(p1), [3, 1])",
    "grad(p0) = view(grad(p1), [3, 1])\ngrad(p0) = view(grad(p1), [3, 1])",
)


@pytest.mark.parametrize("other", OTHER_VIEWS)
def test_another_gradient_of_a_view_in_a_masked_lookup_is_not_proved(other: str) -> None:
    assert GRADIENT_OF_VIEW in scores(PARTS)
    wrong = scores(PARTS).replace(GRADIENT_OF_VIEW, other)
    assert verdict_on(wrong, LOSS).outcome is not Outcome.PROVED


FAR_ENDS = {
    "a bound that is multiplied": "c = clamp(x, 9, 18) || none\nd: i64[2,3] = sub(c, 9) || none\n"
    "z: i64[2,3] = sub(x, d, alpha=17) || none\nn: bool[2,3] = ge(z, 0) || none\nk = ge(x, 0) || none\n",
    "a constant that is multiplied": "d: i64[2,3] = sub(x, 5, alpha=30) || none\nf: bool[2,3] = ge(d, 0) || none\n"
    "g: bool[2,3] = lt(x, 10) || none\nn: bool[2,3] = logical_or(f, g) || none\nk = ge(x, 0) || none\n",
}
"""Flags that are those of `0 <= x < 10` near there, and others far beyond."""


@pytest.mark.parametrize("name", FAR_ENDS)
def test_a_mask_whose_pieces_end_far_beyond_its_constants_is_not_proved(name: str) -> None:
    masked = EITHER + SHIFT + "i = masked_fill(s, m, 0) || none\nr = embedding(i, e)\n"
    right = "w = unsqueeze(m, -1) || none\nh0 = masked_fill(r, w, 0.0)\n"
    wrong = FAR_ENDS[name] + "v = logical_and(n, k) || none\nu = logical_not(v) || none\n" + right.replace("(m,", "(u,")
    table = TABLE.replace("[8,4]", "[160,4]")
    ranks = "".join(
        f"program tp={a // 10}\n{(masked + (right if a else wrong)).format(a=a, b=a + 10)}h = all-reduce(h0) over tp\n{ENDS}"
        for a in range(0, 160, 10)
    )
    plan = with_backward("mesh tp=16\n" + table.format(placed=" tp:S(0)") + ranks)
    reference = with_backward(table.format(placed="") + "program\nh = embedding(x, e)\n" + ENDS)
    assert verdict_on(plan, reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    "view",
    ["view(r0, [2,12])", "unsqueeze(r0, 0)", "view(r0, [3,2,4])", "flatten(r0, 0, 1)", "squeeze(r0, 0)", "view(r0, [2,3,4])"],
)
def test_what_is_looked_up_is_masked_in_the_shape_that_it_has(view: str) -> None:
    lines = MASKED["a mask that is filled"].replace("r = embedding(i, e)", f"r0 = embedding(i, e)\nr: f32[2,3,4] = {view}")
    is_right = view == "view(r0, [2,3,4])"
    assert (verdict_on(split(lines), LOOKUP).outcome is Outcome.PROVED) == is_right


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_whose_gradient_is_read_before_it_is_made_is_not_proved(name: str) -> None:
    text = split(MASKED[name])
    made = "grad(h) = backward t (grad(t))\n"
    first = text.index(made) + len(made)
    end = text.index("\n", first) + 1
    early = text[: first - len(made)] + text[first:end] + made + text[end:]
    assert early.count(made) == 2
    assert verdict_on(early, LOOKUP).outcome is Outcome.REFUTED


COMPARED = "c = arange({a}, {b})\nu = unsqueeze(x, -1) || none\nm = eq(u, c) || none\n"
COMPARED += 'f = to(m, "float32") || none\nh0 = matmul(f, e)\n'
COUNTED = 'o = one_hot(x, 8) || none\nc = narrow(o, -1, {a}, 4) || none\nf = to(c, "float32") || none\nh0 = matmul(f, e)\n'
SUMMED = COMPARED.replace("h0 = matmul(f, e)", "g = unsqueeze(f, -1) || none\np = mul(g, e)\nh0 = sum(p, dim=2)")


@pytest.mark.parametrize("lines", [COMPARED, COUNTED, SUMMED])
def test_a_product_with_the_flag_of_each_row_is_a_lookup(lines: str) -> None:
    verdict = verdict_on(split(lines), LOOKUP)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert on_numbers_of(*plans(split(lines), LOOKUP)) == Agreement()
    back = verdict_on(
        LOOKUP,
        with_backward(
            TABLE.format(placed="") + "program\n" + lines.format(a=0, b=8).replace("0, 4)", "0, 8)").replace("h0", "h") + ENDS
        ),
    )
    assert back.outcome is Outcome.PROVED, [reason.message for reason in back.reasons]
    assert (FOUND in back.assumptions) is ("one_hot" not in lines)


@pytest.mark.parametrize(
    ("lines", "before", "after"),
    [
        (COMPARED, "arange({a}, {b})", "arange(0, 4)"),
        (COMPARED, "eq(u, c)", "ge(u, c)"),
        (COMPARED, "eq(u, c)", "ne(u, c)"),
        (COUNTED, "{a}, 4)", "0, 4)"),
        (SUMMED, "mul(g, e)", "add(g, e)"),
    ],
)
def test_a_product_with_other_flags_is_refuted(lines: str, before: str, after: str) -> None:
    assert verdict_on(split(lines.replace(before, after)), LOOKUP).outcome is Outcome.REFUTED


def test_a_lookup_beyond_the_rows_of_a_rank_is_refuted_where_it_is() -> None:
    verdict = verdict_on(split(MASKED["choices"].replace("sub(x, {a})", "sub(x, 0)")), LOOKUP)
    assert verdict.outcome is Outcome.REFUTED
    (reason,) = (reason for reason in verdict.reasons if reason.refutes)
    assert reason.name == "other-numbers"
    assert reason.message.startswith("an index of `embedding` is beyond the 4 that it looks up in, on rank 1")
    assert reason.location.text.strip() == "r = embedding(i, e)"


CLASSES = (
    "weight w f32[8,8]\ninput x f32[40,8]\ninput t i64[40]\nloss l\nprogram\nz = linear(x, w)\nm: bool[40] = eq(t, 3) || none\n"
)
APART = 'p: f32[40] = cross_entropy(z, t, reduction="none")\nq: f32[40] = masked_fill(p, m, 0.0)\nl: f32[1] = sum(q)\n'
LEFT_OUT = (
    'u: i64[40] = masked_fill(t, m, 9) || none\nl: f32[1] = cross_entropy(z, u, ignore_index={number}, reduction="sum")\n'
)


@pytest.mark.parametrize(("number", "outcome"), [(9, Outcome.UNKNOWN), (8, Outcome.REFUTED)])
def test_a_class_that_a_loss_leaves_out_is_beyond_none(number: int, outcome: Outcome) -> None:
    plan = with_backward(CLASSES + LEFT_OUT.format(number=number))
    assert verdict_on(plan, with_backward(CLASSES + APART)).outcome is outcome


def test_a_reference_that_looks_up_beyond_its_rows_refutes_nothing() -> None:
    further = LOOKUP.replace("embedding(x, e)", "embedding(y, e)").replace("h = ", "y = add(x, 8)\nh = ")
    verdict = verdict_on(split(MASKED["choices"].replace("sub(x, {a})", "sub(x, 0)")), further)
    assert verdict.outcome is Outcome.UNKNOWN


OF_CLASSES = "weight h f32[6,4]\nweight w f32[8,4]{placed}\ninput x i64[6]\nloss l\n"
FLAGS = {
    "a product": 'o = one_hot(i, {n}) || none\nf = to(o, "float32") || none\ng = mul(f, j) || none\n',
    "a product of whole numbers": 'o = one_hot(i, {n}) || none\np = mul(o, j) || none\ng = to(p, "float32") || none\n',
    "a choice": 'o = one_hot(i, {n}) || none\nf = to(o, "float32") || none\n'
    "y = zeros([6,{n}]) || none\ng = where(j, f, y) || none\n",
    "a filled mask": "o = one_hot(i, {n}) || none\nm = logical_not(j) || none\nf = masked_fill(o, m, 0) || none\n"
    'g = to(f, "float32") || none\n',
}
MASKS = (
    "a = ge(x, {low}) || none\nb = lt(x, {high}) || none\nk = logical_and(a, b) || none\nj = unsqueeze(k, -1) || none\n"
    's = sub(x, {low}) || none\nz = zeros([6], dtype="int64") || none\ni = where(k, s, z) || none\n'
)
OTHER_FLAGS = [
    ("a = ge(x, {low})", "a = gt(x, {low})"),
    ("b = lt(x, {high})", "b = le(x, {high})"),
    ("s = sub(x, {low})", "s = sub(x, {high})"),
    ("k = logical_and", "k = logical_or"),
    ("i = where(k, s, z)", "i = where(k, z, s)"),
    ("mul(f, j)", "add(f, j)"),
]


def with_flags(name: str, text: str = "") -> tuple[str, str]:
    """Return a plan whose ranks share classes and mask the flags of targets, and its reference."""
    body = (
        "program{rank}\nv = linear(h, w)\n" + (text or MASKS + FLAGS[name]) + "u = mul(v, g)\nt = exp(u)\nl0: f32[] = sum(t)\n"
    )
    ranks = "".join(
        body.format(rank=f" tp={rank}", low=4 * rank, high=4 * rank + 4, n=4)
        + "l: f32[] = all-reduce(l0) over tp\nend reduce-gradients h over tp\n"
        for rank in (0, 1)
    )
    alone = OF_CLASSES.format(placed="") + body.format(rank="", low=0, high=8, n=8).replace("l0:", "l:")
    return with_backward("mesh tp=2\n" + OF_CLASSES.format(placed=" tp:S(0)") + ranks), with_backward(alone)


@pytest.mark.parametrize("name", FLAGS)
def test_masked_flags_are_flags_of_the_places_that_a_rank_holds(name: str) -> None:
    verdict = verdict_on(*with_flags(name))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, reference = plans(*with_flags(name))
    changed = with_compared_places(parallel)
    ranges = [
        [each.value for each in own.inputs if isinstance(each, Literal)] for own in operators(changed) if "arange" in own.op
    ]
    assert ranges == [[0, 4], [4, 8]]
    assert on_numbers_of(parallel, reference) == on_numbers_of(changed, reference) == Agreement()


@pytest.mark.parametrize("change", OTHER_FLAGS)
def test_other_masks_of_flags_are_not(change: tuple[str, str]) -> None:
    text = MASKS + FLAGS["a product"]
    assert change[0] in text
    wrong, reference = with_flags("a product", text.replace(*change))[0], with_flags("a product")[1]
    parallel, _ = plans(wrong, reference)
    assert with_compared_places(parallel) is parallel
    assert verdict_on(wrong, reference).outcome is not Outcome.PROVED
