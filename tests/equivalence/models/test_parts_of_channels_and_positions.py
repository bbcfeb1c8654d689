"""Verdicts on operators that take channels in groups, or positions in windows, of which a rank holds some."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

NORMALISED = """
weight w f32[16,16]
weight n f32[16]
weight b f32[16]
input x f32[4,16,5]
loss l
program
  xt = transpose(x, dim0=1, dim1=2)
  ht = linear(xt, w)
  h = transpose(ht, dim0=1, dim1=2)
  g = group_norm(h, num_groups=4, weight=n, bias=b)
  q = pow(g, 3)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dg = backward q (dq)
  dh, grad(n), grad(b) = backward g (dg)
  dht = backward h (dh)
  _, grad(w) = backward ht (dht)
"""


def normalised(ranks: int, groups: int, placement: str = "tp:S(0)") -> str:
    """The plan with a part of the channels on each of `ranks`, in `groups` groups there."""
    text = f"mesh tp={ranks}" + NORMALISED.replace("num_groups=4", f"num_groups={groups}")
    for weight in ("w f32[16,16]", "n f32[16]", "b f32[16]"):
        text = text.replace(weight, f"{weight} {placement}")
    return summed(text)


def summed(text: str) -> str:
    """The plan with the loss summed over the ranks."""
    text = text.replace("  l: f32[] = sum(q)", "  s: f32[] = sum(q)\n  l = all-reduce(s) over tp")
    return text.replace("backward l (", "backward s (")


@pytest.mark.parametrize(
    ("ranks", "groups", "placement"),
    [(2, 2, "tp:S(0)"), (4, 1, "tp:S(0)"), (2, 2, "tp:S(0, order=[[1],[0]])"), (2, 2, "tp:S(0, order=[[0,3],[1,2]])")],
)
def test_a_rank_normalises_the_groups_of_its_channels(ranks: int, groups: int, placement: str) -> None:
    text = normalised(ranks, groups, placement)
    verdict = verdict_on(text, NORMALISED)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    if "order" not in placement:
        assert compare(*plans(NORMALISED, text)).outcome == "equal"


@pytest.mark.parametrize(
    ("ranks", "groups", "placement"),
    sampled_tuples(
        [
            (2, 4, "tp:S(0)"),
            (2, 1, "tp:S(0)"),
            (4, 2, "tp:S(0)"),
            (8, 1, "tp:S(0)"),
            (2, 2, "tp:S(0, order=[[0,2,4,6],[1,3,5,7]])"),
        ],
        3,
    ),
)
def test_channels_that_are_no_groups_of_all_are_not_normalised_alike(ranks: int, groups: int, placement: str) -> None:
    assert verdict_on(normalised(ranks, groups, placement), NORMALISED).outcome is Outcome.REFUTED


GROUPED = """
weight k f32[16,4,3]
weight b f32[16]
input x f32[2,16,8]
loss l
program
  t = tanh(x)
  h = conv1d(t, k, b, padding=1, groups=4)
  q = pow(h, 3)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  _, grad(k), grad(b) = backward h (dh)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("groups", [", groups=2", ", groups=1", ""])
def test_groups_of_several_channels_on_a_rank_are_not_refuted(groups: str) -> None:
    ranks = 2 if "2" in groups else 4
    text = f"mesh tp={ranks}" + GROUPED.replace(", groups=4", groups).replace("[2,16,8]", "[2,16,8] tp:S(1)")
    text = text.replace("k f32[16,4,3]", "k f32[16,4,3] tp:S(0)").replace("b f32[16]", "b f32[16] tp:S(0)")
    text = summed(text)
    assert compare(*plans(GROUPED, text)).outcome == "equal"
    assert verdict_on(text, GROUPED).outcome is Outcome.UNKNOWN
    swapped = text.replace("b f32[16] tp:S(0)", f"b f32[16] tp:S(0, order={[[ranks - 1 - rank] for rank in range(ranks)]})")
    assert verdict_on(swapped, GROUPED).outcome is Outcome.REFUTED


