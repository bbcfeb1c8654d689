"""Terms that are equal by a theorem, and not only as expressions: the ways to write a cross-entropy.

For rows `x` of scores over classes and targets `t`, with `L(x) = log sum e^x`, the loss is `L(x) - x[t]`, and its gradient is
`g (e^x / sum e^x - [c = t])`:

1. `-(x - L(x))[t]` is the loss, and the gradient of `x` in it is that of the loss, which is what log-softmax and the negative
   log-likelihood make of it one after the other;
2. `log(sum(exp(y))) - y[t]` is the loss of `y`, if every `t` is a class;
3. both ways that a gradient takes back from there, through the sum and through the target, add up to that of the loss;
4. if `y` is `x` plus a number for each row, then `L(y) - y[t]` is `L(x) - x[t]`, and the gradients of both are equal;
5. the gradient of `x` in `x + m` and in `x - m` is the gradient of that, if `x` is not repeated.

The first is used wherever it applies, the last for gradients of such a loss. The others are used where the certificate speaks
of the loss as one term, and then rest on an assumption: a target that is no class has no score, and the loss as one operator
leaves it out.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tvlint.certificate.tables import SUM, Tables

Head: TypeAlias = tuple[Any, ...]

CLASSES = "every target of a `cross_entropy` that is written out is a class: none is ignored"

_ONE_OUTPUT = (0, (0,))
"""In the head of a gradient: that of the first operand, from that of the only result."""


def told(tables: Tables, head: Head, operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> int:
    """The number of the term with this content, or of the one that it is told as."""
    loss = (
        _likelihood(tables, head, operands)
        or _likelihood_gradient(tables, head, operands)
        or _written(tables, head, operands, shape, slot)
    )
    if loss is not None:
        return tables.term(*loss, shape, slot)
    if _passes(tables, head, operands, shape, slot):
        return operands[0]
    return tables.term(head, operands, shape, slot)


def sum_told(tables: Tables, term: int) -> int:
    """The number of the term that a sum of gradients is told as."""
    own = tables.terms[term]
    if own.head != SUM or len(own.operands) != 2:
        return term
    for one, other in (own.operands, own.operands[::-1]):
        content = _two_ways(tables, one, other)
        if content is not None and tables.names(*content, own.shape, own.slot):
            tables.assumptions.add(CLASSES)
            return tables.term(*content, own.shape, own.slot)
    return term


def _pattern(text: str, summed: str = "", whole: str = "") -> tuple[tuple[int, ...], ...]:
    """How the dimensions of operands and result correspond: `tc,t->t`, numbered as they appear."""
    tensors = text.replace("->", ",").split(",")
    order = {letter: number for number, letter in enumerate(dict.fromkeys("".join(tensors)))}
    listed = (tuple(order[letter] for letter in letters) for letters in (*tensors, summed))
    return (*listed, (), tuple(order[letter] for letter in whole))


_LOSS: Head = ("cross-entropy-rows", 0, (), _pattern("tc,t->t", whole="c"), ())
_LOSS_GRADIENT: Head = ("cross-entropy-rows gradient", _ONE_OUTPUT, (), _pattern("t,tc,t->tc", whole="c"), ())

_LIKELIHOOD: Head = ("nll-rows", 0, (), _pattern("tc,t->t", whole="c"))
_LIKELIHOOD_GRADIENT: Head = ("nll-rows gradient", _ONE_OUTPUT, (), _pattern("t,t->tc", whole="c"))
_CHANCES: Head = ("log-softmax", 0, (None,), _pattern("tc->tc", whole="c"))
_CHANCES_GRADIENT: Head = ("log-softmax gradient", _ONE_OUTPUT, (None,), _pattern("tc,tc->tc", whole="c"))

_MINUS: Head = ("sub", 0, (1,), _pattern("t,t->t"))
_LOG: Head = ("log", 0, (), _pattern("t->t"))
_TOTAL: Head = ("sum", 0, (None,), _pattern("tc->t", summed="c"))
_POWER: Head = ("exp", 0, (), _pattern("tc->tc"))
_PICK: Head = ("masked-gather", 0, (), _pattern("tc,t->t", summed="c"))

_MINUS_LEFT: Head = ("sub gradient", _ONE_OUTPUT, (1,), _pattern("t->t"))
_MINUS_RIGHT: Head = ("sub gradient", (1, (0,)), (1,), _pattern("t->t"))
_LOG_GRADIENT: Head = ("log gradient", _ONE_OUTPUT, (), _pattern("t,t->t"))
_TOTAL_GRADIENT: Head = ("sum gradient", _ONE_OUTPUT, (None,), _pattern("t->tc"))
_POWER_GRADIENT: Head = ("exp gradient", _ONE_OUTPUT, (), _pattern("tc,tc->tc"))
_PICK_GRADIENT: Head = ("masked-gather gradient", _ONE_OUTPUT, (), _pattern("t,t->tc"))

_Content: TypeAlias = "tuple[Head, tuple[int, ...]]"


def _of(tables: Tables, term: int, head: Head) -> tuple[int, ...]:
    """The operands of a term whose operator is this one, used in this way; nothing for any other."""
    own = tables.terms[term]
    return own.operands if len(own.head) == 5 and _same(own.head[:4], head) else ()


def _same(one: Any, other: Any) -> bool:
    """Equality that tells 1 from True and 1.0."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _likelihood(tables: Tables, head: Head, operands: tuple[int, ...]) -> _Content | None:
    """The first statement."""
    scores = _of(tables, operands[0], _CHANCES) if _same(head[:4], _LIKELIHOOD) else ()
    return (_LOSS, (*scores, operands[1])) if scores else None


