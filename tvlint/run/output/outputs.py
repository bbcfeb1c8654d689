"""Write reports: `FORMAT` to the standard output, `FORMAT:PATH` to a file."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tvlint.checkout.following import why_not_written
from tvlint.checkout.opening import forget
from tvlint.ir.values import dataclass
from tvlint.near_names import did_you_mean
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal


@dataclass(frozen=True, slots=True)
class Output:
    """One format and the file it is written to; an empty path is the standard output."""

    format: str
    path: str = ""


class OutputError(Exception):
    """An output that cannot be had; `help` says what can."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def parse_outputs(texts: list[str], known: tuple[str, ...]) -> tuple[Output, ...]:
    """Return the outputs that the command line asks for; at most one of them may go to the standard output."""
    outputs = []
    for text in texts:
        name, _, path = text.partition(":")
        if name not in known:
            ending = os.path.splitext(name)[1].removeprefix(".")
            file = f"a file comes after its format: `-o {ending if ending in known else known[0]}:{text}`"
            raise OutputError(f"unknown format `{name}`", file if ending else did_you_mean(name, known))
        if ":" in text and not path:
            raise OutputError(f"`-o {text}` names no file", f"write `-o {name}` for the standard output")
        outputs.append(Output(name, path))
    if sum(not output.path for output in outputs) > 1:
        names = [output.format for output in outputs if not output.path]
        raise OutputError("only one format can go to the standard output", f"give the others a file: `-o {names[-1]}:PATH`")
    paths = [os.path.realpath(output.path) for output in outputs if output.path]
    if len(set(paths)) < len(paths):
        raise OutputError("two formats go to the same file")
    return tuple(outputs)


def write_all(written: Mapping[Output, Escaped]) -> None:
    """Write each output; files first, so that they are there when the standard output's reader goes away.

    Raises `OutputError` where one cannot be written.
    """
    for output in sorted(written, key=lambda output: not output.path):
        if output.path:
            write_file(output.path, written[output])
        else:
            write_stdout(written[output])


def write_file(path: str, escaped: Escaped) -> None:
    """Write the file wholly, or leave it as it was; raises `OutputError` where it cannot be written."""
    _write_whole(path, escaped.text.encode("utf-8"))


def write_capture(path: str, data: bytes) -> None:
    """Write a capture, which is not read as text, and the folders around it, like any other file."""
    try:
        if not why_not_written(path):
            os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write `{path}`: {(error.strerror or 'unknown reason').lower()}") from None
    _write_whole(path, data)


def rewrite(path: str, data: bytes) -> None:
    """Write a file that is there wholly anew, or leave it as it was; raises `OutputError` where it cannot be written."""
    if not os.path.isfile(path):
        raise OutputError(f"`{path}` is not written: it is no regular file")
    _write_whole(path, data)


def _write_whole(path: str, data: bytes) -> None:
    if reason := why_not_written(path):
        raise OutputError(f"`{path}` is not written: {reason}", "name the file that is meant")
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        _write_stream(path, data)
        return
    temporary = ""
    try:
        import tempfile

        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with open(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, target.stat().st_mode & 0o777 if os.path.exists(target) else 0o666 & ~umask)
        os.replace(temporary, target)
        forget()
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise OutputError(f"cannot write `{path}`: {(error.strerror or 'unknown reason').lower()}") from None


def _write_stream(path: str, data: bytes) -> None:
    """Write to a pipe or device that exists (`/dev/stderr`, a named pipe), which cannot be replaced; waits for no reader."""
    try:
        with open(path, "wb", opener=_open_at_once) as file:
            file.write(data)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OutputError(f"cannot write `{path}`: nothing reads the pipe", "start its reader first") from None
        raise OutputError(f"cannot write `{path}`: {(error.strerror or 'unknown reason').lower()}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open what can be opened without waiting; what is written to it then waits as ever."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(handle, True)
    return handle


def write_stdout(escaped: Escaped) -> None:
    """Write UTF-8 to the standard output whatever the locale; a reader that has gone away is no error.

    Raises `OutputError` where the text cannot be written.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(escaped.text.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        raise OutputError(f"cannot write the standard output: {(error.strerror or 'unknown reason').lower()}") from None


def read_stdin(largest: int) -> bytes:
    """Return what the standard input holds. Raises `OutputError` where it is closed or holds more than `largest` bytes."""
    if sys.stdin is None:
        raise OutputError("the standard input is closed")
    data = sys.stdin.buffer.read(largest + 1)
    if len(data) > largest:
        raise OutputError(f"the standard input holds more than the {largest:,} bytes that are read")
    return data


def say(*lines: str) -> None:
    """Write lines to the standard error stream, for the person who runs tvlint."""
    stream = sys.stderr
    stream.write(terminal(lines).text.encode(stream.encoding or "utf-8", "backslashreplace").decode(stream.encoding or "utf-8"))
    stream.flush()


def _forget_stdout() -> None:
    """Let what is still in the buffer go nowhere when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
