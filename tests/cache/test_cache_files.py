"""What was found in the files of a folder is remembered as long as nothing changes that it rests on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tvlint.cache.files import Writer, bound, digest
from tvlint.checkout.opening import content, forget, instead, is_file, kept, names_in, recording
from tvlint.cli import main
from tvlint.run.judge import check as check_module
from tvlint.run.judge import remembered

LAUNCH = "torchrun --nproc-per-node 8 train.py --tensor-model-parallel-size 2 --num-attention-heads {}\n"
SCRIPTS = check_module.MANY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with so many right scripts that what is found in them is remembered; one reads another file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TVLINT_CACHE_KEY", "a key of the tests of the cache")
    for number in range(SCRIPTS):
        Path(f"run{number:02}.sh").write_text(LAUNCH.format(4))
    Path("run07.sh").write_text("source ./common.inc\n" + LAUNCH.format("$HEADS"))
    Path("common.inc").write_text("HEADS=4\n")
    return tmp_path


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, list[str]]]:
    """Check the folder; return the exit code, the report and the files that were looked at."""
    seen: list[str] = []
    check_file = check_module.check_file

    def counted(path: str, *rest: Any) -> Any:
        seen.append(path)
        return check_file(path, *rest)

    monkeypatch.setattr(check_module, "check_file", counted)

    def run(*arguments: str) -> tuple[int, str, list[str]]:
        seen.clear()
        forget()
        code = main(["check", "-o", "concise", *arguments])
        return code, capsys.readouterr().out, list(seen)

    return run


def test_unchanged_files_are_not_looked_at_again_and_say_the_same(folder: Path, checked: Any) -> None:
    Path("run03.sh").write_text(LAUNCH.format(3))
    first = checked()
    assert first[0] == 1
    assert "run03.sh" in first[1]
    assert len(first[2]) == SCRIPTS + 1
    assert checked() == (1, first[1], [])
    assert checked("--jobs", "2") == (1, first[1], [])
    assert checked("--no-cache") == first
    Path("run03.sh").write_text(LAUNCH.format(4))
    assert checked()[::2] == (0, ["run03.sh"])
    assert checked()[::2] == (0, [])


def test_results_of_several_processes_are_remembered_too(folder: Path, checked: Any) -> None:
    Path("run40.sh").write_text(LAUNCH.format(3))
    code, report, _ = checked("--jobs", "2")
    assert (code, "run40.sh" in report) == (1, True)
    assert checked() == (1, report, [])


def test_a_file_is_looked_at_again_when_what_it_reads_changes(folder: Path, checked: Any) -> None:
    assert checked()[0] == 0
    before = os.stat("common.inc")
    Path("common.inc").write_text("HEADS=3\n")
    os.utime("common.inc", ns=(before.st_atime_ns, before.st_mtime_ns))
    code, report, seen = checked()
    assert (code, sorted(seen)) == (1, ["common.inc", "run07.sh"])
    assert "run07.sh" in report
    os.unlink("common.inc")
    assert checked()[2] == ["run07.sh"]
    Path("common.inc").write_text("HEADS=4\n")
    assert sorted(checked()[2]) == ["common.inc", "run07.sh"]


def test_a_program_that_appears_beside_a_script_counts(folder: Path, checked: Any) -> None:
    assert checked()[0] == 0
    assert checked()[2] == []
    Path("train.py").write_text("parser.add_argument('--num-attention-heads', type=int)\n")
    assert set(checked()[2]) >= {"run00.sh", "train.py"}


def test_another_project_file_or_selection_is_another_question(folder: Path, checked: Any) -> None:
    assert checked()[0] == 0
    Path("tvlint.toml").write_text("world-size = 16\n")
    assert len(checked()[2]) >= SCRIPTS
    assert checked()[2] == []
    assert len(checked("--select", "layers-not-divisible-by-pp")[2]) >= SCRIPTS
    assert checked()[2] == []


def test_what_init_found_is_known_to_the_first_check(folder: Path, checked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run03.sh").write_text(LAUNCH.format(3))
    assert main(["init"]) == 0
    assert f"{SCRIPTS} files to check" in capsys.readouterr().err
    assert f"found {SCRIPTS} configurations." in Path("tvlint.toml").read_text()
    assert checked()[::2] == (0, ["tvlint-baseline.json", "tvlint.toml"])
    assert "run03.sh" in checked("--no-baseline")[1]
    Path("tvlint.toml").write_text('ignore = ["heads-not-divisible-by-tp"]\n')
    assert "run03.sh" not in checked()[1]


def test_a_check_of_some_files_keeps_what_is_known_of_the_others(
    folder: Path, checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked()[0] == 0
    monkeypatch.setattr(remembered, "LARGE", 100)
    Path("large.sh").write_text(LAUNCH.format(3) + "#" * 100)
    assert checked("large.sh")[::2] == (1, ["large.sh"])
    assert checked("large.sh")[::2] == (1, [])
    assert checked()[::2] == (1, [])
    os.unlink("run00.sh")
    Path("large.sh").write_text(LAUNCH.format(4) + "#" * 100)
    assert checked("large.sh")[::2] == (0, ["large.sh"])
    Path("run00.sh").write_text(LAUNCH.format(4))
    assert checked()[2] == ["run00.sh"]


def test_a_large_file_that_is_nothing_is_told_of_only_where_it_is_named(
    folder: Path, checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "LARGE", 100)
    Path("notes.txt").write_text("nothing\n" * 100)
    for _ in range(2):
        assert "notes.txt" not in checked()[1]
        assert "unjudged-file" in checked("notes.txt", "--may-be-empty")[1]


def test_entries_of_another_key_and_edited_ones_are_not_used(
    folder: Path, checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked()[0] == 0
    for entry in Path(".tvlint_cache").glob("*.entry"):
        entry.write_bytes(entry.read_bytes().replace(b"run00.sh", b"run99.sh"))
    assert len(checked()[2]) >= SCRIPTS
    assert checked()[2] == []
    monkeypatch.setenv("TVLINT_CACHE_KEY", "the key of somebody else")
    assert len(checked()[2]) >= SCRIPTS


def test_few_files_leave_no_entry(folder: Path, checked: Any) -> None:
    os.unlink("run00.sh")
    os.unlink("run01.sh")
    assert checked()[0] == 0
    assert len(checked()[2]) == SCRIPTS - 1
    assert not Path(".tvlint_cache").exists()


def test_a_copy_elsewhere_is_another_question(folder: Path, checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked()[0] == 0
    shutil.copytree(folder, folder / "copy")
    monkeypatch.chdir(folder / "copy")
    assert len(checked()[2]) >= SCRIPTS


def test_each_answer_that_may_change_is_asked_again(tmp_path: Path) -> None:
    """A kept value counts for each file that it is taken for, and a failure is an answer."""

    @kept
    def parser(path: str) -> bytes:
        return content(path, 100)

    parts = tmp_path / "parser.py"
    parts.write_bytes(b"one")
    writer, pages = Writer(1), []
    for name in ("first", "second"):
        with recording(digest) as asked:
            parser(str(parts))
            is_file(str(tmp_path / name))
            with pytest.raises(FileNotFoundError):
                names_in(str(tmp_path / "folder"))
        pages.append(writer.page(name, asked, "found"))

    def holding() -> list[str]:
        from tvlint.cache.files import answering

        return [file.path for file in bound(pages, ()).holding(("first", "second"), answering())]

    assert holding() == ["first", "second"]
    (tmp_path / "second").touch()
    assert holding() == ["first"]
    parts.write_bytes(b"two")
    assert holding() == []
    parts.write_bytes(b"one")
    assert holding() == ["first"]
    (tmp_path / "folder").mkdir()
    assert holding() == []
    assert bound(pages[1:], ()).files == ()


def test_a_text_that_is_not_on_disk_is_never_remembered(tmp_path: Path) -> None:
    from tvlint.cache.files import answering

    path = tmp_path / "train.sh"
    path.write_bytes(b"saved")
    with instead({str(path): b"saved"}), recording(digest) as asked:
        content(str(path), 100)
    assert bound([Writer(1).page("train.sh", asked, "")], ()).holding(("train.sh",), answering()) == ()
