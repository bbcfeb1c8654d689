"""Plans in which a name means another thing than it seems to: none is proved."""

from __future__ import annotations

import re

import pytest

from tests.builders.used_plans import in_use
from tests.equivalence.attacks.test_micro_batches_and_replicas import plan
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

TWO = "weight w1 f32[8,8]\nweight w2 f32[8,8]\ninput x f32[{0},8]\ninput y f32[{0},8]\n"
LAYERS = """
  h = linear(x, w1)
  g = linear(h, w2)
  e = sub(g, y)
  z = gelu(e)
  l = sum(z)
  dz = backward l (grad(l))
  de = backward z (dz)
  dg, _ = backward e (de)
  dh, grad(w2) = backward g (dg)
  _, grad(w1) = backward h (dh)
"""
RUN = f"loss l f32[]\nsegment s forward (x, y, w1) -> (l){LAYERS}program\n  run s micro-batch 0 (x, y, w1) -> (l)\n"
RUNS = f"""tensor l1 f32[]
output l f32[]
output l1 f32[]
segment s forward (x, y, w1) -> (l){LAYERS}program
  run s micro-batch 0 (x, y, w1) -> (l)
  run s micro-batch 1 (x, y, w1) -> (l1)
"""

ONE = "weight w f32[8,8]\ninput x f32[{0},8]\nloss l f32[]\n"
LAYER = """
  h = linear(x, w)
  z = gelu(h)
  l = sum(z)
  dz = backward l (grad(l))
  dh = backward z (dz)
"""
WHOLE = f"{LAYER}  _, grad(w) = backward h (dh)\n"
LOADED = f"tensor v i64[]\nsegment d data () -> (x)\n  x = load()\nsegment s forward (x) -> (l){WHOLE}program\n"
IN_PLACE = f"""
segment a forward (x) -> (h)
  h = linear(x, w)
segment b forward (h) -> ()
  {{0}} = reduce max(h, root=0) over tp
segment c forward (h) -> (l){LAYER.replace("  h = linear(x, w)", "")}  _, grad(w) = backward h (dh)
program
  run a
  run b
  run c
"""
AVERAGED = """replicate dp
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
loss m f32[]
segment s forward (x) -> (m)
  h = linear(x, w)
  l = mean(h)
  m = KIND
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
segment r reduce () -> ()
  reduce-gradients w over dp by avg divide 2
program ranks 0
  run s micro-batch 0-1
  run r
"""
ALONE = f"segment s forward (x) -> (l){WHOLE}program\n  run s (x) -> (l)\n"
MEAN = """weight w f32[8,8]
input x f32[16,8]
loss l f32[]
program
  h = linear(x, w)
  l = mean(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""

SINGLE = f"{TWO.format(8)}loss l f32[]\nprogram{LAYERS}"
DOUBLE = f"{TWO.format(16)}loss l f32[]\nprogram{LAYERS}"
SIMPLE = f"{ONE.format(8)}program{WHOLE}"
FIRST, SECOND = "run s micro-batch 0 (x, y, w1)", "run s micro-batch 1 (x, y, w1)"
NAMED = f"mesh tp=2\n{ONE.format(8)}program{LAYER}"

RIGHT = {
    "named": (TWO.format(8) + RUN, SINGLE),
    "two micro-batches": ("micro-batches 2\n" + TWO.format(8) + RUNS, DOUBLE),
    "a gradient of another name": (NAMED + "  _, g = backward h (dh)\n", SIMPLE),
    "loaded": (ONE.format(8) + LOADED + "  run d micro-batch 0\n  run s micro-batch 0 (x) -> (l)\n", SIMPLE),
    "an input left over": (f"input y f32[8,8]\n{ONE.format(8)}{ALONE}", f"input y f32[8,8]\n{SIMPLE}"),
    "reduced to another tensor": (f"mesh tp=2\n{ONE.format(8)}{IN_PLACE.format('k')}", SIMPLE),
    "a mean of each replica": ("mesh dp=2\n" + AVERAGED.replace("KIND", "identity(l)"), MEAN),
}

WRONG = {
    "another weight": ("named", FIRST, "run s micro-batch 0 (x, y, w2)"),
    "inputs exchanged": ("named", FIRST, "run s micro-batch 0 (y, x, w1)"),
    "another weight later": ("two micro-batches", SECOND, "run s micro-batch 1 (x, y, w2)"),
    "inputs exchanged later": ("two micro-batches", SECOND, "run s micro-batch 1 (y, x, w1)"),
    "another input": ("an input left over", "run s (x)", "run s (y)"),
    "a loss of another type": ("loaded", "0 (x) -> (l)\n", "0 (x) -> (v)\n"),
    "loaded twice": ("loaded", "  run d", "  run d micro-batch 0\n  run d"),
    "two gradients of one weight": (
        "a gradient of another name",
        "(dh)\n",
        "(dh)\n  g = mul(g, 0.5)\n  grad(w) = identity(g)\n",
    ),
    "reduced in place": (
        "reduced to another tensor",
        "(h) -> ()\n  k = reduce",
        "(h) -> (h)\n  h = reduce",
    ),
    "reduced in place and not given on": ("reduced to another tensor", "k = reduce", "h = reduce"),
    "means that are added over replicas": (
        "a mean of each replica",
        "identity(l)",
        "all-reduce(l) over dp",
    ),
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_names_of_runs_are_followed(name: str) -> None:
    parallel, reference = map(plan, RIGHT[name])
    assert prove(in_use(parallel), reference).outcome is Outcome.PROVED


REASONS = {
    "another weight": "unlike-values",
    "inputs exchanged": "unlike-values",
    "another weight later": "unlike-values",
    "inputs exchanged later": "unlike-values",
    "another input": "unlike-values",
    "a loss of another type": "missing-output",
    "loaded twice": "loaded-twice",
    "two gradients of one weight": "wrong-gradient-scale",
    "reduced in place": "undefined-value",
    "reduced in place and not given on": "renamed-value",
    "means that are added over replicas": "scaled-output",
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_name_that_means_another_thing_is_not_proved(name: str) -> None:
    pair, before, after = WRONG[name]
    parallel, reference = RIGHT[pair]
    verdict = prove(plan(parallel.replace(before, after)), plan(reference))
    assert verdict.outcome is not Outcome.PROVED
    assert REASONS[name] in [reason.name for reason in verdict.reasons]


@pytest.mark.parametrize("kind", ["identity(l)", "all-reduce avg(l) over dp"])
def test_a_replica_returns_its_mean_or_that_of_all(kind: str) -> None:
    parallel, reference = RIGHT["a mean of each replica"]
    assert prove(plan(parallel.replace("identity(l)", kind)), plan(reference)).outcome is Outcome.PROVED


def test_inputs_with_other_names_are_matched_by_order_which_is_said() -> None:
    parallel, reference = RIGHT["named"]
    renamed = parallel.replace("input x", "input a").replace("input y", "input b").replace("(x, y,", "(a, b,")
    renamed = renamed.replace("linear(x,", "linear(a,").replace("sub(g, y)", "sub(g, b)")
    verdict = prove(plan(renamed), plan(reference))
    assert verdict.outcome is Outcome.PROVED
    assert any("in the order of their first use: `a` is `x`, `b` is `y`" in text for text in verdict.assumptions)


def test_other_values_of_inputs_with_other_names_are_left_open_and_why() -> None:
    parallel, reference = RIGHT["named"]
    renamed = parallel.replace("input x", "input a").replace("input y", "input b").replace("(x, y,", "(a, b,")
    renamed = renamed.replace("linear(x,", "linear(a,").replace("sub(g, y)", "sub(b, g)")
    verdict = prove(plan(renamed), plan(reference))
    assert verdict.outcome is Outcome.UNKNOWN, verdict.reasons
    assert ("not run on numbers, since", "the plans call their inputs by other names") in verdict.facts


def test_nothing_is_assumed_of_inputs_with_the_same_names() -> None:
    parallel, reference = RIGHT["named"]
    assert not any("first use" in text for text in prove(plan(parallel), plan(reference)).assumptions)


def as_items(text: str, sample: str, keys: str = "xy") -> str:
    """Return the text with its inputs `x` and `y` as items of a sample."""
    pattern = r"(?<=input )([xy])\b|(?<=run s micro-batch 0 \()([xy])\b|(?<=linear\()([xy])\b|\b([xy])(?=[,)])"
    return re.sub(pattern, lambda found: f"`{sample}['{keys['xy'.index(found.group())]}']`", text)


def test_items_of_a_sample_are_matched_by_their_keys() -> None:
    parallel, reference = (as_items(text, sample) for text, sample in zip(RIGHT["named"], ("s_2", "s_1"), strict=True))
    verdict = prove(plan(parallel), plan(reference))
    assert verdict.outcome is Outcome.PROVED
    assert not any("first use" in text for text in verdict.assumptions)


def test_items_of_a_sample_that_are_exchanged_are_refuted() -> None:
    parallel, reference = RIGHT["named"]
    verdict = prove(plan(as_items(parallel, "s_2", "yx")), plan(as_items(reference, "s_1")))
    assert verdict.outcome is Outcome.REFUTED, verdict.reasons
