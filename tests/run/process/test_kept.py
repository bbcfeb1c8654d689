"""What a step has found before its budget ends is not lost: findings of a file, and the verdict on a pair of plans."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shared import ROOT

from tvlint.findings import Finding, Outcome, Problem, Report
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.process.budget import Budget
from tvlint.run.process.session import Session
from tvlint.run.process.supervisor import supervise
from tvlint.run.process.worker import Steps
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pairs

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")

TOUR = ROOT / "fixtures" / "tour"
QUICK = Budget(file_cpu=0.3)
SECONDS = Budget(file_cpu=0.7)
LONGER = Budget(file_cpu=3)
CLOCK = Budget(file_wall=1.5)


def loop(*_: object) -> Iterator[Finding]:
    while True:
        pass


def within(folder: Path, budget: Budget, work: Callable[[Steps], object]) -> object:
    """Return what the work gives as a command that keeps the budget."""
    answer = folder / "answer"

    def command(steps: Steps) -> int:
        answer.write_bytes(pickle.dumps(work(steps)))
        return 7

    assert supervise(command, budget) == 7
    return pickle.loads(answer.read_bytes())


def joined(kept: list[object], problem: Problem) -> object:
    return kept, problem.message


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (loop, "the file needs more than 0.3 seconds of processor time"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "the file needs more stack (SIGSEGV) than there is"),
        (
            lambda: (lambda again: again(again))(lambda again: again(again)),
            "the file is nested more deeply than tvlint follows",
        ),
    ],
    ids=["processor", "stack", "recursion"],
)
def test_what_a_step_has_kept_stands_for_it_where_it_comes_to_no_end(
    tmp_path: Path, ends: Callable[[], object], message: str
) -> None:
    def work(steps: Steps) -> object:
        def keeping() -> None:
            steps.keep("one")
            steps.keep("two")
            ends()

        found = [steps.do("a", keeping, unfinished=joined), steps.do("b", lambda: steps.keep("three"), unfinished=joined)]
        return [*found, steps.do("c", ends, unfinished=joined)]

    kept, finished, nothing = within(tmp_path, QUICK, work)  # type: ignore[misc]
    assert (kept, finished) == ((["one", "two"], message), None)
    assert nothing.message == message


def broken(name: str) -> Pair:
    return Pair(str(TOUR / name), str(TOUR / "single.plan"))


@pytest.mark.parametrize(("jobs", "budget"), [(1, SECONDS), (2, CLOCK)], ids=["one job", "two jobs"])
def test_a_refutation_outlives_a_search_for_repairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, budget: Budget
) -> None:
    monkeypatch.setattr("tvlint.equivalence.verdict.judge.repair", loop)
    pairs = broken("dp2-tp2-broken.plan"), broken("dp2-tp2.plan")
    refuted, proved = within(tmp_path, budget, lambda steps: [*prove_pairs(pairs, Session(steps, jobs=jobs))])  # type: ignore[misc]
    [verdict] = refuted.verdicts
    assert (verdict.outcome, refuted.problems) == (Outcome.REFUTED, ())
    assert verdict.reasons[0].name == "missing-allreduce"
    assert "; a repair was not looked for to the end, since the proof needs more than" in verdict.reasons[0].message
    assert proved.verdicts[0].outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("where", "sentence", "budget"),
    [
        ("tvlint.equivalence.verdict.prove._other_ways", "the proof was not continued", SECONDS),
        ("tvlint.equivalence.verdict.numbers.run_both.run_both", "the proof was not continued", SECONDS),
        ("tvlint.equivalence.verdict.numbers.repair.repaired_on_numbers", "a repair was not looked for to the end", LONGER),
    ],
    ids=["normal forms", "numbers", "edits"],
)
def test_a_verdict_outlives_what_would_decide_or_explain_it_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sentence: str, budget: Budget
) -> None:
    scaled = tmp_path / "scaled.plan"
    scaled.write_text(
        (TOUR / "dp2-tp2.plan").read_text().replace("gelu(y)", "gelu(c)").replace("  b =", "  c = mul(y, 0.3)\n  b =")
    )
    monkeypatch.setattr(where, loop)
    pairs = (Pair(str(scaled), str(TOUR / "single.plan")),)
    [report] = within(tmp_path, budget, lambda steps: [*prove_pairs(pairs, Session(steps))])  # type: ignore[misc]
    assert isinstance(report, Report)
    [verdict] = report.verdicts
    assert sentence in verdict.reasons[0].message
    assert verdict.out_of_time
    assert verdict.outcome is (Outcome.UNKNOWN if "continued" in sentence else Outcome.REFUTED)


def test_a_proof_that_was_to_be_run_is_no_verdict_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvlint.equivalence.verdict.numbers.run_both.run_both", loop)
    pairs = (Pair(str(TOUR / "dp2-tp2.plan"), str(TOUR / "single.plan"), replay=True),)
    [report] = within(tmp_path, SECONDS, lambda steps: [*prove_pairs(pairs, Session(steps))])  # type: ignore[misc]
    assert [problem.message for problem in report.problems] == ["the proof needs more than 0.7 seconds of processor time"]


@pytest.mark.parametrize(
    "later", ["tvlint.analyses.relations.findings.derived_findings", "tvlint.analyses.schedule.from_plan.schedule_of"]
)
def test_findings_outlive_the_budget_of_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str) -> None:
    plan = tmp_path / "wrong.plan"
    plan.write_text((TOUR / "dp2-tp2.plan").read_text().replace("  b =", "  recv r: f32[4,8] from tp+1\n  b ="))
    rules, files = load_rules(), Candidates((str(plan),), named=frozenset({str(plan)}))
    whole, _ = check(files, rules, rules, Project(tmp_path))
    monkeypatch.setattr(later, loop)
    part = within(tmp_path, SECONDS, lambda steps: check(files, rules, rules, Project(tmp_path), Session(steps))[0])
    assert isinstance(part, Report)
    assert [problem.message for problem in part.problems] == ["the file needs more than 0.7 seconds of processor time"]
    assert part.findings
    assert {*part.findings} <= {*whole.findings}
