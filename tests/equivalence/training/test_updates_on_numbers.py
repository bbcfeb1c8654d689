"""Plans that write out how weights and states are updated, and leave others than the reference: runs on numbers refute them."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

HEAD = "weight w f32[8,4]{tp}\nstate e f32[8,4]{tp}\ninput x f32[6,4]\nloss l\nprogram\nh = linear(x, w)\na = gelu(h)\n"
ONE = HEAD.format(tp="") + "l: f32[] = sum(a)\n"
RANKS = "mesh tp=2\n" + HEAD.format(tp=" tp:S(0)") + "l0: f32[] = sum(a)\nl = all-reduce(l0) over tp\n"
STEP = "end sgd_step(w!, grad(w), lr=0.1)\n"
WHOLE_NORM = "end n0 = pow(grad(w), 2)\nend n1: f32[] = sum(n0)\n"
TWICE = "end c = mul(grad(w), 2.0)\n"
IN_PLACE = "end mul_(grad(w)!, 2.0)\nend mul_(e!, 0.9)\nend add_(e!, grad(w))\nend sub_(w!, e)\n"
CLIP = "end n = sqrt(n1)\nend d = add(n, 1e-06)\nend c = div(grad(w), d)\nend sgd_step(w!, c, lr=0.1)\n"

IDIOMS = {
    "an average of weights": Idiom(
        ONE + STEP + "end e1 = mul(e, 0.99)\nend e2 = mul(w, 0.01)\nend e3 = add(e1, e2)\nend copy_(e!, e3)\n",
        RANKS + STEP + "end e3 = lerp(e, w, 0.01)\nend copy_(e!, e3)\n",
        (
            ("lerp(e, w, 0.01)", "lerp(w, e, 0.01)"),
            ("lerp(e, w, 0.01)", "lerp(e, w, 0.02)"),
            (STEP + "end e3 = lerp(e, w, 0.01)\n", "end e3 = lerp(e, w, 0.01)\n" + STEP),
        ),
    ),
    "a gradient of norm one": Idiom(
        ONE + WHOLE_NORM + CLIP + "end copy_(e!, w)\n",
        RANKS + WHOLE_NORM.replace("n1", "n2") + "end n1 = all-reduce(n2) over tp\n" + CLIP + "end copy_(e!, w)\n",
        (
            ("n1 = all-reduce(n2) over tp", "n1 = identity(n2)"),
            ("n1 = all-reduce(n2) over tp", "n1 = all-reduce avg(n2) over tp"),
            ("c = div(grad(w), d)", "c = div(grad(w), n2)"),
        ),
    ),
    "momentum by methods that overwrite": Idiom(
        ONE + TWICE + "end e2 = mul(e, 0.9)\nend e3 = add(e2, c)\nend copy_(e!, e3)\nend w2 = sub(w, e3)\nend copy_(w!, w2)\n",
        RANKS + IN_PLACE,
        (
            ("end mul_(grad(w)!, 2.0)\n", ""),
            ("end mul_(e!, 0.9)\nend add_(e!, grad(w))\n", "end add_(e!, grad(w))\nend mul_(e!, 0.9)\n"),
            ("end add_(e!, grad(w))\nend sub_(w!, e)\n", "end sub_(w!, e)\nend add_(e!, grad(w))\n"),
            ("sub_(w!, e)", "add_(w!, e)"),
            ("sub_(w!, e)", "sub_(w!, e, alpha=2)"),
            ("end mul_(e!, 0.9)\n", "end mul_(e!, 0.9)\nend mul_(e!, 0.9)\n"),
        ),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_a_right_update_is_proved(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), twins(IDIOMS))
def test_another_update_is_refuted(name: str, before: str, after: str) -> None:
    verdict = IDIOMS[name].verdict(before, after)
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]


def test_the_message_says_what_is_left() -> None:
    name = "an average of weights"
    verdict = IDIOMS[name].verdict(*IDIOMS[name].wrong[0])
    assert "what is left in `e` on every rank is another one in 3 runs" in verdict.reasons[0].message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sub_(w!, e)", "sub(w, e)"),
        ("sub_(w!, e)", "rsub_(w!, e)"),
        ("add_(e!, grad(w))", "lt_(e!, grad(w))"),
        ("end mul_(grad(w)!, 2.0)\n", "end g = identity(grad(w))\nend mul_(g!, 2.0)\n"),
        ("end mul_(e!, 0.9)\n", "end f = identity(e)\nend mul_(f!, 0.9)\n"),
    ],
)
def test_methods_that_are_no_function_of_their_operand_alone_are_not_understood(before: str, after: str) -> None:
    verdict = IDIOMS["momentum by methods that overwrite"].verdict(before, after)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unsupported-operator" in {reason.name for reason in verdict.reasons}


SEEN = {
    "a view of a weight that is overwritten": ("lerp(e, w, 0.01)", "lerp(e, v, 0.01)", "end v = view(w, [4, 4])\n" + STEP),
    "a transposed weight that is copied": (
        "copy_(e!, e3)",
        "copy_(e!, u)",
        STEP + "end v = transpose(e, 0, 1)\nend u = identity(v)\n",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_is_seen_under_another_name_shows_nothing(name: str) -> None:
    """A run on numbers keeps names apart that may be one memory, and a plan may rely on that they are."""
    before, after, instead = SEEN[name]
    idiom = IDIOMS["an average of weights"]
    plan = idiom.plan.replace(before, after).replace(STEP, instead)
    verdict = Idiom(idiom.reference, plan, ()).verdict()
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]


DIVIDED = "mesh dp=2\n" + HEAD.format(tp="").replace("f32[6,4]", "f32[6,4] dp:S(0)") + "l0: f32[] = sum(a)\n"
DIVIDED += "l = all-reduce(l0) over dp\nend reduce-gradients w over dp{by}\n" + STEP + "end copy_(e!, w)\n"


@pytest.mark.parametrize(("by", "outcome"), [("", Outcome.PROVED), (" divide 2", Outcome.REFUTED)])
def test_a_step_by_a_part_of_the_gradient_is_refuted(by: str, outcome: Outcome) -> None:
    reference = ONE + STEP + "end copy_(e!, w)\n"
    assert Idiom(reference, DIVIDED.format(by=by), ()).verdict().outcome is outcome


def test_a_step_of_which_the_plan_does_not_say_what_divides_the_gradient_shows_nothing() -> None:
    twice = ONE.replace("sum(a)", "mean(a)") + STEP + "end copy_(e!, w)\n"
    assert Idiom(twice, DIVIDED.format(by=" divide unknown"), ()).verdict().outcome is Outcome.UNKNOWN


def _of_weight(text: str) -> str:
    """Return a plan that says of which weight its state is."""
    return "\n".join(f"{line} of w" if line.startswith("state e") else line for line in text.splitlines()) + "\n"


def test_states_that_are_said_to_be_of_a_weight_are_no_copies_where_they_are_written_otherwise() -> None:
    """The plan was refuted against itself: what is left in the state went by the name of the weight."""
    idiom = IDIOMS["an average of weights"]
    reference = _of_weight(idiom.reference)
    assert Idiom(reference, reference, ()).verdict().outcome is not Outcome.REFUTED
    assert Idiom(reference, _of_weight(idiom.plan), ()).verdict().outcome is not Outcome.REFUTED
    assert Idiom(ONE + STEP, _of_weight(idiom.plan), ()).verdict().outcome is not Outcome.REFUTED
    for wrong in (("0.01)", "0.02)"), (", lr=0.1)", ", lr=0.2)")):
        assert Idiom(reference, _of_weight(idiom.plan).replace(*wrong), ()).verdict().outcome is Outcome.REFUTED


def test_a_weight_that_is_copied_from_its_master_when_a_step_begins_is_what_the_master_is() -> None:
    head, step = _of_weight(ONE), "end g = mul(grad(w), 0.1)\nend n = sub({0}, g)\nend copy_({0}!, n)\n"
    early, late = head.replace("h = ", "copy_(w!, e) || none\nh = "), head + "end copy_(w!, e)\n"
    reference = head + step.format("w")
    assert Idiom(reference, early + step.format("e"), ()).verdict().outcome is not Outcome.REFUTED
    for wrong in (early + step.format("e").replace("0.1", "0.2"), late + step.format("e")):
        assert Idiom(reference, wrong, ()).verdict().outcome is Outcome.REFUTED
