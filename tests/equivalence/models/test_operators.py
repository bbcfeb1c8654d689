"""Verdicts on plans with particular operators: means, slices, joins, attention, losses, and operators that are not the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import PARALLEL, REFERENCE, verdict_on
from tvlint.equivalence.verdict import solver_recheck as second_opinion
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, OpSpec
from tvlint.ops.table import spec_of
from tvlint.readers.plan_text.reader import read

DATA = """
plan "reference"
weight w f32[4,4]
weight v f32[4,4]
input x f32[8,4]
input t i64[8]
loss l
program
  y = linear(x, w)
  z = linear(y, v)
  l = LOSS
  dz = backward l (grad(l))
  dy, grad(v) = backward z (dz)
  _, grad(w) = backward y (dy)
"""


def data_parallel(text: str) -> str:
    """The plan on two replicas that average their losses and their gradients."""
    text = text.replace("weight w", "mesh dp=2\nweight w").replace("x f32[8,4]", "x f32[8,4] dp:S(0)")
    text = text.replace("t i64[8]", "t i64[8] dp:S(0)")
    text = re.sub(r"  l = (.*)\n", r"  l0 = \1\n  l = all-reduce avg(l0) over dp\n", text).replace(
        "backward l (", "backward l0 ("
    )
    return text + "  reduce-gradients w, v over dp divide 2\n"


def reasons(verdict: Verdict) -> list[str]:
    return [reason.name for reason in verdict.reasons]


@pytest.mark.parametrize("loss", ["mean(z)", 'cross_entropy(z, t, reduction="mean")'])
def test_a_mean_over_a_split_batch_is_averaged_over_replicas(loss: str) -> None:
    reference = DATA.replace("LOSS", loss).replace("dz = backward", "dz, _ = backward" if "t," in loss else "dz = backward")
    verdict = verdict_on(data_parallel(reference), reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert any("-100" in assumption for assumption in verdict.assumptions) == ("cross_entropy" in loss)
    undivided = verdict_on(data_parallel(reference).replace(" divide 2", ""), reference)
    assert undivided.outcome is Outcome.REFUTED
    assert reasons(undivided) == ["wrong-gradient-scale", "wrong-gradient-scale"]


def test_the_gradients_of_a_mean_on_two_replicas_are_those_of_different_rows() -> None:
    reference = DATA.replace("LOSS", "mean(z)")
    wrong = data_parallel(reference).replace(
        "dy, grad(v) = backward z (dz)", "g = all-reduce(dz) over dp\n  dy, grad(v) = backward z (g)"
    )
    verdict = verdict_on(wrong, reference)
    assert verdict.outcome is Outcome.REFUTED
    assert "mismatched-shards" in reasons(verdict)


TENSOR = """
plan "reference"
weight w f32[8,4]
input x f32[4,4]
loss l
program
  y = linear(x, w)
  FORWARD
  l = sum(z)
  dz = backward l (grad(l))
  BACKWARD
  _, grad(w) = backward y (dy)
