"""Pairs with smaller sizes: right ones stay right, and what differs there differs in the pair itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from oracle.generate import Pair as Made
from oracle.generate import Way, pair
from oracle.mutate import mutants
from shared import ROOT, SHARED, needs_shared

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.equivalence.sizes.factors import FactorTable
from tvlint.equivalence.sizes.shrink import shrink
from tvlint.equivalence.verdict import pairing
from tvlint.equivalence.verdict.numbers import run, run_sizes
from tvlint.equivalence.verdict.numbers.origin import is_generated
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference, NotRun
from tvlint.equivalence.verdict.numbers.run_both import gradients_may_agree, run_both, run_in_declared_shapes
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle
from tvlint.run.proof.pair import Pair, Plans, read_pair
from tvlint.run.proof.prove import prove_pair

FOLDERS = ROOT / "fixtures" / "nnscaler" / "folders"
RIGHT = ("gpt--tp2", "moe--hybrid_pp2_tp2", "mlp--hybrid_pp2_tp2_dp2", "shaped--pp2", "transposed--dp2", "unbound--dp2")
WRONG = ("hidden--tp2", "mlp--hybrid_pp2_tp4", "transposed--tp2")


def smaller(parallel: Plan, reference: Plan, small: int = 2) -> pairing.Case | str:
    case = pairing.pair(parallel, reference)
    assert isinstance(case, pairing.Case)
    generated = is_generated(parallel, reference)
    found = shrink(parallel, reference, case.inputs, case.reference_inputs, case.batch, small, generated)
    if isinstance(found, str):
        return found
    made = pairing.pair(found.parallel, found.reference)
    assert isinstance(made, pairing.Case)
    return made


def read_plan(path: Path) -> Plan:
    plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
    assert plan is not None
    return plan


def read(path: Path) -> tuple[Plan, Plan]:
    found = read_pair(Pair(str(path), ""))
    assert isinstance(found, Plans), found
    return found.kinds[0], found.reference


@pytest.mark.parametrize("name", sampled(RIGHT, 3))
def test_right_folders_agree_with_smaller_sizes(name: str) -> None:
    case = smaller(*read(FOLDERS / name))
    assert isinstance(case, pairing.Case)
    assert isinstance(run_in_declared_shapes(case), Agreement)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_folders_differ_with_smaller_sizes(name: str) -> None:
    case = smaller(*read(FOLDERS / name))
    assert isinstance(case, pairing.Case)
    assert isinstance(run_in_declared_shapes(case), Difference)


MADE = (
    pair("mlp", Way(dp=2, tp=2, nm=2), seed=1),
    pair("mlp", Way(pp=2, tp=2, nm=2, pieces=True), seed=2),
    pair("mlp", Way(tp=2, rows=4), seed=4),
)


def _changed(reference: Plan, parallel: Plan) -> Iterator[tuple[pairing.Case, pairing.Case]]:
    found = list(mutants(parallel))
    Random(0).shuffle(found)
    for mutant in found:
        case = pairing.pair(mutant.plan, reference)
        made = smaller(mutant.plan, reference) if isinstance(case, pairing.Case) else ""
        if isinstance(case, pairing.Case) and isinstance(made, pairing.Case):
            yield case, made


@pytest.mark.heavy
@pytest.mark.parametrize("made", MADE, ids=[made.name for made in MADE])
def test_mutants_differ_with_smaller_sizes_where_they_do_and_nowhere_else(made: Made) -> None:
    differ = 0
    for case, small in islice(_changed(made.reference, made.parallel), 30):
        real, shown = run_both(case), run_in_declared_shapes(small)
        assert type(real) is type(shown)
        differ += isinstance(shown, Difference)
    assert differ


HEAD = "weight w f32[32,16]{}\ninput x f32[8,16]{}\nloss l\nprogram\nh = linear(x, w)\na = gelu(h)\n"
ALONE = HEAD.format("", "") + "l: f32[] = mean(a)\n"
TIED = HEAD.format("", "") + "k: f32[] = sum(a)\nl: f32[] = mul(k, 0.00390625)\n"


def test_a_number_that_stands_for_a_size_keeps_all_sizes() -> None:
    parallel, reference = plans(with_backward(TIED), with_backward(ALONE))
    case = pairing.pair(parallel, reference)
    assert isinstance(case, pairing.Case)
    assert isinstance(run_both(case), Agreement)
    assert smaller(parallel, reference) == "the plan states numbers of `mul` that the reference does not"
    assert smaller(reference, parallel) == "the reference states numbers of `mul` that the plan does not"


def test_a_number_that_the_plan_uses_more_often_keeps_all_sizes() -> None:
    scaled = "weight w f32[32,16]\ninput x f32[8,16]\nloss l\nprogram\nh = linear(x, w)\na = mul(h, 0.00390625)\n"
    parallel, reference = plans(
        with_backward(scaled + "k: f32[] = sum(a)\nl: f32[] = mul(k, 0.00390625)\n"),
        with_backward(scaled + "l: f32[] = mean(a)\n"),
    )
    assert smaller(parallel, reference) == "the plan states numbers of `mul` that the reference does not"


MEANS = """weight w f32[32,16]
weight v f32[32,16]
input x f32[8,16]
loss l
program
h = linear(x, w)
g = linear(x, v)
{}
c = exp(a)
k = mul(c, b)
l: f32[] = sum(k)
"""


@pytest.mark.parametrize("number", [0.03125, 32.0, 0.17677669529663687, 31])
def test_a_number_that_the_plans_state_in_other_places_keeps_the_size_that_it_may_stand_for(number: float) -> None:
    """Each takes one mean as a sum times a number, and not the same one."""
    mean, written = "{0} = mean({1}, dim=1)\n", f"s{{1}} = sum({{1}}, dim=1)\n{{0}} = mul(s{{1}}, {number})\n"
    texts = (mean.format("a", "h") + written.format("b", "g"), written.format("a", "h") + mean.format("b", "g"))
    small = smaller(*plans(*(with_backward(MEANS.format(text)) for text in texts)))
    assert isinstance(small, pairing.Case)
    assert small.parallel.tensors["h"].shape == (2, 32)
    assert small.parallel.tensors["x"].shape == (2, 2)
    assert isinstance(run_both(small), Agreement if number == 1 / 32 else Difference)


def test_so_do_two_numbers_that_stand_for_it_together() -> None:
    mean, written = "{0} = mean({1}, dim=1)\n", "s{1} = sum({1}, dim=1)\nr{0} = mul(s{1}, 0.1)\n{0} = mul(r{0}, 0.3125)\n"
    texts = (mean.format("a", "h") + written.format("b", "g"), written.format("a", "h") + mean.format("b", "g"))
    small = smaller(*plans(*(with_backward(MEANS.format(text)) for text in texts)))
    assert isinstance(small, pairing.Case)
    assert small.parallel.tensors["h"].shape == (2, 32)
    assert isinstance(run_both(small), Agreement)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (["1e-200", "3e-200", "1e300", "2.5"], "kept"),
        ([f"{number}.5" for number in range(101)], "the plans state too many numbers for which sizes may stand"),
    ],
)
def test_numbers_of_any_size_and_count_come_to_an_answer(numbers: list[str], expected: str) -> None:
    body = "".join(f"x{at} = mul(x{at - 1 if at else ''}, {number})\n" for at, number in enumerate(numbers))
    text = MEANS.format(f"a = mean(h, dim=1)\nb = mean(g, dim=1)\n{body}").replace("sum(k)", f"sum(x{len(numbers) - 1})")
    small = smaller(*plans(with_backward(text), with_backward(text)))
    assert (small if isinstance(small, str) else "kept") == expected


VOCABULARY = """{mesh}weight e f32[51200,512]{rows}
weight w f32[51200,512]{rows}
input t i64[4,64]
input c i64[256]
loss l
program
h = embedding(t, e{range})
{gather}
f: f32[256,512] = view(g, size=(256, 512))
y = linear(f, w)
{logits}
l: f32[] = cross_entropy({last}, c)
"""


def _of_vocabulary(last: str = "z", gather: str = "g = all-reduce(h) over tp", dim: int = 1) -> str:
    head, body = VOCABULARY.split("program\n")
    found = "mesh tp=2\n" + head.format(mesh="", rows=" tp:S(0)")
    for rank in (0, 1):
        bounds = f", start={rank * 25600}, stop={rank * 25600 + 25600}"
        gathered = f"q = copy(f) over tp\ny = linear(q, w)\nz = all-gather(y, dim={dim}) over tp || chunk"
        lines = body.format(range=bounds, gather=gather, logits=gathered, last=last).replace("y = linear(f, w)\n", "", 1)
        found += f"program tp={rank}\n{lines}"
    return with_backward(found)


def _whole() -> str:
    given = {"mesh": "", "rows": "", "range": "", "gather": "g = identity(h)", "logits": "z = identity(y)", "last": "z"}
    return with_backward(VOCABULARY.format(**given))


def test_a_vocabulary_is_as_small_as_its_parts_allow() -> None:
    parallel, reference = plans(_of_vocabulary(), _whole())
    case = smaller(parallel, reference)
    assert isinstance(case, pairing.Case)
    assert case.parallel.tensors["e"].shape == (2, 2)
    assert case.reference.tensors["e"].shape == (4, 2)
    assert isinstance(run_in_declared_shapes(case), Agreement)


def test_a_pair_that_is_too_large_is_run_with_smaller_sizes() -> None:
    assert verdict_on(_of_vocabulary(), _whole()).outcome is Outcome.PROVED
    parallel, reference = plans(_of_vocabulary(), _whole())
    again = prove(parallel, reference, replay=True)
    assert again.outcome is Outcome.PROVED
    said = "3 runs on random numbers, with smaller sizes (8 for 51200, 4 for 25600, 4 for 512)"
    assert ("agrees with the reference on", said) in again.facts
    wrong = plans(_of_vocabulary(gather="g0 = all-reduce(h) over tp\ng = relu(g0)"), _whole())
    found = on_numbers_of(*wrong)
    assert isinstance(found, Difference)
    assert found.sizes[51200] == 8


@pytest.mark.heavy
@needs_shared
def test_generated_code_of_a_large_vocabulary_agrees() -> None:
    assert SHARED is not None
    folder = SHARED / "plans" / "gencode" / "v08--llama3_hybrid_dp2_pp2_tp2_nm2_gbs16_ly2_h8_hi256_sq32"
    parallel, reference = read(folder)
    assert run_sizes.size_of(reference) > run_sizes._MOST_NUMBERS
    found = on_numbers_of(parallel, reference)
    assert isinstance(found, Agreement)
    assert found.sizes


@needs_shared
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        (
            "llama3_flex_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128",
            "llama3_default_dp1_pp1_tp1_nm1_gbs512_ly1_h32_hi4096_sq128",
        ),
        (
            "moe_default_dp2_pp2_tp2_nm2_gbs1024_ly1_h16_hi512_sq128_a2_r16",
            "moe_default_dp1_pp1_tp1_nm1_gbs1024_ly1_h16_hi512_sq128_a2_r16",
        ),
    ],
)
def test_a_plan_of_a_large_batch_agrees(name: str, reference: str) -> None:
    assert SHARED is not None
    read_plans = [read_plan(SHARED / "plans" / "good" / f"{each}.pkl.xz") for each in (name, reference)]
    found = on_numbers_of(*read_plans)
    assert isinstance(found, Agreement)
    assert found.sizes


def test_dimensions_that_are_cut_otherwise_keep_their_size() -> None:
    table = FactorTable()
    whole = table.new(24)
    table.equate(table.cut(4, table.new(6)), whole)
    table.equate(table.cut(3, table.new(8)), whole)
    assert table.shrunk(whole) == 24


def test_a_view_is_the_same_in_smaller() -> None:
    table = FactorTable(small=2)
    heads, width, hidden = table.new(8), table.new(64), table.new(512)
    table.equate((*heads, *width), hidden)
    table.keep(width)
    assert (table.shrunk(heads), table.shrunk(hidden)) == (2, 128)
    table.equate(table.cut(2, table.new(4)), heads)
    assert (table.shrunk(heads), table.shrunk(hidden)) == (4, 256)


@pytest.mark.parametrize(("change", "outcome"), [("sum", Outcome.PROVED), ("mean", Outcome.REFUTED)])
def test_generated_code_whose_loss_is_a_multiple_is_refuted_where_no_count_of_parts_explains_it(
    tmp_path: Path, change: str, outcome: Outcome
) -> None:
    folder = Path(shutil.copytree(FOLDERS / "moe--hybrid_pp2_tp2", tmp_path / "code"))
    for rank in (2, 3):
        file = folder / f"gencode{rank}.py"
        file.write_text(file.read_text().replace("reduction='sum'", f"reduction='{change}'"))
    (verdict,) = prove_pair(Pair(str(folder), "", trials=0)).verdicts
    assert verdict.outcome is outcome


REPLICAS = """mesh dp=64 tp=2
weight w f32[32,16] tp:S(0)
weight v f32[8,32] tp:S(1)
input x f32[128,16] dp:S(0)
loss l
program
h = linear(x, w)
a = gelu(h)
p = linear(a, v)
y = all-reduce(p) over tp
s = softmax(y, dim=1)
q = mul(s, s)
l0: f32[] = sum(q)
l: f32[] = all-reduce(l0) over dp
end reduce-gradients w, v over dp
"""
OF_REPLICAS = """weight w f32[32,16]
weight v f32[8,32]
input x f32[128,16]
loss l
program
h = linear(x, w)
a = gelu(h)
y = linear(a, v)
s = softmax(y, dim=1)
q = mul(s, s)
l: f32[] = sum(q)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "differs"),
    [("", "", False), ("softmax(y, dim=1)", "softmax(y, dim=0)", True), ("mul(s, s)", "mul(s, y)", True)],
)
def test_equal_replicas_get_fewer(right: str, wrong: str, differs: bool) -> None:
    plan = REPLICAS.replace(right or "#", wrong)
    case = smaller(*plans(with_backward(plan), with_backward(OF_REPLICAS)))
    assert isinstance(case, pairing.Case)
    assert case.parallel.mesh.size == 4
    assert case.reference.tensors["x"].shape == (4, 2)
    assert isinstance(run_in_declared_shapes(case), Difference if differs else Agreement)


