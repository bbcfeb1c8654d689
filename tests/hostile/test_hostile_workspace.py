"""What tvlint does in a checkout full of traps: it runs git and nothing else, opens what is the checkout's, writes as told."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared import ROOT

from hostile.audit import Trace, audited, has_strace, traced
from hostile.workspace import NEVER, SECRET, UNTRACKED, Call, Workspace, build, calls
from tests.sampling import sampled

GIT = shutil.which("git")
OWN = tuple(
    {
        *(f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(f"{os.path.realpath(prefix)}{os.sep}" for prefix in (sys.prefix, sys.base_prefix)),
        f"{ROOT}{os.sep}",
    }
)
"""Python, what is installed in it, and tvlint."""
SYSTEM = (
    *("/usr/", "/lib", "/etc/ld.so", "/etc/localtime", "/etc/ssl/openssl.cnf", "/etc/locale.alias"),
    *("/dev/null", "/dev/urandom", "/proc/self/", "/proc/meminfo", "/sys/fs/cgroup/", "/sys/devices/system/"),
)
"""What the loader, libc and Python open on their own."""

TEMPORARY = os.path.realpath(tempfile.gettempdir())
SCRIPT = str(Path(sys.executable).parent / "tvlint")
PROGRAMS = frozenset({GIT, sys.executable, SCRIPT})

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo") or GIT is None, reason="the traps need links, pipes and git")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return build(tmp_path_factory.mktemp("hostile") / "space")


def environment(space: Workspace) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(space.home), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def may_be_read(space: Workspace, path: str, everywhere: bool) -> bool:
    if path.startswith(f"{space.top}{os.sep}"):
        name = path[len(str(space.top)) + 1 :]
        return name not in NEVER and (everywhere or name not in UNTRACKED) and not re.match(r"\.git/(?!HEAD$)", name)
    own = path == str(ROOT) or path.startswith((f"{space.home}/.local/state/tvlint", f"{TEMPORARY}/tvlint-", *OWN, *SYSTEM))
    return (
        own or Path(path) in (space.top, space.home / ".local", space.home / ".local/state") or Path(path) in space.top.parents
    )


def may_be_changed(space: Workspace, path: str, outputs: frozenset[str]) -> bool:
    if path in outputs or path == os.devnull:
        return True
    folder, name = os.path.split(path)
    if any(folder == os.path.dirname(output) and name.startswith(f".{os.path.basename(output)}.") for output in outputs):
        return True
    if path.startswith((f"{TEMPORARY}/tvlint-", f"{space.home}/.local")) or folder == TEMPORARY:
        return True
    return "/.tvlint_cache" in path.removeprefix(str(space.top)) and path.startswith(f"{space.top}{os.sep}")


def broken_promises(space: Workspace, trace: Trace, call: Call) -> Iterator[str]:
    """Yield what a run did that it must not."""
    outputs = frozenset(str(space.top / path) for path in call.outputs)
    yield from (f"ran the trap {name}" for name in space.sprung())
    yield from (f"showed: {line[:200]}" for line in trace.said.splitlines() if SECRET in line)
    yield from (f"executed {path}" for path in trace.executed if path not in PROGRAMS)
    yield from (f"read {path}" for path in trace.read if not may_be_read(space, path, call.looks_everywhere))
    yield from (f"changed {path}" for path in trace.changed if not may_be_changed(space, path, outputs))
    yield from (f"connected to {address}" for address in trace.connected)
    yield from (f"ended with {trace.code}" for _ in [trace] if trace.code not in (0, 1, 2, 4, 5))
    if (space.outside / "victim.txt").read_text() != "as it was\n":
        yield "wrote to a file of others"


CALLS = calls()


@pytest.fixture(scope="module")
def traces(space: Workspace) -> dict[str, Trace]:
    """Every call, in one process that audits itself."""
    return audited([(call.name, space.top / call.folder, call.arguments) for call in CALLS], environment(space))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_command_touches_nothing_but_the_checkout(space: Workspace, traces: dict[str, Trace], call: Call) -> None:
    assert list(broken_promises(space, traces[call.name], call)) == []
    assert traces[call.name].code in call.codes, traces[call.name].said[-2000:]


def test_the_audit_sees_what_is_not_allowed(space: Workspace) -> None:
    """The auditor itself: a person may point tvlint at what lies outside, and it is seen to be read and written."""
    report = space.folder / "report.json"
    outside = Call("outside", ".", ("check", "-o", f"json:{report}", "--", str(space.outside / "launch.sh")), frozenset({1}))
    (found,) = audited([(outside.name, space.top, outside.arguments)], environment(space)).values()
    broken = set(broken_promises(space, found, outside))
    assert {f"read {space.outside / 'launch.sh'}", f"changed {report}"} <= broken
    if has_strace():
        found = traced([sys.executable, "-I", "-B", "-m", "tvlint", *outside.arguments], space.top, environment(space))
        broken = set(broken_promises(space, found, outside))
        assert {f"read {space.outside / 'launch.sh'}", f"changed {report}"} <= broken


ENTRIES = {
    "isolated": [sys.executable, "-I", "-B", "-m", "tvlint"],
    "script": [SCRIPT],
    "module": [sys.executable, "-m", "tvlint"],
}
TRACED = ("check", "diff-launch", "check-changed")


@pytest.mark.skipif(not has_strace(), reason="strace is not here, or may not trace")
@pytest.mark.parametrize("run", sampled(itertools.product(TRACED, ENTRIES), 4), ids="-".join)
def test_the_kernel_sees_nothing_else(space: Workspace, run: tuple[str, str]) -> None:
    name, program = run
    call = next(call for call in CALLS if call.name == name)
    trace = traced([*ENTRIES[program], *call.arguments], space.top / call.folder, environment(space))
    assert list(broken_promises(space, trace, call)) == []
    assert trace.code in call.codes, trace.said[-2000:]
