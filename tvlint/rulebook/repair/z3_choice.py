"""A choice of one value for each setting that was not refused and costs no more than allowed; found by z3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import z3

_LIMIT = 300_000
"""What one answer may cost, in z3's own units, which do not depend on the machine."""


class Choices:
    """Choices of a value for each setting: one truth value for each candidate, exactly one of them true."""

    def __init__(self, domains: Mapping[str, Sequence[int]], cost: Callable[[str, int], int], most: int) -> None:
        """The first value of a domain is the one that is there already; at most `most` settings take another."""
        self._picks = {name: {value: z3.Bool(f"{name}={value}") for value in domain} for name, domain in domains.items()}
        self._stays = {name: self._picks[name][domain[0]] for name, domain in domains.items()}
        changed = [(z3.Not(stays), 1) for stays in self._stays.values()]
        self._prices = [(pick, cost(name, value)) for name, picks in self._picks.items() for value, pick in picks.items()]
        self._solver = z3.Solver()
        self._solver.set("rlimit", _LIMIT)
        for picks in self._picks.values():
            self._solver.add(z3.PbEq([(pick, 1) for pick in picks.values()], 1))
        self._solver.add(z3.PbLe(changed, most))

    def within(self, cost: int) -> dict[str, int] | None:
        """A choice that costs at most so much; None where z3 has none."""
        self._solver.push()
        self._solver.add(z3.PbLe([(pick, price) for pick, price in self._prices if price], cost))
        found = self._solver.model() if self._solver.check() == z3.sat else None
        self._solver.pop()
        if found is None:
            return None
        return {
            name: next(value for value, pick in picks.items() if z3.is_true(found.eval(pick, model_completion=True)))
            for name, picks in self._picks.items()
        }

    def allow_only(self, given: Mapping[str, int], name: str, values: Iterable[int]) -> None:
        """Together with the values of `given`, the setting `name` takes only one of `values`."""
        others = [z3.Not(self._picks[other][value]) for other, value in given.items()]
        self._solver.add(z3.Or([*others, *(self._picks[name][value] for value in values)]))

    def refuse_changing(self, names: frozenset[str]) -> None:
        """Never a choice that changes all of `names`."""
        self._solver.add(z3.Or([self._stays[name] for name in names]))
