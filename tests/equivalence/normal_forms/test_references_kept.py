"""A reference is derived once and compared with many plans: none of them leaves anything in its tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.equivalence.models.test_attention import plans
from tests.equivalence.models.test_kinds import KINDS
from tests.kinds.kind import Kind
from tests.sampling import sampled
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.equivalence.verdict.derivation import Reference, derive_parallel, derive_reference, derived_last
from tvlint.equivalence.verdict.pairing import Case, pair


def _tables(case: Case) -> dict[str, Any]:
    """All that the tables of a reference hold, with relations as what they say."""
    found = derive_reference(case)
    assert isinstance(found, Reference)
    values = found.world.values
    assert found.world.terms is values.terms
    held: dict[str, Any] = {"relations": list(values._table), "extents": values._extents, "ways": values._joint}
    return {**held, **{name: repr(each) for name, each in vars(values.terms).items()}}


@pytest.mark.parametrize("telling", Telling, ids=lambda telling: telling.name.lower())
@pytest.mark.parametrize("kind", sampled(KINDS[::5], 4), ids=lambda kind: kind.name)
def test_no_plan_leaves_anything_in_the_tables_of_its_reference(kind: Kind, telling: Telling) -> None:
    reference, parallel = plans(kind.reference, kind.plan)
    case = pair(parallel, reference)
    assert isinstance(case, Case)
    case = replace(case, telling=telling)
    first = derive_reference(case)
    if not isinstance(first, Reference):
        pytest.skip("a reference that is understood in another telling only")
    before = _tables(case)
    derive_parallel(case, first)
    assert _tables(case) == before
    derived_last.cache_clear()
    assert _tables(case) == before


def test_each_reference_keeps_its_own_lines() -> None:
    reference, parallel = plans(KINDS[0].reference, KINDS[0].plan)
    cases = [pair(parallel, each) for each in (reference, reference, replace(reference))]
    first, again, other = (derive_reference(case).derived for case in cases)  # type: ignore[arg-type, union-attr]
    assert again is first
    assert other is not first
