"""What an operator does is worked out once for all operands that are alike: without that, all that is derived is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from oracle.mutate import mutants

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.models.test_kinds import KINDS, MISTAKES
from tests.equivalence.verdicts.test_text_plans import PARALLEL, REFERENCE
from tests.kinds.kind import Kind
from tests.sampling import sampled
from tvlint.analyses.relations.derivation import derive
from tvlint.analyses.relations.derivation.state import Derived, Machine
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer import apply
from tvlint.analyses.relations.transfer.memo import Case, Cases
from tvlint.analyses.relations.transfer.relation import Value, Values
from tvlint.equivalence.verdict import prove
from tvlint.equivalence.verdict.derivation import derived_last
from tvlint.findings import Verdict
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.plan import Plan, Role, Tensor

Told = tuple[Verdict, list[Any]]


class _Forgetful(dict[Any, Any]):
    """A table that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _with_cases(patch: pytest.MonkeyPatch, make: Callable[[], Cases]) -> None:
    def made(*parts: Any, **named: Any) -> Machine:
        return replace(Machine(*parts, **named), cases=make())

    patch.setattr("tvlint.equivalence.verdict.derivation.Machine", made)


def told(monkeypatch: pytest.MonkeyPatch, parallel: Plan, reference: Plan, forgets: bool = False) -> Told:
    """The verdict without repairs, and for every derivation what every operator gave, and all terms."""
    derivations: list[Any] = []

    def recorded(machine: Machine) -> Derived:
        derived = derive.derive(machine)
        derivations.extend((key, [_parts(entry) for entry in trail]) for key, trail in derived.trails.items())
        terms = machine.world.terms
        derivations.append(list(zip(terms.keys, terms.operands, terms.shape, terms.slot, strict=True)))
        return derived

    with monkeypatch.context() as patch:
        patch.setattr("tvlint.equivalence.verdict.derivation.derive", recorded)
        patch.setattr(prove, "_with_repair", lambda case, verdict: verdict)
        if forgets:
            _with_cases(patch, lambda: Cases(_Forgetful(), _Forgetful()))
            forward = "tvlint.analyses.relations.derivation.forward_rules"
            patch.setattr(f"{forward}.Case", lambda *parts: Case(*parts, uses=_Forgetful()))
        derived_last.cache_clear()
        return prove.prove(parallel, reference), derivations


def _parts(entry: Any) -> Any:
    if not isinstance(entry, Value):
        return entry
    return entry.term, entry.box, entry.coefficient, entry.leaves, entry.fold


