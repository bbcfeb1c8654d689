"""Calls that are made for what they change: what nobody knows may change all that it reaches, whatever its name sounds like."""

from __future__ import annotations

import pytest

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ops.annotations.declared import Declared
from tvlint.ops.declaring import with_declared
from tvlint.ops.inert import SPECS
from tvlint.ops.table import spec_of

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l: f32[] = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  update w
"""

PARALLEL = """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l0: f32[] = sum(g)
  l = all-reduce(l0) over dp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp
  update w
"""

PLACES = {"forward": "  g = gelu(y)", "backward": "  dy = backward", "before the update": "  update w", "at the end": ""}

UNKNOWN = (
    "finalize_model_grads()",
    "sys.exit(1)",
    "logging_of_everything()",
    "dist.all_reduce(w)",
    "load_checkpoint(w)",
    "print_and_scale(w)",
    "torch.cuda.empty_cache_of(w)",
    "info(x)",
    "clip(w, 1.0)",
    "q = my_metric(y)",
    "q = torch.Tensor.zero_(y)",
    "q = _operator.iadd(y, x)",
    'q = builtins.setattr(w, "data", x)',
    "q = torch.manual_seed(y)",
    'q = my_fill(y, out="w")',
    "print(w!)",
)

INERT = (
    "torch.cuda.empty_cache()",
    'q = nnscaler.runtime.function.anchor("a pivot of the pipeline")',
    "torch.cuda.synchronize()",
    'logging.info("step")',
    "logger.info(y)",
    "print(y)",
    "t = time.perf_counter()",
    "timers.start()",
    'torch.cuda.nvtx.range_push("layer")',
    "gc.collect()",
    "torch._assert_async(y)",
)


def with_call(text: str, place: str, call: str) -> str:
    before = PLACES[place]
    return text.replace(before, f"  {call}\n{before}") if before else f"{text}  {call}\n"


def names(verdict: Verdict) -> list[str]:
    return [reason.name for reason in verdict.reasons]


def test_the_plan_is_proved_without_a_call() -> None:
    assert verdict_on(PARALLEL, REFERENCE).outcome is Outcome.PROVED


@pytest.mark.parametrize("place", sampled(PLACES, 3))
@pytest.mark.parametrize("call", UNKNOWN)
def test_a_call_that_nobody_knows_leaves_the_plan_unknown_and_is_named(call: str, place: str) -> None:
    verdict = verdict_on(with_call(PARALLEL, place, call), REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unsupported-operator" in names(verdict)
    function = call.partition("= ")[2] or call
    assert any(f"`{function.partition('(')[0]}`" in reason.message for reason in verdict.reasons)


@pytest.mark.parametrize("call", UNKNOWN)
def test_a_call_that_nobody_knows_leaves_the_reference_unknown(call: str) -> None:
    assert verdict_on(PARALLEL, with_call(REFERENCE, "forward", call)).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", INERT)
def test_a_call_of_the_table_that_changes_nothing_is_left_alone(call: str, place: str) -> None:
    assert verdict_on(with_call(PARALLEL, place, call), REFERENCE).outcome is Outcome.PROVED
    assert verdict_on(PARALLEL, with_call(REFERENCE, place, call)).outcome is Outcome.PROVED


def test_what_an_assertion_says_is_assumed() -> None:
    verdict = verdict_on(with_call(PARALLEL, "forward", "torch._assert(y)"), REFERENCE)
    assert "every assertion that the plan makes holds" in verdict.assumptions


@pytest.mark.parametrize("call", ["print(nothing)", "logging.info(nothing)"])
def test_a_call_that_changes_nothing_still_needs_its_operands(call: str) -> None:
    verdict = verdict_on(with_call(PARALLEL, "forward", call), REFERENCE)
    assert (verdict.outcome, "use-before-definition" in names(verdict)) == (Outcome.REFUTED, True)


def test_what_a_call_that_changes_nothing_gives_is_no_part_of_the_model() -> None:
    text = PARALLEL.replace("  g = gelu(y)", "  t = time.time()\n  g = mul(y, t)")
    text = text.replace("  dy = backward g (dg)", "  dy, _ = backward g (dg)")
    verdict = verdict_on(text, REFERENCE)
    assert (verdict.outcome, "undefined-value" in names(verdict)) == (Outcome.UNKNOWN, True)


HIDDEN = {
    "the reducer": ("  reduce-gradients w over dp\n", "  dist.all_reduce(grad(w))\n"),
    "the reducer, of everything": ("  reduce-gradients w over dp\n", "  finalize_model_grads()\n"),
    "the update": ("  update w\n", "  my_step(w!, grad(w))\n"),
    "the sum of the loss": ("  l = all-reduce(l0) over dp\n", "  dist.all_reduce(l0)\n  l = identity(l0)\n"),
}


@pytest.mark.parametrize("mistake", HIDDEN)
def test_what_a_call_may_have_done_is_not_refuted_for_missing(mistake: str) -> None:
    before, after = HIDDEN[mistake]
    assert before in PARALLEL
    verdict = verdict_on(PARALLEL.replace(before, after), REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]


def test_a_weight_that_a_call_may_have_updated_is_not_refuted_for_missing() -> None:
    reference, parallel = (
        text.replace("weight w f32[8,8]\n", "weight w f32[8,8]\nweight b f32[8]\n")
        .replace("linear(x, w)", "linear(x, w, b)")
        .replace("_, grad(w) =", "_, grad(w), grad(b) =")
        .replace("reduce-gradients w", "reduce-gradients w, b")
        for text in (REFERENCE.replace("update w", "update w, b"), PARALLEL)
    )
    assert names(verdict_on(parallel, reference)) == ["not-updated-once"]
    verdict = verdict_on(parallel + "  my_step(b!, grad(b))\n", reference)
    assert (verdict.outcome, "unsupported-operator" in names(verdict)) == (Outcome.UNKNOWN, True)


def named(signature: str) -> str:
    spec = spec_of(signature)
    return spec.name if spec is not None else ""


def test_no_function_is_inert_by_the_last_part_of_its_name() -> None:
    for spec in SPECS:
        for signature in spec.signatures:
            assert named(signature) == spec.name
            last = signature.rpartition(".")[2]
            assert last in spec.signatures or named(last) != spec.name
            assert spec_of(f"mine.{signature}") is None


def test_a_call_that_a_project_declares_to_change_nothing_is_left_alone_and_that_is_assumed() -> None:
    reference, parallel = plans(REFERENCE, with_call(PARALLEL, "forward", "my.report(y)"))
    assert prove(parallel, reference).outcome is Outcome.UNKNOWN
    verdict = prove(with_declared(parallel, [Declared("my.report", same_as="print")]), reference)
    assert verdict.outcome is Outcome.PROVED
    assert "`my.report` changes nothing that the model uses, as the configuration says" in verdict.assumptions
