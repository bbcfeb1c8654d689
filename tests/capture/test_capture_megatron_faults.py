"""Faults put into Megatron-Core itself, in memory, where it is installed: each is refuted."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.builders.capture_programs import PROGRAMS, tvlint

if any(importlib.util.find_spec(name) is None for name in ("torch", "megatron")):
    pytest.skip("Megatron-Core is not installed", allow_module_level=True)

pytestmark = pytest.mark.heavy
PROGRAM = """import runpy
import sys
from megatron.core import distributed, parallel_state
from megatron.core.tensor_parallel import cross_entropy, mappings
reduce_from = mappings._ReduceFromModelParallelRegion
finalize = sys.modules["megatron.core.distributed.finalize_model_grads"]
FAULT
runpy.run_path(PATH, run_name="__main__")
"""
TP, SP, TIED = ("--tp", "2"), ("--tp", "2", "--sequence-parallel"), ("--pp", "2", "--tied", "--micro-batch-size", "4")
FAULTS = {
    "nothing": ("", SP, ""),
    "no sum in the forward pass of g": (
        "reduce_from.forward = staticmethod(lambda ctx, x, group: x)", TP, "missing-allreduce",
    ),
    "a sum in the backward pass of g": (
        "tp = parallel_state.get_tensor_model_parallel_group\n"
        "reduce_from.backward = staticmethod(lambda ctx, g: (mappings._reduce(g, tp()), None))",
        TP, "wrong-gradient-scale",
    ),
    "the vocabulary of rank 0 on every rank": ("cross_entropy.get_tensor_model_parallel_rank = lambda: 0", TP, "wrong-range"),
    "norms that are not synchronised": (
        "finalize._allreduce_non_tensor_model_parallel_grads = lambda *_: None", SP, "missing-gradient-reduction",
    ),
    "tied embeddings that are not summed": (
        "finalize._allreduce_word_embedding_grads = lambda *_: None", TIED, "other-recorded-gradient",
    ),
    "a norm of the rank's own, by which it clips": (
        "from megatron.core.optimizer import optimizer\n"
        "optimizer.get_grad_norm_fp32 = lambda *_, **__: 4.0 + parallel_state.get_tensor_model_parallel_rank()",
        SP, "other-recorded-weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_megatron_is_refuted(name: str, tmp_path: Path) -> None:
    fault, arguments, reason = FAULTS[name]
    path = repr(os.fspath(PROGRAMS / "megatron_gpt.py"))
    (tmp_path / "program.py").write_text(PROGRAM.replace("FAULT", fault).replace("PATH", path))
    launch = ("torchrun", "--nproc-per-node", "2", "program.py", *arguments)
    done = tvlint("capture", "-o", ".", "--name", "parallel", "--", *launch, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = "megatron_gpt_tied_reference" if "--tied" in arguments else "megatron_gpt_reference"
    recorded = os.fspath(PROGRAMS / "recorded" / f"{reference}.capture.jsonl.gz")
    done = tvlint("prove", "parallel.capture.jsonl.gz", "--reference", recorded, cwd=tmp_path)
    assert (done.returncode, f"[{reason}]" in done.stdout) == ((1, True) if fault else (0, False)), done.stdout + done.stderr
