"""The language server, as a client over the standard streams sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shared import ROOT

pytest.importorskip("pygls", reason="pygls is not installed")

from tests.builders.language_client import Client
from tests.sampling import sampled_tuples

SCRIPT = """\
# 😀 ranks
torchrun --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-paralel-size 4 --num-layers 25 --pipeline-model-parallel-size 2 \\
  --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \\
  --micro-batch-size 1 --global-batch-size 16
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(tmp_path) as opened:
        yield opened


def codes(diagnostics: list[Any]) -> set[str]:
    return {each["code"] for each in diagnostics}


def edited(text: str, edits: list[Any]) -> str:
    """Return the text after edits as an editor makes them: positions are lines from 0 and units of UTF-16."""

    def offset(place: Any) -> int:
        lines = text.splitlines(keepends=True) or [""]
        before = sum(len(line) for line in lines[: place["line"]])
        line = lines[place["line"]] if place["line"] < len(lines) else ""
        return before + len(line.encode("utf-16-le")[: 2 * place["character"]].decode("utf-16-le"))

    for edit in sorted(edits, key=lambda own: offset(own["range"]["start"]), reverse=True):
        text = text[: offset(edit["range"]["start"])] + edit["newText"] + text[offset(edit["range"]["end"]) :]
    return text


def actions(client: Client, name: str, line: int) -> dict[str, Any]:
    place = {"line": line, "character": 0}
    asked = {"textDocument": {"uri": client.uri(name)}, "range": {"start": place, "end": place}, "context": {"diagnostics": []}}
    return {each["title"]: each for each in client.ask("textDocument/codeAction", asked)}


def test_an_address_that_is_no_path_keeps_no_other_text_from_being_judged(client: Client) -> None:
    odd = {"uri": f"{client.uri('train')}%00.sh", "languageId": "shellscript", "version": 1, "text": SCRIPT}
    client.tell("textDocument/didOpen", {"textDocument": odd})
    assert "layers-not-divisible-by-pp" in codes(client.open("train.sh", SCRIPT))
    place = {"line": 2, "character": 46}
    asked = {"textDocument": {"uri": odd["uri"]}, "position": place}
    assert client.ask("textDocument/hover", asked) is None
    asked = {"textDocument": {"uri": odd["uri"]}, "range": {"start": place, "end": place}, "context": {"diagnostics": []}}
    assert not client.ask("textDocument/codeAction", asked)


@pytest.mark.parametrize("name", ["nosuch.sh", "pipe.sh", "a%00b.sh"])
def test_a_text_that_is_not_open_has_no_answer_and_no_file_is_read_for_it(client: Client, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    uri, place = f"{tmp_path.as_uri()}/{name}", {"line": 0, "character": 0}
    assert client.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": place}) is None
    asked = {"textDocument": {"uri": uri}, "range": {"start": place, "end": place}, "context": {"diagnostics": []}}
    assert client.ask("textDocument/codeAction", asked) == []


def test_findings_come_as_one_types(client: Client) -> None:
    found = client.open("train.sh", SCRIPT)
    assert codes(found) == {"misspelled-option", "layers-not-divisible-by-pp"}
    [layers] = [each for each in found if each["code"] == "layers-not-divisible-by-pp"]
    assert layers["range"] == {"start": {"line": 2, "character": 45}, "end": {"line": 2, "character": 47}}
    assert layers["severity"] == 1
    assert layers["source"] == "tvlint"
    assert layers["relatedInformation"][0]["message"] == "`--pipeline-model-parallel-size` is 2 here"
    assert layers["codeDescription"]["href"].endswith("/layers-not-divisible-by-pp.md")
    right = SCRIPT.replace("25", "24").replace("paralel", "parallel")
    assert client.change("train.sh", right, 2) == []
    assert codes(client.change("train.sh", right.replace("heads 16", "heads 15"), 3)) >= {"heads-not-divisible-by-tp"}


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    sampled_tuples(
        [
            (
                "args.yaml",
                "MODEL_ARGS:\n  --num-layers: 25\n  --pipeline-model-parallel-size: 2\n",
                "layers-not-divisible-by-pp",
            ),
            ("tp.plan", (ROOT / "fixtures/tour/dp2-tp2-broken.plan").read_text(), "partial-through-nonlinear"),
            (
                "ds.json",
                '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 7}}\n',
                "zero-stage-out-of-range",
            ),
            ("old.csv", "0F0,0F1,0BW0,0B1,0W1\n1F0,1BW0,1F1,1BW1\n", "schedule-old-spelling"),
        ],
        3,
    ),
)
def test_every_kind_of_text_is_judged(client: Client, name: str, text: str, rule: str) -> None:
    assert rule in codes(client.open(name, text))


def test_a_quick_fix_repairs_the_text(client: Client) -> None:
    found = client.open("train.sh", SCRIPT)
    offered = actions(client, "train.sh", 2)
    assert set(offered) == {
        "set `--num-layers` to 24",
        "set `--pipeline-model-parallel-size` to 1",
        "ignore `layers-not-divisible-by-pp` here",
        "write `--tensor-model-parallel-size`",
        "ignore `misspelled-option` here",
    }
    assert [title for title, each in offered.items() if each.get("isPreferred")] == ["write `--tensor-model-parallel-size`"]
    text = edited(SCRIPT, offered["set `--num-layers` to 24"]["edit"]["changes"][client.uri("train.sh")])
    assert text == SCRIPT.replace("--num-layers 25", "--num-layers 24")
    after = client.change("train.sh", text, 2)
    assert codes(after) == codes(found) - {"layers-not-divisible-by-pp"}


