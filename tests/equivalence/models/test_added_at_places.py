"""Elements that are added or compared at places, as by `index_add` and `index_reduce`, of which ranks hold some."""

from __future__ import annotations

import pytest
from oracle.mutate import mutants

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import is_proved, prove
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[8,8]
input x f32[12,8]
input i i64[12]
loss l f32[]
program
h = linear(x, w)
z = zeros([4,8])
a = index_add(z, 0, i, h)
n = gelu(a)
l = sum(n)
dn = backward l (grad(l))
da = backward n (dn)
_, dh = backward a (da)
_, grad(w) = backward h (dh)
update w
"""

PARALLEL = """
mesh tp=2
weight w f32[8,8]
input x f32[12,8] tp:S(0)
input i i64[12] tp:S(0)
loss l f32[]
program
h = linear(x, w)
z = zeros([4,8])
p = index_add(z, 0, i, h)
a = all-reduce(p) over tp
n = gelu(a)
l = sum(n)
dn = backward l (grad(l))
da = backward n (dn)
_, dh = backward p (da)
_, grad(w) = backward h (dh)
reduce-gradients w over tp
update w
"""

WRONG = {
    "indices of other elements": ("input i i64[12] tp:S(0)", "input i i64[12]", "mismatched-shards"),
    "never added up": ("all-reduce(p) over tp", "identity(p)", "missing-allreduce"),
    "the greatest of them": ("all-reduce(p)", "all-reduce max(p)", "wrong-reduce-op"),
    "ones in place of zeros": ("zeros([4,8])", "ones([4,8])", "other-numbers"),
    "added twice": ("index_add(z, 0, i, h)", "index_add(z, 0, i, h, alpha=2)", "other-operator"),
}


COMPARED_REFERENCE = REFERENCE.replace(
    "n = gelu(a)", 'm = index_reduce(z, 0, i, x, reduce="amax")\nt = add(a, m)\nn = gelu(t)'
).replace("da = backward n (dn)", "dt = backward n (dn)\nda, _ = backward t (dt)")
COMPARED = PARALLEL.replace(
    "n = gelu(a)", 'k = index_reduce(z, 0, i, x, reduce="amax")\nm = all-reduce max(k) over tp\nt = add(a, m)\nn = gelu(t)'
).replace("da = backward n (dn)", "dt = backward n (dn)\nda, _ = backward t (dt)")

WRONG_COMPARED = {
    "summed": ("all-reduce max(k)", "all-reduce(k)", "wrong-reduce-op"),
    "the least of the greatest": ("all-reduce max(k)", "all-reduce min(k)", "wrong-reduce-op"),
    "never compared": ("all-reduce max(k) over tp", "identity(k)", "part-used-as-complete"),
    "the least on each rank": ('reduce="amax"', 'reduce="amin"', "split-dimension"),
    "indices of other elements": ("input i i64[12] tp:S(0)", "input i i64[12]", "mismatched-shards"),
}


def test_what_is_compared_on_parts_is_proved_and_computes_the_same() -> None:
    reference, parallel = plans(COMPARED_REFERENCE, COMPARED)
    verdict = prove(parallel, reference, replay=True)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert "agrees with the reference on" in dict(verdict.facts)


@pytest.mark.parametrize("name", WRONG_COMPARED)
def test_what_is_compared_otherwise_is_not(name: str) -> None:
    before, after, reason = WRONG_COMPARED[name]
    assert before in COMPARED
    verdict = verdict_on(COMPARED.replace(before, after), COMPARED_REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [own.name for own in verdict.reasons]


def test_what_is_added_on_parts_is_proved_and_computes_the_same() -> None:
    reference, parallel = plans(REFERENCE, PARALLEL)
    verdict = prove(parallel, reference, replay=True)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert "agrees with the reference on" in dict(verdict.facts)


def test_zeros_of_the_same_shape_are_no_addend_and_other_numbers_are() -> None:
    without = REFERENCE.replace("a = index_add(z, 0, i, h)", "b = index_add(z, 0, i, h)\na = add(b, z)").replace(
        "_, dh = backward a (da)", "db, _ = backward a (da)\n_, dh = backward b (db)"
    )
    assert verdict_on(PARALLEL, without).outcome is Outcome.PROVED
    assert verdict_on(PARALLEL, without.replace("zeros(", "ones(")).outcome is not Outcome.PROVED


@pytest.mark.parametrize("name", WRONG)
def test_what_is_added_elsewhere_is_not(name: str) -> None:
    before, after, reason = WRONG[name]
    text = PARALLEL.replace(before, after)
    assert text != PARALLEL
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [own.name for own in verdict.reasons]


@pytest.mark.heavy
def test_no_mutant_that_computes_something_else_is_proved() -> None:
    reference, parallel = plans(REFERENCE, PARALLEL)
    proved = [own.plan for own in list(mutants(parallel))[::5] if is_proved(own.plan, reference)]
    assert all(prove(own, reference, replay=True).outcome is Outcome.PROVED for own in proved)
