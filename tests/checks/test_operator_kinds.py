"""An operator is of a kind because the table has its name to the letter: names that only sound like one are unknown."""

from __future__ import annotations

import re

import pytest

from tests.builders.plan_findings import findings_of_plan, findings_of_text
from tests.shared import ROOT
from tvlint.findings import Severity
from tvlint.ops.annotations.declared import Declared
from tvlint.ops.declaring import with_declared
from tvlint.ops.kernels import KERNELS
from tvlint.ops.table import SPECS, is_nonlinear, row_of
from tvlint.readers.plan_text import reader as plan_text

STEP = """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input dy f32[4,8] dp:S(0)
program
  y = linear(x, w)
  dx, dw = backward y (dy)
  s: f32[8,8] = NAME(dw, w)
"""
ATTENTION = """
mesh cp=2
input q f32[2,8,4,16] cp:S(1)
input k f32[2,8,4,16] cp:S(1)
input v f32[2,8,4,16] cp:S(1)
program
  o: f32[2,4,4,16] = NAME(q, k, v)
output o f32[2,8,4,16] cp:S(1)
"""
CONVOLUTION = """
mesh cp=2
weight w f32[3,8,4]
input x f32[2,3,16] cp:S(2)
program
  o: f32[2,3,8] = NAME(x, w)
output o f32[2,3,16] cp:S(2)
"""
RECURRENCE = """
mesh cp=2
input x f32[2,16,8] cp:S(1)
input d f32[2,16,8] cp:S(1)
program
  o: f32[2,8,8] = NAME(x, d)
output o f32[2,16,8] cp:S(1)
"""
FUNCTION_OF_PARTIAL = """
mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  h = linear(x, w)
  y: f32[4,8] = NAME(h)
output y f32[4,8]
"""
QUANTISATION = """
mesh tp=2
buffer s f32[1]
input x f32[8,8] tp:S(0)
program
  q: f32[4,8] = NAME(x, s)
  a = amax(x)
  m = all-reduce max(a) over tp
  set_scale(s!, m)
"""
EXPERTS = """
mesh ep=2
weight w f32[8,8]
input x f32[4,8,8] ep:S(0)
program
  a = all-to-all(x, dim=1) over ep
  h: f32[2,8,8] = NAME(a, w)
  y = add(h, x)
output y f32[4,8,8] ep:S(0)
"""
PLANS = (STEP, ATTENTION, CONVOLUTION, RECURRENCE, FUNCTION_OF_PARTIAL, QUANTISATION, EXPERTS)

SOUNDS_LIKE_A_STEP = (
    "lambda_scale", "flamboyant", "mix.million_norm", "pavilion_gate", "dollars_weighting", "optimal_transport.plan",
    "sgdistance", "adamantine_cast", "momentumless_mix", "relionise", "optimizer_free.scale", "optim.kernels.blend",
)  # fmt: skip
SOUNDS_LIKE_ATTENTION = (
    "flash_mlp", "flashback_gate", "inattention_weight", "attn_gate_mul", "cross_attn_residual", "sdpa_inputs_pack",
    "flash_swiglu", "rotary_attn_embed",
)  # fmt: skip
SOUNDS_LIKE_A_CONVOLUTION = ("convex_mix", "unconventional_pool", "deconvolved_norm")
SOUNDS_LIKE_A_RECURRENCE = ("scandium_mix", "scanner_filter", "bank.scan_codes")
COMMUNICATES = (
    "wrap_ring_attn_func", "ring_flash_attn_func", "ring_flash_attn.zigzag_ring_flash_attn_func", "ulysses_attn_func",
    "attn_forward_with_cp", "torch.ops.aten._scaled_dot_product_ring_flash_attention.default", "yunchang.LongContextAttention",
)  # fmt: skip
STEPS = (
    "adam_step", "torch.optim.AdamW", "torch._fused_adamw_", "sgd", "adamw", "apex.optimizers.FusedAdam", "lamb",
    "torch.optim.Adafactor", "muon", "lion_step", "rmsprop", "torch.optim.SGD",
)  # fmt: skip
ATTENTIONS = (
    "flash_attn_func", "flash_attn.flash_attn_interface.flash_attn_func", "flash_attention", "memory_efficient_attention",
    "xformers.ops.memory_efficient_attention",
)  # fmt: skip
ATTENTIONS_WITH_HEADS_FIRST = (
    "scaled_dot_product_attention", "F.scaled_dot_product_attention", "aten._scaled_dot_product_efficient_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention.default", "flex_attention", "sdpa",
)  # fmt: skip


def rules(plan: str, name: str) -> set[str]:
    return {each.rule for each in findings_of_text(plan.replace("NAME", name)) if each.severity is not Severity.NOTE}


@pytest.mark.parametrize("name", SOUNDS_LIKE_A_STEP)
def test_what_sounds_like_an_optimizer_step_is_unknown(name: str) -> None:
    assert rules(STEP, name) == set()


