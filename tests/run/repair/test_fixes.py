"""Fixes: on disk they do what they promised, repair the finding, bring no other, and leave every other setting alone."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from shared import ROOT

from tests.builders.page_examples import Example, read_examples
from tvlint.cli import main
from tvlint.edits.apply import Text
from tvlint.edits.settings import edits_of
from tvlint.findings import Edit, Finding, Fix, Problem, Report, Severity
from tvlint.identity import fingerprint
from tvlint.ir.configuration import Change
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import Rules, check
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project
from tvlint.run.project.reading import read_document
from tvlint.run.repair.fixes import File, with_fixes

RULES = load_rules()
TVLINT = (sys.executable, "-m", "tvlint")
SUFFIXES = {"base64": "sh", "sh": "sh", "yaml": "yaml", "json": "json", "toml": "toml", "csv": "csv"}
WITHOUT = frozenset(
    {
        *("batch-size-below-one", "degrees-not-world-size", "expert-gradients-over-dense-ranks", "experts-of-default-width"),
        *("fsdp-with-one-connection", "full-recompute-in-layer-graphs", "full-recompute-without-method"),
        *("global-batch-from-world-size", "gpus-not-divisible-by-model-parallel", "interleaved-micro-batches-not-dividing"),
        *("kv-heads-not-divisible", "linear-attention-frequency-missing", "moe-bias-with-expert-tensor-parallel"),
        *("moe-ffn-size-without-experts", "partition-degree-not-dividing", "pipeline-micro-batches-missing"),
        *("pipeline-micro-batches-not-accumulated", "pipeline-stages-not-plan", "policy-setting-overwritten"),
        *("precision-not-the-enabled-one", "recompute-layers-exceed-stage", "recompute-method-without-granularity"),
        *("saved-plan-for-other-gpus", "seed-missing", "several-data-sources", "train-batch-not-multiple"),
        *("train-batch-not-product", "trainer-part-without-type", "training-length-missing", "two-half-precisions"),
        *("unknown-world-size", "weight-decay-ends-missing", "weight-decay-ends-without-style", "world-size-not-divisible"),
        *("zero-experts", "zero-groups-below-one", "micro-batch-given-twice", "required-setting-missing"),
        "negative-experts",
    }
)
"""Rules about one configuration with a mistake on their page that no fix repairs; the list only becomes shorter.

