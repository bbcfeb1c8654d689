"""What a command executed, opened and changed: by the audit events of Python, and as the kernel saw it where strace is."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared import ROOT


@dataclass(frozen=True)
class Trace:
    """A command that ended, and the paths that it touched."""

    code: int
    said: str
    executed: frozenset[str]
    read: frozenset[str]
    changed: frozenset[str]
    connected: frozenset[str]


def _trace(code: int, said: str, events: Iterable[tuple[str, str]]) -> Trace:
    found = list(events)
    kinds = ("exec", "read", "change", "connect")
    return Trace(code, said, *(frozenset(path for kind, path in found if kind == wanted) for wanted in kinds))


_AUDITOR = """
import io, json, os, sys
sys.path.insert(0, {root!r})
kept, log = [], None
def of(path):
    return os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""
def hook(event, arguments):
    global log
    if log is None:
        return
    mine, log = log, None
    try:
        if event == "open" and of(arguments[0]):
            writes = (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            mine.append(("change" if writes else "read", of(arguments[0])))
        elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.startfile"):
            mine.append(("exec", os.fsdecode(arguments[0])))
        elif event in ("os.system", "pty.spawn"):
            mine.append(("exec", str(arguments[0])))
        elif event in ("os.rename", "os.link", "os.symlink"):
            mine.append(("change", os.path.abspath(os.fsdecode(arguments[1]))))
        elif event in ("os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.utime", "os.chown", "shutil.rmtree"):
            number = arguments[-1] if event in ("os.remove", "os.mkdir", "os.rmdir") else -1
            folder = os.readlink(f"/proc/self/fd/{{number}}") if number >= 0 else ""
            mine.append(("change", of(os.path.join(folder, os.fsdecode(arguments[0])))))
        elif event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
            mine.append(("connect", repr(arguments)))
    finally:
        log = mine
sys.addaudithook(hook)
from tvlint.cli import main
for name, folder, arguments in json.load(open(sys.argv[1])):
    os.chdir(folder)
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")
    sys.stdout = sys.stderr = said
    log = events = []
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    log = None
    said.flush()
    kept.append((name, code, said.buffer.getvalue().decode("utf-8", "replace"), events))
sys.stdout = sys.__stdout__
json.dump(kept, sys.stdout)
"""


def audited(
    calls: Sequence[tuple[str, Path, Sequence[str]]], environment: Mapping[str, str], seconds: float = 300
) -> dict[str, Trace]:
    """Run commands of tvlint one after the other in an isolated Python that keeps its own audit events; by name."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "calls.json")
        asked.write_text(json.dumps([(name, str(place), list(arguments)) for name, place, arguments in calls]))
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", _AUDITOR.format(root=str(ROOT)), str(asked)],
            env=dict(environment), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])
    return {
        name: _trace(code, said, [(kind, path) for kind, path in events])
        for name, code, said, events in json.loads(done.stdout)
    }


_CALLS = (
    "execve,execveat,open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,symlinkat,"
    "link,linkat,truncate,chmod,fchmodat,chown,lchown,fchownat,mknod,mknodat,connect,utimensat"
)


@functools.cache
def has_strace() -> bool:
    """Return whether strace is here and may trace."""
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "-qq", "-o", os.devnull, "true"], capture_output=True).returncode == 0


@functools.cache
def _filter() -> tuple[str, ...]:
    """Return the option that stops a process at the traced calls alone, where this strace and kernel have it."""
    tried = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "true"], capture_output=True)
    return ("--seccomp-bpf",) if tried.returncode == 0 and not tried.stderr else ()


def traced(command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = 300) -> Trace:
    """Run a command below strace."""
    with tempfile.NamedTemporaryFile("r", errors="surrogateescape") as log:
        strace = ["strace", "-f", *_filter(), "-qq", "-y", "-s", "4096", "-e", f"trace={_CALLS}", "-e", "signal=none"]
        done = subprocess.run(
            [*strace, "-o", log.name, *command], cwd=folder, env=dict(environment), timeout=seconds,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return _trace(done.returncode, done.stdout.decode(errors="replace"), _events(log.read().splitlines()))


_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(?:<(.*)>)?(?: \(.*\))?(?: [A-Z]+ .*)?$")
_UNFINISHED = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_AT = re.compile(r'(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, ("(?:[^"\\]|\\.)*")')


def _events(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what each line of strace says; what git reads, which keeps its files where it likes, is left out."""
    waiting: dict[str, str] = {}
    programs: dict[str, str] = {}
    for line in lines:
        if match := _UNFINISHED.match(line):
            waiting[match[1]] = match[2]
            continue
        if match := _RESUMED.match(line):
            line = f"{match[1]} {waiting.pop(match[1], '')}{match[2]}"
        match = _LINE.match(line)
        if match is None and not re.search(r"\+\+\+ (exited|killed)", line):
            raise AssertionError(f"strace wrote what is not understood: {line}")
        if match is None:
            continue
        process, call, arguments, result, opened = match.groups()
        for kind, path in _event(call, arguments, result.startswith("-"), opened):
            path = path.replace(f"/proc/{process}/", "/proc/self/", 1)
            if kind == "exec":
                programs[process] = path
            if not (kind == "read" and Path(programs.get(process, "")).name == "git"):
                yield kind, path


def _event(call: str, arguments: str, failed: bool, opened: str | None) -> Iterator[tuple[str, str]]:
    if call == "connect":
        yield "connect", arguments
    if failed or call == "connect":
        return
    if call.startswith("exec"):
        yield "exec", _unquoted(_TEXT.findall(arguments)[0])
    elif call in ("open", "openat", "openat2", "creat") and opened is not None:
        writes = call == "creat" or any(flag in arguments for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"))
        yield ("change" if writes else "read"), _unquoted(f'"{opened}"')
    elif found := _AT.findall(arguments):
        for folder, name in found:
            yield "change", os.path.normpath(os.path.join(_unquoted(f'"{folder}"'), _unquoted(name)))
    else:
        for name in _TEXT.findall(arguments):
            yield "change", _unquoted(name)


def _unquoted(text: str) -> str:
    return os.fsdecode(ast.literal_eval(f"b{text}"))
