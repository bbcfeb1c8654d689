"""What follows steps and gradients through a plan takes twice as long for twice as many operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.builders.operation_counts import operations
from tests.sampling import sampled
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.lost_weights import lost_weights
from tvlint.analyses.gradients.optimizer_steps import scattered, shared_states, stepped_again
from tvlint.analyses.gradients.other_forwards import other_forwards
from tvlint.analyses.gradients.undefined_uses import missing
from tvlint.analyses.gradients.unreduced_moments import unshared
from tvlint.analyses.gradients.written_out_steps import too_early
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text import reader as plan_text

MOST_GROWTH = 2.5


def early_steps(plan: Plan) -> Iterable[object]:
    return too_early(Facts(plan))


def of_facts(analysis: Callable[[Facts], Iterable[object]]) -> Callable[[Plan], Iterable[object]]:
    return lambda plan: analysis(Facts(plan))


def moments(plan: Plan) -> Iterable[object]:
    return unshared(plan, frozenset())


HEAD = "mesh dp=2\nweight w f32[8,8]\ninput x f32[4,8] dp:S(0)\n"
Body = Callable[[int], str]


def each(lines: str) -> Body:
    return lambda size: "".join(lines.replace("#N", str(i)) for i in range(size))


def of_weights(lines: str) -> Body:
    """Return a plan that takes a step of each of many weights, written out."""
    start = "program\n  y = linear(x, w)\n  _, g = backward y (x)\n"
    return lambda size: each("weight w#N f32[8,8]\n")(size) + start + each(lines)(size)


def layers(size: int) -> str:
    forward = "".join(f"  y{i + 1} = linear(y{i}, w{i})\n" for i in range(size))
    back = "".join(f"  d{i}, grad(w{i}) = backward y{i + 1} (d{i + 1})\n" for i in reversed(range(size)))
    steps = each("  w#N = sub(w#N, grad(w#N))\n")(size)
    start = f"  l: f32[] = sum(y{size})\n  d{size} = backward l (grad(l))\n"
    return each("weight w#N f32[8,8]\n")(size) + "loss l\nprogram\n  y0 = gelu(x)\n" + forward + start + back + steps


CASES: dict[str, tuple[Callable[[Plan], Iterable[object]], Body]] = {
    "activations and their gradients": (
        other_forwards,
        lambda n: "program\n" + each("  a#N = gelu(x)\n")(n) + each("  d#N = backward a#N (x)\n")(n),
    ),
    "gradients of one activation": (
        other_forwards,
        lambda n: "program\n  a = gelu(x)\n" + each("  r#N = relu(a)\n  d#N = silu_backward(x, a)\n")(n),
    ),
    "steps of many weights": (of_facts(stepped_again), of_weights("  h#N = mul(g, #N)\n  sgd_step(w#N!, h#N)\n")),
    "states of many weights": (of_facts(shared_states), of_weights("  adam_step(w#N!, g, m#N, v#N)\n")),
    "pieces of many weights": (of_facts(scattered), of_weights("  c#N = chunk(w#N, dim=0) over dp\n  sgd_step(c#N!, g)\n")),
    "weights that are read after their step": (
        early_steps,
        of_weights("  sub_(w#N!, g)\n  d#N = matmul(g, w#N)\n"),
    ),
    "moments that are written out": (moments, of_weights("  m#N = mul(g, 0.5)\n  w#N = sub(w#N, m#N)\n")),
    "moments of many gradients": (
        moments,
        of_weights("  y#N = linear(x, w#N)\n  _, grad(w#N) = backward y#N (x)\n  w#N = sub(w#N, grad(w#N))\n"),
    ),
    "moments of layers behind one another": (moments, layers),
    "weights without effect": (lost_weights, lambda n: "output x\n" + of_weights("  l#N = linear(x, w#N)\n")(n)),
    "weights that nothing reads": (
        lost_weights,
        lambda n: "output x\n" + each("weight v#N f32[8,8]\n")(n) + of_weights("  a#N = relu(w#N)\n  b#N = relu(w#N)\n")(n),
    ),
    "gradients that are read early": (
        missing,
        lambda n: (
            each("weight w#N f32[8,8]\n")(n)
            + each("segment s#N optimizer () -> ()\n  grad(w#N) = div(grad(w#N), 2)\n  update w#N\n")(n)
            + "program\n"
            + each("  run s#N\n")(n)
        ),
    ),
}


@pytest.mark.parametrize("name", sampled(list(CASES), 3))
def test_twice_as_many_operators_take_twice_the_operations(name: str) -> None:
    analysis, body = CASES[name]
    counts = []
    for size in (100, 100, 200, 400):
        plan = plan_text.read("a.plan", HEAD + body(size)).plan
        assert plan is not None
        found = operations(lambda plan=plan: list(analysis(plan)))
        counts.append(sum(found.values()))
    added = counts[2] - counts[1], counts[3] - counts[2]
    assert 0 < added[1] <= MOST_GROWTH * added[0] + 1000, counts
