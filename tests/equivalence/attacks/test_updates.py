"""The weights that are updated are those that the reference updates, each once."""

from __future__ import annotations

import pytest

from tests.equivalence.references import ONE_LAYER, TWO_LAYERS
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

WRONG = (("v", "w, v"), ("v", "w"), ("w, v", "v"), ("", "v"), ("v, v", "v"), ("w, v, v", "w, v"), ("v", "v, v"))
"""What the reference updates, and the plan."""


def updating(weights: str) -> str:
    """The step that updates these weights; two lines where one of them comes twice."""
    given = [name for name in weights.split(", ") if name]
    names = list(dict.fromkeys(given))
    again = [name for i, name in enumerate(given) if name in given[:i]]
    return TWO_LAYERS + "".join(f"  update {', '.join(own)}\n" for own in (names, again) if own)


@pytest.mark.parametrize(("theirs", "own"), WRONG)
def test_what_the_reference_does_not_update_once_is_not_updated(theirs: str, own: str) -> None:
    assert verdict_on(updating(own), updating(theirs)).outcome is not Outcome.PROVED


@pytest.mark.parametrize(("theirs", "own"), [("v", "v"), ("w, v", "v, w"), ("", "v, w"), ("", "")])
def test_what_the_reference_updates_is_updated(theirs: str, own: str) -> None:
    assert verdict_on(updating(own), updating(theirs)).outcome is Outcome.PROVED


ROWS = """
mesh dp=2 tp=2
weight w f32[8,8] tp:S(0)
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over dp,tp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

REDUCERS = {
    "reduce-gradients w over dp scatter": True,
    "reduce-gradients w over dp\n  reduce-gradients w over dp by avg": True,
    "reduce-gradients w over dp\n  reduce-gradients w over dp by avg scatter": True,
    "reduce-gradients w over dp scatter\n  reduce-gradients w over dp by avg": False,
    "reduce-gradients w over dp by avg scatter\n  reduce-gradients w over dp": False,
}


@pytest.mark.parametrize("reducers", REDUCERS)
@pytest.mark.parametrize("replicate", [False, True])
def test_shards_of_a_gradient_are_not_reduced_again_as_if_they_were_all_of_it(reducers: str, replicate: bool) -> None:
    text = f"{ROWS}  {reducers}\n"
    if replicate:
        text = text.replace("mesh dp=2 tp=2", "mesh dp=2 tp=2\nreplicate dp").replace("x f32[8,8] dp:S(0)", "x f32[4,8]")
    assert (verdict_on(text, ONE_LAYER).outcome is Outcome.PROVED) == REDUCERS[reducers]


@pytest.mark.parametrize(
    "line", ["reduce-gradients nothing over dp", "reduce-gradients x over dp", "update nothing", "update x"]
)
def test_what_is_no_weight_is_neither_reduced_nor_updated(line: str) -> None:
    text = f"{ROWS}  reduce-gradients w over dp\n  {line}\n"
    assert verdict_on(text, ONE_LAYER).outcome is not Outcome.PROVED