"""


def tensor_parallel(text: str) -> str:
    """The plan with the rows of `w`, so the columns of `y`, on two ranks."""
    text = text.replace("weight w f32[8,4]", "mesh tp=2\nweight w f32[8,4] tp:S(0)")
    return text.replace("  l = sum(z)", "  l0 = sum(z)\n  l = all-reduce(l0) over tp").replace("backward l (", "backward l0 (")


def plan_of(forward: str, backward: str) -> str:
    return TENSOR.replace("FORWARD", forward).replace("BACKWARD", backward)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("z = narrow(y, dim=0, start=1, length=2)", "dy = backward z (dz)"),
        ("a, z = split(y, split_size=2, dim=0)", "dy = backward a (_, dz)"),
        ("z = cat(y, y, dim=0)", "dy, dy = backward z (dz)"),
        ("z = stack(y, y, dim=0)", "dy, dy = backward z (dz)"),
        ("z = pad(y, pad=(0, 0, 1, 2))", "dy = backward z (dz)"),
        ("a = unsqueeze(y, dim=1)\n  z = squeeze(a, dim=1)", "da = backward z (dz)\n  dy = backward a (da)"),
        ("a = unsqueeze(y, dim=0)\n  z = expand(a, size=(3, -1, -1))", "da = backward z (dz)\n  dy = backward a (da)"),
        ("z = repeat_interleave(y, repeats=2, dim=0)", "dy = backward z (dz)"),
        ("z = repeat_interleave(y, repeats=3, dim=1)", "dy = backward z (dz)"),
        ("z = cumsum(y, dim=0)", "dy = backward z (dz)"),
        ("z = amax(y, dim=0)", "dy = backward z (dz)"),
        ("z = dropout(y, p=0.0)", "dy = backward z (dz)"),
        ("z = swiglu(y, y)", "dy, dy = backward z (dz)"),
        ("z = softmax(y, dim=0)", "dy = backward z (dz)"),
    ],
)
def test_columns_may_be_split_where_only_rows_are_cut_joined_or_accumulated(forward: str, backward: str) -> None:
    reference = plan_of(forward, backward)
    verdict = verdict_on(tensor_parallel(reference), reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("z = narrow(y, dim=1, start=0, length=2)", "dy = backward z (dz)"),
        ("z = select(y, dim=1, index=0)", "dy = backward z (dz)"),
        ("z = cumsum(y, dim=1)", "dy = backward z (dz)"),
        ("z = swiglu(y)", "dy = backward z (dz)"),
    ],
)
def test_a_part_of_a_split_dimension_is_refuted(forward: str, backward: str) -> None:
    reference = plan_of(forward, backward)
    verdict = verdict_on(tensor_parallel(reference), reference)
    assert verdict.outcome is Outcome.REFUTED
    assert "split-dimension" in reasons(verdict), [reason.message for reason in verdict.reasons]


def test_a_split_dimension_is_not_cut() -> None:
    reference = plan_of("a, z = split(y, split_size_or_sections=(2, 6), dim=1)", "dy = backward a (_, dz)")
    verdict = verdict_on(tensor_parallel(reference), reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "split-dimension" in reasons(verdict), [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(("value", "outcome"), [(0.0, Outcome.PROVED), (1.0, Outcome.UNKNOWN)])
def test_zeros_around_shards_add_nothing_to_a_sum_and_other_numbers_may(value: float, outcome: Outcome) -> None:
    reference = plan_of(f"z = pad(y, pad=(1, 1), value={value})", "dy = backward z (dz)")
    assert verdict_on(tensor_parallel(reference), reference).outcome is outcome


def test_what_is_joined_of_a_split_dimension_is_proved_where_its_order_does_not_matter() -> None:
    reference = plan_of("z = cat(y, y, dim=1)", "dy, dy = backward z (dz)")
    own = tensor_parallel(reference)
    assert compare(*plans(reference, own)).outcome == "equal"
    verdict = verdict_on(own, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_dropout_of_which_the_plan_does_not_say_whether_it_draws_is_unknown() -> None:
    reference = plan_of('z = dropout(y, p=0.1, training="self.training")', "dy = backward z (dz)")
    verdict = verdict_on(tensor_parallel(reference), reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unsupported-operator" in reasons(verdict)


ATTENTION = """
plan "reference"
weight q f32[8,4,4]
weight k f32[8,4,4]
weight v f32[8,4,4]
input x f32[8,4,4]
loss l
program
  a = mul(q, x)
  o = scaled_dot_product_attention(a, k, v, is_causal=CAUSAL)
  l = sum(o)
  do = backward l (grad(l))
  da, grad(k), grad(v) = backward o (do)
  grad(q), _ = backward a (da)
