"""The documentation site, the release and the address of the project."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from shared import ROOT

from tvlint import __version__
from tvlint.home import HOME
from tvlint.rulebook.pages import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.anchors |= {own["id"]} if own.get("id") else set()
        self.links |= {own["href"]} if tag == "a" and own.get("href") else set()


@pytest.mark.heavy
def test_the_site_is_built_and_no_link_on_it_is_dead(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    pages = {name: Links(text) for name, text in found.items() if name != "404.html"}
    assert {f"rules/{rule.topic}/{name}.html" for name, rule in load_rules().items()} <= pages.keys()
    assert [f"{name}: {link}" for name, page in pages.items() for link in page.links if is_dead(name, link, pages)] == []


def is_dead(name: str, link: str, pages: dict[str, Links]) -> bool:
    """Return whether a link of a page leads to nothing of the site, or to a file that the project does not have."""
    target, _, anchor = unquote(link).partition("#")
    if link.startswith(f"{HOME}/blob/"):
        return not (ROOT / target.partition(f"/blob/v{__version__}/")[2]).is_file()
    if re.match(r"\w+:", link):
        return False
    there = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
    return there not in pages or (anchor != "" and anchor not in pages[there].anchors)


def test_every_page_of_the_documents_has_its_place_on_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"([\w-]+\.md)$", text, re.MULTILINE)) - {"index.md"}
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}
    assert yaml.safe_load(text)["strict"] is True


def test_links_between_the_documents_lead_somewhere() -> None:
    dead = [
        f"{path.name}: {link}"
        for path in DOCUMENTS
        for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]
    assert dead == []


def test_files_that_documents_name_are_there() -> None:
    named = re.compile(r"`((?:tvlint|tests|fixtures|benchmarks|schemas)/[\w./-]+\.\w+)`")
    found = [(page.name, path) for page in DOCUMENTS for path in named.findall(page.read_text(encoding="utf-8"))]
    assert len(found) > 50
    assert [(page, path) for page, path in found if not (ROOT / path).exists()] == []


def test_the_address_of_the_project_is_the_same_everywhere() -> None:
    owner, name = HOME.rsplit("/", 2)[1:]
    pages = [*DOCUMENTS, ROOT / "pyproject.toml", ROOT / "action.yml", *(ROOT / ".github").rglob("*.yml")]
    pages += [ROOT / ".pre-commit-hooks.yaml", *(ROOT / "tvlint").rglob("*.py")]
    others = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in pages
        for found in re.findall(rf"(?:github\.com/|uses: |`uses: )[\w.-]+/{name}\b", path.read_text(encoding="utf-8"))
        if not found.endswith(f"{owner}/{name}")
    ]
    assert others == []
    stated = [path for path in (ROOT / "tvlint").rglob("*.py") if HOME in path.read_text(encoding="utf-8")]
    assert [path.name for path in stated] == ["home.py"]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Homepage"] == HOME
    assert all(url.startswith(HOME) for url in urls.values())


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("v0.0.0", "the tag is v0.0.0 and the version of the code"),
        ("0.1.0", "the tag is 0.1.0 and"),
        ("", "usage: .ci/release"),
    ],
)
def test_a_release_is_refused_whose_tag_does_not_fit(tag: str, said: str) -> None:
    done = subprocess.run(["bash", ".ci/release", tag, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_release_needs_its_changes_described(tmp_path: Path) -> None:
    for name in (".ci/release", "tvlint/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    command = ["bash", ".ci/release", f"v{__version__}", "--dry-run"]
    for text, code in (("## Unreleased\n", 1), (f"## {__version__}\n", 0)):
        (tmp_path / "CHANGELOG.md").write_text(text)
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == code


def test_what_is_published_was_tested_and_attested_and_nothing_else_may_publish() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert workflow["permissions"] == {}
    runs = [step["run"] for step in build["steps"] if "run" in step]
    assert runs == ["bash .ci/run", 'bash .ci/release "$GITHUB_REF_NAME"']
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert not [step for step in publish["steps"] if "run" in step]
