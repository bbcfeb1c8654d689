"""Git as a reader of objects and of the index: it runs nothing that a file or a configuration names, and writes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from tvlint.checkout.top import is_within, top_of

SECONDS = 120
"""How long one question to git may take."""

_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.quotePath": "false",
    "core.pager": "cat",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
"""What overrides every configuration of git, the user's too: there is no need for a program here."""

_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}

_KEPT = frozenset(
    {
        "PATH", "HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "SUDO_UID",
        "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "PROGRAMDATA", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "TEMP", "TMP",
        "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT",
    }
)  # fmt: skip
_KEPT_PREFIXES = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
"""The environment that git gets: what it needs to run and to know whom its user trusts. Not `GIT_DIR` and its like, which a
hook of git sets: the checkout is the one around the current folder."""


class GitError(Exception):
    """Git gives no answer; says why."""


class GitUnusable(GitError):
    """Git answers nothing about this checkout: it is not installed, or it refuses to read it; `help` says what to do."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.help = help


def ask(top: str, *arguments: str) -> bytes:
    """Return what a plumbing command says of the checkout at `top`.

    Raises `GitUnusable` where git does not read the checkout at all, and `GitError` where only this question has no answer.
    """
    code, answer, said = _run(top, *arguments)
    if code == 0:
        return answer
    code, _, refused = _run(top, "rev-parse", "--git-dir")
    if code != 0:
        raise _refusal(top, refused)
    raise GitError(f"git {arguments[0]} fails: {said}")


def _run(top: str, *arguments: str) -> tuple[int, bytes, str]:
    """Return the exit code, what was answered, and the first line of what was said about it."""
    import subprocess

    command, environment = command_line(top, *arguments)
    try:
        done = subprocess.run(
            command, cwd=top, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise GitError(f"git {arguments[0]} fails: {error}") from None
    lines = done.stderr.decode("utf-8", "replace").splitlines() or ["no reason given"]
    return done.returncode, done.stdout, lines[0].removeprefix("fatal: ")[:200]


def read_blobs(top: str, names: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the content of each object, one at a time; None for one that is not there."""
    import subprocess

    command, environment = command_line(top, "cat-file", "--batch")
    with subprocess.Popen(
        command, cwd=top, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("pipes were asked for")
        for name in names:
            process.stdin.write(name + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                yield None
                continue
            content = process.stdout.read(int(head[2]))
            process.stdout.read(1)
            yield content


def command_line(top: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of every call of git. Raises `GitUnusable` where there is no git."""
    settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    return [_program(top), "--no-pager", *settings, *arguments], {**kept, **_ENVIRONMENT}


def _program(top: str) -> str:
    """Return the path of git: from an absolute folder of `PATH`, never from a checkout, where a stranger may have put one."""
    found = find_program("git", os.environ, {top, top_of(os.curdir) or top})
    if found is None:
        raise GitUnusable("git is not installed", "install git: it tells which files belong to the checkout")
    return found


def find_program(name: str, environment: Mapping[str, str], checkouts: Iterable[str]) -> str | None:
    """Return the program of that name in an absolute folder of `PATH` outside of the checkouts; None where there is none."""
    file = f"{name}.exe" if sys.platform == "win32" else name
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, file)
        if not os.path.isabs(folder) or not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        if not any(is_within(os.path.realpath(each_name), top) for each_name in (folder, path) for top in checkouts):
            return path
    return None


def _refusal(top: str, said: str) -> GitUnusable:
    if "dubious ownership" in said:
        help = f"if you trust what is in it: git config --global --add safe.directory {top}"
        return GitUnusable(f"git does not read the checkout `{top}`, which belongs to another user (dubious ownership)", help)
    return GitUnusable(f"git does not read the checkout `{top}`: {said}", "`git status` there says more")
