"""The nearest settings that satisfy every rule at once, for sizes that do not fit one another.

A rule's own help can only speak of the settings that it reads; what suits one rule often breaks another. Here the sizes that a
file sets are changed, as few and as little as possible, until no rule that reads one of them is violated. The rules themselves
judge every candidate, so that nothing about them is said twice, and each once for all candidates that are the same to it. The
search counts its judgements and nothing else ends it, so that it finds the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.values import dataclass, replace
from tvlint.rule import Rule
from tvlint.rulebook.judge import judge
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import parse
from tvlint.rulebook.language.reads import read_by
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.repair.sizes import LARGEST, MODEL, WEIGHTS, about_sizes, adjustable

MOST_CANDIDATES = 24
"""So many of the nearest values of one setting are tried."""
_USUAL = frozenset({1, 2, 4, 8, 16, 32, 64})
"""Values that are tried however far they are."""
MOST_SETTINGS = 8
"""Of more settings at once, no changes are looked for."""
MOST_JUDGEMENTS = 2_000
"""So often rules are judged in the search for one repair; after that there is none."""
MOST_TRIED = 4_000
"""So many choices of several changes are tried in the search for one repair."""
MOST_SHOWN = 3
MOST_CHANGED = 3
"""More settings are changed at once only where fewer are not enough."""
DEAREST = 3
"""An alternative that is so many times as large a change as the nearest is not offered."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting and the value that it gets."""

    setting: Setting
    value: int

    def __str__(self) -> str:
        written = self.setting.written
        joined = " " if written.startswith("-") else "=" if "." in written else ": "
        return f"`{written}{joined}{self.value}` (now {self.setting.value})"

    @property
    def of_model(self) -> bool:
        """Return whether it changes the model, and not only how it is run."""
        return WEIGHTS[self.setting.name] >= MODEL

    @property
    def switches_off(self) -> bool:
        """Return whether it gives up a kind of parallelism."""
        return self.value == 1 and not self.of_model

    @property
    def odd(self) -> bool:
        """Return whether it is a size that ranks do not come in."""
        return is_odd(self.setting.name, self.value)


@dataclass(frozen=True, slots=True)
class Repair:
    """Alternatives that repair a mistake, nearest first, and which rules hold after any of them."""

    outcome: str
    alternatives: tuple[tuple[Change, ...], ...]

    def __str__(self) -> str:
        return f"{self.outcome} with {_alternatives(self.alternatives)}"


def nearest(configuration: Configuration, rules: Sequence[Rule], violated: Sequence[Rule]) -> Iterator[tuple[Rule, Repair]]:
    """Yield mistakes about sizes, with the changes that repair them.

    Of mistakes that share settings, all have the one change that repairs them all, if there is one; else each has a change of
    its own if these together satisfy every rule; else the first one has the changes that do.
    """
    clusters = _clusters(configuration, violated)
    about = {rule.name for members in clusters for rule in members}
    others = any(rule.name not in about for rule in violated)
    for members in clusters:
        search = _Search(configuration, rules, members)
        found = list(search.single())
        outcome = "no other rule breaks" if others or len(clusters) > 1 else "all rules hold"
        if found:
            yield from ((rule, Repair(outcome, tuple(found))) for rule in members)
            continue
        alone = [
            list(_Search(configuration, rules, [rule], [member for member in members if member is not rule]).single())
            for rule in members
        ]
        together = {change.setting.name: change.value for changes in alone for change in (changes[0] if changes else ())}
        if all(alone) and search.fault(together) is None:
            yield from (
                (rule, Repair("no other rule breaks", tuple(changes))) for rule, changes in zip(members, alone, strict=True)
            )
            continue
        found = list(_Search(configuration, rules, members, more=search.touched).several())
        if found:
            yield members[0], Repair(outcome, tuple(found))


def is_odd(name: str, value: int) -> bool:
    """Return whether the value of a parallel size is no power of two."""
    return WEIGHTS[name] <= 1 and value & (value - 1) != 0


def _alternatives(found: Sequence[tuple[Change, ...]]) -> str:
    return ", or with ".join(_listed([str(change) for change in changes]) for changes in found)


