"""Golden files: `pytest --update-golden` writes them anew; review the diff."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.callers_environment import is_the_callers
from tests.skip_budget import over_budget, reason_of
from tests.skip_budget import report as lines_of

os.environ["TVLINT_CACHE_KEY"] = "off"
"""No test remembers what another has found, or leaves files in the tree; those of the cache bring a key of their own."""

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
"""A busy machine fails no test: time is not asserted."""

GOLDEN = Path(__file__).parent / "data"


@pytest.fixture(scope="session", autouse=True)
def no_environment_of_the_caller() -> Iterator[None]:
    """Let each test say itself in which service, terminal and colours tvlint runs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in filter(is_the_callers, list(os.environ)):
            monkeypatch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def nothing_remembered_of_trees() -> None:
    """Let no test see what another has read in a file of the same name; a run of tvlint reads one state of a tree."""
    from tvlint.checkout.opening import forget

    forget()


@pytest.fixture
def without_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search no repair of what is refuted, where only verdicts and reasons are looked at: a search takes longer."""
    monkeypatch.setattr("tvlint.equivalence.verdict.prove._with_repair", lambda case, verdict: verdict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing with them")
    parser.addoption("--record-torch", action="store_true", help="record what torch computes, which must be installed")


class SkipBudget:
    """Counts the tests that skip, and fails a run in which more do than `tests/skip_budget.py` lists."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.count(report)

    def count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[reason_of(report.longrepr[2])] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if over_budget(self.skipped) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.skipped:
            terminalreporter.section("skipped tests")
            for line in lines_of(self.skipped):
                terminalreporter.write_line(line)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for no garbage among what was imported and collected, whenever some is looked for."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipBudget(), "skip-budget")


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Return the beginning of a long text, by which a test is chosen on a command line, as its id; None: pytest's own."""
    return f"{' '.join(val[:36].split())}..." if isinstance(val, str) and len(val) > 40 else None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("reports/full.txt", text)`: `text` is what the file under tests/data says."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        if not path.is_file():
            pytest.fail(f"{path} does not exist; `pytest --update-golden` writes it")
        assert text == path.read_bytes().decode("utf-8")

    return compare
