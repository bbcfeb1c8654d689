"""The command line: outputs, exit codes, messages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from shared import ROOT

import tvlint
from tvlint import __version__
from tvlint.cli import main
from tvlint.cli.arguments import build
from tvlint.home import HOME
from tvlint.rulebook.pages import load_rules

WRONG = """\
torchrun --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 \\
  --num-layers 24 --hidden-size 768 \\
  --num-attention-heads 12 \\
  --micro-batch-size 1 --global-batch-size 8
"""
RIGHT = WRONG.replace("heads 12", "heads 16")
RULE = "heads-not-divisible-by-tp"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.sh").write_text(WRONG)
    (tmp_path / "right.sh").write_text(RIGHT)
    return tmp_path


def run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else -1


def test_a_wrong_script_exits_1_and_a_right_one_0(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "wrong.sh", "-o", "concise") == 1
    assert capsys.readouterr().out.startswith("wrong.sh:4:25: error: 12 attention heads")
    assert run("check", "right.sh") == 0


def test_the_json_holds_findings_and_stdout_holds_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "-o", "json") == 1
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert [(finding["rule"], finding["path"], finding["line"]) for finding in report["findings"]] == [(RULE, "wrong.sh", 4)]
    assert report["version"] == tvlint.__version__
    assert said.err == ""


def test_several_formats_at_once_and_files_are_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "old.sarif").write_text("old")
    (here / "old.sarif").chmod(0o600)
    assert run("check", "wrong.sh", "-o", "concise", "-o", "sarif:old.sarif", "-o", "junit:junit.xml") == 1
    assert RULE in capsys.readouterr().out
    assert json.loads((here / "old.sarif").read_text())["version"] == "2.1.0"
    assert (here / "old.sarif").stat().st_mode & 0o777 == 0o600
    assert xml.etree.ElementTree.parse(here / "junit.xml").getroot().tag == "testsuites"
    assert sorted(path.name for path in here.iterdir()) == ["junit.xml", "old.sarif", "right.sh", "wrong.sh"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chekc"], "unknown command `chekc`\n  help: did you mean `check`?"),
        (["help"], "unknown command `help`\n  help: `tvlint --help` does that here"),
        (["rule", "bad"], "unknown command `rule`\n  help: `tvlint explain RULE` does that here"),
        (["wrong.sh"], "unknown command `wrong.sh`\n  help: did you mean `tvlint check wrong.sh`?"),
        (["check", "--format", "x"], "unknown argument `--format`\n  help: did you mean `--output`?"),
        (["check", "--severity", "x"], "unknown argument `--severity`\n  help: did you mean `--fail-on`?"),
        (["baseline"], "`write|prune|verify` is missing\n  help: `tvlint baseline --help` lists what it takes"),
        (["check", "--qqq", "x"], "unknown argument `--qqq`\n  help: `tvlint check --help` lists what it takes"),
        (["prove", "--ref", "x"], "unknown argument `--ref`\n  help: did you mean `--reference`?"),
        (["check", "--selct", "x"], "unknown argument `--selct`\n  help: did you mean `--select`?"),
        (["check", "-o", "sarfi"], "unknown format `sarfi`\n  help: did you mean `sarif`?"),
        (
            ["check", "-o", "out.sarif"],
            "unknown format `out.sarif`\n  help: a file comes after its format: `-o sarif:out.sarif`",
        ),
        (["check", "-o", "json:"], "`-o json:` names no file"),
        (["check", "-o", "json", "-o", "text"], "only one format can go to the standard output"),
        (["check", "-o", "json:a", "-o", "sarif:./a"], "two formats go to the same file"),
        (["check", "-o", "json:no/such/folder"], "cannot write `no/such/folder`: no such file or directory"),
        (["check", "--ignore", "heads-not-divisible-tp"], f"did you mean `{RULE}`?"),
        (["check", "--world-size", "0"], "`0` is no positive whole number"),
        (["prove", "a.plan", "--solver-timeout", "0.5"], "`0.5` is no positive whole number"),
        (["check", "--fail-on", "eror"], "`--fail-on`: `eror` is none of `error`, `warning`, `note`"),
        (["check", ""], "`PATH`: an empty text names no file"),
        (["check", "--config", "gone.toml"], "no project file `gone.toml`"),
        (["explain", "heads_not_divisible_by_pt"], f"did you mean `{RULE}`?"),
        (["explain", "sequence"], "one of `"),
        (["prove", "a.plan"], "--reference"),
        (["convert", "wrong.sh"], "wrong.sh: error: not a plan: a configuration"),
        (["convert", "wrong.sh", "-o", "sarif"], "unknown format `sarif`"),
    ],
)
def test_a_mistake_in_the_command_exits_2_and_says_what_was_meant(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_the_project_file_decides(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text(f"paths = ['wrong.sh']\n[severity]\n{RULE} = 'warning'\n")
    assert run("check", "-o", "concise") == 0
    assert "warning: 12 attention heads" in capsys.readouterr().out
    assert run("check", "--fail-on", "warning") == 1
    (here / "tvlint.toml").write_text(f"ignore = ['{RULE}']\nfail-on = 'note'\n")
    assert run("check") == 0
    (here / "tvlint.toml").write_text(f"[per-file-ignores]\n'wr*.sh' = ['{RULE}']\n")
    assert run("check") == 0
    assert run("check", "--select", "world-size-not-divisible") == 0


def test_a_wrong_project_file_exits_2_in_every_format(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text("ignore = [\n 'heads-not-divisible-by-tq']\n")
    assert run("check", "-o", "json") == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["path"], problem["line"], problem["column"]) == ("tvlint.toml", 2, 2)
    assert problem["help"] == f"did you mean `{RULE}`?"
    assert run("config", "verify") == 2
    (here / "tvlint.toml").write_text("[[proof]]\nreference = 'gone'\nparallel = []\n")
    assert run("config", "verify", "-o", "concise") == 2
    (here / "tvlint.toml").write_text("")
    assert run("config", "verify") == 0


def test_nothing_to_check_exits_4_except_for_a_hook(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notes.md").write_text("nothing\n")
    assert run("check", "notes.md") == 4
    assert "notes.md: note: not judged: no configuration or plan that tvlint knows" in capsys.readouterr().out
    assert run("check", "--changed", "notes.md") == 0
    assert run("check", "--changed") == 0
    assert run("check", "notes.md", "right.sh") == 0
    assert "notes.md" in capsys.readouterr().out


def test_an_empty_module_of_python_is_no_mistake(here: Path) -> None:
    (here / "__init__.py").write_text("")
    assert run("check", "__init__.py", "right.sh") == 0


def test_what_cannot_be_read_exits_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty.sh").write_text("")
    assert run("check", "empty.sh", "gone.sh", "wrong.sh", "-o", "concise") == 2
    said = capsys.readouterr().out
    assert "empty.sh:1:1: error: the file is empty" in said
    assert "gone.sh:1:1: error: no such file or folder" in said
    assert RULE in said


def test_a_comment_silences_and_is_reported_when_it_does_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wrong.sh").write_text(f"# tvlint: ignore[{RULE}] twelve it is\n{WRONG}")
    assert run("check", "--fail-on", "note") == 0
    (here / "right.sh").write_text(f"# tvlint: ignore[{RULE}] twelve it is\n{RIGHT}")
    assert run("check", "--fail-on", "warning", "-o", "concise") == 1
    assert "right.sh:1:1: warning: the comment ignores" in capsys.readouterr().out
    assert run("check", "--fail-on", "warning", "--ignore", RULE) == 0


def test_paths_start_at_the_repository_for_programs_and_here_for_people(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / ".git").mkdir()
    (here / "sub").mkdir()
    (here / "sub" / "train.sh").write_text(WRONG)
    monkeypatch.chdir(here / "sub")
    run("check", "train.sh", "../wrong.sh", "-o", "json")
    assert {finding["path"] for finding in json.loads(capsys.readouterr().out)["findings"]} == {"sub/train.sh", "wrong.sh"}
    run("check", "train.sh", "-o", "concise")
    assert capsys.readouterr().out.startswith("train.sh:4:25:")


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["name"] for rule in listed] == sorted(path.stem for path in (ROOT / "rules").rglob("*.md"))
    assert run("rules") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(load_rules())
    assert run("explain", RULE) == 0
    assert "Why is this bad" in capsys.readouterr().out
    assert run("explain", "missing-root") == 0
    assert "(error, proof rule)" in capsys.readouterr().out


def test_an_internal_error_exits_3_and_asks_for_a_report(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("tvlint.cli.check.check", broken)
    assert run("check", "right.sh") == 3
    said = capsys.readouterr()
    assert said.err.startswith("tvlint: internal error: ZeroDivisionError: oh no\n")
    assert "please report it" in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert run("check", "right.sh", "--traceback") == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_exits_130_in_silence(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tvlint.cli.check.check", interrupted)
    assert run("check", "right.sh") == 130
    assert capsys.readouterr().err == ""


def test_an_interrupt_ends_the_program_at_once_and_in_silence(here: Path) -> None:
    program = (
        "import time, tvlint.cli, tvlint.cli.check as command\n"
        "command.check = lambda *_: (print('running', flush=True), time.sleep(60))\n"
        "tvlint.cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "check", "right.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("command", ["check", "check a.sh", f"check {ROOT}/fixtures", "topology a.sh", "init"])
def test_a_current_folder_that_is_gone_is_a_mistake_of_the_caller(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    program = f"rmdir {tmp_path}/gone; exec {sys.executable} -m tvlint {command}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", program], cwd=tmp_path / "gone", capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tvlint: error: the current folder does not exist any more\n")
    assert done.stdout == ""


def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tvlint", "check", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) in (1, -signal.SIGPIPE)
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize(
    ("color", "environment", "colored"),
    [
        ("auto", {}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_as_asked_or_as_the_environment_says(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    color: str,
    environment: dict[str, str],
    colored: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run("check", "wrong.sh", "--color", color)
    assert ("\x1b[" in capsys.readouterr().out) is colored


@pytest.mark.parametrize(
    ("environment", "linked"),
    [
        ({"FORCE_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "FORCE_HYPERLINK": "1"}, True),
        ({"FORCE_COLOR": "1", "FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1"}, False),
    ],
)
def test_the_name_of_a_rule_leads_to_its_page_on_a_terminal(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], linked: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run("check", "wrong.sh", "--select", "heads-not-divisible-by-tp")
    out = capsys.readouterr().out
    page = f"{HOME}/blob/v{__version__}/rules/megatron/attention/heads-not-divisible-by-tp.md"
    link = f"\x1b]8;;{page}\x1b\\\x1b[2m[heads-not-divisible-by-tp]\x1b[0m\x1b]8;;\x1b\\"
    assert (link in out, "]8;" in out) == (linked, linked)


def test_a_locale_without_unicode_does_not_matter(here: Path) -> None:
    alpha = "--save \N{GREEK SMALL LETTER ALPHA}"
    (here / "wrong.sh").write_text(WRONG.replace("heads 12", f"heads 12 {alpha}"), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "tvlint", "check", "wrong.sh"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert alpha in done.stdout.decode("utf-8")


def test_help_of_check_fits_on_a_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("check", "--help") == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 44
    assert "--budget" not in short
    assert run("check", "--help-all") == 0
    everything = capsys.readouterr().out
    assert "--budget" in everything
    assert {word for word in short.split() if word.startswith("--")} <= set(everything.split())


def test_excluded_files_are_left_out_of_folders_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Patterns with a folder count from the current one, as those who type them see it."""
    wrong = "torchrun --nproc-per-node 8 train.py --tensor-model-parallel-size 3 --num-attention-heads 8 --num-layers 4\n"
    for name in ("a/one.sh", "a/b/two.sh", "b/three.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(wrong)
    (tmp_path / "tvlint.toml").write_text('exclude = ["three.sh"]\n')

    def checked(*arguments: str) -> set[str]:
        run("check", "--no-cache", "-o", "concise", *arguments)
        return {line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if ".sh:" in line}

    monkeypatch.chdir(tmp_path)
    assert checked() == {"a/one.sh", "a/b/two.sh"}
    assert checked("--exclude", "a/b") == {"a/one.sh"}
    assert checked("--exclude", "one.sh,nosuch") == {"a/b/two.sh"}
    assert checked("--exclude", "*.sh", "a/one.sh") == {"a/one.sh"}
    monkeypatch.chdir(tmp_path / "a")
    assert checked(".", "--exclude", "./b/") == {"one.sh"}


def test_help_shows_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert "tvlint prove" in said
    assert "exit codes:" in said
    assert run() == 0
    assert run("--version") == 0
    assert capsys.readouterr().out.endswith(f"tvlint {tvlint.__version__}\n")


def test_what_is_said_twice_of_one_place_is_said_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "twice.yaml").write_text(
        "A: &shared {--num-attention-heads: 12, --tensor-model-parallel-size: 8}\n"
        "MODEL_ARGS_1:\n  <<: *shared\nMODEL_ARGS_2:\n  <<: *shared\n"
    )
    assert run("check", "twice.yaml", "-o", "concise") == 1
    assert capsys.readouterr().out.count(RULE) == 1