"""


def split_attention(text: str, dim: int) -> str:
    """The plan with one dimension of all tensors on two ranks."""
    text = re.sub(r"(weight . f32\[8,4,4\]|input x f32\[8,4,4\])", rf"\1 tp:S({dim})", text)
    text = text.replace("weight q", "mesh tp=2\nweight q", 1).replace(
        "  l = sum(o)", "  l0 = sum(o)\n  l = all-reduce(l0) over tp"
    )
    return text.replace("backward l (", "backward l0 (")


@pytest.mark.parametrize("causal", ["False", "True"])
def test_attention_maps_over_heads_and_not_over_the_sequence(causal: str) -> None:
    reference = ATTENTION.replace("CAUSAL", causal)
    heads, sequence = (verdict_on(split_attention(reference, dim), reference) for dim in (0, 1))
    assert heads.outcome is Outcome.PROVED, [reason.message for reason in heads.reasons]
    assert sequence.outcome is Outcome.REFUTED
    assert reasons(sequence)[0] == "split-dimension"


LOOKUP = """
plan "reference"
weight w f32[8,4]
input t i64[8]
loss l
program
  y = embedding(t, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""


def test_a_table_without_a_stated_range_must_be_whole() -> None:
    """Each rank would look indices of the whole table up in its own rows."""
    parallel = LOOKUP.replace("weight w f32[8,4]", "mesh tp=2\nweight w f32[8,4] tp:S(0)").replace(
        "  l = sum(y)", "  z = all-reduce(y) over tp\n  l = sum(z)"
    )
    verdict = verdict_on(parallel, LOOKUP)
    assert verdict.outcome is Outcome.REFUTED
    assert "split-dimension" in reasons(verdict)


ONE_OPERATOR = """
plan "reference"
weight w f32[4,4]
input x f32[4,4]
loss l
program
  y = linear(x, w)
  z = OPERATOR
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  _, grad(w) = backward y (dy)
"""


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("log_softmax(y, dim=1)", "log_softmax(y, dim=0)"),
        ("gelu(y)", "relu(y)"),
        ('gelu(y, approximate="none")', 'gelu(y, approximate="tanh")'),
        ("relu(y)", "abs(y)"),
        ("transpose(y, dim0=0, dim1=1)", "neg(y)"),
        ("cumsum(y, dim=0)", "cumsum(y, dim=1)"),
        ("log_softmax(y, dim=1)", "softmax(y, dim=1)"),
        ("pow(y, 2)", "pow(y, 3)"),
        ("narrow(y, dim=0, start=0, length=2)", "narrow(y, dim=0, start=1, length=2)"),
        ("rms_norm(y, normalized_shape=(4,), eps=0.1)", "rms_norm(y, normalized_shape=(4,), eps=0.01)"),
    ],
)
def test_another_operator_is_refuted_with_numbers(expected: str, actual: str) -> None:
    verdict = verdict_on(ONE_OPERATOR.replace("OPERATOR", actual), ONE_OPERATOR.replace("OPERATOR", expected))
    assert verdict.outcome is Outcome.REFUTED
    assert NUMBERS.search(verdict.reasons[0].message), verdict.reasons[0].message


def test_another_operator_that_changes_no_result_is_proved() -> None:
    """The loss adds up all of either sum, so that no gradient and no returned value is another."""
    verdict = verdict_on(ONE_OPERATOR.replace("OPERATOR", "sum(y, dim=1)"), ONE_OPERATOR.replace("OPERATOR", "sum(y, dim=0)"))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


NUMBERS = re.compile(r"it gives -?[\d.e-]+ and the reference -?[\d.e-]+")


@pytest.mark.parametrize(("expected", "actual"), [("amax(y, dim=0)", "mean(y, dim=0)"), ("mul(y, y)", "add(y, y)")])
def test_another_operator_whose_gradient_needs_other_values_is_told_with_numbers(expected: str, actual: str) -> None:
    """Their gradients differ in form as well, so that the numbers alone do not explain every difference."""
    backward = "dy, dy = backward z (dz)" if expected.startswith("mul") else "dy = backward z (dz)"
    plan = ONE_OPERATOR.replace("dy = backward z (dz)", backward)
    verdict = verdict_on(plan.replace("OPERATOR", actual), plan.replace("OPERATOR", expected))
    assert verdict.outcome is not Outcome.PROVED
    assert NUMBERS.search(verdict.reasons[0].message), verdict.reasons[0].message


