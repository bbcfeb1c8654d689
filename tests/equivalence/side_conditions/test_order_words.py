"""What the proof says of things in the wrong order: what happens to which tensor, under which handle, and what to do."""

from __future__ import annotations

import pytest

from tvlint.equivalence.side_conditions.hazards_and_deadlock import check_order
from tvlint.readers.plan_text.reader import read

HEAD = "mesh tp=2\ninput x f32[4,8]\ninput p f32[4,8] tp:P\nprogram\n"


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (
            "y = all-reduce(p) over tp async h",
            "handle-never-waited",
            "`h` on {ranks} is never waited for: `wait h` on the same ranks before the step ends",
        ),
        (
            "y = all-reduce(p) over tp async h\nwait h\nwait h",
            "double-wait",
            "`h` on {ranks} is waited for again, and nothing is issued on it in between",
        ),
        ("wait h", "unknown-handle", "`h` on {ranks} is waited for, and nothing was issued on it"),
        (
            "y = all-reduce(p) over tp async h\nz = gelu(x)\nw = all-reduce(p) over tp async h\nwait h",
            "handle-reissued",
            "`h` on {ranks} is issued again before the first is waited for",
        ),
        (
            "y = all-reduce(p) over tp async h\nz = gelu(y)\nwait h",
            "missing-wait",
            "`y` on {ranks} is read before `h`, which writes it, is waited for",
        ),
        (
            "a = gelu(x)\nsend a to tp+1 ring async h\nrecv b: f32[4,8] from tp-1 ring async g\nadd(a!, 1.0)\nwait h, g",
            "buffer-in-flight",
            "`a` on {ranks} is overwritten while `h` still reads it: wait for `h` before",
        ),
        (
            "y = all-reduce(p) over tp async h\ny = gelu(x)\nwait h",
            "buffer-in-flight",
            "`y` on {ranks} is overwritten while `h` still writes it: wait for `h` before",
        ),
    ],
)
def test_a_hazard_is_told_in_words(program: str, kind: str, words: str) -> None:
    plan = read("own.plan", HEAD + "".join(f"  {line}\n" for line in program.splitlines())).plan
    assert plan is not None
    assert words in {defect.message for defect in check_order(plan) if defect.name == kind}


def test_the_earlier_operator_is_named_where_it_stands_in_another_segment() -> None:
    text = HEAD.replace(
        "program\n",
        "segment f forward (p) -> (y)\n  y: f32[4,8] = all-reduce(p) over tp async h\n"
        "segment g forward (y) -> (z)\n  z: f32[4,8] = gelu(y)\n  wait h\nprogram\n  run f\n  run g\n",
    )
    plan = read("own.plan", text).plan
    assert plan is not None
    (message,) = {defect.message for defect in check_order(plan) if defect.name == "missing-wait"}
    assert message == "`y` on {ranks} is read before `h`, which writes it, is waited for (issued in `f`)"
