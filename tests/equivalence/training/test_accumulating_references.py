"""References that take the batch as several micro-batches, as a training loop on one device that accumulates gradients does."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

BATCH = 24


FORTH = """segment forth forward (x) -> (h, a, y, s, m, l)
  h = linear(x, w)
  a = {row}
  y = linear(a, v)
  s = pow(y, 2)
  m: f32[] = {loss}
  l: f32[] = {divided}
segment back backward mirror forth (x, h, a, y, s, m, l) -> ()
  dm = backward l (grad(l))
  ds = backward m (dm)
  dy = backward s (ds)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""


def model(
    batches: int = 1, dp: int = 1, divisor: float = 1, reduce: str = "avg", loss: str = "mean(s)", row: str = "gelu(h)"
) -> str:
    """Return a plan of so many micro-batches on each of so many replicas, which reduce gradients and return the loss so."""
    lines = [
        *([f"mesh dp={dp}"] if dp > 1 else []),
        f"micro-batches {batches}",
        "weight w f32[8,4]",
        "weight v f32[4,8]",
        f"input x f32[{BATCH // batches},4]" if dp == 1 else f"input x f32[{BATCH // batches},4] dp:S(0)",
        "loss l f32[]" if dp == 1 else f"loss l f32[] dp:P({reduce})",
        FORTH.format(row=row, loss=loss, divided=f"div(m, {divisor})" if divisor != 1 else "clone(m)"),
        "program",
        f"run forth micro-batch 0-{batches - 1}" if batches > 1 else "run forth",
        f"run back micro-batch 0-{batches - 1}" if batches > 1 else "run back",
        *([f"reduce-gradients w, v over dp by {reduce}"] if dp > 1 else []),
    ]
    return "\n".join(lines) + "\n"


def outcome(parallel: str, reference: str) -> Outcome:
    return verdict_on(parallel, reference).outcome


@pytest.mark.parametrize("accumulated", [1, 2, 4])
@pytest.mark.parametrize(("batches", "dp"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (1, 4), (4, 2)])
def test_means_over_micro_batches_are_the_mean_over_the_batch(accumulated: int, batches: int, dp: int) -> None:
    reference = model(accumulated, divisor=accumulated)
    assert outcome(model(batches, dp, divisor=batches), reference) is Outcome.PROVED


@pytest.mark.parametrize("accumulated", [2, 4])
@pytest.mark.parametrize(("batches", "dp"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2)])
def test_another_scale_is_refuted(accumulated: int, batches: int, dp: int) -> None:
    reference = model(accumulated, divisor=accumulated)
    assert outcome(model(batches, dp, divisor=2 * batches), reference) is Outcome.REFUTED
    undivided = model(accumulated)
    assert outcome(model(batches, dp, divisor=batches), undivided) is Outcome.REFUTED


@pytest.mark.parametrize(("batches", "dp"), [(1, 1), (2, 1), (1, 2), (4, 2)])
def test_sums_over_micro_batches_are_the_sum_over_the_batch(batches: int, dp: int) -> None:
    reference = model(4, loss="sum(s)", divisor=BATCH)
    assert outcome(model(batches, dp, BATCH, "sum", "sum(s)"), reference) is Outcome.PROVED
    averaged = outcome(model(batches, dp, BATCH, "avg", "sum(s)"), reference)
    assert averaged is (Outcome.REFUTED if dp > 1 else Outcome.PROVED)


@pytest.mark.parametrize("batches", [1, 2, 4, 6])
def test_what_mixes_samples_of_a_micro_batch_is_not_proved_over_other_micro_batches(batches: int) -> None:
    row = "torch.softmax(h, dim=0)"
    verdict = outcome(model(batches, divisor=batches, row=row), model(2, divisor=2, row=row))
    assert verdict is not Outcome.PROVED
    assert batches == 2 or verdict is Outcome.REFUTED