def test_another_operator_that_is_the_same_arithmetic_is_proved() -> None:
    verdict = verdict_on(ONE_OPERATOR.replace("OPERATOR", "add(y, -1.0)"), ONE_OPERATOR.replace("OPERATOR", "sub(y, 1.0)"))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_operators_that_agree_on_what_their_operand_can_be_are_unknown() -> None:
    plan = ONE_OPERATOR.replace("  z = OPERATOR", "  s = softmax(y, dim=1)\n  z = OPERATOR(s)").replace(
        "dy = backward z (dz)", "ds = backward z (dz)\n  dy = backward s (ds)"
    )
    verdict = verdict_on(plan.replace("OPERATOR", "abs"), plan.replace("OPERATOR", "relu"))
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]


def test_the_solver_agrees_with_the_annotations_that_a_proof_relied_on(tmp_path: Path) -> None:
    paths = [tmp_path / "parallel.plan", tmp_path / "reference.plan"]
    for path, text in zip(paths, (PARALLEL, REFERENCE), strict=True):
        path.write_text(text)
    command = [sys.executable, "-m", "tvlint", "prove", str(paths[0]), "--reference", str(paths[1]), "-o", "json"]
    run = subprocess.run([*command, "--solver", "all", "--solver-timeout", "20"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (verdict,) = json.loads(run.stdout)["verdicts"]
    facts = {fact["name"]: fact["value"] for fact in verdict["facts"]}
    assert verdict["verdict"] == "proved"
    assert int(facts["annotations proved by the solver"]) >= 8
    assert facts["solver timeout"] == "20 s"
    assert not [name for name in facts if name.startswith("annotation not decided")]


def test_an_annotation_that_the_solver_refutes_makes_a_proof_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def crooked(op: str) -> OpSpec | None:
        def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Any, ...]:
            return (operands[0] * operands[0].sum(),)

        spec = spec_of(op)
        return replace(spec, evaluate=evaluate) if spec is not None and spec.name == "gelu" else spec

    monkeypatch.setattr(second_opinion, "spec_of", crooked)
    plans = [read(path, text).plan for path, text in (("parallel.plan", PARALLEL), ("reference.plan", REFERENCE))]
    assert plans[0] is not None
    assert plans[1] is not None
    assert prove(plans[0], plans[1]).outcome is Outcome.PROVED
    verdict = prove(plans[0], plans[1], solver_seconds=10.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert set(reasons(verdict)) == {"annotation-refuted"}
    assert "`gelu` split along" in verdict.reasons[0].message


OF_TWO = """
weight w f32[8,8]
input x f32[4,8]
loss l
program
  h = linear(x, w)
  y = OP(h, x)
  l: f32[] = sum(y)
  dy = backward l (grad(l))
  dh, _ = backward y (dy)
  _, grad(w) = backward h (dh)
  update w
"""


@pytest.mark.parametrize("op", ["maximum", "minimum", "mul", "add"])
def test_operands_of_commutative_operators_may_be_exchanged(op: str) -> None:
    reference = OF_TWO.replace("OP", op)
    exchanged = reference.replace("(h, x)", "(x, h)").replace("dh, _ = backward y", "_, dh = backward y")
    assert verdict_on(exchanged, reference).outcome is Outcome.PROVED


@pytest.mark.parametrize("op", ["maximum", "minimum", "mul", "sub"])
def test_exchanged_operands_with_the_gradient_of_the_other_are_not_proved(op: str) -> None:
    reference = OF_TWO.replace("OP", op)
    for before, after in (("(h, x)", "(x, h)"), ("dh, _ = backward y", "_, dh = backward y")):
        verdict = verdict_on(reference.replace(before, after), reference)
        assert verdict.outcome is not Outcome.PROVED
