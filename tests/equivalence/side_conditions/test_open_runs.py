"""What leaves open how a plan runs: gradients that some ranks make, inputs before they are loaded, calls too many, addends."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.attacks.test_same_names import PARALLEL, REFERENCE, plan_of
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.side_conditions.step_bindings import mismatched_bindings
from tvlint.equivalence.verdict.numbers.outcome import Difference, NotRun
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.equivalence.verdict.unmade_gradients import ways_to_run
from tvlint.findings import Outcome

HEAD, STEPS = f"mesh tp=2{PARALLEL}".split("program\n")
WITHOUT = STEPS.replace("  run back-b micro-batch 0 (d) -> (g)\n", "")


@pytest.mark.parametrize(("first", "ways"), [(WITHOUT, 2), (STEPS, 0)])
def test_a_gradient_that_others_make_in_the_same_segment_is_not_filled_in(first: str, ways: int) -> None:
    case = pair(plan_of(f"{HEAD}program tp=0\n{first}program tp=1\n{WITHOUT}"), plan_of(REFERENCE), frozenset())
    assert isinstance(case, Case)
    assert len(list(ways_to_run(case))) == ways


LOADED = """
weight w f32[4,4]
input x f32[4,4]
loss l
segment data data () -> (x)
  x: f32[4,4] = dataloader()
segment a forward (x) -> (l)
  h: f32[4,4] = linear(x, w)
  y: f32[4,4] = gelu(h)
  l: f32[] = sum(y)
segment b backward () -> ()
  dy: f32[4,4] = backward l (grad(l))
  dh: f32[4,4] = backward y (dy)
  _, grad(w) = backward h (dh)
program
  run data micro-batch 0
  run a micro-batch 0
  run b micro-batch 0
"""
LATE = LOADED.replace("  run data micro-batch 0\n  run a micro-batch 0\n", "  run a micro-batch 0\n  run data micro-batch 0\n")
REFERENCE_OF_LOADED = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  h = linear(x, w)
  y = gelu(h)
  l = sum(y)
  dy = backward l (grad(l))
  dh = backward y (dy)
  _, grad(w) = backward h (dh)
"""


def test_an_input_is_not_there_before_it_is_loaded() -> None:
    assert verdict_on(LOADED, REFERENCE_OF_LOADED).outcome is Outcome.PROVED
    found = on_numbers_of(plan_of(LATE), plan_of(REFERENCE_OF_LOADED))
    assert found == NotRun("`x` is read before it is loaded")
    assert verdict_on(LATE, REFERENCE_OF_LOADED).outcome is not Outcome.PROVED


@pytest.mark.parametrize(("read", "found"), [("z", []), ("x", ["loaded-twice"])])
def test_what_is_loaded_twice_matters_where_it_is_read(read: str, found: list[str]) -> None:
    loads = f"segment again data () -> ({read})\n  {read}: f32[4,4] = dataloader()\nsegment a"
    text = LOADED.replace("loss l", "input z f32[4,4]\nloss l").replace("segment a", loads)
    twice = "  run again micro-batch 0\n" * 2
    plan = plan_of(text.replace("  run data micro-batch 0\n", f"  run data micro-batch 0\n{twice}"))
    assert [defect.name for defect in mismatched_bindings(plan, plan.programs[0], frozenset(), {})] == found


def test_a_segment_does_not_load_one_name_twice() -> None:
    text = LOADED.replace("= dataloader()\n", "= dataloader()\n  x = dataloader()\n")
    assert text != LOADED
    assert [reason.name for reason in verdict_on(text, REFERENCE_OF_LOADED).reasons] == ["loaded-twice"]


MISNAMED = LOADED.replace("  y: f32[4,4] = gelu(h)\n", "segment c forward (h) -> (l)\n  y: f32[4,4] = gelu(h)\n").replace(
    "forward (x) -> (l)", "forward (x) -> (h)"
)
NAMED = MISNAMED.replace("run a micro-batch 0\n", "run a micro-batch 0 (x) -> (h1)\n  run c micro-batch 0 (h1) -> (l)\n")
MISNAMED = NAMED.replace("run c micro-batch 0 (h1)", "run c micro-batch 0 (h2)")


def test_a_value_is_not_there_under_a_name_that_nothing_has_made() -> None:
    assert not isinstance(on_numbers_of(plan_of(NAMED), plan_of(REFERENCE_OF_LOADED)), NotRun)
    found = on_numbers_of(plan_of(MISNAMED), plan_of(REFERENCE_OF_LOADED))
    assert found == NotRun("`h` is read under a name that nothing has made")
    assert verdict_on(MISNAMED, REFERENCE_OF_LOADED).outcome is not Outcome.PROVED


@pytest.mark.parametrize("what", ["weight w f32[4,4]", "input x f32[4,4]"])
def test_an_addend_that_is_taken_for_the_sum_is_refuted(what: str) -> None:
    text = REFERENCE_OF_LOADED.replace(what, f"{what} part 0/2")
    verdict = verdict_on(text, REFERENCE_OF_LOADED)
    assert verdict.outcome is Outcome.REFUTED
    assert isinstance(on_numbers_of(plan_of(text), plan_of(REFERENCE_OF_LOADED)), Difference)


IN_SEGMENTS = """
weight w f32[4,4]
weight v f32[4,4]
input x f32[4,4]
loss l
segment a forward (x) -> (l)
  h: f32[4,4] = linear(x, w)
  y: f32[4,4] = gelu(h)
  z: f32[4,4] = linear(y, v)
  l: f32[] = sum(z)
segment b backward () -> ()
  dz: f32[4,4] = backward l (grad(l))
  dy: f32[4,4], grad(v) = backward z (dz)
segment c backward () -> ()
  dh: f32[4,4] = backward y (dy)
  _, grad(w) = backward h (dh)
  dy: f32[4,4] = identity(dh)
program
  run a micro-batch 0
  run b micro-batch 0
  run c micro-batch 0
"""


def test_a_gradient_that_another_segment_made_under_the_name_is_not_refuted_as_read_too_early() -> None:
    declared = IN_SEGMENTS.replace("b backward () -> ()", "b backward () -> (dy)").replace("c backward ()", "c backward (dy)")
    assert verdict_on(declared, declared).outcome is Outcome.PROVED
    assert verdict_on(IN_SEGMENTS, declared).outcome is Outcome.UNKNOWN
    alone = IN_SEGMENTS.replace("  dy: f32[4,4], grad(v) = backward", "  dg: f32[4,4], grad(v) = backward")
    assert verdict_on(alone, declared).outcome is Outcome.REFUTED