def test_micro_batches_that_are_no_parts_of_each_other_are_left_open() -> None:
    verdict = verdict_on(model(6, divisor=6), model(4, divisor=4))
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["other-batch"]


def test_a_reference_of_unlike_micro_batches_proves_nothing() -> None:
    lines = model(2, divisor=2)
    first = lines[lines.index("segment forth") : lines.index("program")]
    rest = "run forth micro-batch 0\nrun back micro-batch 0\n"
    second = first.replace("forth", "other").replace("segment back", "segment again").replace("gelu", "relu")
    runs = rest + rest.replace("forth", "other").replace("back", "again").replace("batch 0", "batch 1")
    unlike = lines[: lines.index("program")] + second + "program\n" + runs
    verdict = verdict_on(model(1), unlike)
    assert verdict.outcome is Outcome.UNKNOWN
    assert {reason.refutes for reason in verdict.reasons} == {False}


@pytest.mark.parametrize("name", ["l", "m"])
def test_a_reference_may_return_the_mean_of_each_micro_batch_or_its_share(name: str) -> None:
    returned = model(4, divisor=4).replace("loss l f32[]", f"loss {name} f32[]")
    for batches, dp in ((1, 1), (2, 2), (4, 1)):
        assert outcome(model(batches, dp, divisor=batches), returned) is Outcome.PROVED


def test_another_batch_is_no_proof() -> None:
    more = model(2, divisor=2).replace(f"x f32[{BATCH // 2},4]", f"x f32[{BATCH},4]")
    verdict = verdict_on(model(1), more)
    assert [reason.name for reason in verdict.reasons] == ["other-batch"]


def test_a_number_of_each_micro_batch_is_not_followed() -> None:
    """Times the number of one micro-batch, or of each: the same where all are alike, and not where each has its own."""
    numbered = model(2, divisor=2).replace("loss l", "input c f32[]\nloss l").replace("mean(s)", "mean(t)")
    numbered = numbered.replace("m: f32[]", "t = mul(s, c)\n  m: f32[]").replace(
        "ds = backward m (dm)", "dt = backward m (dm)\n  ds, _ = backward t (dt)"
    )
    numbered = (
        numbered.replace("(h, a, y, s,", "(h, a, y, s, t,")
        .replace("(x, h, a, y, s,", "(x, c, h, a, y, s, t,")
        .replace("forward (x)", "forward (x, c)")
    )
    verdict = verdict_on(numbered, numbered)
    assert [reason.name for reason in verdict.reasons] == ["other-inputs"]


def by_hand(batches: int, dp: int, added: str = "add(u, d)") -> str:
    """Return a plan whose gradient of `h` is a sum of addends with other constants than each other, written out."""
    text = model(batches, dp, batches, row="mul(h, t)")
    text = text.replace("  a = mul(h, t)\n", "  k = mul(h, 0.5)\n  t = tanh(k)\n  a = mul(h, t)\n")
    text = text.replace("-> (h, a, y,", "-> (h, k, t, a, y,").replace("mirror forth (x, h, a,", "mirror forth (x, h, k, t, a,")
    gradient = f"u, dt = backward a (da)\n  dk = backward t (dt)\n  d = backward k (dk)\n  dh = {added}\n"
    return text.replace("dh = backward a (da)\n", gradient)


@pytest.mark.parametrize(("batches", "dp"), sampled_tuples([(1, 1), (2, 1), (1, 2), (4, 2)], 3))
def test_addends_of_a_gradient_have_constants_of_their_own(batches: int, dp: int) -> None:
    assert outcome(by_hand(batches, dp), by_hand(2, 1)) is Outcome.PROVED
    for wrong in ("add(u, d, alpha=2)", "sub(u, d)", "add(d, u, alpha=3)", "mul(d, 2)"):
        assert outcome(by_hand(batches, dp, wrong), by_hand(2, 1)) is Outcome.REFUTED, wrong
