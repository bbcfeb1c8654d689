"""Processes of a node against the GPUs that its environment lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

MEGATRON = "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 24 --num-attention-heads 16"


@pytest.mark.parametrize(
    ("script", "processes"),
    [
        (f"export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 4 {MEGATRON}\n", 4),
        (f"export CUDA_VISIBLE_DEVICES=0,1,2,3\ntorchrun --nproc_per_node 4 {MEGATRON}\n", 0),
        (f"export CUDA_VISIBLE_DEVICES=0,1,2,3\ntorchrun --nproc_per_node 2 {MEGATRON}\n", 0),
        (f"export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node gpu {MEGATRON}\n", 0),
        (f"CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 4 {MEGATRON}\n", 0),  # not exported
        (f"export CUDA_VISIBLE_DEVICES=${{GPUS:-0,1}}\ntorchrun --nproc_per_node 4 {MEGATRON}\n", 0),
        (f"export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node $1 {MEGATRON}\n", 0),
        (f"export CUDA_VISIBLE_DEVICES=0,1\ndeepspeed --num_gpus 4 {MEGATRON}\n", 0),  # takes no notice of it
        ("CUDA_VISIBLE_DEVICES=0,1 python -m torch.distributed.run --nproc_per_node=8 train.py --lr 1\n", 8),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift sft --model a/b\n", 0),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=3 swift sft --model a/b\n", 3),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=4 megatron sft --tensor_model_parallel_size 2 --model a/b\n", 4),
        ("CUDA_VISIBLE_DEVICES=MIG-1 NPROC_PER_NODE=3 swift sft --model a/b\n", 0),
    ],
)
def test_more_processes_than_the_environment_lists_are_an_error(script: str, processes: int, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script)
    document = read(str(path))
    found = [] if document is None else [each.message for each in document.findings if each.rule.startswith("more-processes")]
    assert [message.split()[0] for message in found] == ([str(processes)] if processes else [])
