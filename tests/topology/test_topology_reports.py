"""Topologies as text, JSON and a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
from shared import ROOT, SHARED, needs_shared

from tests.builders.html_page import Page
from tests.builders.topologies import LLAMA, shipped, topology
from tvlint.cli import main
from tvlint.data import data_path
from tvlint.ir.configuration import Unknown
from tvlint.readers.read import read
from tvlint.reporters.html import topology as topology_html
from tvlint.reporters.json import topology as topology_json
from tvlint.reporters.text import topology as topology_text
from tvlint.reporters.text.topology_ranks import examples, members
from tvlint.run.judge.topology import topologies

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
MODELS = sorted(path.name for path in (ROOT / "fixtures" / "clean").glob("launch-*"))
SCHEMA = json.loads((data_path("schemas") / "topology.schema.json").read_text(encoding="utf-8"))
NOTHING = topology(tensor_model_parallel_size=Unknown("depends on `$1`"))
HOSTILE = topology(**{**LLAMA, "tokenizer_type": "</script><img src=x onerror=alert(1)>\x1b[31m", "vocab_size": 9})
NNSCALER = """\
compute_config:
  plan_ngpus: 4
  runtime_ngpus: 16
  use_zero: true
  zero_ngroups: 2
  pas_config: {pipeline_nmicros: 8, pipeline_nstages: 4}
