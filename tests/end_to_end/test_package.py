"""The source distribution builds the wheel, and the wheel holds all that tvlint reads at run time."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.builders.checkout import copy_of_checkout, run_clean
from tvlint.rulebook.pages import COMPILED, from_data, read_rules

pytestmark = pytest.mark.heavy


def test_the_wheel_built_from_the_source_distribution_is_whole(tmp_path: Path) -> None:
    checkout = copy_of_checkout(tmp_path / "checkout")
    done = run_clean([sys.executable, "-m", "build", "--outdir", str(tmp_path), str(checkout)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind, pattern in (("rules", "*.md"), ("schemas", "*.json")):
        shipped = {name for name in names if name.startswith(f"tvlint/_data/{kind}/") and name.endswith(pattern[1:])}
        shipped -= {f"tvlint/_data/rules/{COMPILED}"}
        assert {Path(name).name for name in shipped} == {path.name for path in (checkout / kind).rglob(pattern)}
    compiled = zipfile.ZipFile(wheel).read(f"tvlint/_data/rules/{COMPILED}").decode()
    assert from_data(compiled, checkout / "rules") == read_rules(checkout / "rules")
    modules = {path.relative_to(checkout).as_posix() for path in (checkout / "tvlint").rglob("*.py")}
    assert modules <= names
    assert "tvlint/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"tvlint", wheel.name[: -len("-py3-none-any.whl")] + ".dist-info"}
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "fixtures/tour/train.sh", "tests/end_to_end/test_package.py"} <= inside
