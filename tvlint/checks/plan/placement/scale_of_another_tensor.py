"""scale-of-another-tensor: codes are dequantised with the scale of another tensor."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.dequantisation import misread_codes
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield codes that are dequantised with another scale; it is not sure where the plan makes no other codes with that."""
    for misread in misread_codes(facts.plan):
        words = {"codes": misread.codes, "right": misread.right, "scale": misread.scale, "of": misread.of}
        place, ranks = facts.place(misread.segment, misread.index), facts.fold.everywhere(misread.ranks)
        about, case = (misread.codes, misread.right, misread.scale), "of-another" if misread.of else "unknown"
        yield Sighting(place, ranks, words, about=about, case=case, is_sure=bool(misread.of))