def _listed(parts: list[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _twos(number: int) -> int:
    """Return how often 2 divides the number."""
    return (number & -number).bit_length() - 1


def _clusters(configuration: Configuration, violated: Sequence[Rule]) -> list[list[Rule]]:
    """Return the violated rules about sizes, those that share a setting together."""
    clusters: list[tuple[set[str], list[Rule]]] = []
    for rule in violated:
        names = {name for name in read_by(rule) if adjustable(configuration, name)}
        if not names or not about_sizes(parse(rule.require)):
            continue
        shared = [cluster for cluster in clusters if cluster[0] & names]
        clusters = [cluster for cluster in clusters if not cluster[0] & names]
        clusters.append((names.union(*(cluster[0] for cluster in shared)), [*(r for c in shared for r in c[1]), rule]))
    return [members for _, members in clusters]


class _Search:
    """Changes of the settings that the violated rules of one configuration read."""

    def __init__(
        self,
        configuration: Configuration,
        rules: Sequence[Rule],
        violated: Sequence[Rule],
        besides: Sequence[Rule] = (),
        more: frozenset[str] = frozenset(),
    ) -> None:
        """`besides` are rules that are violated as well and may stay so; `more` are settings that may change too."""
        self.configuration = configuration
        read = more.union(*map(read_by, violated))
        found = sorted(name for name in read if adjustable(configuration, name))
        self.settings = {name: configuration.settings[name] for name in found}
        self.values: dict[str, int] = {
            name: value for name, setting in self.settings.items() if isinstance(value := setting.value, int)
        }
        before = Values(configuration)
        others = [rule for rule in rules if rule not in (*violated, *besides) and read_by(rule) & set(found)]
        outcomes = [(rule, judge(rule, before)) for rule in others]
        self.rules = [
            *((rule, True) for rule in violated),
            *((rule, outcome is True) for rule, outcome in outcomes if outcome is not False),
        ]
        self.domains = {name: tuple(self._candidates(name, before)) for name in found}
        self.reads = {rule.name: tuple(name for name in found if name in read_by(rule)) for rule, _ in self.rules}
        self.judged: dict[tuple[str, ...], Result] = {}
        self.left = MOST_JUDGEMENTS
        self.touched: frozenset[str] = frozenset()
        """The settings of the rules that a single change broke."""

    def single(self) -> Iterator[tuple[Change, ...]]:
        """For each setting the nearest value that is enough by itself; the cheapest first.

        The model is changed only where how it is run cannot be, short of giving up a kind of parallelism.
        """
        found: list[tuple[int, Change]] = []
        for name, domain in self.domains.items():
            for value in domain[1:]:
                broken = self.fault({name: value})
                if broken is not None:
                    self.touched |= read_by(broken)
                else:
                    found.append((self.cost(name, value), Change(self.settings[name], value)))
                    break
        if any(not change.of_model and not change.switches_off for _, change in found):
            found = [(cost, change) for cost, change in found if not change.of_model]
        if not all(change.odd for _, change in found):
            found = [(cost, change) for cost, change in found if not change.odd]
        found.sort(key=lambda entry: (entry[1].switches_off, entry[0], entry[1].setting.name))
        for cost, change in found[:MOST_SHOWN]:
            if cost <= DEAREST * found[0][0]:
                yield (change,)

    def several(self) -> Iterator[tuple[Change, ...]]:
        """Yield the nearest values where more than one setting has to change."""
        if not 1 < len(self.domains) <= MOST_SETTINGS:
            return
        for most in (MOST_CHANGED, MOST_SETTINGS):
            offered: list[dict[str, int]] = []
            for changed in self._cheapest_first(most, offered):
                offered.append(changed)
                yield tuple(Change(self.settings[name], value) for name, value in changed.items())
                if len(offered) == MOST_SHOWN - 1:
                    break
            if offered:
                return

    def _cheapest_first(self, most: int, offered: Sequence[Mapping[str, int]]) -> Iterator[dict[str, int]]:
        """Yield changes of at most `most` settings that all rules allow, unless they change all that one of `offered` changes.

        What a rule refuses is only allowed after another change of what it reads, so that the cheapest changes are found by
        trying, cheapest first, those that follow from the rule that the changes so far break.
        """
        waiting: list[tuple[int, tuple[tuple[str, int], ...]]] = [(0, ())]
        known = {waiting[0][1]}
        for _ in range(MOST_TRIED):
            if not waiting or self.left <= 0:
                return
            cost, pairs = heappop(waiting)
            changed = dict(pairs)
            if any(changed.keys() >= other.keys() for other in offered):
                continue
            rule = self.fault(changed)
            if rule is None:
                yield changed
            elif len(pairs) < most:
                for name, value in self._answers(rule, changed, is_last=len(pairs) + 1 == most):
                    more = tuple(sorted((*pairs, (name, value))))
                    if more not in known:
                        known.add(more)
                        heappush(waiting, (cost + self.cost(name, value), more))

    def _answers(self, rule: Rule, changed: Mapping[str, int], is_last: bool) -> Iterator[tuple[str, int]]:
        """Yield one more change of what the rule reads; where nothing else of that may change, only what satisfies the rule."""
        others = [name for name in self.reads[rule.name] if name not in changed]
        for name in others:
            for value in self.domains[name][1:]:
                if not (is_last or len(others) == 1) or self._outcome(rule, {**changed, name: value}) is not False:
                    yield name, value

    def fault(self, changed: Mapping[str, int]) -> Rule | None:
        """Return the first rule that is not satisfied with the settings changed."""
        for rule, held in self.rules:
            outcome = self._outcome(rule, changed)
            if outcome is False or (held and outcome is not True):
                return rule
        return None

    def _outcome(self, rule: Rule, changed: Mapping[str, int]) -> Result:
        """Return what the rule says with the settings changed, judged once for all changes of what it does not read."""
        changes = {name: changed[name] for name in self.reads[rule.name] if name in changed}
        key = (rule.name, *(f"{name} {value}" for name, value in changes.items()))
        if key not in self.judged:
            self.left -= 1
            self.judged[key] = judge(rule, Values(self._with(changes)))
        return self.judged[key]

    def cost(self, name: str, value: int) -> int:
        """Return how large a change it is: that it is one, by which factor, and how round the value is, also compared to
        before.

        Parallel sizes other than powers of two are far, since ranks come in powers of two.
        """
        before = self.values[name]
        if value == before:
            return 0
        factor = abs(math.log2(value / before))
        rougher = max(0.0, _twos(before) - _twos(value) - factor)
        odd = 30 if is_odd(name, value) else 0
        return round(WEIGHTS[name] * (10 + 20 * factor + 5 * rougher + odd - min(6, _twos(value))))

    def _with(self, changed: Mapping[str, int]) -> Configuration:
        settings = {**self.configuration.settings}
        for name, value in changed.items():
            settings[name] = replace(self.settings[name], value=value)
        return replace(self.configuration, settings=settings)

    def _candidates(self, name: str, before: Values) -> Iterable[int]:
        """Values to try, nearest first, the present one before all: small numbers, and multiples and divisors of the others."""
        present = self.values[name]
        numbers = {1, 2, 4, 8, 16, 32, 64, 128} | set(self.values.values())
        for rule, _ in self.rules:
            for other in read_by(rule):
                value = before.value(other)
                if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST:
                    numbers.add(value)
        small = sorted(numbers)[:24]
        numbers |= {math.lcm(a, b) for a in small for b in small if math.lcm(a, b) <= 4 * present}
        found = {1 << power for power in range(25)} | set(range(max(1, present - 8), present + 9))
        for number in numbers:
            low = present // number * number
            found |= {low, low + number, low - number, low + 2 * number}
            found |= {number // divisor for divisor in range(1, 65) if number % divisor == 0}
        near = sorted((self.cost(name, value), value) for value in found if 0 < value <= LARGEST and value != present)
        kept = near[:MOST_CANDIDATES] + [entry for entry in near[MOST_CANDIDATES:] if entry[1] in _USUAL]
        return [present, *(value for _, value in kept)]
