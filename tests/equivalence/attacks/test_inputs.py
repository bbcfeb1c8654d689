"""What communication puts something else in is that from then on, be it an input or a gradient that is handed on."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import ONE_LAYER, TWO_LAYERS
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REPLACED = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
segment first forward GIVEN
  CALL
segment forth forward TAKEN -> (l)
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
segment back backward () -> ()
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run first
  run forth
  run back
"""


def replacing(call: str, given: str = "() -> ()", taken: str = "()") -> str:
    return REPLACED.replace("CALL", call).replace("GIVEN", given).replace("TAKEN", taken)


def not_proved(text: str, reference: str) -> None:
    assert verdict_on(text, reference).outcome is not Outcome.PROVED


def proved(text: str, reference: str) -> None:
    assert verdict_on(text, reference).outcome is Outcome.PROVED
    outer, inner = plans(reference, text)
    assert compare(outer, inner).outcome == "equal"


@pytest.mark.parametrize("call", ["x = all-reduce(x) over tp", "x = reduce(x, root=0) over tp"])
@pytest.mark.parametrize(
    ("given", "taken"), [("() -> ()", "()"), ("(x) -> ()", "()"), ("() -> (x)", "()"), ("() -> ()", "(x)")]
)
def test_an_input_that_is_replaced_is_not_there_as_it_was(call: str, given: str, taken: str) -> None:
    text = replacing(call, given, taken)
    not_proved(text, ONE_LAYER)
    assert compare(*plans(ONE_LAYER, text)).outcome != "equal"


@pytest.mark.parametrize("call", ["c = all-reduce(x) over tp", "x = all-reduce avg(x) over tp"])
def test_an_input_that_is_given_on_is_what_was_given(call: str) -> None:
    given, taken = ("() -> ()", "()") if call.startswith("c") else ("() -> (x)", "(x)")
    proved(replacing(call, given, taken), ONE_LAYER)


def test_an_input_that_is_replaced_where_it_is_read_is_what_is_read() -> None:
    text = replacing("c = all-reduce(x) over tp").replace("  y = linear", "  x = broadcast(x, root=0) over tp\n  y = linear")
    proved(text, ONE_LAYER)


BETWEEN = """
mesh tp=2
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
tensor g f32[8,8]
loss l f32[]
segment forth forward () -> (l)
  y = linear(x, w)
  g = gelu(y)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment late backward (l) -> (dg)
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
segment between reduce (dg) -> ()
  CALL
segment early backward (dg) -> ()
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run forth
  run late
  run between
  run early
"""


@pytest.mark.parametrize("call", ["dg = all-reduce(dg) over tp", "dg = all-reduce max(dg) over tp"])
def test_a_gradient_that_is_replaced_and_not_given_is_not_read_as_it_was(call: str) -> None:
    not_proved(BETWEEN.replace("CALL", call), TWO_LAYERS)
    proved(BETWEEN.replace("CALL", call.replace("dg =", "c =")), TWO_LAYERS)


HANDED_ON = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l f32[]
segment first forward () -> (g)
  y = linear(x, w)
  g = gelu(y)
segment second forward (h) -> (q)
  z = linear(h, v)
  q = gelu(z)
segment last forward (INNER) -> (l)
  l = sum(INNER)
segment back backward (l) -> ()
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run first () -> (a)
  run second (a) -> (OUTER)
  run last (OUTER) -> (l)
  run back
"""


@pytest.mark.parametrize(
    ("inner", "outer", "right"), [("k", "b", True), ("q", "b", True), ("x", "b", False), ("x", "x", False), ("k", "x", False)]
)
def test_what_is_made_is_no_input(inner: str, outer: str, right: bool) -> None:
    """The gradient of the first layer needs the input by the name that something else has by then."""
    text = HANDED_ON.replace("INNER", inner).replace("OUTER", outer)
    assert (verdict_on(text, TWO_LAYERS).outcome is Outcome.PROVED) == right
    assert right or inner != "x" or compare(*plans(TWO_LAYERS, text)).outcome == "different"
