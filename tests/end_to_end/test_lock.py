"""The versions and hashes that the action installs."""

from __future__ import annotations

import re
import sys

import pytest
from packaging.requirements import Requirement
from shared import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
SYSTEMS = (("linux", "Linux"), ("darwin", "Darwin"), ("win32", "Windows"))


def pins() -> list[tuple[Requirement, int]]:
    """Return the lines of the lock file, with how many hashes each has."""
    lines = [line for line in LOCK.replace("\\\n", " ").splitlines() if line.strip() and not line.strip().startswith("#")]
    found = []
    for line in lines:
        requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in hashes), line
        found.append((Requirement(requirement), len(hashes)))
    return found


def pinned(environment: dict[str, str]) -> dict[str, str]:
    """Return the versions that are installed in an environment."""
    applying = [each for each, _ in pins() if each.marker is None or each.marker.evaluate(environment)]
    assert len({requirement.name for requirement in applying}) == len(applying)
    return {requirement.name: str(requirement.specifier).removeprefix("==") for requirement in applying}


def test_every_line_is_one_version_with_its_hashes() -> None:
    for requirement, hashes in pins():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert hashes > 0, requirement


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("platform", "system"), SYSTEMS)
def test_it_has_what_the_project_needs(python: str, platform: str, system: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.1"}
    environment |= {"sys_platform": platform, "platform_system": system}
    versions = pinned(environment)
    needed = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    for requirement in map(Requirement, needed):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert versions[requirement.name] in requirement.specifier, requirement


def test_what_builds_the_project_is_said_once() -> None:
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]
