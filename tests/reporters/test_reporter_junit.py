"""`junit`: what the strict xUnit schema allows, and what the lax readers make of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.builders import reports
from tvlint.findings import NotEvaluated, Report, Severity
from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.outline import Cell, Lane
from tvlint.ir.plan import Phase
from tvlint.reporters.forge import junit

ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message", "type"},
    "system-out": set(),
}
ORDER = ["skipped", "error", "failure", "system-out"]


def written(report: Report, root: Path) -> ElementTree.Element:
    reports.write_sources(root)
    return ElementTree.fromstring(junit.write(report, reports.context(root)).text)


def complaints(root: ElementTree.Element) -> Iterator[str]:
    """What the schema of the Jenkins xUnit plugin, or GitLab, would reject."""
    if root.tag != "testsuites" or {child.tag for child in root} != {"testsuite"}:
        yield "not suites"
    for element in root.iter():
        if set(element.attrib) - ALLOWED.get(element.tag, set()):
            yield f"{element.tag} has {element.attrib}"
        if "time" in element.attrib and not re.fullmatch(r"\d+\.\d{3}", element.attrib["time"]):
            yield f"{element.attrib['time']} is no time"
    for suite in root:
        cases = list(suite)
        if {case.tag for case in cases} != {"testcase"}:
            yield "a suite without cases, or with something else"
        names = [(case.get("classname"), case.get("name")) for case in cases]
        if len(set(names)) != len(names) or not all(part for name in names for part in name):
            yield "names are missing or occur twice"
        if int(suite.attrib["tests"]) != len(cases):
            yield "the number of tests is wrong"
        for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            if int(suite.attrib[attribute]) != len(suite.findall(f"testcase/{kind}")):
                yield f"the number of {attribute} is wrong"
        for case in cases:
            positions = [ORDER.index(child.tag) for child in case]
            if positions != sorted(set(positions)) or not {"time", "name", "classname"} <= set(case.attrib):
                yield "the parts of a case are not in order"


@pytest.mark.parametrize("name", reports.ALL)
def test_strict_readers_accept_it(name: str, tmp_path: Path) -> None:
    assert list(complaints(written(reports.ALL[name], tmp_path))) == []


def test_junit_is_as_reviewed(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    reports.write_sources(tmp_path)
    golden("reports/full.junit.xml", junit.write(reports.FULL, reports.context(tmp_path)).text)


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    rules, proofs = written(reports.FULL, tmp_path)
    whole = [case for case in proofs if not str(case.get("name")).startswith("proof stage: ")]
    assert [[child.tag for child in case] for case in whole] == [
        ["failure", "system-out"],
        ["error", "system-out"],
        ["system-out"],
    ]
    assert [case.get("time") for case in whole] == ["0.420", "0.031", "1.234"]
    by_name = {case.get("name"): [child.tag for child in case] for case in rules}
    assert by_name["layers-not-divisible-by-pp"] == ["failure"]
    assert by_name["missing-allreduce: t, add"] == ["system-out"]
    assert by_name["rules not evaluated"] == ["skipped"]
    assert by_name["readable"] == ["error"]


def test_a_proof_has_a_case_for_each_proof_stage(tmp_path: Path) -> None:
    lanes = (
        Lane((0, 1), (Cell(Phase.FORWARD, 0, 0, judged="refuted"), Cell(Phase.FORWARD, 0, 1), Cell(Phase.BACKWARD, 0, 0))),
        Lane(
            (2,), (Cell(Phase.FORWARD, 1, 0), Cell(Phase.BACKWARD, 1, 0, judged="unknown"), Cell(Phase.REDUCE, -1, -1, False))
        ),
        Lane(
            (3,), (Cell(Phase.FORWARD, 1, 0), Cell(Phase.BACKWARD, 1, 0, judged="unknown"), Cell(Phase.REDUCE, -1, -1, False))
        ),
    )
    outline = replace(reports.OUTLINE, mesh=Mesh((Axis("pp", 2), Axis("tp", 2))), lanes=lanes)
    (suite,) = written(Report(verdicts=(reports.REFUTED,), outlines=(outline,)), tmp_path)
    assert [(case.get("name"), [child.tag for child in case]) for case in suite][1:] == [
        ("proof stage: forward of pipeline stage 0 on ranks 0,1", ["failure"]),
        ("proof stage: backward of pipeline stage 0 on ranks 0,1", []),
        ("proof stage: forward of pipeline stage 1 on ranks 2,3", []),
        ("proof stage: backward of pipeline stage 1 on ranks 2,3", ["error"]),
    ]
    assert "partial sum over tp" in str(suite.find("testcase/failure").attrib["message"])  # type: ignore[union-attr]


def test_rules_that_could_not_be_judged_are_one_case_of_a_file(tmp_path: Path) -> None:
    items = tuple(NotEvaluated(f"rule-{number}", Location(f"{number % 2}.sh"), f"needs {number % 3}") for number in range(60))
    (suite,) = written(Report(not_evaluated=items, checked=("0.sh", "1.sh")), tmp_path)
    skipped = [case.find("skipped") for case in suite if case.get("name") == "rules not evaluated"]
    assert [own.get("message") for own in skipped if own is not None] == [
        *["30 rules not evaluated"] * 2,
        "rules not evaluated in 2 files, up to 30 in one",
    ]
    assert all(ElementTree.tostring(suite, encoding="unicode").split().count(f"rule-{number},") < 2 for number in range(60))
    assert all(f"rule-{number}" in ElementTree.tostring(suite, encoding="unicode") for number in range(60))


def test_what_fails_the_run_fails_its_case(tmp_path: Path) -> None:
    report = Report((replace(reports.FULL.findings[0], severity=Severity.NOTE),))
    reports.write_sources(tmp_path)
    for fail_on, failures in ((Severity.ERROR, "0"), (Severity.NOTE, "1")):
        text = junit.write(report, reports.context(tmp_path, fail_on=fail_on)).text
        assert ElementTree.fromstring(text).attrib["failures"] == failures


def test_nothing_to_check_is_skipped_not_passed(tmp_path: Path) -> None:
    ((case,),) = written(reports.EMPTY, tmp_path)
    assert [child.tag for child in case] == ["skipped"]


def test_several_errors_of_a_rule_in_a_file_are_one_failure(tmp_path: Path) -> None:
    first = reports.FULL.findings[0]
    again = replace(first, location=replace(first.location, line=5))
    ((case,),) = written(Report((first, again)), tmp_path)
    (failure,) = case
    assert failure.attrib["message"].endswith("(and 1 more)")
    assert (failure.text or "").count("train.sh:") == 4


@pytest.mark.parametrize("name", reports.ALL)
def test_another_reader_reads_the_same(name: str, tmp_path: Path) -> None:
    junitparser = pytest.importorskip("junitparser", reason="junitparser is not installed")
    reports.write_sources(tmp_path)
    read = junitparser.JUnitXml.fromstring(junit.write(reports.ALL[name], reports.context(tmp_path)).text.encode("utf-8"))
    root = written(reports.ALL[name], tmp_path)
    assert read.tests == len(root.findall("testsuite/testcase"))
    assert read.failures == len(root.findall("testsuite/testcase/failure"))
    assert read.errors == len(root.findall("testsuite/testcase/error"))


def test_equal_names_are_numbered(tmp_path: Path) -> None:
    (suite,) = written(Report(problems=reports.FULL.problems * 2), tmp_path)
    assert [case.get("name") for case in suite] == ["readable", "readable (2)"]
