"""From nothing to a gate: `init`, `--add-ignores`, the search in rules, completion, and help that fits on a screen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from shared import ROOT

from tests.builders.checkout import commit_all
from tests.sampling import sampled
from tvlint.cli import main
from tvlint.cli.arguments import build
from tvlint.cli.init import HOOKS, STEP
from tvlint.reporters import FORMATS
from tvlint.reporters.text.paths import relative
from tvlint.rulebook.pages import load_rules

LAYERS = "layers-not-divisible-by-pp"
TOUR = ROOT / "fixtures" / "tour"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("jobs", "plans", ".git"):
        (tmp_path / name).mkdir()
    (tmp_path / "jobs" / "train.sh").write_text((TOUR / "train.sh").read_text())
    for plan in TOUR.glob("*.plan"):
        (tmp_path / "plans" / plan.name).write_text(plan.read_text())
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    return tmp_path


def run(*arguments: str) -> int:
    try:
        return main([*arguments, "--no-cache"] if arguments[0] in ("check", "init") else arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else -1


def test_init_makes_a_gate_that_is_green_and_catches_the_next_mistake(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init") == 0
    assert run("config", "verify") == 0
    text = (here / "tvlint.toml").read_text()
    assert 'paths = ["."]' in text
    assert '# reference = "plans/single.plan"' in text
    assert "1 configuration, 3 plans" in text
    assert run("check") == 0
    script = here / "jobs" / "train.sh"
    script.write_text(script.read_text().replace("--num-attention-heads 32", "--num-attention-heads 30"))
    capsys.readouterr()
    assert run("check", "-o", "concise") == 1
    found = capsys.readouterr().out
    assert "jobs/train.sh:9:27: error: 30 attention heads do not divide over 4 tensor-parallel ranks" in found
    assert "layers-not-divisible-by-pp" not in found
    assert run("check", "--no-baseline", "-o", "concise") == 1
    assert "[layers-not-divisible-by-pp]" in capsys.readouterr().out
    assert run("check", "--exit-zero", "-o", "concise") == 0
    assert "[heads-not-divisible-by-tp]" in capsys.readouterr().out
    assert run("init") == 2
    assert "`tvlint.toml` is the project file already" in capsys.readouterr().err


@pytest.mark.parametrize("format", sampled(FORMATS, 3))
def test_a_report_in_the_checkout_is_no_launch(here: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    """The next run finds the reports of the last one, which quote options and show lines of launches."""
    script = here / "jobs" / "train.sh"
    script.write_text(script.read_text().replace("--num-attention-heads 32", "--num-attention-heads 30"))
    run("check", "jobs", "-o", f"{format}:report.sarif" if format == "sarif" else f"{format}:report")
    capsys.readouterr()
    run("check", "--no-cache", "-o", "concise", ".")
    found = capsys.readouterr().out
    assert "jobs/train.sh:9:27: error: " in found
    assert "launch-not-followed" not in found
    (here / "pod.yaml").write_text("args: [pretrain_gpt.py, --tensor-model-parallel-size=3]\n")
    run("check", "--no-cache", "-o", "concise", ".")
    assert "pod.yaml:1:25: note: `--tensor-model-parallel-size` is passed here" in capsys.readouterr().out


def test_the_gate_looks_at_folders_that_come_later(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init") == 0
    (here / "later").mkdir()
    text = (here / "jobs" / "train.sh").read_text()
    (here / "later" / "new.sh").write_text(text.replace("--num-attention-heads 32", "--num-attention-heads 30"))
    assert run("check", "-o", "concise") == 1
    assert "later/new.sh:9:27: error: 30 attention heads" in capsys.readouterr().out


def test_init_shows_the_hooks_and_the_step_of_the_readme(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    assert run("init") == 0
    shown = capsys.readouterr().err
    assert all(HOOKS in text for text in (shown, readme))
    assert all(STEP in text for text in (shown, readme))


def test_exit_zero_forgives_findings_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = here / "jobs" / "train.sh"
    assert run("check", "--exit-zero", str(script)) == 0
    assert "[layers-not-divisible-by-pp]" in capsys.readouterr().out
    assert run("check", "--exit-zero", "gone.sh") == 2
    (here / "empty").mkdir()
    assert run("check", "--exit-zero", "empty") == 4


def test_quiet_prints_findings_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = here / "jobs" / "train.sh"
    for format in ("text", "concise"):
        assert run("check", "-q", "-o", format, str(script)) == 1
        shown = capsys.readouterr()
        assert "[layers-not-divisible-by-pp]" in shown.out
        assert not [word for word in ("recognised", "evaluated", "in 1 file") if word in shown.out]
        assert shown.err == ""
    script.write_text(script.read_text().replace("--num-layers 47", "--num-layers 48"))
    for format in ("text", "concise"):
        assert run("check", "--quiet", "--select", LAYERS, "-o", format, str(script)) == 0
        assert capsys.readouterr() == ("", "")
    assert run("check", "-o", "concise", "--exit-zero", str(script)) == 0
    assert "could not be evaluated" in capsys.readouterr().out


def test_the_pair_that_init_proposes_is_one(here: Path) -> None:
    assert run("init") == 0
    file = here / "tvlint.toml"
    pair = file.read_text()[file.read_text().index("# [[proof]]") :]
    file.write_text(file.read_text().replace(pair, pair.replace("# ", "")))
    assert run("config", "verify") == 0
    assert run("check", "plans", "-o", "concise") == 1


def test_the_only_plan_of_one_device_in_a_folder_is_proposed_as_the_reference(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "plans" / "single.plan").rename(here / "plans" / "dp1.plan")
    assert run("init") == 0
    assert '# reference = "plans/dp1.plan"' in (here / "tvlint.toml").read_text()
    assert "`[[proof]]` has plans proved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "version"),
    [("plan_ngpus: 4\nruntime_ngpus: 8\n", "0.8"), ("train_batch_size: 8\nzero_optimization: {stage: 1}\n", None)],
)
def test_init_proposes_a_version_of_the_framework_that_is_there(here: Path, text: str, version: str | None) -> None:
    (here / "jobs" / "train.sh").unlink()
    name = "compute_config.yaml" if version else "ds.yaml"
    (here / "jobs" / name).write_text(f"compute_config:\n  {text.replace(chr(10), chr(10) + '  ')}" if version else text)
    assert run("init") == 0
    lines = [line for line in (here / "tvlint.toml").read_text().splitlines() if line.startswith("# version")]
    assert lines == ([f'# version = "{version}"'] if version else [])


@pytest.mark.parametrize(("option", "versions"), [("", ["0.16"]), ("--use-mc2", ["0.12"]), ("--deepspeed", [])])
def test_init_proposes_the_release_of_megatron_that_a_framework_is_a_fork_of(
    here: Path, option: str, versions: list[str]
) -> None:
    launch = f"torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 {option}\n"
    (here / "jobs" / "train.sh").write_text(launch)
    assert run("init") == 0
    lines = [line for line in (here / "tvlint.toml").read_text().splitlines() if line.startswith("# version")]
    assert lines == [f'# version = "{version}"' for version in versions]


def test_a_revision_in_the_place_of_changed_files_is_a_mistake(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_all(here)
    assert run("check", "--changed", "HEAD") == 2
    assert "`HEAD` is a revision, and `--changed` takes the files that changed" in capsys.readouterr().err
    assert run("check", "--changed", "jobs/gone.sh") == 0
    assert run("check", "--changed") == 0
    assert "and none is; `--new-from HEAD` asks git" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["jobs", "."])
def test_a_folder_in_the_place_of_changed_files_is_a_mistake(
    here: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_all(here)
    assert run("check", "--changed", folder) == 2
    assert f"`{folder}` is a folder, and `--changed` takes the files that changed" in capsys.readouterr().err


def test_a_submodule_among_changed_files_is_left_out(here: Path) -> None:
    (here / "empty").mkdir()
    (here / "module").mkdir()
    (here / "module" / ".git").write_text("gitdir: ../.git/modules/module\n")
    commit_all(here)
    assert run("check", "--changed", "empty", "module") == 0


def test_what_stands_in_a_sourced_file_names_it_by_its_shortest_path_and_who_reads_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (here / "jobs" / "train.sh").read_text()
    (here / "common.sh").write_text('LAYERS="--num-layers 47 --pipeline-model-parallel-size 2"\n')
    text = (
        script.replace("--num-layers 47", "$LAYERS")
        .replace("--pipeline-model-parallel-size 2", "")
        .replace("\n", "\n. ../common.sh\n", 1)
    )
    (here / "jobs" / "train.sh").write_text(text)
    assert run("check", "jobs/train.sh") == 1
    out = capsys.readouterr().out
    assert "\ncommon.sh:1:22: error: 47 layers" in "\n" + out
    assert "  in: jobs/train.sh" in out
    (here / "away").mkdir()
    (here / "away" / "deep").mkdir()
    (here / "jobs" / "link").symlink_to("../away/deep")
    assert relative("jobs/link/../x.sh", here) == "jobs/link/../x.sh"
    assert relative("jobs/../x.sh", here) == "x.sh"


def test_init_of_a_repository_without_errors_writes_no_baseline(here: Path) -> None:
    (here / "jobs" / "train.sh").unlink()
    (here / "plans" / "dp2-tp2-broken.plan").unlink()
    assert run("init") == 0
    assert not (here / "tvlint-baseline.json").exists()


def test_comments_with_a_reason_silence_what_is_found(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = here / "jobs" / "train.sh"
    before = script.read_text()
    assert run("check", "jobs", "--add-ignores", "as the checkpoint has it") == 0
    assert "silenced 2 findings by comments in 1 file" in capsys.readouterr().err
    added = [line for line in script.read_text().splitlines() if line not in before.splitlines()]
    reason = "as the checkpoint has it"
    assert [line.strip() for line in added] == [
        f"# tvlint: ignore[layers-not-divisible-by-pp] {reason}",
        f"# tvlint: ignore[global-batch-not-divisible] {reason}",
    ]
    assert run("check", "jobs") == 0


def test_a_comment_stands_above_the_whole_statement(here: Path) -> None:
    script = here / "jobs" / "train.sh"
    script.write_text(
        "torchrun --nproc-per-node 8 pretrain_gpt.py \\\n  --tensor-model-parallel-size 8 \\\n  --num-attention-heads 12 \\\n"
        "  --micro-batch-size 1 --global-batch-size 8\n"
    )
    assert run("check", "jobs", "--add-ignores", "old") == 0
    assert script.read_text().startswith("# tvlint: ignore[heads-not-divisible-by-tp] old\ntorchrun")


@pytest.mark.parametrize(
    "text",
    [
        'ARGS="\n  --tensor-model-parallel-size 8 \\\n  --num-attention-heads 12\n"\n@ $ARGS\n',
        'ARGS="\n  --num-attention-heads 12\n  --tensor-model-parallel-size 8\n"\n@ $ARGS\n',
        "bash <<EOF\n@ --tensor-model-parallel-size 8 --num-attention-heads 12\nEOF\n",
    ],
)
def test_no_comment_is_written_where_the_shell_takes_it_for_words(here: Path, text: str) -> None:
    script = here / "jobs" / "train.sh"
    text = text.replace("@", "torchrun --nproc-per-node 8 pretrain_gpt.py")
    script.write_text(f"#!/bin/bash\n{text}")
    assert run("check", "jobs", "--add-ignores", "old") == 0
    assert script.read_text() == f"#!/bin/bash\n# tvlint: ignore-file[heads-not-divisible-by-tp] old\n{text}"


def test_a_comment_moves_the_lines_that_leave_other_settings_open(here: Path) -> None:
    script = here / "jobs" / "train.sh"
    script.write_text(
        "if [ $1 = a ]; then\n  ARGS=(--fp16)\nfi\nif [ $2 = b ]; then\n  HEADS=8\nelse\n  HEADS=16\nfi\n"
        "torchrun --nproc-per-node 8 pretrain_gpt.py ${ARGS[@]} --bf16 --num-attention-heads $HEADS \\\n"
        "  --tensor-model-parallel-size 2 --num-layers 4 --hidden-size 64 --micro-batch-size 1 --global-batch-size 8\n"
    )
    assert run("check", "jobs", "--select", "fp16-and-bf16") == 1
    assert run("check", "jobs", "--select", "fp16-and-bf16", "--add-ignores", "old") == 0
    assert "# tvlint: ignore[fp16-and-bf16] old\n" in script.read_text()


def test_what_is_said_of_a_file_is_silenced_below_the_line_that_names_its_shell(here: Path) -> None:
    script = here / "jobs" / "train.sh"
    texts = "".join(f"if [ $SIZE = s{number} ]; then\n  LAYERS={number + 1}\nfi\n" for number in range(60))
    launch = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers $LAYERS --tensor-model-parallel-size 2 --train-iters 5\n"
    script.write_text("#!/bin/bash\n" + texts + launch)
    select = ("check", "jobs", "--select", "branches-not-tried", "--fail-on", "note")
    assert run(*select) == 1
    assert run(*select, "--add-ignores", "by hand") == 0
    assert script.read_text().startswith("#!/bin/bash\n# tvlint: ignore-file[branches-not-tried] by hand\nif")


def test_what_is_told_once_a_run_is_left_to_the_project_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.sh", "two.sh"):
        (here / "jobs" / name).write_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 4\n")
    run("check", "jobs/one.sh", "jobs/two.sh", "--add-ignores", "old")
    assert "no comment can silence 1 finding: `ignore`" in capsys.readouterr().err
    assert "tvlint:" not in (here / "jobs" / "one.sh").read_text()


def test_what_no_comment_can_silence_is_left_and_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "zero.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 7}}\n')
    before = path.read_text()
    assert run("check", "zero.json", "--add-ignores", "old") == 1
    assert path.read_text() == before
    assert "no comment can silence 1 finding" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "two\nlines", "tvlint: ignore[x]", "\x1b[2J"])
def test_a_reason_is_a_line_of_text(here: Path, text: str) -> None:
    assert run("check", "jobs", "--add-ignores", text) == 2


def test_rules_are_found_by_words_topic_kind_and_framework(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*arguments: str) -> list[str]:
        assert run("rules", *arguments, "-o", "json") == 0
        return [rule["name"] for rule in json.loads(capsys.readouterr().out)["rules"]]

    rules = load_rules()
    assert set(listed()) == {*rules}
    assert listed("layers", "pp")[0] == "layers-not-divisible-by-pp"
    assert set(listed("--topic", "plan")) == {name for name, rule in rules.items() if rule.topic.startswith("plan/")}
    assert set(listed("--kind", "schedule")) == {name for name in rules if rules[name].kind.value == "schedule"}
    assert "zero-groups-below-one" in listed("--framework", "nnscaler", "--severity", "error")
    assert run("rules", "nosuchword") == 4
    assert run("rules", "--topic", "plna") == 2


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_names_every_command_and_option(here: Path, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    assert run("completion", shell) == 0
    text = capsys.readouterr().out
    _, commands = build()
    for name, command in commands.items():
        assert name in text
        assert all(option in text for action in command._actions for option in action.option_strings)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("command", ["", *build()[1]])
def test_help_fits_on_a_screen(here: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(*filter(None, (command, "--help"))) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 50


@pytest.mark.parametrize("link", ["gitdir: elsewhere\n", "gitdir: .git\n", "gitdir: ../../..\n", "\0", ""])
def test_a_checkout_whose_git_file_leads_nowhere_is_told(here: Path, capsys: pytest.CaptureFixture[str], link: str) -> None:
    """So is it where the revision of `--changed` is asked for, which was an internal error."""
    shutil.rmtree(here / ".git")
    (here / ".git").write_text(link)
    for command in (["check", "--changed"], ["diff"], ["check", ".", "--new-from"], ["check", ".", "--policy"]):
        assert run(*command, "HEAD") == 2, command
        assert "internal error" not in capsys.readouterr().err
