"""A plan that is written and read again is the same plan, in both notations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from shared import SHARED, needs_shared

from tests.builders.plan_equality import assert_same_plan
from tests.sampling import sampled
from tvlint.ir.plan import Plan
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer
from tvlint.reporters.plan import text as text_writer

ROOT = Path(__file__).parents[2]
FIXTURES = sorted(path for path in (ROOT / "fixtures").rglob("*") if path.suffix in (".plan", ".json"))
READABLE = [path for path in FIXTURES if any(own.recognise(path.read_text("utf-8")) for own in (plan_text, plan_json))]
REAL = ["good/mlp_default_dp2_pp2_tp2*", "good/mlp_flexmr*", "good/llama3*ly1_*", "good/moe*ly1_*", "broken/br1.*"]

EVERYTHING = """plan "everything that can be said"
mesh dp=2 pp=2 tp=2
replicate dp
micro-batches 3
communicator tied over ranks 0,2
communicator over pp
weight w f32[8,8] tp:S(0, parts=[4,4]) pp:I
weight v bf16[7] tp:S(0) local [4] frozen
buffer b `f32`[2] local
state m f32[8,8] storage flat
input x f32[4,8] requires-grad
input i i64[4] dp:S(0, order=[[0,3],[1,2]])
tensor u f8e4m3[2,2] region [0:2,2:4] of "layers.0.u"[4,4] part 1/2 gradient gu
tensor odd f32[2] of _[4]
gradient gu f32[2,2] grad-of u storage flat
loss l f32[] dp:P(avg)
output q f32[4,8]

segment f forward stage 0 checkpointed (x) -> (h, l)
  h: tensor f32[4,4] = linear(x, w, None, beta=-1e-05, s="a\\"b", t=[1, [2.0, nan]], e=inf) as "a b, c b -> a c" label lin
  g, g2 = all-to-all(h, h, dim=0, concat-dim=1, splits=[1,3], receive-splits=[2,2], dtype=bf16) over pp,tp async h0 on comm
  d = dropout(h, p=0.1) as "a b -> a b" draws over dp, tp on s
  e = dropout(d, p=0.1) draws alike
  wait h0, h0
  `gather`(h!, 0)
  l = all-reduce max(g) over tied on s label r
  z = broadcast(l, root=2) over ranks 0,2 named other
  z2 = all-reduce ""(z) over self
  barrier() over world
  n = reduce-scatter "odd one"(z, dim=-1) over tp at "m.py":3:5 to 3:9 pointer "p" "z = f(\\"x\\")"
segment b backward mirror f stage 0 () -> (dw)
  recv dl: gradient f32[] from pp-1 ring tag -3 via tied async r0 batch bb on comm label rr
  dh = backward (dl, _) of o, k = pair(h, 3) on s at "n.py"
  _, dw = backward h (dh) on s label bw
  send dh to 2
segment r reduce
  reduce-gradients w, v over ranks 0,2 by avg divide unknown scatter replicated async rg on comm
  reduce-gradients w over dp divide 3
  record e on comm
  await e
  update w, v on s label step

program pp=0
  run f micro-batch 0-1
  run f micro-batch 2 (x2) -> (h2, l2)
  run b micro-batch 0 ()
  run r -> ()
program ranks 3
  y = gelu(x)
  micro-batch 2
  y = relu(x)
  dy2 = backward y (dy)
  run f
  y = gelu(x)
  update w
"""


def read(path: str, text: str) -> Plan:
    reader = plan_json if plan_json.recognise(text) else plan_text
    plan = reader.read(path, text).plan
    assert plan is not None
    return plan


def assert_round_trips(plan: Plan) -> None:
    text = text_writer.write(plan)
    from_text = read("again.plan", text)
    assert_same_plan(plan, from_text)
    assert text_writer.write(from_text) == text
    written = json_writer.write(plan)
    from_json = read("again.json", written)
    assert_same_plan(plan, from_json)
    assert json_writer.write(from_json) == written
    assert_same_plan(read("third.plan", text_writer.write(from_json)), from_json)


def test_everything_that_can_be_said_survives() -> None:
    plan = read("everything.plan", EVERYTHING)
    assert_round_trips(plan)
    assert text_writer.write(plan).count("\n") > 50


@pytest.mark.parametrize("path", READABLE, ids=lambda path: str(path.relative_to(ROOT / "fixtures")))
def test_fixtures_survive(path: Path) -> None:
    assert_round_trips(read(str(path), path.read_text("utf-8")))


def test_there_are_fixtures() -> None:
    assert len(READABLE) >= 5


@needs_shared
@pytest.mark.parametrize("pattern", sampled(REAL, 3))
def test_real_plans_survive(pattern: str) -> None:
    from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle

    assert SHARED is not None
    paths = sorted((SHARED / "plans").glob(pattern))
    assert paths
    for path in paths:
        plan = nnscaler_pickle.read(str(path), path.read_bytes()).plan
        assert plan is not None
        assert_round_trips(replace(plan, assumed=()))  # what pickles leave to the code around them, text and JSON say


def test_places_outside_the_plan_survive_and_its_own_are_new() -> None:
    plan = read("a.plan", 'program\n\n\n\n  y = gelu(x) at "m.py":7\n  z = gelu(y)\n')
    first, second = read("b.plan", text_writer.write(plan)).segments["forward"].operators
    assert first.source is not None
    assert second.source is not None
    assert (first.source.path, first.source.line) == ("m.py", 7)
    assert second.source.path == "b.plan"
    assert second.source.line == 5


@pytest.mark.parametrize(
    "change",
    [
        ("gelu", "relu"),
        ("S(0)", "S(1)"),
        (" w f", " w2 f"),
        ("over tp", "over world"),
        ("alike", "over tp"),
        ("micro-batch 1", "micro-batch 2"),
    ],
)
def test_the_comparison_sees_changes(change: tuple[str, str]) -> None:
    text = "mesh dp=2 tp=2\nweight w f32[4,4] tp:S(0)\nprogram\n  micro-batch 1\n"
    text += "  y = gelu(w) draws alike\n  z = all-reduce(y) over tp\n"
    with pytest.raises(AssertionError):
        assert_same_plan(read("a.plan", text), read("a.plan", text.replace(*change)))


def test_a_replicated_weight_of_another_local_shape_survives() -> None:
    assert_round_trips(read("own.plan", "mesh tp=2\nweight w f32[4,8] replicated local []\nprogram\n  update w\n"))


@pytest.mark.parametrize("name", ["²s", "Ⅷ", "½x", "x²", "层", "٣a", "_", "None", "-", "a`b", "a-b", "grad(x)"])
def test_names_of_any_script_survive(name: str) -> None:
    quoted = name.replace("`", "\\`")
    assert_round_trips(read("own.plan", f"program\n  `{quoted}1` = gelu(x) on `{quoted}`\n"))
