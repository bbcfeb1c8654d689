"""Commands that start training programs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tvlint.capture.fitting import declared_sizes, fitted, reductions
from tvlint.capture.launch import Launch, LaunchError, parse_launch
from tvlint.cli.capture import launched
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.started_programs import Started, started_by


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nproc-per-node 4 train.py --lr 1", Launch(4, "train.py", ("--lr", "1"))),
        ("torchrun --nproc_per_node=2 --standalone train.py", Launch(2, "train.py", ())),
        ("torchrun --standalone --nnodes=2 --nproc-per-node=4 train.py", Launch(8, "train.py", ())),
        ("torchrun --nproc-per-node 2 -m package.train -x", Launch(2, "package.train", ("-x",), module=True)),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", Launch(2, "train.py", ())),
        ("python3.11 -u train.py a b", Launch(1, "train.py", ("a", "b"))),
        ("python -m package.train", Launch(1, "package.train", (), module=True)),
        ("env A=1 B=c=d python train.py", Launch(1, "train.py", (), environment=(("A", "1"), ("B", "c=d")))),
        ("./train.py --x", Launch(1, "./train.py", ("--x",))),
    ],
)
def test_a_command_says_ranks_program_and_arguments(command: str, expected: Launch) -> None:
    assert parse_launch(command.split()) == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "no command to capture is given"),
        ("A=1", "no command to capture is given"),
        ("srun train.py", "`srun` is no launcher that tvlint knows"),
        ("python", "`python` without a script"),
        ("python -c pass", "`python` without a script"),
        ("python --weird train.py", "`python --weird` is not understood"),
        ("torchrun --nproc-per-node 2", "`torchrun` without a script"),
        ("torchrun --nproc-per-node gpu train.py", "`--nproc-per-node gpu` is no number of processes"),
        ("torchrun --nproc-per-node 0 train.py", "`--nproc-per-node 0` is no number of processes"),
    ],
)
def test_a_command_that_cannot_be_captured_says_why(command: str, message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse_launch(command.split())
    assert str(caught.value) == message
    assert caught.value.help


MEGATRON = "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size=2"


@pytest.mark.parametrize(
    ("command", "ranks", "declared"),
    [
        ("torchrun --nproc-per-node 16 train.py", 16, 0),
        (f"torchrun --nproc-per-node 8 {MEGATRON}", 8, 0),
        (f"torchrun --nproc-per-node 8 --nnodes 32 {MEGATRON}", 8, 256),
        (f"torchrun --nproc-per-node 8 --nnodes 32 {MEGATRON} --context-parallel-size 2", 16, 256),
        (f"torchrun --nproc-per-node 8 --nnodes 32 {MEGATRON} --expert_model_parallel_size 4", 16, 256),
        ("torchrun --nproc-per-node 32 pretrain_gpt.py --tensor_model_parallel_size 4", 8, 32),
    ],
)
def test_a_large_launch_of_megatron_is_captured_with_two_replicas(command: str, ranks: int, declared: int) -> None:
    launch = fitted(parse_launch(command.split()))
    assert (launch.ranks, launch.declared) == (ranks, declared)
    assert (launch.single.ranks, launch.single.single_of) == (1, ranks)


TENSOR, STAGES, CONTEXT = "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size"
EXPERTS, EXPERT_TENSOR = "--expert-model-parallel-size", "--expert-tensor-parallel-size"


@pytest.mark.parametrize(
    ("sizes", "ranks", "left"),
    [
        ({TENSOR: 8, STAGES: 8}, 16, {TENSOR: 2, STAGES: 4}),
        ({TENSOR: 8, STAGES: 2}, 16, {TENSOR: 4}),
        ({TENSOR: 8}, 16, {}),
        ({TENSOR: 12, STAGES: 5}, 16, {TENSOR: 2, STAGES: 4}),
        ({TENSOR: 4, CONTEXT: 8, STAGES: 8}, 16, {TENSOR: 2, CONTEXT: 2, STAGES: 2}),
        ({EXPERTS: 64, STAGES: 16}, 16, {EXPERTS: 4, STAGES: 4}),
        ({STAGES: 32}, 8, {STAGES: 4}),
        ({TENSOR: 8, EXPERT_TENSOR: 8, EXPERTS: 8}, 16, {TENSOR: 4, EXPERT_TENSOR: 4, EXPERTS: 4}),
    ],
)
def test_a_replica_that_is_too_large_is_captured_with_smaller_parallel_sizes(
    sizes: dict[str, int], ranks: int, left: dict[str, int]
) -> None:
    command = parse_launch(f"torchrun --nproc-per-node 8 --nnodes 128 train.py {words(sizes)}".split())
    launch = fitted(command)
    assert (launch.ranks, launch.declared) == (ranks, 1024)
    assert sorted(launch.arguments) == sorted((*command.arguments, *words(left).split()))
    assert declared_sizes(launch) == declared_sizes(command)
    told = {*reductions(launch)}
    assert told == {
        f"ranks 1024 reduced to {ranks}",
        *(f"`{name}` {sizes[name]} reduced to {size}" for name, size in left.items()),
    }


def words(sizes: dict[str, int]) -> str:
    return " ".join(f"{name} {size}" for name, size in sizes.items())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"torchrun --nproc-per-node {'9' * 5000} train.py", f"`--nproc-per-node {'9' * 80}` is no number of processes"),
        (
            f"torchrun --nproc-per-node 64 train.py {TENSOR} {'9' * 5000}",
            "64 ranks are more than the 16 that are started on one machine",
        ),
        ("torchrun --nproc-per-node 8 --nnodes 32 train.py", "256 ranks are more than the 16 that are started on one machine"),
        (
            f"torchrun --nproc-per-node 64 train.py {STAGES} 16 --pipeline-model-parallel-layout E|t*14|L",
            "32 ranks are more than the 16 that are started on one machine",
        ),
    ],
)
def test_a_launch_of_too_many_ranks_says_why(command: str, message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        fitted(parse_launch(command.split()))
    assert str(caught.value) == message
    assert caught.value.help


SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NODES=${NODES:-4}
ARGS=(--num-layers 32 --tensor-model-parallel-size 2 --micro-batch-size $2 --data-path $DATA --save $1)
torchrun --nproc_per_node 8 --nnodes $NODES ${MEGATRON}/pretrain_gpt.py ${ARGS[@]} $EXTRA
"""


