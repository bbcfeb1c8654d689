"""Decide whether arrays are equal: by numbers on which they differ, or by the solver for all numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol, TypeAlias

from tvlint.equivalence.solver.z3_field import Given, RealTerms, Symbols, real_term
from tvlint.ops.field import Array, Field, Floats
from tvlint.ops.spec import Shape, UnsupportedError


@dataclass(frozen=True, slots=True)
class Proved:
    """The claim holds for all operands of the shape."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """The claim is false; `counterexample` says where and with which numbers."""

    counterexample: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It was not decided, for this reason; `in_time` says that more time would not help."""

    reason: str
    in_time: bool = True


Decision: TypeAlias = Proved | Refuted | Unknown


class Draw(Protocol):
    """A source of operands."""

    def numbers(self, label: str, shape: Shape) -> Array:
        """Return an array of any numbers."""

    def whole_numbers(self, label: str, shape: Shape, low: int, high: int) -> Array:
        """Return an array of any whole numbers from `low` up to and without `high`."""


Claim: TypeAlias = Callable[[Draw, Field], list[tuple[Array, Array]]]
"""Pairs of arrays that are claimed to be equal."""


class CannotRunError(Exception):
    """The operator does not run on a part of its operands."""


def decide(claim: Claim, timeout: float) -> Decision:
    """Return whether the pairs of the claim are equal for all operands; the solver gets at most `timeout` seconds."""
    import numpy as np

    try:
        for seed, low in enumerate((0.25, -1.5, -1.5)):
            with np.errstate(all="ignore"):
                shown = _differing(claim(_Sample(seed, low), Floats()))
            if shown:
                return Refuted(shown)
        return _solved(claim, timeout)
    except CannotRunError as error:
        return Refuted(str(error))
    except UnsupportedError as error:
        return Unknown(str(error))


class _Sample:
    """Random numbers, some of which are zero where they may be negative."""

    def __init__(self, seed: int, low: float) -> None:
        import numpy as np

        self._random, self._low = np.random.default_rng(seed), low

    def numbers(self, label: str, shape: Shape) -> Array:
        import numpy as np

        drawn = np.asarray(self._random.uniform(self._low, 1.75, shape))
        return drawn if self._low > 0 else np.where(self._random.random(shape) < 0.25, 0.0, drawn)

    def whole_numbers(self, label: str, shape: Shape, low: int, high: int) -> Array:
        return self._random.integers(low, high, shape)


def _differing(pairs: Iterable[tuple[Array, Array]]) -> str:
    import numpy as np

    for output, (left, right) in enumerate(pairs):
        left, right = np.asarray(left), np.asarray(right)
        if left.shape != right.shape:
            return f"output {output} has shape {left.shape} and not {right.shape}"
        wrong = np.isfinite(left) & np.isfinite(right) & ~np.isclose(left, right, rtol=1e-7, atol=1e-9)
        for place in np.argwhere(wrong)[:1]:
            at = tuple(int(n) for n in place)
            return f"output {output} at {at} is {left[at]:.6g} and not {right[at]:.6g}"
    return ""


def _solved(claim: Claim, timeout: float) -> Decision:
    """For all numbers; for whole numbers one by one where they are few."""
    symbols, terms = Symbols(), RealTerms()
    pairs = claim(symbols, terms)
    end = time.monotonic() + timeout
    if not 1 < prod(high - low for low, high in symbols.ranges) <= _FEW:
        return _equal(pairs, terms, symbols, end, timeout)
    for values in product(*(range(low, high) for low, high in symbols.ranges)):
        given, terms = Given(values), RealTerms()
        decision = _equal(claim(given, terms), terms, given, end, timeout)
        if decision != Proved():
            return decision
    return Proved()


_FEW = 64
"""How many combinations of whole numbers are tried one by one."""


def _equal(pairs: list[tuple[Array, Array]], terms: RealTerms, symbols: Symbols, end: float, timeout: float) -> Decision:
    """Return whether both sides of all pairs are equal; in a context of its own, since what a solver tries first, and with
    that its time, depends on all the terms that were made in its context before.
    """
    import numpy as np
    import z3

    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.add(*(fact.translate(context) for fact in (*symbols.constraints, *terms.facts)))
    for left, right in pairs:
        for a, b in zip(np.asarray(left).flat, np.asarray(right).flat, strict=True):
            one, other = real_term(a), real_term(b)
            if one.eq(other) or z3.simplify(one == other, som=True).eq(z3.BoolVal(True)):
                continue
            if _over_numbers(one != other, terms.facts, end):
                continue
            solver.set("timeout", max(1, int((end - time.monotonic()) * 1000)))
            found = solver.check((one != other).translate(context))
            if found == z3.sat:
                return Unknown("the solver finds a difference for some functions in the place of `exp` and its like", False)
            if found != z3.unsat:
                return Unknown(f"the solver did not decide in {timeout:g} s", False)
    return Proved()


def _over_numbers(claim: Any, facts: Sequence[Any], end: float) -> bool:
    """Return whether no numbers satisfy the claim, with any number in the place of each value of a function; in little of the
    time.

    Each fact is about one value of a function.
    """
    import z3

    context = z3.Context()
    claim = claim.translate(context)
    values = _values(claim)
    if not values:
        return False
    pairs = [(term, z3.FreshReal("value", context)) for term in values.values()]
    about = [fact for fact in (known.translate(context) for known in facts) if _values(fact).keys() <= values.keys()]
    solver = z3.SolverFor("QF_NRA", ctx=context)
    solver.set("timeout", max(1, int((end - time.monotonic()) * 150)))
    return bool(solver.check(*(z3.substitute(formula, *pairs) for formula in (*about, claim))) == z3.unsat)


def _values(claim: Any) -> dict[int, Any]:
    """Return the values of functions in a claim over real numbers, outermost ones only; none where there are whole numbers."""
    import z3

    values: dict[int, Any] = {}
    waiting, seen = [claim], set[int]()
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_app(term) and term.num_args() and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            values[term.get_id()] = term
        elif z3.is_int(term):
            return {}
        else:
            waiting.extend(term.children())
    return values