def same(monkeypatch: pytest.MonkeyPatch, parallel: Plan, reference: Plan) -> bool:
    return told(monkeypatch, parallel, reference) == told(monkeypatch, parallel, reference, forgets=True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_all_kinds_of_plans_are_derived_the_same(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, parallel = plans(kind.reference, kind.plan)
    assert same(monkeypatch, parallel, reference)


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "mistake"), MISTAKES, ids=[f"{kind.name}: {new or old}" for kind, (old, new) in MISTAKES])
def test_plans_with_a_mistake_are_derived_the_same(
    kind: Kind, mistake: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, parallel = plans(kind.reference, kind.broken(mistake))
    assert same(monkeypatch, parallel, reference)


@pytest.mark.parametrize("kind", sampled(KINDS[::9], 3), ids=lambda kind: kind.name)
def test_mutants_are_derived_the_same(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, parallel = plans(kind.reference, kind.plan)
    for mutant in islice(mutants(parallel), 5, None, 61):
        assert same(monkeypatch, mutant.plan, reference), mutant.description


# Plans in which two operators differ in one thing, and what is derived where that thing is left out of what is compared.


def _plan(lines: str, *declared: str) -> str:
    head = "\n".join((*declared, "weight w f32[4,4]", "input x f32[4,4]", "loss l", "program"))
    return with_backward(f"{head}\n" + "".join(f"  {line}\n" for line in lines.split("; ")) + "  l: f32[1] = sum(z)\n")


ALONE = {
    "operator": _plan("a = sin(w); b = cos(a); z = mul(b, x)"),
    "attribute": _plan("a = softmax(w, dim=0); b = softmax(a, dim=1); z = mul(b, x)"),
    "constant": _plan("a = mul(w, 2); b = mul(a, 3); z = matmul(b, x)"),
    "place of the constant": _plan("a = sub(w, 2); b = sub(2, a); z = matmul(b, x)"),
    "type of the constant": _plan("a: f32[4] = index(w, 1); b: f32[4] = index(w, True); c = mul(a, b); z = mul(c, x)"),
    "declared shape": _plan("a: f32[] = sum(w); b: f32[1] = sum(w); c = mul(a, b); z = mul(c, x)"),
    "which operand is the first": _plan("a = mul(x, v); b = tanh(a); c = mul(b, v); z = mul(c, w)", "weight v f32[4]"),
    "which output": _plan("a, b = split(w, 2, dim=1); c = mul(a, b); d: f32[4] = sum(c, dim=1); z = mul(d, x)"),
    "which gradient": _plan("a = matmul(x, w); z = matmul(a, w)"),
}
TWO_WHOLES = """
mesh tp=2
weight w f32[4,4]
weight v f32[8,4] tp:S(0)
input x f32[4,4]
loss l
program
  a = softmax(w, dim=0)
  b = softmax(v, dim=0)
  c: f32[4] = sum(b, dim=0)
  d = mul(a, c)
  z = mul(d, x)
  l: f32[1] = sum(z)
"""
BATCH = TWO_WHOLES.replace("weight v f32[8,4] tp:S(0)\ninput x f32[4,4]", "input v f32[8,4]\nweight x f32[4,4]")
BATCH = with_backward(
    BATCH.replace("mesh tp=2\n", "").replace("softmax(w, dim=0)", "softmax(w, dim=1)").replace("(v, dim=0)", "(v, dim=1)")
)
HEAD, RUN = BATCH.replace("input v f32[8,4]", "input v f32[4,4]").split("program\n")
PAIRS = {
    **{name: (text, text) for name, text in ALONE.items()},
    "ranks": (PARALLEL, REFERENCE),
    "wholes of two sizes": (
        with_backward(TWO_WHOLES),
        with_backward(TWO_WHOLES.replace(" tp:S(0)", "").replace("mesh tp=2\n", "")),
    ),
    "a dimension of the batch": (f"micro-batches 2\n{HEAD}program\nmicro-batch 0\n{RUN}micro-batch 1\n{RUN}", BATCH),
}


class _Blind(dict[Any, Any]):
    """A table that does not look at one part of a key."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self.part = part

    def __copy__(self) -> _Blind:
        made = _Blind(self.part)
        dict.update(made, self)
        return made

    def _of(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*key[: self.part], *key[self.part + 1 :])

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._of(key), value)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._of(key), default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return super().setdefault(self._of(key), default)


def _blind_to_form(part: int) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: _with_cases(patch, lambda: Cases(_Blind(part)))


def _blind_to_extent(part: int) -> Callable[[pytest.MonkeyPatch], None]:
    class Changed(Values):
        def __init__(self, terms: Terms) -> None:
            super().__init__(terms)
            self._extents = _Blind(part)

    return lambda patch: patch.setattr("tvlint.equivalence.verdict.derivation.Values", Changed)


def _blind_to_use(place: str, part: int) -> Callable[[pytest.MonkeyPatch], None]:
    def again(world: Any, slots: int, known: Any, key: tuple[Any, ...], *rest: Any) -> Any:
        return apply.run_again(world, slots, known, (*key[:part], *key[part + 1 :]), *rest)

    return lambda patch: patch.setattr(f"tvlint.analyses.relations.derivation.{place}.run_again", again)


LEFT_OUT = {
    "the operator": (_blind_to_form(0), "operator"),
    "its attributes": (_blind_to_form(1), "attribute"),
    "the value of a constant": (_blind_to_form(2), "constant"),
    "the place of a constant": (_blind_to_form(2), "place of the constant"),
    "the type of a constant": (_blind_to_form(2), "type of the constant"),
    "the declared shape of its result": (_blind_to_form(3), "declared shape"),
    "the box of an operand": (_blind_to_extent(0), "ranks"),
    "the shape of the whole operand": (_blind_to_extent(1), "wholes of two sizes"),
    "which dimension is the batch's": (_blind_to_extent(2), "a dimension of the batch"),
    "which output": (_blind_to_use("operators.composite_operators", 1), "which output"),
    "the order of operands that may be exchanged": (
        _blind_to_use("operators.composite_operators", 2),
        "which operand is the first",
    ),
    "the operand that the gradient is of": (_blind_to_use("backward", 1), "which gradient"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_operators_that_differ_in_one_thing_are_derived_the_same(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same(monkeypatch, *plans(*PAIRS[pair]))


@pytest.mark.parametrize("thing", LEFT_OUT)
def test_everything_that_is_compared_has_to_be(thing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out, pair = LEFT_OUT[thing]
    right = told(monkeypatch, *plans(*PAIRS[pair]))
    with monkeypatch.context() as patch:
        leave_out(patch)
        assert told(monkeypatch, *plans(*PAIRS[pair])) != right


# Forms.

TENSORS: Mapping[str, Tensor] = {
    name: Tensor(name, shape, "f32", Role.ACTIVATION) for name, shape in (("x", (4,)), ("y", (4,)), ("z", (1,)), ("e", ()))
}
ONE = Compute("mul", ("x", Literal(2)), ("y",), {"alpha": (1, 2)})


def test_a_form_is_one_for_operators_that_are_equal_but_for_names() -> None:
    cases = Cases()
    other = replace(ONE, inputs=("y", Literal(2)), outputs=("x",), attributes=dict(ONE.attributes), label="other")
    assert cases.form(ONE, TENSORS) is cases.form(other, TENSORS)


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, op="add"),
        replace(ONE, inputs=("x", Literal(3))),
        replace(ONE, inputs=("x", Literal(2.0))),
        replace(ONE, inputs=("x", Literal("2"))),
        replace(ONE, inputs=(Literal(2), "x")),
        replace(ONE, inputs=("x", "y")),
        replace(ONE, inputs=("x",)),
        replace(ONE, outputs=("z",)),
        replace(ONE, outputs=("e",)),
        replace(ONE, outputs=("nowhere",)),
        replace(ONE, outputs=("y", "y")),
        replace(ONE, attributes={}),
        replace(ONE, attributes={"beta": (1, 2)}),
        replace(ONE, attributes={"alpha": (1, 3)}),
        replace(ONE, attributes={"alpha": (True, 2)}),
        replace(ONE, attributes={"alpha": "(1, 2)"}),
    ],
    ids=repr,
)
def test_operators_that_differ_have_forms_that_differ(other: Compute) -> None:
    cases = Cases()
    assert cases.form(ONE, TENSORS) is not cases.form(other, TENSORS)


def test_what_is_declared_without_dimensions_is_not_what_is_not_declared() -> None:
    cases = Cases()
    one, other = (cases.form(replace(ONE, outputs=(name,)), TENSORS) for name in ("e", "nowhere"))
    assert one is not other
    assert one.call([(4,)]) == other.call([(4,)])


def test_an_extent_is_the_box_the_shape_and_the_slot() -> None:
    terms = Terms()
    values = Values(terms)
    one, same_shape, wide, slotted = (
        terms.term((name,), (), shape, slot)
        for name, shape, slot in (("a", (4,), -1), ("b", (4,), -1), ("c", (8,), -1), ("d", (4,), 0))
    )
    first = values.clean(one, ((0, 4),)).extent
    assert values.clean(same_shape, ((0, 4),)).extent == first
    assert values.multiple(one, ((0, 4),), 3).extent == first
    others = [values.clean(term, ((0, 4),)).extent for term in (wide, slotted)]
    others.append(values.clean(one, ((0, 2),)).extent)
    assert len({first, *others}) == 4