pas_policy: hybrid
global_batch_size: 64
micro_batch_size: 4
"""


def plans() -> list[object]:
    """The topologies of a plan and of an nnScaler configuration."""
    plan = read(str(ROOT / "fixtures" / "tour" / "dp2-tp2.plan"))
    configured = read("train.yaml", NNSCALER.encode())
    assert plan is not None
    assert configured is not None
    return [*topologies(plan), *topologies(configured)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rank", [None, 0, 7, 10**8])
def test_no_line_is_wider_than_the_terminal(name: str, rank: int | None) -> None:
    for width in (80, 100, 140):
        text = topology_text.write([shipped(name)], width, False, rank).text
        assert [line for line in text.splitlines() if len(line) > width] == []


def test_the_screen_of_a_launch_script(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "fixtures" / "clean" / "launch-mixtral-8x7b")
    assert main(["topology", "train.sh"]) == 0
    text = capfd.readouterr().out
    for line in (
        "train.sh: megatron-lm",
        "  world size         64 ranks, a multiple of 32",
        "  expert grid        tp 1 × ep 8 × dp 2 × pp 4",
        "  ep                 8 groups of 8   0-7  8-15  16-23  24-31  32-39  40-47  48-55  56-63",
        "  expert-dp          32 groups of 2  0,8  1,9  2,10  …  55,63",
        "  parameters         46.7 B (46,702,792,704), 12.88 B of them active for a token",
        "    pp 0             embedding, 0-7",
    ):
        assert line in text.splitlines()
    assert "arxiv.org/abs/2205.05198" in text


def test_a_world_of_16384_ranks_takes_no_more_lines_than_a_small_one() -> None:
    text = topology_text.write([shipped("launch-llama3-405b")], 100, False).text
    assert "  tp                 2,048 groups of 8   0-7  8-15  16-23  …  16376-16383" in text
    assert len(text.splitlines()) < 100


def test_one_rank_is_told_with_its_groups(capfd: pytest.CaptureFixture[str]) -> None:
    script = ROOT / "fixtures" / "clean" / "launch-mixtral-8x7b" / "train.sh"
    assert main(["topology", str(script), "--rank", "9"]) == 0
    text = capfd.readouterr().out
    assert "  coordinates        tp 1, cp 1, dp 4, pp 0" not in text
    assert "  coordinates        tp 1, cp 0, dp 4, pp 0" in text
    assert "  expert coordinates tp 0, ep 1, dp 1, pp 0" in text
    assert "  ep                 8-15  (2 of 8)" in text
    assert "  expert-dp          1,9  (2 of 2)" in text


def test_a_world_that_is_not_given_is_marked_and_can_be(capfd: pytest.CaptureFixture[str]) -> None:
    script = str(ROOT / "fixtures" / "clean" / "launch-gpt3-175b" / "train.sh")
    assert main(["topology", script]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "8 ranks, the fewest that fit (`NODES` is not set in the file; `--world-size N` tells)" in text
    assert "Memory of a rank in the smallest world" in text
    assert main(["topology", script, "--world-size", "64"]) == 0
    text = capfd.readouterr().out
    assert "64 ranks, a multiple of 8" in text
    assert "smallest world" not in text


def test_a_comment_and_the_project_tell_how_many_ranks_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tvlint.toml").write_text("world-size = 32\n")
    Path("train.sh").write_text("python pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 4\n")
    assert main(["topology", "train.sh"]) == 0
    assert "  world size         32 ranks, a multiple of 8" in capfd.readouterr().out
    Path("train.sh").write_text(
        "# tvlint: world-size=16\npython pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 4\n"
    )
    assert main(["topology", "train.sh"]) == 0
    assert "  world size         16 ranks, a multiple of 8" in capfd.readouterr().out
    Path("tvlint.toml").write_text("world-size = 0\n")
    assert main(["topology", "train.sh"]) == 2


def test_a_file_with_several_models_tells_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "MODEL_ARGS:\n  --num-layers: 8\n  --tensor-model-parallel-size: 2\n"
        "MODEL_ARGS_2:\n  --num-layers: 8\n  --tensor-model-parallel-size: 4\n"
    )
    assert main(["topology", str(path), "-o", "json"]) == 0
    found = json.loads(capfd.readouterr().out)["topologies"]
    assert [(one["section"], one["grid"]["axes"]["tp"]) for one in found] == [("MODEL_ARGS", 2), ("MODEL_ARGS_2", 4)]


def test_what_is_not_known_says_why_and_says_it_in_every_format() -> None:
    assert "? (`tensor_model_parallel_size`: depends on `$1`)" in topology_text.write([NOTHING], 100, False).text
    (content,) = json.loads(topology_json.write([NOTHING]).text)["topologies"]
    assert content["grid"] == {"unknown": "`tensor_model_parallel_size`: depends on `$1`"}
    assert "depends on" in Page(topology_html.write([NOTHING], "1").text).text


@pytest.mark.parametrize("rank", [None, 3, 10**6])
def test_the_json_follows_its_schema(rank: int | None) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for found in [NOTHING, HOSTILE, *map(shipped, MODELS), *plans()]:
        content = json.loads(topology_json.write([found], rank).text)
        jsonschema.validate(content, SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("rank", [None, 3, 10**6])
def test_the_page_is_closed_loads_nothing_and_runs_nothing(rank: int | None) -> None:
    for found in [NOTHING, HOSTILE, *map(shipped, MODELS), *plans()]:
        source = topology_html.write([found], "1", rank).text
        page = Page(source)
        assert page.open == []
        assert not page.tags & {"script", "img", "link", "iframe", "object", "form", "a", "base"}
        assert not {name for name in page.attributes if name.startswith("on")} | (page.attributes & {"src", "href"})
        assert "url(" not in source
        assert "\x1b" not in source


def test_text_from_a_file_reaches_no_terminal_raw() -> None:
    assert "\x1b" not in topology_text.write([HOSTILE], 100, False).text
    assert "onerror" in Page(topology_html.write([HOSTILE], "1").text).text


def test_plans_tell_mesh_groups_stages_and_schedule() -> None:
    plan, configured = plans()
    text = topology_text.write([plan], 100, False).text
    for line in (
        "  mesh               tp 2 × dp 2",
        "  dp                 2 groups of 2: 0,2  1,3",
        "  ranks 0-3          F0 B0",
    ):
        assert line in text.splitlines()
    text = topology_text.write([configured], 100, False).text
    for line in (
        "  scale units        4",
        "  steps per update   4",
        "  bubble of a step   0.2727",
        "  scale unit         4 groups of 4  0-3  4-7  8-11  12-15",
        "  copies             4 groups of 4  0,4,8,12  1,5,9,13  2,6,10,14  3,7,11,15",
        "  zero               8 groups of 2  0,4  1,5  2,6  3,7  8,12  9,13  10,14  11,15",
    ):
        assert line in text.splitlines()


@needs_shared
def test_a_real_plan_names_its_groups_by_the_mesh() -> None:
    assert SHARED is not None
    path = SHARED / "plans" / "good" / "llama3_default_dp2_pp2_tp2_nm4_gbs512_ly2_h32_hi4096_sq128.pkl.xz"
    document = read(str(path))
    assert document is not None
    text = topology_text.write(topologies(document), 100, False).text
    for line in (
        "  mesh               tp 2 × pp 2 × dp 2",
        "  dp                 4 groups of 2: 0,4  1,5  2,6  3,7",
        "  tp                 4 groups of 2: 0,1  2,3  4,5  6,7",
        "  ranks 0,1          F0 F1 B0 F2 B1 F3 B2 B3",
        "  ranks 2,3          F0 B0 F1 B1 F2 B2 F3 B3",
    ):
        assert line in text.splitlines()


def test_ranks_are_written_in_few_words() -> None:
    assert members((5,)) == "5"
    assert members(range(8)) == "0-7"
    assert members((0, 8)) == "0,8"
    assert members(range(0, 64, 8)) == "0,8,…,56"
    assert members([*range(4), *range(64, 68)]) == "0-3,64-67"
    kinds = {kind.name: kind for kind in topology(tensor_model_parallel_size=2, world_size=64).groups}
    assert examples(kinds["cp"], 80) == "each rank by itself"
    assert examples(kinds["tp"], 80) == "0,1  2,3  4,5  …  62,63"
    assert examples(kinds["tp"], 14) == "0,1  …  62,63"
    assert examples(kinds["tp"], 10) == "0,1  …"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing.txt"], 2, "the file cannot be opened"),
        (["README.md"], 2, "nothing that tvlint reads"),
        (["fixtures/tour/train.sh", "-o", "sarif"], 2, "unknown format `sarif`"),
        (["fixtures/tour/train.sh", "--rank", "-1"], 2, "rank"),
        (["fixtures/tour/train.sh", "--config", "none.toml"], 2, "no project file"),
    ],
)
def test_what_cannot_be_told_exits_with_a_reason(
    arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    try:
        found = main(["topology", *arguments])
    except SystemExit as stopped:
        found = int(str(stopped.code))
    assert found == code
    assert said in capfd.readouterr().err


@pytest.mark.skipif(BROWSER is None, reason="no browser to draw the page with")
def test_a_browser_draws_the_page(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(topology_html.write([shipped("launch-mixtral-8x7b")], "1", 9).text, encoding="utf-8")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,2400",
        f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(set(content)) > 200
    assert len(content) > 40_000
