"""Which micro-batch a returned value is of: all ranks say the same, and values stand in one order for all micro-batches."""

from __future__ import annotations

import pytest

from tests.equivalence.references import LABELLED
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

HEAD = """
mesh tp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
input x0 f32[4,8] of x
input x1 f32[4,8] of x
tensor l f32[]
tensor g f32[4,8]
OUTPUTS
segment load data () -> (x)
  x = load()
segment forth forward (x) -> (g, l)
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
segment back backward () -> ()
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""


def labelled(outputs: str, first: tuple[str, str], second: tuple[str, str]) -> str:
    """The plan that returns `outputs`; both micro-batches' names on the first rank, and on the second."""
    types = {"g": "f32[4,8]", "l": "f32[]"}
    text = HEAD.replace("OUTPUTS", "\n".join(f"output {name} {types[name[0]]}" for name in outputs.split()))
    for rank, names in enumerate((first, second)):
        text += f"program tp={rank}\n"
        for number, own in enumerate(names):
            text += f"  run load micro-batch {number} () -> (x{number})\n"
            text += f"  run forth micro-batch {number} (x{number}) -> ({own})\n"
            text += f"  run back micro-batch {number} () -> ()\n"
    return text


IN_ORDER = ("g0, l0", "g1, l1")


@pytest.mark.parametrize(
    ("outputs", "second", "right"),
    [
        ("g0 l0 g1 l1", IN_ORDER, True),
        ("g0 g1 l0 l1", IN_ORDER, True),
        ("g0 l0 g1 l1", ("g0, l1", "g1, l0"), False),
        ("g0 l0 l1 g1", IN_ORDER, False),
    ],
)
def test_a_returned_value_is_of_one_micro_batch(outputs: str, second: tuple[str, str], right: bool) -> None:
    text = labelled(outputs, IN_ORDER, second)
    assert (verdict_on(text, LABELLED).outcome is Outcome.PROVED) == right
