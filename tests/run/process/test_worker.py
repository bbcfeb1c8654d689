"""The worker of a run: what becomes of a step that takes more than its budget, and of the others."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from shared import ROOT

from tests.sampling import sampled, sampled_tuples
from tvlint.findings import Problem
from tvlint.run.process.answer import value_of
from tvlint.run.process.budget import Budget
from tvlint.run.process.supervisor import supervise
from tvlint.run.process.worker import Steps

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system says this on Linux only")

HASH_BOMB = b"\x80\x04})" + b"2\x86" * 64 + b"Ns."
LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 3 --num-attention-heads 32 --num-layers 4\n"

Work = Callable[[], object]


def loop() -> object:
    while True:
        pass


def end(number: signal.Signals) -> Work:
    """Return work that the system ends with a signal."""
    return lambda: os.kill(os.getpid(), number)


def outcome(folder: Path, works: dict[str, Work], budget: Budget) -> tuple[list[object], list[str]]:
    """Return what each step of a run gives, and the names of the steps in the order in which their work began."""
    begun, answers = folder / "begun", folder / "answers"

    def traced(name: str, work: Work) -> Work:
        def run() -> object:
            with begun.open("a") as file:
                file.write(f"{name}\n")
            return work()

        return run

    def command(steps: Steps) -> int:
        found = [steps.do(name, traced(name, work)) for name, work in works.items()]
        answers.write_bytes(pickle.dumps(found))
        return 7

    assert supervise(command, budget) == 7
    return pickle.loads(answers.read_bytes()), begun.read_text().splitlines()


def messages(found: list[object]) -> list[object]:
    """Return the values, and of problems the message and the path."""
    return [(each.message, each.location.path) if isinstance(each, Problem) else each for each in found]


QUICK = Budget(file_cpu=0.3, file_wall=60)


def test_steps_that_need_little_give_their_values(tmp_path: Path) -> None:
    assert outcome(tmp_path, {"a": lambda: 1, "b": lambda: [2]}, Budget()) == ([1, [2]], ["a", "b"])


@pytest.mark.parametrize(
    ("work", "budget", "message"),
    sampled_tuples(
        [
            (loop, QUICK, "the file needs more than 0.3 seconds of processor time"),
            (lambda: time.sleep(60), Budget(file_wall=0.3), "the file needs more than 0.3 seconds"),
            (end(signal.SIGSEGV), Budget(), "the file needs more stack (SIGSEGV) than there is"),
            (end(signal.SIGKILL), Budget(), "the file needs more than 8,192 MiB of memory"),
            (lambda: (lambda again: again(again))(lambda again: again(again)), Budget(), None),
        ],
        3,
    ),
    ids=["processor", "clock", "stack", "killed by the system", "recursion"],
)
def test_a_step_that_takes_too_much_is_a_problem_and_the_others_are_done_once(
    tmp_path: Path, work: Work, budget: Budget, message: str | None
) -> None:
    found, begun = outcome(tmp_path, {"before": lambda: "kept", "hostile": work, "after": lambda: "done"}, budget)
    told = message or "the file is nested more deeply than tvlint follows"
    assert messages(found) == ["kept", (told, "hostile"), "done"]
    assert [name for name in begun if name != "hostile"] == ["before", "after"]


@linux_only
def test_a_step_that_needs_too_much_memory_is_a_problem(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, {"large": lambda: len(bytes(300 << 20)), "small": lambda: 1}, Budget(memory=200))
    assert messages(found) == [("the file needs more than 200 MiB of memory", "large"), 1]


def test_memory_that_others_took_is_not_held_against_a_step(tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def once() -> str:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    found, begun = outcome(tmp_path, {"others": lambda: 1, "innocent": once}, Budget())
    assert found == [1, "done"]
    assert begun == ["others", "innocent", "innocent"]


@pytest.mark.heavy
def test_when_the_run_has_no_time_left_every_further_file_says_so(tmp_path: Path) -> None:
    works: dict[str, Work] = {"a": loop, "b": loop, "c": lambda: "quick", "d": lambda: "quick"}
    found, _ = outcome(tmp_path, works, Budget(file_cpu=1.5, run_cpu=2.5))
    needs = "the run needs more than 2.5 seconds of processor time"
    assert messages(found) == [
        ("the file needs more than 1.5 seconds of processor time", "a"),
        (needs, "b"),
        (needs, "c"),
        (needs, "d"),
    ]


def test_what_concludes_a_run_is_done_though_it_has_no_time_left(tmp_path: Path) -> None:
    begun = tmp_path / "answers"

    def command(steps: Steps) -> int:
        found = [steps.do("a", loop), steps.do("b", lambda: 1), steps.conclude("c", lambda: 2), steps.conclude("d", loop)]
        begun.write_bytes(pickle.dumps(found))
        return 7

    assert supervise(command, Budget(file_cpu=0.5, run_cpu=0.3)) == 7
    assert messages(pickle.loads(begun.read_bytes())) == [
        ("the run needs more than 0.3 seconds of processor time", "a"),
        ("the run needs more than 0.3 seconds of processor time", "b"),
        2,
        ("the report needs more than 0.5 seconds of processor time", "d"),
    ]


def test_an_exception_of_a_step_is_its_own(tmp_path: Path) -> None:
    def command(steps: Steps) -> int:
        with pytest.raises(KeyError):
            steps.do("a", lambda: {}["x"])
        return 0 if isinstance(steps.do("b", end(signal.SIGSEGV)), Problem) else 1

    assert supervise(command, Budget()) == 0


def test_what_dies_between_steps_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    def command(steps: Steps) -> int:
        steps.do("a", lambda: 1)
        os.kill(os.getpid(), signal.SIGSEGV)
        return 0

    assert supervise(command, Budget()) == 2
    assert "the run needs more stack" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: [1], None),
        (loop, "the file needs more than 0.3 seconds of processor time"),
        (lambda: {}["x"], "internal error: KeyError: 'x'"),
    ],
    ids=["value", "processor", "raised"],
)
def test_one_answer_of_a_server_is_a_value_or_a_problem_of_its_file(work: Work, message: str | None) -> None:
    found = value_of(lambda steps: steps.do("a", work), "a", QUICK)
    assert found == [1] if message is None else isinstance(found, Problem)
    assert messages([found]) == [[1] if message is None else (message, "a")]


def test_an_answer_that_dies_between_steps_is_a_problem_of_its_file() -> None:
    found = value_of(lambda steps: end(signal.SIGSEGV)(), "a", Budget())
    assert messages([found]) == [("the run needs more stack (SIGSEGV) than there is", "a")]


@linux_only
def test_the_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = """if True:
    import os, sys, time
    from tvlint.run.process.budget import Budget
    from tvlint.run.process.supervisor import supervise
    def command(steps):
        print(os.getpid(), flush=True)
        time.sleep(600)
    supervise(command, Budget())
    """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        assert parent.stdout.read() == ""
    assert not Path(f"/proc/{worker}/cmdline").exists() or not Path(f"/proc/{worker}/cmdline").read_text()


def tvlint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run tvlint as a program."""
    command = [sys.executable, "-m", "tvlint", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_hostile_file_does_not_hide_what_others_hold(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(HASH_BOMB)
    (tmp_path / "b.sh").write_text(LAUNCH)
    done = tvlint("check", "-o", "json", "--budget", "file-cpu=2", "a.pkl", "b.sh", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 2
    [problem] = report["problems"]
    assert problem["path"] == "a.pkl"
    assert problem["message"] == "the file needs more than 2 seconds of processor time"
    assert {finding["path"] for finding in report["findings"]} == {"b.sh"}


@pytest.mark.heavy
def test_several_processes_find_what_one_does_and_a_hostile_file_hides_nothing(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.sh").write_text(LAUNCH.replace("--num-layers 4", f"--num-layers {number}"))
    (tmp_path / "30.pkl").write_bytes(HASH_BOMB)
    arguments = ("check", "-o", "json", "--budget", "file-cpu=2", ".")
    alone, together = (tvlint(*arguments, "--jobs", jobs, cwd=tmp_path) for jobs in ("1", "3"))
    report = json.loads(together.stdout)
    assert together.stdout == alone.stdout
    assert [problem["path"] for problem in report["problems"]] == ["30.pkl"]
    assert len({finding["path"] for finding in report["findings"]}) == 50


def collisions(many: int) -> Iterator[bytes]:
    """Yield pickled whole numbers that have one hash."""
    for factor in range(1, many + 1):
        number = factor * sys.hash_info.modulus
        packed = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        yield b"\x8a" + bytes([len(packed)]) + packed


@pytest.mark.parametrize(
    ("begin", "after_each", "end"),
    [
        pytest.param(b"}(", b"N", b"u.", id="dict"),
        pytest.param(b"\x8f(", b"K\x01\x86", b"\x90.", id="set of tuples", marks=pytest.mark.heavy),
    ],
)
@pytest.mark.heavy
def test_keys_of_one_hash_end_long_before_the_budget(tmp_path: Path, begin: bytes, after_each: bytes, end: bytes) -> None:
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + begin + b"".join(key + after_each for key in collisions(100_000)) + end)
    done = tvlint("check", "-o", "json", "a.pkl", cwd=tmp_path)
    [problem] = json.loads(done.stdout)["problems"]
    assert (done.returncode, problem["path"]) == (2, "a.pkl")
    assert problem["message"] == "the file needs far more time than the size of what it reads explains"


FORMS = ("concise", "json", "sarif", "junit", "github", "gitlab", "rdjson", "markdown", "summary", "html", "text")


@pytest.mark.parametrize("budget", sampled(["run-wall=0.001", "run-cpu=2", "run-wall=4"], 3))
def test_a_run_without_time_left_gives_every_report_with_what_was_found_before(tmp_path: Path, budget: str) -> None:
    """So large a file may take longer than the run, which therefore ends first."""
    (tmp_path / "a.sh").write_text(LAUNCH)
    (tmp_path / "b.pkl").write_bytes(HASH_BOMB + bytes(20 << 20))
    (tmp_path / "c.sh").write_text(LAUNCH)
    (tmp_path / "tvlint.toml").write_text(
        'paths = ["a.sh", "b.pkl", "c.sh"]\n[[proof]]\nparallel = ["b.pkl"]\nreference = "b.pkl"\n'
    )
    outputs = [word for name in FORMS for word in ("-o", f"{name}:{name}.txt")]
    done = tvlint("check", "--budget", budget, *outputs, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    written = {name: (tmp_path / f"{name}.txt").read_text() for name in FORMS}
    assert [name for name, text in written.items() if "the run needs more than" not in " ".join(text.split())] == []
    for each in ("json", "sarif", "gitlab", "rdjson"):
        json.loads(written[each])
    fromstring(written["junit"])
    if not budget.endswith(".001"):
        report = json.loads(written["json"])
        assert {finding["path"] for finding in report["findings"]} == {"a.sh"}
        assert [problem["path"] for problem in report["problems"]] == ["b.pkl", "c.sh"]


@pytest.mark.parametrize("arguments", [("diff", "a.sh", "b.sh"), ("prove", "a.plan", "--reference", "a.plan"), ("check", "-")])
def test_every_command_that_reports_does_so_without_time(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for name in ("a.sh", "b.sh", "a.plan"):
        (tmp_path / name).write_text(LAUNCH)
    done = tvlint(*arguments, "--budget", "run-wall=0.001", "-o", "json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["problems"]


@pytest.mark.parametrize(
    "arguments",
    sampled(
        [
            ("prove", "a.pkl", "--reference", "a.pkl"),
            ("prove", "a.pkl", "a.pkl", "--jobs", "2", "--reference", "a.pkl"),
            ("topology", "a.pkl"),
            ("schedule", "a.pkl"),
            ("diff", "a.pkl", "b.pkl"),
        ],
        3,
    ),
    ids=lambda arguments: " ".join(arguments),
)
def test_commands_keep_the_budget_of_the_project(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "tvlint.toml").write_text("[budget]\nfile-cpu = 1\n")
    (tmp_path / "a.pkl").write_bytes(HASH_BOMB)
    (tmp_path / "b.pkl").write_bytes(HASH_BOMB)
    done = tvlint(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "needs more than 1 seconds of processor time" in done.stdout + done.stderr
    assert "`--budget file-cpu=2` gives more" in done.stdout + done.stderr


def test_a_convert_without_a_project_file_keeps_the_budget_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(HASH_BOMB)
    done = tvlint("convert", "a.pkl", "--budget", "file-cpu=1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a.pkl: error: the file needs more than 1 seconds" in done.stderr


def test_a_standard_input_that_is_too_large_is_a_problem_in_the_report(tmp_path: Path) -> None:
    script = "import tvlint.cli.check as c, tvlint.cli as m, sys; c.LARGEST_STDIN = 8; sys.exit(m.main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "check", "-", "--stdin-filename", "a.sh", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, input=LAUNCH, capture_output=True, text=True, env=environment)
    [problem] = json.loads(done.stdout)["problems"]
    assert (done.returncode, problem["path"]) == (2, "a.sh")
    assert problem["message"] == "the standard input holds more than the 8 bytes that are read"
