"""How many ranks a launcher starts, where it lists them or counts what the script lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

PROGRAM = "pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 16"


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("accelerate launch --num_processes 12 --num_machines 3", 12),
        ("accelerate launch", None),
        ("deepspeed --include localhost:0,1,2", 3),
        ("deepspeed --include=a:0,1@b:2,3", 4),
        ("deepspeed -i a:0@b", None),
        ("deepspeed --include $HOSTS", None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu", 3),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nnodes 2 --nproc-per-node=auto", 6),
        ("CUDA_VISIBLE_DEVICES=${DEVICES:-0,1} torchrun --nproc_per_node gpu", None),
        ("CUDA_VISIBLE_DEVICES=GPU-1 torchrun --nproc_per_node gpu", None),
        ("torchrun --nproc_per_node gpu", None),
        ("HOSTS=(a b c)\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", 12),
        ("HOSTS=(a b c)\nHOSTS+=(d)\nN=$((${#HOSTS[@]} * 2))\ntorchrun --nproc-per-node $N", 8),
        ("HOSTS=($(cat hosts))\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
        ("GPUS=(/dev/nvidia[0-9]*)\ntorchrun --nnodes 1 --nproc-per-node ${#GPUS[@]}", None),
        ("HOSTS=(hosts/*)\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
        ("HOSTS=(a ${MORE})\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
        ("HOSTS=(a b)\nHOSTS[2]=c\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
        ("HOSTS=(a b)\nif $BIG; then HOSTS+=(c); fi\ntorchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
        ("torchrun --nnodes ${#HOSTS[@]} --nproc-per-node 4", None),
    ],
)
def test_ranks_that_are_listed_are_counted(tmp_path: Path, start: str, ranks: int | None) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"{start} {PROGRAM}\n")
    document = read(str(path))
    assert document is not None
    value = document.configurations[0].settings["world_size"].value
    assert value == ranks if ranks is not None else not isinstance(value, int)
