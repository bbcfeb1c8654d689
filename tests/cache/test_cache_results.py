"""Verdicts and findings that are remembered: when they are used, when not, and that they are the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shared import ROOT

from tvlint.cache.remember import Cache
from tvlint.cli import main
from tvlint.findings import Report
from tvlint.readers.plan_files import files_of
from tvlint.run.judge import remembered
from tvlint.run.process.session import Session
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair, prove_pairs

TOUR = ROOT / "fixtures" / "tour"
GENERATED = ROOT / "fixtures" / "clean" / "generated-code"
KEY = "a key of the tests of the cache"


@pytest.fixture
def proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In a folder with the plans of the tour and a key: the parallel plans that are proved, as they are."""
    from tvlint.equivalence.verdict import prove as module

    for path in TOUR.glob("*.plan"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TVLINT_CACHE_KEY", KEY)
    done: list[str] = []
    prove = module.prove

    def counted(parallel: Any, *rest: Any, **named: Any) -> Any:
        done.append(parallel.path)
        return prove(parallel, *rest, **named)

    monkeypatch.setattr(module, "prove", counted)
    return done


def prove(*arguments: str, plan: str = "dp2-tp2.plan", reference: str = "single.plan") -> int:
    return main(["prove", plan, "--reference", reference, "-o", "json", *arguments])


def without_cost(text: str) -> dict[str, Any]:
    """A report without time, memory and the word that it is remembered."""
    report: dict[str, Any] = json.loads(text)
    for verdict in report["verdicts"]:
        verdict.update(seconds=0, peak_bytes=0)
        verdict["facts"] = [fact for fact in verdict["facts"] if fact["name"] != "cached proof of"]
    return report


def entries() -> list[Path]:
    return sorted(Path(".tvlint_cache").glob("*.entry"))


@pytest.mark.parametrize(("plan", "code"), [("dp2-tp2.plan", 0), ("dp2-tp2-broken.plan", 1)])
def test_a_second_run_says_the_same_and_proves_nothing(
    proofs: list[str], capsys: pytest.CaptureFixture[str], plan: str, code: int
) -> None:
    assert prove(plan=plan) == code
    first = capsys.readouterr().out
    proved = list(proofs)
    assert proved
    assert prove(plan=plan) == code
    second = capsys.readouterr().out
    assert proofs == proved
    assert without_cost(first) == without_cost(second)
    [before], [after] = json.loads(first)["verdicts"], json.loads(second)["verdicts"]
    assert [fact["name"] for fact in after["facts"]] == [*(fact["name"] for fact in before["facts"]), "cached proof of"]
    assert after["seconds"] < before["seconds"]


def test_what_is_unknown_is_remembered_too(proofs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for path in Path().glob("*.plan"):
        path.write_text(path.read_text().replace("torch.nn.functional.gelu", "acme.squash"))
    assert prove() == 5
    first, proved = capsys.readouterr().out, list(proofs)
    assert prove() == 5
    assert (without_cost(first), proofs) == (without_cost(capsys.readouterr().out), proved)


def test_a_remembered_report_is_equal_to_a_new_one(proofs: list[str]) -> None:
    assert prove(plan="dp2-tp2-broken.plan") == 1
    pair = Pair("dp2-tp2-broken.plan", "single.plan")
    [kept] = prove_pairs((pair,), session=Session(cache=Cache(Path.cwd())))
    fresh = prove_pair(pair)
    assert fresh.outlines
    [verdict], [new] = kept.verdicts, fresh.verdicts
    same = replace(verdict, seconds=new.seconds, peak_bytes=new.peak_bytes, facts=verdict.facts[:-1])
    assert replace(kept, verdicts=(same,)) == fresh


def test_a_changed_file_is_proved_anew_and_a_restored_one_is_known(proofs: list[str]) -> None:
    reference = Path("single.plan")
    text = reference.read_text()
    for changed in (reference, Path("dp2-tp2.plan")):
        whole = changed.read_text()
        assert prove() == 0
        proofs.clear()
        changed.write_text(whole + "\n# a comment\n")
        assert prove() == 0
        assert proofs == ["dp2-tp2.plan"]
        changed.write_text(whole)
        assert prove() == 0
        assert proofs == ["dp2-tp2.plan"]
    reference.write_text(text.replace("gelu", "silu"))
    assert prove() == 1


def test_weakened_checks_and_the_solver_are_other_questions(proofs: list[str]) -> None:
    asked = ((), ("--assume", "declared-piece-order"), ("--solver", "all"), ("--solver", "all", "--solver-timeout", "20"))
    for number, arguments in enumerate(asked, 1):
        assert prove(*arguments) == 0
        assert len(entries()) == number
    proofs.clear()
    for arguments in asked:
        assert prove(*arguments) == 0
    assert proofs == []


def test_operators_that_the_project_declares_are_part_of_the_question(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "LARGE", 0)
    proof = '[[proof]]\nreference = "single.plan"\nparallel = ["dp2-tp2.plan"]\n'
    seen = 0
    for annotation in ("", "b l^ h -> b l^ h", "b l h -> b l h"):
        declared = f'[[operator]]\nname = "acme.norm"\nannotation = "{annotation}"\n' if annotation else ""
        Path("tvlint.toml").write_text(declared + proof)
        assert prove() == 0
        assert main(["check", "dp2-tp2.plan"]) == 0
        assert len(entries()) == seen + 2
        seen += 2


def test_a_solver_that_ran_out_of_time_is_asked_again(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tvlint.equivalence.verdict import solver_recheck as module

    opinion = module.second_opinion
    monkeypatch.setattr(module, "second_opinion", lambda *rest: replace(opinion(*rest), late=("`linear`",)))
    assert prove("--solver", "all") == 0
    assert entries() == []
    monkeypatch.setattr(module, "second_opinion", lambda *rest: replace(opinion(*rest), undecided=("`acme.norm`",)))
    assert prove("--solver", "all") == 0
    assert len(entries()) == 1
    assert len(proofs) == 2


def test_without_the_cache_nothing_is_read_or_written(proofs: list[str]) -> None:
    assert prove("--no-cache") == 0
    assert not Path(".tvlint_cache").exists()
    assert prove() == 0
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in entries()}
    proofs.clear()
    assert prove("--no-cache") == 0
    assert proofs == ["dp2-tp2.plan"]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in entries()} == before


def test_a_tampered_entry_is_ignored_and_mended(proofs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(plan="dp2-tp2-broken.plan") == 1
    [entry] = entries()
    whole = entry.read_bytes()
    forged = whole.replace(b'"REFUTED"', b'"PROVED"')
    assert forged != whole
    for bad in (forged, forged[65:], b"", b"null", whole[:-1], whole[:40] + b"0" + whole[41:] + b" ", b"\xff" * 500):
        entry.write_bytes(bad)
        proofs.clear()
        assert prove(plan="dp2-tp2-broken.plan") == 1
        assert proofs
        assert entry.read_bytes()[65:200] == whole[65:200]


def test_a_verdict_of_one_plan_is_not_that_of_another(proofs: list[str]) -> None:
    assert prove() == 0
    [good] = entries()
    assert prove(plan="dp2-tp2-broken.plan") == 1
    [bad] = set(entries()) - {good}
    bad.write_bytes(good.read_bytes())
    proofs.clear()
    assert prove(plan="dp2-tp2-broken.plan") == 1
    assert proofs


def test_an_entry_of_another_key_is_ignored(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVLINT_CACHE_KEY", "the key of somebody else")
    assert prove() == 0
    monkeypatch.setenv("TVLINT_CACHE_KEY", KEY)
    proofs.clear()
    assert prove() == 0
    assert proofs == ["dp2-tp2.plan"]


def test_without_a_key_everything_works_and_nothing_is_kept(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVLINT_CACHE_KEY", "off")
    for _ in range(2):
        assert prove() == 0
    assert proofs == ["dp2-tp2.plan"] * 2
    assert not Path(".tvlint_cache").exists()


def test_what_cannot_be_read_is_not_remembered(proofs: list[str]) -> None:
    Path("wrong.plan").write_text(Path("single.plan").read_text() + "\nfrobnicate\n")
    assert prove(plan="wrong.plan") == 2
    assert prove(plan="gone.plan") == 2
    assert entries() == []


def test_a_file_that_is_written_while_it_is_proved_is_not_remembered(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvlint.equivalence.verdict import prove as module

    prove_then = module.prove
    whole = Path("single.plan").read_text()

    def meanwhile(*rest: Any, **named: Any) -> Any:
        Path("single.plan").write_text("another\n")
        Path("single.plan").write_text(whole)
        return prove_then(*rest, **named)

    monkeypatch.setattr(module, "prove", meanwhile)
    assert prove() == 0
    assert entries() == []


def test_what_a_tvlint_finds_that_is_edited_meanwhile_is_not_remembered(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvlint.cache import address as module

    module.program()
    monkeypatch.setattr(module, "installed", lambda: "another")
    assert prove() == 0
    assert entries() == []


def test_the_cache_lies_beside_the_project_file(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tvlint.toml").write_text("")
    below = Path("below")
    below.mkdir()
    monkeypatch.chdir(below)
    assert prove(plan="../dp2-tp2.plan", reference="../single.plan") == 0
    assert not Path(".tvlint_cache").exists()
    assert len(list(Path("../.tvlint_cache").glob("*.entry"))) == 1


def test_jobs_share_the_cache(proofs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    plans = ["dp2-tp2.plan", "dp2-tp2-broken.plan", "single.plan"]
    command = [*plans, "--reference", "single.plan", "-o", "json", "--jobs", "2"]
    assert prove(plan="dp2-tp2-broken.plan") == 1
    capsys.readouterr()
    assert main(["prove", *command]) == 1
    first = capsys.readouterr().out
    assert [verdict["parallel"] for verdict in json.loads(first)["verdicts"]] == plans
    assert len(entries()) == 3
    proofs.clear()
    assert main(["prove", *command]) == 1
    assert proofs == []
    assert without_cost(first) == without_cost(capsys.readouterr().out)


# check


def test_check_remembers_the_proofs_of_the_project(proofs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("tvlint.toml").write_text('[[proof]]\nreference = "single.plan"\nparallel = ["dp2-tp2.plan", "dp2-tp2-broken.plan"]\n')
    assert main(["check", "-o", "json"]) == 1
    first, proved = capsys.readouterr().out, list(proofs)
    assert main(["check", "-o", "json"]) == 1
    assert (without_cost(first), proofs) == (without_cost(capsys.readouterr().out), proved)
    assert main(["check", "-o", "json", "--no-cache"]) == 1
    assert (without_cost(first), len(proofs)) == (without_cost(capsys.readouterr().out), 2 * len(proved))


def read_plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files that a check reads, as it does; every file counts as a large one."""
    from tvlint.readers import read as module

    monkeypatch.setattr(remembered, "LARGE", 0)
    paths: list[str] = []
    read = module.read
    monkeypatch.setattr(module, "read", lambda path, *rest, **named: (paths.append(path), read(path, *rest, **named))[1])
    return paths


def test_check_remembers_what_is_found_in_a_large_plan(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = read_plans(monkeypatch)
    Path("train.sh").write_text((TOUR / "train.sh").read_text())
    assert main(["check", ".", "-o", "concise"]) == 1
    first, read = capsys.readouterr().out, sorted(paths)
    paths.clear()
    assert main(["check", ".", "-o", "concise"]) == 1
    assert capsys.readouterr().out == first
    assert (len(read), paths) == (4, [])


def test_other_rules_are_another_question(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_plans(monkeypatch)
    command = ["check", "dp2-tp2-broken.plan", "-o", "json"]
    assert main(command) == 1
    rules = {finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert rules
    assert main([*command, "--ignore", ",".join(rules)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert main([*command, "--select", min(rules)]) == 1
    assert {finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]} == {min(rules)}


def test_severities_and_ignores_apply_to_what_is_remembered(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_plans(monkeypatch)
    command = ["check", "dp2-tp2-broken.plan", "-o", "json"]
    assert main(command) == 1
    rules = {finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    Path("tvlint.toml").write_text("[severity]\n" + "".join(f'{rule} = "note"\n' for rule in rules))
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["severity"] for finding in found} == {"note"}
    Path("tvlint.toml").write_text("[per-file-ignores]\n" + f'"*.plan" = {sorted(rules)}\n')
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


# folders of generated code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TVLINT_CACHE_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    [generated] = {path.parent for path in GENERATED.rglob("gencode0.py")}
    return Path(shutil.copytree(generated, tmp_path / "code").relative_to(tmp_path))


def asked(folder: Path) -> str | None:
    question = Cache(Path.cwd()).question("check", (), (str(folder),))
    return question.address if question is not None else None


def _changed(folder: Path) -> None:
    with open(folder / "gencode1.py", "a") as file:
        file.write("\n")


def _removed(folder: Path) -> None:
    (folder / "gencode1.py").unlink()


def _added(folder: Path) -> None:
    shutil.copy(folder / "gencode0.py", folder / "gencode77.py")


def _graph(folder: Path) -> None:
    (folder / "graph.ckp").write_bytes(b"\x80\x04N.")


@pytest.mark.parametrize("change", [_changed, _removed, _added, _graph])
def test_a_change_of_any_file_of_a_folder_is_another_question(folder: Path, change: Callable[[Path], None]) -> None:
    before = asked(folder)
    assert before is not None
    (folder / "notes.txt").write_text("nothing that is read")
    assert asked(folder) == before
    change(folder)
    assert asked(folder) not in (None, before)


def test_a_file_that_appears_while_a_folder_is_read_is_noticed(folder: Path) -> None:
    cache = Cache(Path.cwd())
    question = cache.question("check", (), (str(folder),))
    _added(folder)
    cache.keep(question, Report(), Report)
    assert entries() == []
    (folder / "gencode77.py").unlink()
    cache.keep(question, Report(), Report)
    assert len(entries()) == 1


_OPENED = """
import os, sys
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair
import tvlint.equivalence.verdict.prove, tvlint.readers.nnscaler.gencode.folder, tvlint.readers.nnscaler.gencode.traced_graph
opened = set()
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.abspath(arguments[0]).startswith(os.getcwd()):
        opened.add(os.path.relpath(arguments[0]))
sys.addaudithook(note)
prove_pair(Pair(sys.argv[1], sys.argv[2]))
print("\\n".join(sorted(opened)))
"""


@pytest.mark.parametrize("reference", ["", "single.plan"])
@pytest.mark.parametrize("path", ["code", "code/gencode0.py", "dp2-tp2.plan"])
def test_reading_opens_no_file_that_is_not_hashed(folder: Path, path: str, reference: str) -> None:
    for plan in TOUR.glob("*.plan"):
        shutil.copy(plan, ".")
    _graph(folder)
    done = subprocess.run(
        [sys.executable, "-c", _OPENED, path, reference], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    opened = set(done.stdout.split())
    assert opened
    beside = "code" if path == "code" else os.path.join(os.path.dirname(path), "gencode0.py")
    hashed = {os.path.normpath(file) for file in (*files_of(path), *files_of(reference or beside))}
    assert opened <= hashed


_ALL_OPENED = """
import os, sys
from pathlib import Path
from tvlint.readers.document import ReadError
from tvlint.readers.plan_files import files_of
from tvlint.readers.read import read
root, opened = os.path.abspath(sys.argv[1]), set()
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.abspath(arguments[0]).startswith(root):
        opened.add(os.path.abspath(arguments[0]))
sys.addaudithook(note)
plans = 0
for path in (*(file.parent for file in Path(root).rglob("gencode0.py")), *Path(root).rglob("*")):
    if path.is_dir() and not (path / "gencode0.py").is_file():
        continue
    opened.clear()
    try:
        document = read(str(path))
    except ReadError:
        continue
    if document is not None and document.plan is not None:
        plans += 1
        for file in opened - {os.path.abspath(file) for file in files_of(str(path))}:
            print(path, "opens", file)
print(plans)
"""


@pytest.mark.heavy
def test_reading_any_plan_of_the_fixtures_opens_no_file_that_is_not_hashed() -> None:
    command = [sys.executable, "-c", _ALL_OPENED, str(ROOT / "fixtures")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *unhashed, plans = done.stdout.splitlines()
    assert unhashed == []
    assert int(plans) > 5


# the program


_PROGRAM = "from tvlint.cache.address import program; print(program())"


def test_every_file_of_the_program_enters_the_address(tmp_path: Path) -> None:
    for name in ("tvlint", "rules", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))

    def program() -> str:
        command = [sys.executable, "-B", "-c", _PROGRAM]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    seen = {program()}
    assert seen == {program()} != {"None"}
    for name in ("tvlint/ops/families/elementwise.py", "tvlint/equivalence/verdict/prove.py", "schemas/plan.schema.json"):
        path = tmp_path / name
        if path.is_file():
            path.write_text(path.read_text() + "\n")
            seen.add(program())
    (tmp_path / "tvlint" / "equivalence" / "another.py").write_text("")
    seen.add(program())
    assert len(seen) >= 4
