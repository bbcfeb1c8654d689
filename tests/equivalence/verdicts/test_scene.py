"""The operators around a defect: which slice of which value each kind of rank holds."""

from __future__ import annotations

from tests.shared import ROOT
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Piece, Reason, Scene
from tvlint.readers.plan_text.reader import read
from tvlint.reporters.escape.html import markup
from tvlint.reporters.html.defect_svg import extent, scene_drawing

TOUR = ROOT / "fixtures" / "tour"


def reasons_of(old: str = "", new: str = "", plan: str = "dp2-tp2-broken.plan") -> tuple[Reason, ...]:
    text = (TOUR / plan).read_text()
    assert old in text
    parallel = read(plan, text.replace(old, new, 1) if old else text).plan
    reference = read("single.plan", (TOUR / "single.plan").read_text()).plan
    assert parallel is not None
    assert reference is not None
    return prove(parallel, reference).reasons


def by_ranks(scenes: tuple[Scene, ...]) -> dict[tuple[int, ...], Scene]:
    return {scene.ranks: scene for scene in scenes}


def test_a_partial_sum_is_followed_to_where_it_is_used_as_complete() -> None:
    (reason,) = reasons_of()
    scenes = by_ranks(reason.scenes)
    assert set(scenes) == {(0,), (1,), (2,), (3,)}
    for rank in range(4):
        half = (0, 8) if rank % 2 == 0 else (8, 16)
        rows = (0, 4) if rank < 2 else (4, 8)
        steps = scenes[rank,].steps
        assert [step.operator for step in steps] == ["linear", "gelu", "linear", "gelu"]
        assert [step.blamed for step in steps] == [False, False, False, True]
        linear = steps[2]
        assert [(piece.tensor, piece.whole, piece.box) for piece in linear.reads] == [
            ("a", (8, 16), (rows, half)),
            ("w2", (8, 16), ((0, 8), half)),
        ]
        (result,) = linear.gives
        assert (result.box, result.lacks) == ((rows, (0, 8)), f"partial sum over {half[0]}:{half[1]} of 16")
        assert steps[3].reads == (result,)


def test_a_value_that_nothing_makes_is_an_empty_piece() -> None:
    reasons = reasons_of("  y = all-reduce(p) over tp\n", "", "dp2-tp2.plan")
    drawn = [piece for reason in reasons for scene in reason.scenes for step in scene.steps for piece in step.reads]
    assert [piece for piece in drawn if piece.lacks == "nothing makes it" and piece.box == ()]


def test_a_gradient_that_is_not_kept_is_no_piece() -> None:
    reasons = reasons_of("_, grad(w1) = backward h (dh)", "_, grad(w1) = backward h (dx)", "dp2-tp2.plan")
    (reason,) = [reason for reason in reasons if reason.name == "absent-gradient"]
    assert [[piece.tensor for piece in scene.steps[-1].gives] for scene in reason.scenes] == [["grad(w1)"]]


def test_every_rank_concerned_is_drawn_once() -> None:
    reasons = reasons_of("b = torch.nn.functional.gelu(y)", "b = torch.nn.functional.silu(y)", "dp2-tp2.plan")
    (wrong,) = [reason for reason in reasons if reason.refutes]
    last = {scene.ranks: scene.steps[-1] for scene in wrong.scenes}
    assert [step.operator for step in last.values()] == ["silu"] * len(last)
    assert sorted(rank for ranks in last for rank in ranks) == [0, 1, 2, 3]


def test_a_doubled_value_says_how_often_it_is_counted() -> None:
    reasons = reasons_of("y = all-reduce(p) over tp", "q = all-reduce(p) over tp\n  y = all-reduce(q) over tp", "dp2-tp2.plan")
    steps = reasons[0].scenes[0].steps
    assert [(piece.tensor, piece.lacks) for piece in steps[-1].reads] == [("y", "2 times")]
    assert steps[-2].operator == "all-reduce"


def test_the_drawing_fills_the_slice_that_is_held() -> None:
    (reason,) = reasons_of()
    drawn = markup(scene_drawing(reason.scenes, reason.ranks, None))
    assert drawn.count("<table>") == 4
    assert "on rank 3" in drawn
    assert "4:8 of 8 × 0:8 of 16" in drawn
    assert "partial sum over 8:16 of 16" in drawn
    assert "Not drawn" not in drawn
    assert "Not drawn: ranks 1-3" in markup(scene_drawing(reason.scenes[:1], reason.ranks, None))
    assert markup(scene_drawing((), (0,), None)) == ""


def test_an_extent_says_which_indices_of_how_many() -> None:
    assert extent(Piece("a", "", (8, 16), ((0, 8), (8, 16)))) == "8 × 8:16 of 16"
    assert extent(Piece("a", "", (8, 16), ())) == "8 × 16"


def test_a_gradient_that_an_operator_gives_is_made() -> None:
    reasons = reasons_of("_, grad(w1) = backward h (dh)", "_, grad(w1) = backward h (dx)", "dp2-tp2.plan")
    drawn = [piece for reason in reasons for scene in reason.scenes for step in scene.steps for piece in step.gives]
    assert drawn
    assert not [piece.tensor for piece in drawn if piece.lacks == "nothing makes it"]