def test_a_wrong_option_suggests_none_that_shares_its_dashes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for word, help in (("--nope", "one of `--framework`"), ("--tpic", "did you mean `--topic`?")):
        assert run("rules", word) == 2
        assert help in capsys.readouterr().err


def test_an_error_of_a_sourced_file_is_told_once_however_scripts_name_the_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("jobs", "more"):
        (here / folder).mkdir()
    arguments = "(--num-layers 47 --pipeline-model-parallel-size 2 --num-attention-heads 8)"
    (here / "jobs" / "common.sh").write_text(f"ARGS={arguments}\n")
    launch = 'torchrun --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" --micro-batch-size 1 --bf16\n'
    (here / "jobs" / "a.sh").write_text(f'source "$(dirname "$0")/common.sh"\n{launch}')
    (here / "more" / "b.sh").write_text(f"source ../jobs/common.sh\n{launch}")
    (here / "c.sh").write_text(f"source jobs/common.sh\n{launch}")
    (here / "d.sh").write_text(f'source "$(dirname "$0")/jobs/common.sh"\n{launch}')
    assert run("check", "jobs", "more", "c.sh", "d.sh", "-o", "concise") == 1
    told = [line for line in capsys.readouterr().out.splitlines() if "[layers-not-divisible-by-pp]" in line]
    assert told == ["jobs/common.sh:1:20: error: 47 layers do not divide over 2 pipeline stages [layers-not-divisible-by-pp]"]


