"""A defect drawn: the operators around it, and which slice of each value a kind of rank holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from tvlint.findings import Piece, Scene, SceneStep
from tvlint.ir.mesh import Mesh
from tvlint.reporters.html_page import words
from tvlint.reporters.ranks import describe

_LONGEST = 44.0
_SHORTEST = 12.0


def scene_drawing(scenes: Sequence[Scene], ranks: Collection[int], mesh: Mesh | None) -> str:
    """A table for each scene: an operator in a row, what it reads and what it gives; which of the ranks no scene is of."""
    if not scenes:
        return ""
    drawn = "".join(_table(scene, mesh) for scene in scenes)
    left = sorted({*ranks} - {rank for scene in scenes for rank in scene.ranks})
    others = f'<p class="soft">Not drawn: {escape(describe(tuple(left), mesh))}</p>' if left else ""
    keys = (("held", "what the ranks hold of the whole value"), ("lacking", "not complete"), ("wrong", "wrong here"))
    legend = "".join(f'<span class="key {style}"></span>{text}' for style, text in keys)
    return (
        f'<details open class="scene"><summary>The operators around it</summary><div class="scroll">{drawn}</div>'
        f'{others}<p class="soft">{legend}</p></details>'
    )


def _table(scene: Scene, mesh: Mesh | None) -> str:
    rows = "".join(_row(step) for step in scene.steps)
    ranks = escape(describe(scene.ranks, mesh))
    return f"<table><caption>on {ranks}</caption>{rows}</table>"


def _row(step: SceneStep) -> str:
    style = ' class="blamed"' if step.blamed else ""
    return (
        f"<tr{style}><th>{words(step.operator)}</th><td>{_pieces(step.reads)}</td>"
        f'<td><span class="arrow">→</span>{_pieces(step.gives) or _NOTHING}</td></tr>'
    )


_NOTHING = '<span class="soft">nothing</span>'


def _pieces(pieces: Sequence[Piece]) -> str:
    return "".join(_piece(piece) for piece in pieces)


def _piece(piece: Piece) -> str:
    style = "lacking" if piece.lacks else "held"
    lines = [f"<b>{words(piece.tensor)}</b>"]
    if piece.of and piece.of != piece.tensor:
        lines.append(f'<span class="soft">{words(_short(piece.of))}</span>')
    lines.append(words(extent(piece)))
    if piece.lacks:
        lines.append(f'<span class="lacks">{words(piece.lacks)}</span>')
    return f"<figure>{_drawn(piece, style)}<figcaption>{'<br>'.join(lines)}</figcaption></figure>"


def extent(piece: Piece) -> str:
    """The slice in numbers, whole dimensions as their size: `8 × 256 × 0:64 of 128`."""
    held = piece.box or ((0, 0),) * len(piece.whole)
    if not piece.box:
        return " × ".join(map(str, piece.whole))
    return " × ".join(
        str(size) if (low, high) == (0, size) else f"{low}:{high} of {size}"
        for (low, high), size in zip(held, piece.whole, strict=True)
    )


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"…{name[-31:]}"


def _drawn(piece: Piece, style: str) -> str:
    """The whole value as a rectangle of its two last dimensions, or of those that are cut; the held slice is filled."""
    down, across = _axes(piece)
    width, height = _side(piece, across), _side(piece, down)
    left, right = _part(piece, across, width)
    top, bottom = _part(piece, down, height)
    filled = (
        f'<rect class="{style}" x="{left + 1:.1f}" y="{top + 1:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"/>'
        if piece.box or not piece.whole
        else ""
    )
    return (
        f'<svg role="img" width="{width + 2:.0f}" height="{height + 2:.0f}">'
        f'<rect class="whole" x="1" y="1" width="{width:.1f}" height="{height:.1f}"/>{filled}</svg>'
    )


def _axes(piece: Piece) -> tuple[int, int]:
    """The dimensions that are drawn downwards and across (-1: none): those that are cut first, then the last ones."""
    dims = list(range(len(piece.whole)))
    cut = [dim for dim in dims if piece.box and piece.box[dim] != (0, piece.whole[dim])]
    chosen = sorted([*cut[-2:], *[dim for dim in reversed(dims) if dim not in cut and piece.whole[dim] > 1]][:2])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return (-1, chosen[0]) if chosen else (-1, -1)


def _side(piece: Piece, dim: int) -> float:
    """How long a dimension is drawn: larger ones longer, by their logarithm, so that the smallest is still seen."""
    return _SHORTEST if dim < 0 else min(_LONGEST, _SHORTEST + 4.0 * piece.whole[dim].bit_length())


def _part(piece: Piece, dim: int, length: float) -> tuple[float, float]:
    """From where to where the held slice goes on a side of that length; at least wide enough to be seen."""
    if dim < 0 or not piece.box or not piece.whole[dim]:
        return 0.0, length
    low, high = (edge / piece.whole[dim] * length for edge in piece.box[dim])
    return (low, high) if high - low >= 2 else (min(low, length - 2), min(low, length - 2) + 2)
