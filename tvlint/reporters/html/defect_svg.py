"""A defect drawn: the operators around it, and which slice of each value a kind of rank holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvlint.findings import Piece, Scene, SceneStep
from tvlint.ir.mesh import Mesh
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.text.ranks import describe

_LONGEST = 44.0
_SHORTEST = 12.0


def scene_drawing(scenes: Sequence[Scene], ranks: Collection[int], mesh: Mesh | None) -> Content:
    """Return a table for each scene: an operator in a row, what it reads and gives; and which of the ranks no scene is of."""
    if not scenes:
        return ()
    drawn = [_table(scene, mesh) for scene in scenes]
    left = sorted({*ranks} - {rank for scene in scenes for rank in scene.ranks})
    others = tag("p", f"Not drawn: {describe(tuple(left), mesh)}", kind="soft") if left else ()
    keys = (("held", "what the ranks hold of the whole value"), ("lacking", "not complete"), ("wrong", "wrong here"))
    legend = tag("p", [(tag("span", kind=f"key {style}"), text) for style, text in keys], kind="soft")
    title = tag("summary", "The operators around it")
    return tag("details", title, tag("div", drawn, kind="scroll"), others, legend, kind="scene", open="")


def _table(scene: Scene, mesh: Mesh | None) -> Element:
    return tag("table", tag("caption", f"on {describe(scene.ranks, mesh)}"), [_row(step) for step in scene.steps])


def _row(step: SceneStep) -> Element:
    gives = [_piece(piece) for piece in step.gives] or tag("span", "nothing", kind="soft")
    reads = tag("td", [_piece(piece) for piece in step.reads])
    cells = (tag("th", step.operator), reads, tag("td", tag("span", "→", kind="arrow"), gives))
    return tag("tr", *cells, kind="blamed" if step.blamed else "")


def _piece(piece: Piece) -> Element:
    style = "lacking" if piece.lacks else "held"
    lines: list[Content] = [tag("b", piece.tensor)]
    if piece.of and piece.of != piece.tensor:
        lines += [tag("br"), tag("span", _short(piece.of), kind="soft")]
    lines += [tag("br"), extent(piece)]
    if piece.lacks:
        lines += [tag("br"), tag("span", piece.lacks, kind="lacks")]
    return tag("figure", _drawn(piece, style), tag("figcaption", lines))


def extent(piece: Piece) -> str:
    """Return the slice in numbers, whole dimensions as their size: `8 × 256 × 0:64 of 128`."""
    held = piece.box or ((0, 0),) * len(piece.whole)
    if not piece.box:
        return " × ".join(map(str, piece.whole))
    return " × ".join(
        str(size) if (low, high) == (0, size) else f"{low}:{high} of {size}"
        for (low, high), size in zip(held, piece.whole, strict=True)
    )


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"…{name[-31:]}"


def _drawn(piece: Piece, style: str) -> Element:
    """Return the whole value as a rectangle of its two last dimensions, or of those that are cut; the held slice is filled."""
    down, across = _axes(piece)
    width, height = _side(piece, across), _side(piece, down)
    left, right = _part(piece, across, width)
    top, bottom = _part(piece, down, height)
    boxes = [tag("rect", kind="whole", x=1, y=1, width=width, height=height)]
    if piece.box or not piece.whole:
        boxes.append(tag("rect", kind=style, x=left + 1, y=top + 1, width=right - left, height=bottom - top))
    return tag("svg", boxes, role="img", width=f"{width + 2:.0f}", height=f"{height + 2:.0f}")


def _axes(piece: Piece) -> tuple[int, int]:
    """Return the dimensions that are drawn downwards and across (-1: none): those that are cut first, then the last ones."""
    dims = list(range(len(piece.whole)))
    cut = [dim for dim in dims if piece.box and piece.box[dim] != (0, piece.whole[dim])]
    chosen = sorted([*cut[-2:], *[dim for dim in reversed(dims) if dim not in cut and piece.whole[dim] > 1]][:2])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return (-1, chosen[0]) if chosen else (-1, -1)


def _side(piece: Piece, dim: int) -> float:
    """Return how long a dimension is drawn: larger ones longer, by their logarithm, so that the smallest is still seen."""
    return _SHORTEST if dim < 0 else min(_LONGEST, _SHORTEST + 4.0 * piece.whole[dim].bit_length())


def _part(piece: Piece, dim: int, length: float) -> tuple[float, float]:
    """From where to where the held slice goes on a side of that length; at least wide enough to be seen."""
    if dim < 0 or not piece.box or not piece.whole[dim]:
        return 0.0, length
    low, high = (edge / piece.whole[dim] * length for edge in piece.box[dim])
    return (low, high) if high - low >= 2 else (min(low, length - 2), min(low, length - 2) + 2)