WINDOWS = {
    "a mean": ("avg_pool1d(x, 2)", 8),
    "a greatest": ("max_pool1d(x, 2)", 8),
    "spread": ("conv_transpose1d(x, u, stride=4)", 64),
    "repeated": ('interpolate(x, scale_factor=2, mode="nearest")', 32),
}
ACROSS = {
    "a mean": ("avg_pool1d(x, 2, stride=1, padding=1)", 17),
    "a greatest": ("max_pool1d(x, 3, stride=1, padding=1)", 16),
    "a patch": ("conv1d(x, k, stride=2, padding=1)", 8),
    "spread": ("conv_transpose1d(x, u, stride=2)", 34),
    "between": ('interpolate(x, scale_factor=2, mode="linear")', 32),
}
DECLARED = "buffer k f32[6,4,4]\nbuffer u f32[4,6,4]\ninput x f32[2,4,16]\n"


def windows(operator: str, made: int) -> str:
    channels = 6 if "conv" in operator else 4
    text = f"mesh cp=2\n{DECLARED}output y f32[2,{channels},{made}] cp:S(2)\nprogram\n  y = {operator}\n"
    return text.replace("x f32[2,4,16]", "x f32[2,4,16] cp:S(2)")


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_side_by_side_are_not_refuted_where_positions_are_split_between_them(name: str) -> None:
    operator, made = WINDOWS[name]
    reference = f"{DECLARED}output y\nprogram\n  y = {operator}\n"
    assert verdict_on(windows(operator, made), reference).outcome is Outcome.UNKNOWN


PATCHES = """
weight k f32[6,3,2,2]
weight b f32[6]
input x f32[2,3,8,4]
loss l
program
  y = conv2d(x, k, b, stride=2)
  q = tanh(y)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  _, grad(k), grad(b) = backward y (dy)
"""


def patches(ranks: int, made: str = "conv2d(x, k, b, stride=2)", placed: str = "cp:S(2)") -> str:
    text = f"mesh cp={ranks}" + PATCHES.replace("x f32[2,3,8,4]", f"x f32[2,3,8,4] {placed}")
    return (
        summed(text).replace("over tp", "over cp").replace("conv2d(x, k, b, stride=2)", made)
        + "  reduce-gradients k, b over cp\n"
    )


@pytest.mark.parametrize(("ranks", "placed"), [(2, "cp:S(2)"), (4, "cp:S(2)"), (2, "cp:S(3)"), (2, "cp:S(2, order=[[1],[0]])")])
def test_patches_are_those_of_the_whole_image_where_ranks_have_whole_ones(ranks: int, placed: str) -> None:
    text = patches(ranks, placed=placed)
    verdict = verdict_on(text, PATCHES)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert "order" in placed or compare(*plans(PATCHES, text)).outcome == "equal"


@pytest.mark.parametrize(
    "made", ["conv2d(x, k, b, stride=1)", "conv2d(x, k, b, stride=2, dilation=2)", "conv2d(x, k, b, stride=3)"]
)
def test_other_windows_than_the_patches_are_refuted(made: str) -> None:
    assert verdict_on(patches(2, made), PATCHES).outcome is Outcome.REFUTED


def test_patches_over_the_edges_of_parts_are_refuted() -> None:
    reference = PATCHES.replace("8,4]", "12,4]")
    verdict = verdict_on(patches(4).replace("8,4]", "12,4]"), reference)
    assert {reason.name for reason in verdict.reasons if reason.refutes} == {"split-dimension"}


@pytest.mark.parametrize("name", ACROSS)
def test_windows_over_the_edges_of_parts_are_refuted(name: str) -> None:
    operator, made = ACROSS[name]
    reference = f"{DECLARED}output y\nprogram\n  y = {operator}\n"
    assert verdict_on(windows(operator, made), reference).outcome is Outcome.REFUTED


def test_a_kernel_of_one_position_is_applied_to_some_positions_as_to_all() -> None:
    reference = f"{DECLARED}buffer o f32[6,4,1]\noutput y\nprogram\n  y = conv1d(x, o)\n"
    parallel = windows("conv1d(x, o)", 16).replace("input x", "buffer o f32[6,4,1]\ninput x")
    assert verdict_on(parallel, reference).outcome is Outcome.PROVED
    across = parallel.replace("(x, o)", "(x, o, padding=1)").replace("6,16]", "6,20]")
    assert verdict_on(across, reference.replace("(x, o)", "(x, o, padding=1)")).outcome is Outcome.REFUTED
