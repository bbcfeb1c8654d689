"""Values that a process of its own works out, and what becomes of the process."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import fields
from pathlib import Path

import pytest

from tvlint.findings import Problem
from tvlint.ir.plan import Plan
from tvlint.run.process.aside import Aside
from tvlint.run.project.reading import read_plan
from tvlint.run.proof.pair import Pair, Plans, read_pair

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")

ROOT = Path(__file__).resolve().parents[3]


def test_the_value_comes_from_another_process() -> None:
    with Aside(os.getpid) as aside:
        assert aside.value() not in (os.getpid(), 0)


def test_a_large_value_comes_whole() -> None:
    with Aside(lambda: bytes(5_000_000)) as aside:
        assert aside.value() == bytes(5_000_000)


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_a_process_that_does_not_come_to_an_end_is_replaced(end: object) -> None:
    here = os.getpid()

    def work() -> str:
        if os.getpid() != here:
            end()  # type: ignore[operator]
        return "worked out here"

    with Aside(work) as aside:
        assert aside.value() == "worked out here"


def test_values_of_one_process_come_in_order_and_what_is_left_out_is_skipped() -> None:
    with Aside(*(lambda place=place: (place, os.getpid()) for place in range(5))) as aside:
        found = [aside.value(place) for place in (0, 1, 3, 4)]
    assert [place for place, _ in found] == [0, 1, 3, 4]
    assert len({process for _, process in found} - {os.getpid()}) == 1


def test_what_comes_after_the_end_of_the_process_is_worked_out_here() -> None:
    here = os.getpid()

    def end() -> int:
        return os.getpid() if os.getpid() == here else os._exit(3)

    with Aside(os.getpid, end, os.getpid) as aside:
        first, *others = [aside.value(place) for place in range(3)]
    assert first != here
    assert others == [here, here]


def test_leaving_the_block_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), Aside(lambda: time.sleep(60)) as aside:
        raise KeyboardInterrupt
    with pytest.raises(ChildProcessError):
        os.waitpid(aside._child._process or -1, 0)


def test_a_large_reference_is_the_same_read_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = next(path for path in sorted((ROOT / "fixtures").rglob("*.plan")) if not isinstance(read_plan(str(path)), Problem))
    reference = tmp_path / "reference.plan"
    reference.write_text(small.read_text() + "\n" + "# padding\n" * 10_000)
    expected = read_plan(str(reference))
    assert isinstance(expected, Plan)
    asked: list[object] = []
    original = Aside.__init__
    monkeypatch.setattr(Aside, "__init__", lambda self, *works: (asked.extend(works), original(self, *works))[1])
    found = read_pair(Pair(str(small), str(reference)))
    assert isinstance(found, Plans)
    assert [getattr(found.reference, own.name) for own in fields(Plan)] == [getattr(expected, own.name) for own in fields(Plan)]
    assert asked or (os.cpu_count() or 1) == 1


def test_what_is_wrong_with_a_large_reference_is_told(tmp_path: Path) -> None:
    reference = tmp_path / "reference.json"
    reference.write_text("[" * 100_000)
    told = read_pair(Pair(str(reference), str(reference)))
    assert isinstance(told, tuple)
    assert told
