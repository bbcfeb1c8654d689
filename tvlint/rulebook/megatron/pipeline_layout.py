"""Megatron's pipeline layout strings (`Et*3|(tt|)*4,tmL`), expanded to what each virtual pipeline stage holds.

`E` is the embedding, `t` a decoder layer, `m` a multi-token-prediction layer, `L` the loss; `|` ends a stage, `x*n` and
`(...)*n` repeat, commas only separate.
"""

from __future__ import annotations

from functools import lru_cache

from tvlint.ir.patterns import Pattern

LAYERS = frozenset("ELtm")
_MAX_LENGTH = 100_000
_GROUP = Pattern(r"\(([^)]{1,10000})\)\*(\d{1,9})")
_SINGLE = Pattern(r"(.)\*(\d{1,9})")


@lru_cache(maxsize=64)
def parse_layout(text: str) -> tuple[str, ...] | None:
    """Return the layers of each virtual pipeline stage in model order; None where `text` is not a layout.

    Raises `ValueError` where the text carries quotes of an outer language, or expands beyond any real model.
    """
    if '"' in text or "'" in text or "$" in text:
        raise ValueError("the layout is quoted or holds a variable")
    if len(text) > _MAX_LENGTH:
        raise ValueError("the layout is too long")
    expanded = text.replace(",", "")
    for pattern in (_GROUP, _SINGLE):
        length = len(expanded) + sum(len(found[1]) * int(found[2]) for found in pattern.finditer(expanded))
        if length > _MAX_LENGTH:
            raise ValueError("the layout is too long")
        expanded = pattern.sub(lambda found: found[1] * int(found[2]), expanded)
    if set(expanded) - LAYERS - {"|"}:
        return None
    return tuple(expanded.split("|"))


def layout_stages(text: str) -> tuple[str, ...]:
    """Return the layers of each virtual pipeline stage; raises `ValueError` where `text` is not a layout."""
    stages = parse_layout(text)
    if stages is None:
        raise ValueError("the layout does not parse")
    return stages


def layout_count(text: str, kind: str) -> int:
    """Return how many layers of a kind (`t`, `m`, `E`, `L`) the layout has over all stages."""
    return sum(stage.count(kind) for stage in layout_stages(text))


def layout_stages_with(text: str, kind: str) -> tuple[int, ...]:
    """Return the virtual pipeline stages, in model order from 0, that hold a layer of a kind."""
    return tuple(number for number, stage in enumerate(layout_stages(text)) if kind in stage)