No launch is repaired by what ends its training. An override of Hydra that is removed leaves the default of a file that the
pages do not have.
"""
PAGES = [
    pytest.param(
        rule,
        example,
        id=f"{rule.name}:{example.line}",
        marks=[] if number % 12 == 0 or rule.kind is RuleKind.INPUT else [pytest.mark.heavy],
    )
    for number, (rule, example) in enumerate(
        (rule, example)
        for rule in RULES.values()
        for example in read_examples(rule)
        if not example.valid and rule.kind in (RuleKind.CONFIG, RuleKind.INPUT) and example.language in SUFFIXES
        if (example.language, rule.name) != ("base64", "unsafe-pickle")
    )
]


def written(example: Example, folder: Path) -> Path:
    path = folder / example.options.get("file", f"example.{SUFFIXES[example.language]}")
    first, *others = re.split(r"^# file: (\S+)\n", example.text, flags=re.MULTILINE)
    for name, content in zip(others[::2], others[1::2], strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    path.write_bytes(base64.b64decode(first) if example.language == "base64" else first.encode())
    return path


def checked(path: Path, version: str = "") -> tuple[Report, Rules]:
    rules = Rules(RULES, RULES, Project(path.parent, version=version))
    return check(Candidates((str(path),), frozenset({str(path)})), RULES, RULES, rules.project)[0], rules


def settings_of(path: Path) -> list[dict[str, object]]:
    document = read_document(str(path))
    assert not isinstance(document, Problem)
    assert document is not None
    return [{name: own.value for name, own in each.settings.items()} for each in document.configurations]


def apply(fix: Fix) -> None:
    for path in {edit.location.path for edit in fix.edits}:
        text = Text(Path(path).read_bytes().decode("utf-8")).edited(e for e in fix.edits if e.location.path == path)
        assert text is not None
        Path(path).write_bytes(text.encode("utf-8"))


def prints(findings: tuple[Finding, ...]) -> Counter[str]:
    return Counter(map(fingerprint, findings))


@pytest.mark.parametrize(("rule", "example"), PAGES)
def test_every_fix_of_a_page_holds_on_disk_and_touches_nothing_else(rule: Rule, example: Example, tmp_path: Path) -> None:
    path = written(example, tmp_path)
    original = path.read_bytes()
    version = example.options.get("version", "")
    report, rules = checked(path, version)
    before, settings = with_fixes(report, rules, Session()), settings_of(path) if report.checked else []
    fixes = [(finding, fix) for finding in before.findings if finding.rule == rule.name for fix in finding.fixes]
    if rule.kind is RuleKind.CONFIG:
        severities = {finding.severity for finding in before.findings if finding.rule == rule.name}
        assert fixes or severities == {Severity.NOTE} or rule.name in WITHOUT
    for finding, fix in fixes:
        apply(fix)
        after, _ = checked(path, version)
        assert after.problems == ()
        assert prints(after.findings)[fingerprint(finding)] < prints(before.findings)[fingerprint(finding)], fix.message
        assert prints(after.findings) - prints(before.findings) == Counter(), fix.message
        if rule.kind is RuleKind.CONFIG:
            changed = {
                name
                for old, new in zip(settings, settings_of(path), strict=True)
                for name in {*old, *new}
                if old.get(name) != new.get(name)
            }
            assert 1 <= len(changed) <= len(fix.message.split(" and ")), (changed, fix.message)
        path.write_bytes(original)


BROKEN = """\
torchrun --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-paralel-size 4 --bf16 true --num-layers 25 --pipeline-model-parallel-size 2 \\
  --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \\
  --micro-batch-size 1 --global-batch-size 16
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_safe_fix_that_shows_another_mistake_is_made_with_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(BROKEN)
    assert main(["check", "--fix", "train.sh", "-o", "concise", "--no-cache"]) == 1
    assert Path("train.sh").read_text() == BROKEN.replace("paralel", "parallel").replace("--bf16 true", "--bf16")
    assert "layers-not-divisible-by-pp" in capsys.readouterr().out


def test_unsafe_fixes_are_made_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(BROKEN)
    assert main(["check", "--fix", "--unsafe-fixes", "train.sh", "--no-cache"]) == 0
    assert "--num-layers 24" in Path("train.sh").read_text()


