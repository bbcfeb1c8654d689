"""Where captures and reports are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvlint.reporters.escape.terminal import terminal
from tvlint.run.output.outputs import OutputError, write_capture, write_file


def test_a_capture_is_written_with_the_folders_around_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "one.capture.jsonl.gz"
    write_capture(str(path), b"one")
    write_capture(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["out/one.capture.jsonl.gz", "out/new/one.capture.jsonl.gz", "link.capture.jsonl.gz"])
def test_a_capture_is_written_through_no_link_that_leaves_the_checkout(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / ".git").mkdir()
    (tmp_path / "out").symlink_to(outside)
    (tmp_path / "link.capture.jsonl.gz").symlink_to(outside / "kept")
    (outside / "kept").write_bytes(b"kept")
    with pytest.raises(OutputError, match="a link that leads out of the checkout"):
        write_capture(str(tmp_path / name), b"one")
    assert [(each.name, each.read_bytes()) for each in outside.iterdir()] == [("kept", b"kept")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in its file system")
def test_a_report_goes_into_a_pipe_that_somebody_reads_and_waits_for_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="nothing reads the pipe"):
        write_file(str(pipe), terminal(["one"], False))
    both = os.open(pipe, os.O_RDWR)
    report = terminal(["one"], False)
    write_file(str(pipe), report)
    assert os.read(both, 100).decode() == report.text
    os.close(both)
