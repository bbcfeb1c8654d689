"""Run a program on forked processes, one a rank, and gather what they record."""

from __future__ import annotations

import gzip
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tvlint.capture.failures import advice, ending, is_left_waiting
from tvlint.capture.fitting import reductions
from tvlint.capture.launch import Launch, LaunchError

FORMAT = 1


class Failure(Exception):
    """The program did not come to the end of a training step: what happened, on which rank, at which line of which file."""

    def __init__(self, message: str, path: str, line: int | None = None, help: str = "") -> None:
        super().__init__(message)
        self.path, self.line, self.help = path, line, help


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture, compressed; the files that the ranks ran and read, and the folders of the packages among them."""

    data: bytes
    files: tuple[str, ...]
    folders: tuple[str, ...]


def capture(launch: Launch, seconds: float) -> Captured:
    """Run the program and return its capture.

    Raises LaunchError when there is no such program, Failure when it does not come to the end of a training step.
    """
    if not launch.module and not os.path.isfile(launch.program):
        raise LaunchError(f"there is no file `{launch.program}`", "name the script from this folder")
    try:
        import torch
    except ImportError as error:
        raise LaunchError("capturing needs torch, which is not installed", "pip install 'tvlint[capture]'") from error
    folder = tempfile.mkdtemp(prefix="tvlint-capture-")
    try:
        _run(launch, folder, seconds)
        ran = [json.loads(Path(folder, f"{rank}.ran").read_text()) for rank in range(launch.ranks)]
        files, folders = (tuple(sorted({path for read in ran for path in read[at]})) for at in (0, 1))
        return Captured(_joined(launch, folder, torch.__version__), files, folders)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(launch: Launch, folder: str, seconds: float) -> None:
    port = _free_port()
    sys.stdout.flush()
    sys.stderr.flush()
    processes: dict[int, int] = {}
    for rank in range(launch.ranks):
        child = os.fork()
        if child == 0:
            _rank(launch, rank, port, folder)
        processes[child] = rank
    try:
        _wait_for_all(processes, folder, launch, time.monotonic() + seconds)
    finally:
        for child in processes:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _wait_for_all(processes: dict[int, int], folder: str, launch: Launch, deadline: float) -> None:
    """Wait until each rank has recorded its step. Raises Failure with that of the first rank that fails."""
    while len(list(Path(folder).glob("*.done"))) < launch.ranks:
        failed = sorted(Path(folder).glob("*.failed"), key=lambda path: path.stat().st_mtime_ns)
        if failed:
            raise Failure(**json.loads(failed[0].read_text()))
        for child, rank in list(processes.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del processes[child]
                if not os.path.exists(os.path.join(folder, f"{rank}.failed")):
                    text = f"rank {rank} of `{launch.program}` {ending(os.waitstatus_to_exitcode(status))}"
                    raise Failure(text, launch.program, help=_log(folder, rank))
        if time.monotonic() > deadline:
            text = f"`{launch.program}` has not come to the end of a training step in time"
            raise Failure(text, launch.program, help="raise `--timeout`, or give it a smaller model and no data to prepare")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _log(folder: str, rank: int) -> str:
    """Return the last lines that a rank has written."""
    lines = Path(folder, f"{rank}.log").read_text(errors="replace").splitlines()
    return "its last words: " + " | ".join(lines[-3:]) if lines else ""


def _rank(launch: Launch, rank: int, port: int, folder: str) -> NoReturn:
    """Run one rank, in a process of its own."""
    code = 1
    replaced: dict[str, None] = {}
    try:
        _redirect(os.path.join(folder, f"{rank}.log"))
        _environment(launch, rank, port)
        _record(launch, rank, folder, replaced)
        code = 0
    except BaseException as error:
        sys.stdout.flush()
        sys.stderr.flush()
        failure = _failure(error, rank, launch, folder, tuple(replaced))
        traceback.print_exc()
        Path(folder, f"{rank}.failing").write_text(json.dumps(failure))
        os.rename(os.path.join(folder, f"{rank}.failing"), os.path.join(folder, f"{rank}.failed"))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        while code == 0:
            time.sleep(1)  # peers may still receive what this rank has sent; the parent ends all together
        os._exit(code)


def _redirect(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _environment(launch: Launch, rank: int, port: int) -> None:
    os.environ.update(dict(launch.environment))
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(launch.ranks), LOCAL_WORLD_SIZE=str(launch.ranks),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1",
    )  # fmt: skip
    if not any(word.startswith("--use-") and "fsdp" in word for word in launch.arguments):  # which asks for more than one
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")


def _record(launch: Launch, rank: int, folder: str, replaced: dict[str, None]) -> None:
    """Run the program up to the end of its first training step; `replaced` hears of what is replaced for that."""
    import torch

    from tvlint.capture import (
        collective_gradients,
        deepspeed,
        distributed_draws,
        flat_weights,
        flexible_attention,
        megatron,
        pipelining,
        sequence_parts,
    )
    from tvlint.capture import megatron_training as training
    from tvlint.capture.imports import change_when_imported
    from tvlint.capture.ran import Ran
    from tvlint.capture.recorder import Recorder, watch_waits
    from tvlint.capture.stand_ins import install
    from tvlint.capture.step import CapturedError, Step

    torch.set_num_threads(1)
    ran = Ran()
    part = Path(folder, f"{rank}.part")
    reduced: dict[str, None] = {}
    with part.open("w") as file:

        def write(line: str) -> None:
            file.write(line)
            file.write("\n")

        recorder = Recorder(write)
        step = Step(recorder, replaced.setdefault)
        keep = install(replaced.setdefault)
        of_training = training.changes(step, launch, replaced.setdefault, reduced.setdefault)
        of_torch = {**distributed_draws.changes(replaced.setdefault), **flexible_attention.changes(replaced.setdefault)}
        of_torch |= {**collective_gradients.changes(replaced.setdefault), **sequence_parts.changes(replaced.setdefault)}
        of_torch |= flat_weights.changes(step.before, step.aside, keep.device)
        of_frameworks = {**pipelining.changes(step), **deepspeed.changes(step)}
        change_when_imported({**megatron.changes(step, replaced.setdefault), **of_training, **of_frameworks, **of_torch})
        watch_waits(recorder)
        step.watch()
        try:
            with recorder:
                _execute(launch)
                if step.roots and not step.finished:
                    step.end()
        except CapturedError:
            pass
        recorder.recording = False
        del keep
    if not step.roots:
        raise LaunchError(
            "the program ended before a backward pass of it was recorded",
            "capture a program that runs a training step: forward, `loss.backward()`, `optimizer.step()`",
        )
    Path(folder, f"{rank}.ran").write_text(json.dumps(ran.found()))
    Path(folder, f"{rank}.replaced").write_text(json.dumps([list(replaced), list(reduced)]))
    Path(folder, f"{rank}.done").touch()


def _execute(launch: Launch) -> None:
    sys.argv = [launch.program, *launch.arguments]
    named = os.environ.get("PYTHONPATH")
    folders = map(os.path.abspath, named.split(os.pathsep)) if named else ()
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    if launch.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(launch.program, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(launch.program)))
    try:
        runpy.run_path(launch.program, run_name="__main__")
    except SystemExit as ending:
        if ending.code not in (None, 0):
            raise


def _failure(error: BaseException, rank: int, launch: Launch, folder: str, replaced: tuple[str, ...]) -> dict[str, Any]:
    from tvlint.capture.places import own_line

    path, line = own_line(error.__traceback__) or (launch.program, None)
    text = " ".join(str(error).split())[:400]
    if isinstance(error, LaunchError):
        return {"message": text, "path": path, "line": line, "help": error.help}
    kind = type(error).__name__
    if is_left_waiting(error):
        text = f"rank {rank} waits here for a message or a collective that another rank never sends or joins"
        help = "look for a send, a receive or a collective that some ranks leave out or run in another order"
        return {"message": text, "path": path, "line": line, "help": help}
    if isinstance(error, SystemExit):
        text, help = f"rank {rank}: the program ended itself ({text})", _log(folder, rank)
        return {"message": text, "path": path, "line": line, "help": help}
    return {"message": f"rank {rank}: {kind}: {text}", "path": path, "line": line, "help": advice(error, os.environ, replaced)}


def _joined(launch: Launch, folder: str, version: str) -> bytes:
    """Return the parts of all ranks as one capture."""
    replaced: dict[str, None] = {}
    reduced: dict[str, None] = {}
    for rank in range(launch.ranks):
        listed = json.loads(Path(folder, f"{rank}.replaced").read_text())
        replaced.update(dict.fromkeys(listed[0]))
        reduced.update(dict.fromkeys(listed[1]))
    reduced.update(dict.fromkeys(reductions(launch)))
    head = {
        "tvlint_capture": FORMAT, "launch": list(launch.words), "ranks": launch.ranks, "torch": version,
        "replaced": list(replaced), "sized_down": list(reduced),
    }  # fmt: skip
    parts = [Path(folder, f"{rank}.part").read_text().splitlines() for rank in range(launch.ranks)]
    lines = [json.dumps(head)]
    for rank, part in enumerate(without_early_pairs(parts)):
        lines += [json.dumps({"rank": rank}), *part]
    return gzip.compress("\n".join(lines).encode() + b"\n", mtime=0)


def without_early_pairs(parts: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the lines of each rank without messages that both sides exchanged before their steps.

    Messages of one sender to one receiver arrive in order. What was sent early is counted; a rank receives that many early ones
    outside of the step, and the others in it.
    """
    sent = Counter(
        _channel(rank, event["peer"], event)
        for rank, part in enumerate(parts)
        for event in map(json.loads, filter(_is_early, part))
        if event.get("communication") == "send"
    )
    for rank, part in enumerate(parts):
        outside: set[int] = set()
        kept = []
        for line in part:
            if not _is_early(line):
                kept.append(line)
                continue
            event = json.loads(line)
            del event["early"]
            kind = event.get("communication")
            if kind == "receive" and sent[channel := _channel(event["peer"], rank, event)]:
                sent[channel] -= 1
                outside.add(event["work"])
            elif kind == "send":
                outside.add(event["work"])
            elif kind is None and "wait" not in event:
                if event.pop("work") in outside:  # a weight that was received before the step
                    kept.append(json.dumps(event))
            elif event.get("wait") not in outside:
                kept.append(json.dumps(event))
        yield kept


def _is_early(line: str) -> bool:
    return line.startswith('{"early"')


def _channel(source: int, target: int, event: dict[str, Any]) -> tuple[Any, ...]:
    return source, target, event["communicator"], event.get("tag", 0)