@pytest.mark.heavy
@pytest.mark.parametrize("options", [(), ("--unsafe-fixes",)], ids=["safe", "unsafe"])
def test_one_mistake_in_many_launches_is_repaired_in_all_at_once_as_it_is_one_by_one(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """The last launch but one takes its size from a variable that another setting has too, and stays as it is."""
    wrong = BROKEN.replace("--bf16 true ", "")
    shared = wrong.replace("paralel", "parallel").replace("--num-layers 25", "--num-layers $N --save-interval $N")
    text = "N=25\n" + wrong * 5 + shared.replace("parallel-size 2 ", "parallel-size $P ") + wrong
    command = ["check", "--fix", *options, "train.sh", "--no-cache"]
    tried: list[int] = []
    hold = File.hold
    monkeypatch.setattr(File, "hold", lambda self, found: tried.append(len(found)) or hold(self, found))
    written = []
    for alike in (File.alike, lambda *_: ()):
        monkeypatch.setattr(File, "alike", alike)
        Path("train.sh").write_text(text)
        main(command)
        written.append((Path("train.sh").read_text(), len(tried)))
        tried.clear()
    (together, trials), (one_by_one, more) = written
    assert together == one_by_one
    assert together.count("--num-layers 25") == (0 if options else 6)
    assert "paralel" not in together
    assert trials < more


def test_a_launch_with_words_that_are_not_known_is_repaired_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--num-layers 4 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096 --max-position-embeddings 4096"
    rest = f"{sizes} --sequence-parallel --micro-batch-size 1 --global-batch-size 16 --train-iters 2"
    launch = f"torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 {rest}"
    Path("run.sh").write_text(f"TP=3\n{launch} --context-parallel-size 1 $MORE\n")
    assert main(["check", "--fix", "--unsafe-fixes", "run.sh", "--no-cache"]) == 0
    assert Path("run.sh").read_text().startswith("TP=4\n")


def test_no_launch_is_repaired_by_not_training(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(BROKEN.replace("paralel", "parallel").replace("--bf16 true --num-layers 25", "--train-iters 9"))
    assert main(["check", "--unsafe-fixes", "--fix", "train.sh", "--no-cache", "-o", "concise"]) == 1
    assert "`--num-layers` is required and not given" in capsys.readouterr().out
    assert "--train-iters" in Path("train.sh").read_text()


def test_diff_shows_a_patch_that_applies_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(BROKEN)
    assert main(["check", "--diff", "--unsafe-fixes", "train.sh", "--no-cache"]) == 1
    assert Path("train.sh").read_text() == BROKEN
    Path("change.patch").write_text(capsys.readouterr().out)
    subprocess.run(["git", "apply", "change.patch"], check=True)
    assert main(["check", "train.sh", "--no-cache"]) == 0


def test_a_value_that_a_second_setting_depends_on_is_left_alone() -> None:
    text = BROKEN.replace("paralel", "parallel").replace("--bf16 true ", "")
    text = "LAYERS=25\n" + text.replace("--num-layers 25", "--num-layers $LAYERS --save-interval $LAYERS")
    Path("train.sh").write_text(text)
    report, rules = checked(Path("train.sh"))
    [finding] = with_fixes(report, rules, Session()).findings
    assert [fix.message for fix in finding.fixes] == ["set `--pipeline-model-parallel-size` to 1"]


def test_a_sourced_file_is_edited_only_where_all_scripts_that_source_it_stay_right(tmp_path: Path) -> None:
    Path("common.sh").write_text("LAYERS=25\n")
    text = "source common.sh\n" + BROKEN.replace("paralel", "parallel").replace("--bf16 true ", "").replace("25", "$LAYERS")
    Path("two.sh").write_text(text)
    Path("five.sh").write_text(text.replace("parallel-size 2 ", "parallel-size 5 ").replace("node 8", "node 20"))
    rules = Rules(RULES, RULES, Project(tmp_path))
    for paths, expected in (
        (("two.sh",), {"set `--num-layers` to 24", "set `--pipeline-model-parallel-size` to 1"}),
        (("two.sh", "five.sh"), {"set `--pipeline-model-parallel-size` to 1"}),
    ):
        report = with_fixes(check(Candidates(paths), RULES, RULES, rules.project)[0], rules, Session())
        assert {fix.message for finding in report.findings for fix in finding.fixes} == expected


def test_what_is_silenced_or_known_is_not_repaired() -> None:
    text = BROKEN.replace("25", "24").replace("--bf16 true ", "")
    silent = "# tvlint: ignore[misspelled-option] a flag of our own\n" + text
    Path("train.sh").write_text(silent)
    assert main(["check", "--fix", "train.sh", "--no-cache"]) == 0
    assert Path("train.sh").read_text() == silent
    Path("train.sh").write_text(text)
    assert main(["baseline", "write", "train.sh", "--no-cache"]) == 0
    assert main(["check", "--fix", "train.sh", "--baseline", "tvlint-baseline.json", "--no-cache"]) == 0
    assert Path("train.sh").read_text() == text


def test_line_ends_and_a_byte_order_mark_stay(tmp_path: Path) -> None:
    text = "\ufeffMODEL_ARGS:\r\n  --num-layers: 25\r\n  --pipeline-model-parallel-size: 2\r\n"
    Path("args.yaml").write_bytes(text.encode())
    main(["check", "--fix", "--unsafe-fixes", "args.yaml", "--no-cache"])
    assert Path("args.yaml").read_bytes() == text.replace("25", "24").encode()


def test_the_standard_input_is_checked_in_the_place_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text("true\n")
    found = subprocess.run(
        [*TVLINT, "check", "-", "--stdin-filename", "train.sh", "-o", "concise"],
        input=BROKEN, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 1
    assert "train.sh:2:58: error: 25 layers do not divide over 2 pipeline stages [layers-not-divisible-by-pp]" in found.stdout
    refused = subprocess.run([*TVLINT, "check", "-", "--fix"], input=BROKEN, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the standard input cannot be rewritten" in refused.stderr


@pytest.mark.parametrize("text", ["", "one", "one\ntwo", "\ufeffone\n", "ä\u2028b\r\nc"])
def test_edits_find_their_places(text: str) -> None:
    own = Text(text)
    start = 1 if text.startswith("\ufeff") else 0
    for first in range(start, len(text) + 1):
        for last in range(first, len(text) + 1):
            place = own.location("file", first, last)
            assert own.span(place) == (first, last)
            assert own.edited([Edit(place, "new")]) == text[:first] + "new" + text[last:]


def test_edits_that_meet_or_lie_outside_are_refused() -> None:
    own = Text("one\ntwo\n")
    assert own.edited([Edit(Location("f", 1, 1, 1, 3), ""), Edit(Location("f", 1, 2, 1, 4), "")]) is None
    assert own.edited([Edit(Location("f", 4, 1, 4, 1), "")]) is None
    assert own.edited([Edit(Location("f", 1, 9, 1, 9), "")]) is None
    assert own.edited([Edit(Location("f", 2), "")]) is None


def test_no_fixture_that_is_right_has_a_fix() -> None:
    for path in sorted((ROOT / "fixtures" / "clean").glob("launch-*/*.sh")):
        report, rules = checked(path)
        assert with_fixes(report, rules, Session()) == report


@pytest.mark.parametrize(("tried", "fixed"), [(2, 1), (4, 2), (100, 2)])
def test_fixes_of_a_file_of_many_launches_are_tried_as_long_as_they_are_few(
    monkeypatch: pytest.MonkeyPatch, tried: int, fixed: int
) -> None:
    """Each trial reads all launches of the file again."""
    Path("train.sh").write_text(BROKEN.rstrip("\n").replace("--bf16 true ", "") + "; " + BROKEN.replace("--bf16 true ", ""))
    report, rules = checked(Path("train.sh"))
    misspelt = [finding for finding in report.findings if "paralel" in finding.message]
    assert len(misspelt) == 2
    monkeypatch.setattr("tvlint.run.repair.fixes.MOST_TRIED", tried)
    found = with_fixes(replace(report, findings=tuple(misspelt)), rules, Session())
    assert [bool(finding.fixes) for finding in found.findings] == [index < fixed for index in range(2)]


@pytest.mark.parametrize(("tried", "fixed"), [(7, 0), (8, 1)])
def test_a_trial_in_a_long_file_counts_for_its_kib(monkeypatch: pytest.MonkeyPatch, tried: int, fixed: int) -> None:
    Path("train.sh").write_text("# a note\n" * 900 + BROKEN.replace("--bf16 true ", ""))
    assert Path("train.sh").stat().st_size >> 10 == 8
    report, rules = checked(Path("train.sh"))
    [misspelt] = [finding for finding in report.findings if "paralel" in finding.message]
    monkeypatch.setattr("tvlint.run.repair.fixes.MOST_TRIED", tried)
    found = with_fixes(replace(report, findings=(misspelt,)), rules, Session())
    assert [bool(finding.fixes) for finding in found.findings] == [bool(fixed)]


VERL = (
    "python3 -m verl.trainer.main_ppo data.train_batch_size=1024 actor_rollout_ref.actor.ppo_mini_batch_size=256 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.n_gpus_per_node=8"
)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size=8 trainer.nnodes=1", "trainer.nnodes=1"),
        ("trainer.nnodes=1 actor_rollout_ref.actor.ppo_micro_batch_size=8", "trainer.nnodes=1"),
        ("trainer.nnodes=1 \\\n  actor_rollout_ref.actor.ppo_micro_batch_size=8", "trainer.nnodes=1"),
        ("trainer.nnodes=1 '+actor_rollout_ref.actor.ppo_micro_batch_size=8'", None),
    ],
)
def test_an_override_that_is_removed_is_a_word_of_its_own(words: str, left: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(f"{VERL} {words}\n")
    document = read_document(str(path))
    assert not isinstance(document, Problem)
    assert document is not None
    text = Text(path.read_text())
    edits = [
        edits_of(Change(name, None), configuration, text, str(path), None)
        for configuration in document.configurations
        for name in configuration.settings
        if name.endswith("ppo_micro_batch_size")
    ]
    after = [text.edited(each) for each in edits if each]
    assert after == [f"{VERL} {left}\n"] * (left is not None)