def test_replicas_whose_number_the_plan_states_keep_it() -> None:
    plan = REPLICAS.replace("w, v over dp", "w, v over dp divide 64")
    scaled = plan.replace("l0: f32[] = sum(q)", "l1: f32[] = sum(q)\nl0 = mul(l1, 64)")
    parallel, reference = plans(with_backward(scaled), with_backward(OF_REPLICAS))
    assert isinstance(smaller(parallel, reference), str)


def test_edits_of_many_ranks_are_tried_on_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sizes, "_MOST_OPERATORS_OF_EDITS", 100)
    ran: list[int] = []
    replay = run.replay

    def counted(plan: Plan, *arguments: object) -> object:
        ran.append(plan.mesh.size)
        return replay(plan, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "replay", counted)
    plan = REPLICAS.replace("softmax(y, dim=1)", "softmax(y, dim=0)")
    parallel, reference = plans(with_backward(plan), with_backward(OF_REPLICAS))
    case = pairing.pair(parallel, reference)
    assert isinstance(case, pairing.Case)
    agree = gradients_may_agree(case)
    assert not agree(case)
    right = pairing.pair(*plans(with_backward(REPLICAS), with_backward(OF_REPLICAS)))
    assert isinstance(right, pairing.Case)
    assert agree(right)
    assert max(ran) <= 8


@pytest.mark.parametrize("is_few", [True, False])
def test_plans_whose_ranks_run_too_many_operators_in_any_size_are_not_made_smaller(
    is_few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel, reference = plans(with_backward(REPLICAS), with_backward(OF_REPLICAS))
    case = pairing.pair(parallel, reference)
    assert isinstance(case, pairing.Case)
    of_a_rank = sum(len(parallel.segments[step.segment].operators) for step in parallel.programs[0].steps)
    shrunk: list[Plan] = []

    def noted(plan: Plan, *others: object) -> object:
        shrunk.append(plan)
        return shrink(plan, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(run_sizes, "shrink", noted)
    monkeypatch.setattr(run_sizes, "_MOST_OPERATORS", of_a_rank * (2 * 64 if is_few else 2) - (not is_few))
    monkeypatch.setattr(run_sizes, "_MOST_NUMBERS", 20_000)
    assert isinstance(run_sizes.to_run(case), run_sizes.Small if is_few else NotRun)
    assert bool(shrunk) is is_few