def _likelihood_gradient(tables: Tables, head: Head, operands: tuple[int, ...]) -> _Content | None:
    """The first statement, backwards."""
    given = _of(tables, operands[0], _LIKELIHOOD_GRADIENT) if _same(head[:4], _CHANCES_GRADIENT) else ()
    return (_LOSS_GRADIENT, (given[0], operands[1], given[1])) if given else None


def _written(tables: Tables, head: Head, operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> _Content | None:
    """The second statement, and the fourth."""
    if not _same(head[:4], _MINUS):
        return None
    log, pick = _of(tables, operands[0], _LOG), _of(tables, operands[1], _PICK)
    if not log or not pick or _powers(tables, log[0]) != pick[0]:
        return None
    content = (_LOSS, (_scores(tables, pick[0]), pick[1]))
    if not tables.names(*content, shape, slot):
        return None
    tables.assumptions.add(CLASSES)
    return content


def _two_ways(tables: Tables, through_sum: int, through_target: int) -> _Content | None:
    """The third statement, and the fourth."""
    power = _of(tables, through_sum, _POWER_GRADIENT)
    spread = _of(tables, power[0], _TOTAL_GRADIENT) if power else ()
    log = _of(tables, spread[0], _LOG_GRADIENT) if spread else ()
    left = _of(tables, log[0], _MINUS_LEFT) if log else ()
    picked = _of(tables, through_target, _PICK_GRADIENT)
    right = _of(tables, picked[0], _MINUS_RIGHT) if picked else ()
    if not left or left != right or _powers(tables, log[1]) != power[1]:
        return None
    return _LOSS_GRADIENT, (left[0], _scores(tables, power[1]), picked[1])


def _powers(tables: Tables, term: int) -> int:
    """`y`, of a term `sum(exp(y))` over classes; -1 of any other."""
    total = _of(tables, term, _TOTAL)
    power = _of(tables, total[0], _POWER) if total else ()
    return power[0] if power and tables.terms[power[0]].slot != 1 else -1


def _scores(tables: Tables, term: int) -> int:
    """`x`, of a term that is `x` plus or minus something that is the same for all classes of a row."""
    while True:
        own = tables.terms[term]
        if own.head[0] not in ("add", "sub") or len(own.operands) != 2 or len(own.head) != 5:
            return term
        (left, right, result, *sets), plain = own.head[3], _same(own.head[1:3], (0, (1,)))
        if result != (0, 1) or any(sets) or len(own.head[2]) != 1:
            return term
        if left == result and 1 not in right:
            term = own.operands[0]
        elif right == result and 1 not in left and plain and own.head[0] == "add":
            term = own.operands[1]
        else:
            return term


def _passes(tables: Tables, head: Head, operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> bool:
    """The fifth statement."""
    first = _same(head[:2], ("sub gradient", _ONE_OUTPUT)) or _same(head[:3], ("add gradient", (), (1,)))
    if not first or len(operands) != 1 or head[3] != _pattern("tc->tc"):
        return False
    own = tables.terms[operands[0]]
    return own.head[0] == _LOSS_GRADIENT[0] and (own.shape, own.slot) == (shape, slot)