def started(environment: dict[str, str], arguments: list[str] | None) -> Started:
    (own,) = started_by("launch.sh", SCRIPT.encode(), environment, arguments, frozenset({"--data-path", "--save"}))
    return own


def test_a_launch_script_says_what_it_starts() -> None:
    own = started({"NODES": "1"}, ["checkpoints", "4"])
    words = "--num-layers 32 --tensor-model-parallel-size 2 --micro-batch-size 4 --data-path 0 --save checkpoints"
    assert (own.program, own.ranks, own.arguments) == ("/pretrain_gpt.py", 8, tuple(words.split()))
    assert dict(own.environment)["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert own.left_out == ("$EXTRA",)


def test_an_argument_that_must_be_known_is_an_error_at_its_place() -> None:
    with pytest.raises(ReadError) as caught:
        started({}, None)
    assert caught.value.problem.location.line == 4
    assert "the value of `--micro-batch-size` is not known" in caught.value.problem.message
    assert caught.value.problem.help is not None


def test_a_script_knows_the_folder_that_it_is_started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "launch.sh"
    script.write_text('torchrun --nproc_per_node 2 "$PWD/train.py" --tensor-model-parallel-size 2 --log-dir ${PWD}/logs\n')
    monkeypatch.chdir(tmp_path)
    launch = launched(["bash", "launch.sh"], argparse.Namespace(layers=0, hidden=0, sequence=0))
    assert launch.program == f"{tmp_path}/train.py"
    assert launch.arguments[-2:] == ("--log-dir", f"{tmp_path}/logs")
