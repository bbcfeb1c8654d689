"""Commands that start training programs."""

from __future__ import annotations

import pytest

from tvlint.capture.launch import Launch, LaunchError, parse_launch


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
        ("torchrun --nproc-per-node 8 --nnodes 32 train.py", "256 ranks are more than the 64 that are started on one machine"),
    ],
)
def test_a_command_that_cannot_be_captured_says_why(command: str, message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse_launch(command.split())
    assert str(caught.value) == message
    assert caught.value.help