@pytest.mark.parametrize("name", SOUNDS_LIKE_ATTENTION)
def test_what_sounds_like_attention_is_unknown(name: str) -> None:
    assert rules(ATTENTION, name) == set()


@pytest.mark.parametrize("name", SOUNDS_LIKE_A_CONVOLUTION)
def test_what_sounds_like_a_convolution_is_unknown(name: str) -> None:
    assert rules(CONVOLUTION, name) == set()


@pytest.mark.parametrize("name", SOUNDS_LIKE_A_RECURRENCE)
def test_what_sounds_like_a_recurrence_is_unknown(name: str) -> None:
    assert rules(RECURRENCE, name) == set()


NAMES_OF_PLANS = ["step", "attention", "conv", "recurrence", "function", "codes", "experts"]


@pytest.mark.heavy
@pytest.mark.parametrize("plan", PLANS, ids=NAMES_OF_PLANS)
def test_a_name_with_more_letters_than_a_known_one_is_unknown(plan: str) -> None:
    names = {name.rsplit(".", 1)[-1] for row in (*SPECS, *KERNELS) for name in (row.name, *row.signatures)}
    words = {name.strip("_").replace("-", "_") for name in names}
    unknown = sorted(name for word in words for name in (f"{word}_of_ours", f"ex{word}") if row_of(name) is None)
    assert len(unknown) > 500
    expected = rules(plan, "foo_of_ours")
    assert [name for name in unknown if rules(plan, name) != expected] == []


@pytest.mark.parametrize("name", STEPS)
def test_an_optimizer_step_is_known_by_its_name(name: str) -> None:
    assert rules(STEP.replace("s: f32[8,8] = NAME(dw, w)", "NAME(w!, dw)"), name) == {"missing-gradient-reduction"}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_over_own_keys_is_known_by_its_name(name: str) -> None:
    assert rules(ATTENTION, name) == {"attention-over-local-keys"}


@pytest.mark.parametrize("name", ATTENTIONS_WITH_HEADS_FIRST)
def test_attention_with_heads_first_is_known_by_its_name(name: str) -> None:
    heads_first = ATTENTION.replace("cp:S(1)", "cp:S(2)").replace("[2,8,4,16]", "[2,4,8,16]")
    assert rules(heads_first, name) == {"attention-over-local-keys"}


@pytest.mark.parametrize("name", COMMUNICATES)
def test_attention_that_fetches_keys_itself_has_results_where_its_queries_are(name: str) -> None:
    assert rules(ATTENTION, name) == set()


@pytest.mark.parametrize("name", ["hardswish", "softsign", "gelu_new", "exp2", "softmin", "aten.hardshrink", "F.logsigmoid"])
def test_a_function_of_partial_sums_is_known_by_its_name(name: str) -> None:
    assert is_nonlinear(name)
    assert "partial-through-nonlinear" in rules(FUNCTION_OF_PARTIAL, name)


@pytest.mark.parametrize(
    ("one", "other"), [("gelu", "silu"), ("hardswish", "softsign"), ("quick_gelu", "gelu"), ("square", "relu")]
)
def test_ranks_that_apply_different_functions_differ(one: str, other: str) -> None:
    plan = """
mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[4,8]
program tp=0
  h = linear(x, w)
  y = NAME(h)
program tp=1
  h = linear(x, w)
  y = OTHER(h)
"""
    assert rules(plan.replace("OTHER", other), one) == {"divergent-replicas"}


@pytest.mark.parametrize(
    ("plan", "name", "annotation"),
    [
        (STEP, "lamb", "a b, a b -> a b"),
        (ATTENTION, "flash_attention", "b s h d, b s h d, b s h d -> b s h d"),
        (CONVOLUTION, "causal_conv1d", "b c t, c k^ r^ -> b c t"),
        (RECURRENCE, "selective_scan_fn", "b t c, b t c -> b t c"),
    ],
    ids=["step", "attention", "convolution", "recurrence"],
)
def test_what_a_project_declares_comes_before_what_a_name_says(plan: str, name: str, annotation: str) -> None:
    text = plan.replace("NAME", f"ours.{name}")
    assert rules(plan, f"ours.{name}")
    read = plan_text.read("example.plan", text).plan
    assert read is not None
    declared = with_declared(read, [Declared(f"ours.{name}", annotation, linear=((0,),))])
    assert [each.rule for each in findings_of_plan(declared) if each.severity is not Severity.NOTE] == []


def test_the_names_that_the_documents_list_are_known() -> None:
    text = (ROOT / "docs" / "plan-text.md").read_text(encoding="utf-8")
    rows = text.split("| kind | listed names, for example |")[1].split("\n\n")[0].splitlines()[2:]
    names = [name for row in rows for name in re.findall(r"`(?:[\w, ]+ = )?(\w+)[(`]", row.split("|")[2])]
    assert len(names) > len(rows) == 6
    assert [name for name in names if row_of(name) is None] == []
