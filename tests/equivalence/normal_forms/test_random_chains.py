"""The same chain of operators in a reference and on shards that are exchanged somewhere, along any dimension.

Few of these plans are right. One that is proved computes what its reference does, and none is too strange for a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from random import Random
from typing import TypeAlias

import pytest

from tests.builders.plan_tapes import with_backward
from tvlint.equivalence.verdict.prove import is_proved, prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text.statements import read_plan

Shape: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[str, Shape]

_MOST = 256
"""Elements that a value has at the most."""


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _joined(shape: Shape, dim: int, _: int) -> Step | None:
    if dim + 1 == len(shape):
        return None
    made = (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
    return f"{{y}} = view({{x}}, size={list(made)})", made


def _split(shape: Shape, dim: int, _: int) -> Step | None:
    if shape[dim] % 2 or shape[dim] == 2:
        return None
    made = (*shape[:dim], 2, shape[dim] // 2, *shape[dim + 1 :])
    return f"{{y}} = view({{x}}, size={list(made)})", made


def _transposed(shape: Shape, dim: int, other: int) -> Step | None:
    made = list(shape)
    made[dim], made[other] = made[other], made[dim]
    return (f"{{y}} = transpose({{x}}, {dim}, {other})", tuple(made)) if dim != other else None


def _halves(shape: Shape, dim: int, other: int) -> Step | None:
    if shape[dim] % 2:
        return None
    half = _resized(shape, dim, shape[dim] // 2)
    text = f"{{y}}a, {{y}}b = split({{x}}, {shape[dim] // 2}, dim={dim})\n{{y}} = cat([{{y}}b, {{y}}a], dim={other})"
    return text, _resized(half, other, 2 * half[other])


def _zeros(shape: Shape, dim: int, _: int) -> Step:
    size = ",".join(map(str, shape))
    text = f"{{y}}z: f32[{size}] = zeros({list(shape)})\n{{y}} = cat([{{y}}z, {{x}}], dim={dim})"
    return text, _resized(shape, dim, 2 * shape[dim])


def _one_hot(shape: Shape, dim: int, _: int) -> Step:
    order = f"{{y}}i = argsort({{x}}, dim={dim})\n{{y}}o = one_hot({{y}}i, num_classes={shape[dim]})"
    return f"{order}\n{{y}}u = unsqueeze({{x}}, {len(shape)})\n{{y}} = mul({{y}}u, {{y}}o)", (*shape, shape[dim])


STEPS: dict[str, Callable[[Shape, int, int], Step | None]] = {
    "join": _joined,
    "split": _split,
    "transpose": _transposed,
    "halves": _halves,
    "zeros": _zeros,
    "one_hot": _one_hot,
    "gelu": lambda shape, dim, other: ("{y} = gelu({x})", shape),
    "square": lambda shape, dim, other: ("{y} = mul({x}, {x})", shape),
    "add": lambda shape, dim, other: ("{y} = add({x}, 1.5)", shape),
    "softmax": lambda shape, dim, other: (f"{{y}} = softmax({{x}}, dim={dim})", shape),
    "norm": lambda shape, dim, other: (f"{{y}} = layer_norm({{x}}, [{shape[-1]}])", shape),
    "flip": lambda shape, dim, other: (f"{{y}} = flip({{x}}, dims=[{dim}])", shape),
    "roll": lambda shape, dim, other: (f"{{y}} = roll({{x}}, shifts=1, dims={dim})", shape),
    "sort": lambda shape, dim, other: (f"{{y}}i = argsort({{x}}, dim={dim})\n{{y}} = gather({{x}}, {dim}, {{y}}i)", shape),
    "sum": lambda shape, dim, other: (f"{{y}} = sum({{x}}, dim={dim})", (*shape[:dim], *shape[dim + 1 :])),
    "mean": lambda shape, dim, other: (f"{{y}} = mean({{x}}, dim={dim})", (*shape[:dim], *shape[dim + 1 :])),
    "greatest": lambda shape, dim, other: (f"{{y}} = amax({{x}}, dim={dim})", (*shape[:dim], *shape[dim + 1 :])),
    "twice": lambda shape, dim, other: (f"{{y}} = cat([{{x}}, {{x}}], dim={dim})", _resized(shape, dim, 2 * shape[dim])),
    "stack": lambda shape, dim, other: (f"{{y}} = stack([{{x}}, {{x}}], dim={dim})", (*shape[:dim], 2, *shape[dim:])),
    "start": lambda shape, dim, other: (
        f"{{y}} = narrow({{x}}, {dim}, 0, {max(1, shape[dim] // 2)})",
        _resized(shape, dim, max(1, shape[dim] // 2)),
    ),
}

Chain: TypeAlias = list[tuple[str, int, int]]


def _run(chain: Chain, shape: Shape, first: str, exchange: tuple[int, str] | None) -> tuple[list[str], str, Shape] | None:
    """Return the lines of a chain from a value on, with an exchange before one of its operators; None where one cannot run."""
    lines, value = list[str](), first
    for place, (name, dim, other) in enumerate([*chain, ("", 0, 0)]):
        if exchange is not None and exchange[0] == place:
            dims = [int(own) for own in exchange[1].split()[1:]]
            if max(dims) >= len(shape) or shape[dims[0]] % 2:
                return None
            if exchange[1].startswith("gather"):
                lines.append(f"g = all-gather({value}, dim={dims[0]}) over tp || chunk")
                shape = _resized(shape, dims[0], 2 * shape[dims[0]])
            else:
                lines.append(f"g = all-to-all({value}, dim={dims[0]}, concat-dim={dims[1]}) over tp")
                half = _resized(shape, dims[0], shape[dims[0]] // 2)
                shape = _resized(half, dims[1], 2 * half[dims[1]])
            value = "g"
        step = STEPS[name](shape, dim % len(shape), other % len(shape)) if name and shape else None
        if step is not None and prod(step[1]) <= _MOST:
            text, shape = step
            lines += text.format(x=value, y=f"c{place}").splitlines()
            value = f"c{place}"
        elif name:
            return None
    return lines, value, shape


def _plan(mesh: str, shape: Shape, sharded: str, body: list[str], end: list[str]) -> Plan:
    size = ",".join(map(str, shape))
    head = [*([mesh] if mesh else []), "weight w f32[4,4]", f"input x f32[{size}]{sharded}", "loss l f32[]", "program"]
    return read_plan("chain.plan", with_backward("\n".join([*head, "h = linear(x, w)", *body, *end, "end update w"])))


def _pair(chain: Chain, shape: Shape, shard: int, exchange: tuple[int, str]) -> tuple[Plan, Plan] | None:
    """Return a parallel plan and its reference."""
    whole = _run(chain, shape, "h", None)
    local = _run(chain, _resized(shape, shard, shape[shard] // 2), "h", exchange)
    if whole is None or local is None:
        return None
    gathered = exchange[1].startswith("gather")
    end = ["l = sum(q)"] if gathered else ["k = sum(q)", "l = all-reduce(k) over tp"]
    reduced = [f"q = mul({local[1]}, {local[1]})", *end, "end grad(w) = all-reduce(grad(w)) over tp"]
    reference = _plan("", shape, "", whole[0], [f"q = mul({whole[1]}, {whole[1]})", "l = sum(q)"])
    return _plan("mesh tp=2", shape, f" tp:S({shard})", local[0], reduced), reference


def _random_pairs(seed: int) -> Iterator[tuple[Plan, Plan]]:
    random = Random(seed)
    while True:
        shape = (*(random.choice((2, 4, 8)) for _ in range(random.choice((1, 2)))), 4)
        chain = [(random.choice([*STEPS]), random.randrange(12), random.randrange(12)) for _ in range(random.randint(1, 4))]
        for place in range(len(chain) + 1):
            kind = random.choice(("gather", "swap"))
            exchange = f"{kind} {random.randrange(len(shape))} {random.randrange(len(shape))}"
            made = _pair(chain, shape, random.randrange(len(shape) - 1), (place, exchange))
            if made is not None:
                yield made


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_computes_the_same(seed: int) -> None:
    proved = 0
    for _, (parallel, reference) in zip(range(60), _random_pairs(seed), strict=False):
        if is_proved(parallel, reference):
            proved += 1
            assert prove(parallel, reference, replay=True).outcome is Outcome.PROVED
    assert proved > 5


ODD: list[tuple[Chain, Shape, int, tuple[int, str], str]] = [
    ([("mean", 0, 0), ("mean", 2, 0), ("add", 0, 0), ("roll", 0, 0)], (2, 2, 2, 4), 2, (0, "gather 1"), "wrong-gather-dim"),
    ([("zeros", 0, 0), ("stack", 0, 0), ("softmax", 3, 0)], (4, 2, 4), 1, (0, "swap 0 2"), "other-numbers"),
    ([("zeros", 0, 0), ("norm", 0, 0), ("start", 1, 0)], (4, 4), 0, (0, "gather 1"), "wrong-gather-dim"),
]
"""Dimensions that are joined, one of them among zeros or beside one of size 1."""


@pytest.mark.parametrize("odd", ODD, ids=["unit", "swapped zeros", "zeros"])
def test_joined_dimensions_beside_others(odd: tuple[Chain, Shape, int, tuple[int, str], str]) -> None:
    *made, expected = odd
    pair = _pair(*made)
    assert pair is not None
    assert [reason.name for reason in prove(*pair).reasons][:1] == [expected]
