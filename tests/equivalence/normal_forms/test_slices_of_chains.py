"""Slices of what is computed step by step, each step from the one before in several ways, as gates do."""

from __future__ import annotations

from functools import partial

from tests.builders.operation_counts import operations
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tvlint.equivalence.verdict.prove import is_proved

HEAD = "weight w f32[8,8]\ninput x f32[4,8]\nloss l\nprogram\n"


def chain(name: str, value: str, steps: int) -> list[str]:
    """Return steps that begin with a value, the last of which makes `name`."""
    lines = []
    for step in range(steps):
        made = name if step == steps - 1 else f"{name}{step}"
        lines += [f"{made}p = linear({value}, w)", f"{made}q = tanh({made}p)", f"{made}r = sigmoid({value})"]
        lines += [f"{made} = mul({made}q, {made}r)"]
        value = made
    return lines


def sliced_at_the_end(steps: int, first: int = 0) -> str:
    lines = [*chain("h", "x", steps), f"a = narrow(h, 0, {first}, 2)", "b = narrow(h, 0, 2, 2)"]
    return with_backward(HEAD + "\n".join([*lines, "m = mul(a, b)", "l: f32[] = sum(m)"]))


def sliced_at_the_beginning(steps: int) -> str:
    lines = ["u = narrow(x, 0, 0, 2)", "v = narrow(x, 0, 2, 2)", *chain("a", "u", steps), *chain("b", "v", steps)]
    return with_backward(HEAD + "\n".join([*lines, "m = mul(a, b)", "l: f32[] = sum(m)"]))


def test_a_slice_of_steps_is_found_once_for_each_of_them() -> None:
    pairs = [plans(sliced_at_the_end(steps), sliced_at_the_beginning(steps)) for steps in (2, 4, 8)]
    counts = [operations(partial(is_proved, *pair)).total() for pair in pairs]
    assert counts[2] - counts[1] < 3 * (counts[1] - counts[0])


def test_a_slice_of_the_last_step_is_made_of_slices_of_all() -> None:
    assert is_proved(*plans(sliced_at_the_end(3), sliced_at_the_beginning(3)))


def test_another_slice_of_the_last_step_is_another_value() -> None:
    assert not is_proved(*plans(sliced_at_the_end(3, first=1), sliced_at_the_beginning(3)))