def test_a_comment_is_offered_that_silences(client: Client) -> None:
    client.open("train.sh", SCRIPT)
    offered = actions(client, "train.sh", 2)["ignore `layers-not-divisible-by-pp` here"]
    text = edited(SCRIPT, offered["edit"]["changes"][client.uri("train.sh")])
    assert "# tvlint: ignore[layers-not-divisible-by-pp] state the reason\ntorchrun" in text
    assert "layers-not-divisible-by-pp" not in codes(client.change("train.sh", text, 2))


def test_hover_shows_the_setting_the_rule_and_what_follows(client: Client) -> None:
    client.open("train.sh", SCRIPT)
    place = {"line": 2, "character": 46}
    found = client.ask("textDocument/hover", {"textDocument": {"uri": client.uri("train.sh")}, "position": place})
    text = found["contents"]["value"]
    assert text.startswith("### layers-not-divisible-by-pp")
    assert "--num-layers = 25  (num_layers)" in text
    assert "## Why is this bad" in text
    assert "\nWrong:\n\n```sh\n" in text
    assert ": ?" not in text
    nothing = {"textDocument": {"uri": client.uri("train.sh")}, "position": {"line": 0, "character": 0}}
    assert client.ask("textDocument/hover", nothing) is None


def test_an_open_text_stands_in_the_place_of_its_file(client: Client, tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("LAYERS=24\n")
    script = "source common.sh\n" + SCRIPT.replace("25", "$LAYERS").replace("paralel", "parallel")
    assert client.open("train.sh", script) == []
    client.open("common.sh", "LAYERS=24\n")
    assert client.change("common.sh", "LAYERS=25\n", 2) == []
    [found] = client.diagnostics[client.uri("train.sh")]
    assert found["message"].startswith("25 layers do not divide over 2 pipeline stages")
    client.change("common.sh", "LAYERS=26\n", 3)
    assert client.diagnostics[client.uri("train.sh")] == []


def test_a_mistake_that_two_files_make_names_the_other(client: Client, tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("ARGS='--num-layers 25'\n")
    text = "source common.sh\n" + SCRIPT.replace("--num-layers 25", "$ARGS").replace("paralel", "parallel")
    [found] = client.open("train.sh", text)
    assert found["range"]["start"]["line"] == 3
    [other] = found["relatedInformation"]
    assert other["location"]["uri"] == client.uri("common.sh")
    assert other["location"]["range"]["start"] == {"line": 0, "character": 19}


def test_the_project_file_is_judged_and_heeded(client: Client, tmp_path: Path) -> None:
    [mistake] = client.open("tvlint.toml", 'ignor = ["misspelled-option"]\n', "toml")
    assert mistake["message"] == "unknown key `ignor`\nhelp: did you mean `ignore`?"
    assert mistake["range"]["start"] == {"line": 0, "character": 0}
    (tmp_path / "tvlint.toml").write_text("")
    assert client.change("tvlint.toml", 'ignore = ["misspelled-option"]\n', 2) == []
    assert codes(client.open("train.sh", SCRIPT)) == {"layers-not-divisible-by-pp"}


def test_what_is_no_configuration_is_left_alone(client: Client) -> None:
    assert client.open("notes.md", "# Notes\n") == []
    assert client.open("broken.yaml", "MODEL_ARGS:\n  --num-layers: [1\n")[0]["severity"] == 1


SLOW = "mesh dp=2\nweight w f32[8,8]\ninput x f32[4,8]\nprogram\n" + "".join(f"  y{i} = linear(x, w)\n" for i in range(100_000))
START = {"line": 0, "character": 0}


HEADER = "[parallelism]\ntensor_parallel_degree = 2\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("large.sh", SCRIPT + "# more\n" * 300_000, "bytes long, more than the 2097152 that are read"),
        ("large.toml", HEADER + "# more\n" * 160_000, "more than the 1048576 that are read"),
    ],
)
def test_a_text_that_is_too_large_says_so(client: Client, name: str, text: str, message: str) -> None:
    [found] = client.open(name, text)
    assert message in found["message"]
    assert (found["range"]["start"], found["severity"]) == (START, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize(
    ("options", "project"),
    [
        (("--budget", "file-cpu=1"), ""),
        pytest.param((), "[budget]\nfile-cpu = 1\n", marks=pytest.mark.heavy),
    ],
)
@pytest.mark.heavy
def test_a_text_that_needs_more_than_the_budget_says_so(tmp_path: Path, options: tuple[str, ...], project: str) -> None:
    (tmp_path / "tvlint.toml").write_text(project)
    needs = "the text needs more than 1 seconds of processor time"
    with Client(tmp_path, *options) as client:
        [found] = client.open("slow.plan", SLOW)
        assert found["message"] == f"{needs}\nhelp: `--budget file-cpu=2` gives more, or `budget` in the project file"
        assert found["range"]["start"] == START
        asked = {"textDocument": {"uri": client.uri("slow.plan")}, "position": {"line": 6, "character": 4}}
        assert needs in client.ask("textDocument/hover", asked)["contents"]["value"]
        assert actions(client, "slow.plan", 6)[needs]["disabled"] == {"reason": needs}
        assert "layers-not-divisible-by-pp" in codes(client.open("train.sh", SCRIPT))
        assert client.change("slow.plan", SLOW[:200], 2)[0]["message"] != found["message"]


def test_a_project_file_that_is_wrong_is_told_where_it_is_not_open(client: Client, tmp_path: Path) -> None:
    (tmp_path / "tvlint.toml").write_text("ignor = 1\n")
    [found] = client.open("train.sh", SCRIPT)
    assert found["message"] == f"{tmp_path / 'tvlint.toml'}: unknown key `ignor`\nhelp: did you mean `ignore`?"
    assert found["range"]["start"] == START