def test_an_error_of_a_sourced_file_is_told_where_one_of_two_projects_ignores_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "common.sh").write_text("ARGS=(--num-layers 47 --pipeline-model-parallel-size 2 --num-attention-heads 8)\n")
    for folder, rules in (("a", '["layers-not-divisible-by-pp"]'), ("b", "[]")):
        (here / folder).mkdir()
        (here / folder / "tvlint.toml").write_text(f"ignore = {rules}\n")
        (here / folder / "train.sh").write_text(
            'source ../common.sh\ntorchrun --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" --micro-batch-size 1 --bf16\n'
        )
    (here / ".git").mkdir()
    assert run("check", "a", "b", "-o", "concise") == 1
    assert capsys.readouterr().out.count("[layers-not-divisible-by-pp]") == 1


def test_a_standard_output_that_cannot_be_written_is_no_fault_of_tvlint(here: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb") as full:
        for command in (["check"], ["rules"]):
            done = subprocess.run([sys.executable, "-m", "tvlint", *command], stdout=full, stderr=subprocess.PIPE, cwd=here)
            assert (done.returncode, b"cannot write the standard output" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('framework = "megatron"\n', "tvlint.toml:1:1: error: no rule knows the framework `megatron`"),
        ('framework = "megatron-lm"\nversion = "x.y"\n', "tvlint.toml:2:1: error: `version` must be"),
        (
            '[[proof]]\nreference = "a"\nparallel = ["b"]\nassume = ["anything"]\n',
            "tvlint.toml:1:3: error: `assume` names no check",
        ),
    ],
)
def test_words_of_the_project_file_that_mean_nothing_are_mistakes(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (here / "tvlint.toml").write_text(text)
    assert run("config", "verify", "-o", "concise") == 2
    assert capsys.readouterr().out.startswith(said)


def test_a_mistyped_option_before_a_command_is_a_mistake(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--verison") == 2
    assert "did you mean `--version`?" in capsys.readouterr().err


def test_an_unknown_assumption_is_a_mistake(here: Path) -> None:
    assert run("prove", "a.plan", "--reference", "b.plan", "--assume", "anything") == 2


@pytest.mark.parametrize("closed", ["1", "2"])
def test_closed_streams_do_not_change_the_outcome(here: Path, closed: str) -> None:
    done = subprocess.run(["sh", "-c", f'"$0" -m tvlint check {closed}>&-', sys.executable], capture_output=True, cwd=here)
    assert done.returncode == 1


def test_words_on_stderr_stay_on_their_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x\n::error::y\x1b[31m").write_text("nothing that tvlint reads\n")
    assert run("check", "x\n::error::y\x1b[31m") == 4
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\n::" not in said


def test_show_files_says_what_each_file_is_taken_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "other.yaml").write_text("a: 1\n")
    assert run("check", "--show-files", ".", "other.yaml") == 0
    assert [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "other.yaml: not read: no configuration",
        "right.sh: megatron-shell: 1 megatron-lm configuration",
        "wrong.sh: megatron-shell: 1 megatron-lm configuration",
    ]
    (here / "broken.plan").write_text("mesh tp=2 tp=3\n")
    assert run("check", "--show-files", "broken.plan") == 2
    assert capsys.readouterr().out.startswith("broken.plan: unreadable: ")


def test_every_option_is_read_by_the_code_behind_a_command() -> None:
    _, commands = build()
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tvlint").rglob("*.py"))
    only_said = {"help", "help_all", "stdio"}
    named = {action.dest for command in commands.values() for action in command._actions} - only_said
    assert sorted(name for name in named if re.search(rf"options\.{name}\b|\"{name}\"", text) is None) == []
