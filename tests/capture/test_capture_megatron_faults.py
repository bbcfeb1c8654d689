"""Faults put into Megatron-Core itself, in memory, where it is installed: each is refuted."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest
from shared import ROOT

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
CLIPPED = ("--clip", "0.01")
DP = ("--micro-batch-size", "4")
NORM_WITHOUT_MARK = """from megatron.core.models.gpt import gpt_model
make = gpt_model.GPTModel.__init__
def without_mark(model, *arguments, **named):
    make(model, *arguments, **named)
    for weight in model.decoder.final_layernorm.parameters():
        weight.sequence_parallel = False
gpt_model.GPTModel.__init__ = without_mark
"""
SEQUENCE = ("--cp", "2", "--sequence", "8", "--llama")
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
    "a rotary part of the keys of latent attention whose gradient is not summed": (
        "# as it is released, where each rank projects to a part", (*SP, "--latent"), "missing-gradient-reduction",
    ),
    "a final norm that is not synchronised": (NORM_WITHOUT_MARK, SP, "missing-gradient-reduction"),
    "logits that are gathered before the loss over parts of the vocabulary": (
        "from functools import partialmethod\n"
        "from megatron.core.models.gpt import gpt_model\n"
        "gpt_model.GPTModel.__init__ = partialmethod(gpt_model.GPTModel.__init__, parallel_output=False)",
        TP, "other-recorded-gradient",
    ),
    "gradients that are never reduced over replicas": (
        "distributed.DistributedDataParallel.finish_grad_sync = lambda *_, **__: None", DP, "missing-gradient-reduction",
    ),
    "sums of gradients over replicas that are not averages": (
        "from megatron.core.distributed import param_and_grad_buffer as buffers\n"
        "start = buffers._ParamAndGradBucketGroup.start_grad_sync\n"
        "def unscaled(group, *given, **named):\n"
        "    for bucket in group.buckets:\n"
        "        bucket.gradient_scaling_factor = 1.0\n"
        "    start(group, *given, **named)\n"
        "buffers._ParamAndGradBucketGroup.start_grad_sync = unscaled",
        DP, "wrong-gradient-scale",
    ),
    "nothing, with gradients that are clipped": ("", (*SP, *CLIPPED), ""),
    "a norm for clipping that leaves out shards of other ranks": (
        "from megatron.core import tensor_parallel\n"
        "duplicate = tensor_parallel.param_is_not_tensor_parallel_duplicate\n"
        "tensor_parallel.param_is_not_tensor_parallel_duplicate = lambda weight, *group, **named: (\n"
        "    duplicate(weight, *group, **named) and parallel_state.get_tensor_model_parallel_rank() == 0\n"
        ")",
        (*SP, *CLIPPED), "other-recorded-weight",
    ),
    "a norm of the rank's own, by which it clips": (
        "from megatron.core.optimizer import optimizer\n"
        "optimizer.get_grad_norm_fp32 = lambda *_, **__: 4.0 + parallel_state.get_tensor_model_parallel_rank()",
        SP, "other-recorded-weight",
    ),
    "nothing, with weights that are gathered while the next step computes": (
        "", (*DP, "--distributed-optimizer", "--overlap", *CLIPPED), "",
    ),
    "weights that are not gathered behind the step": (
        "distributed.DistributedDataParallel.start_param_sync = lambda *_, **__: None",
        (*DP, "--distributed-optimizer", *CLIPPED), "other-recorded-weight",
    ),
    "nothing, with context parallelism": ("", SEQUENCE, ""),
    "positions of the first parts of a sequence for chunks from either end": (
        "from megatron.core.models.common.embeddings import rotary_pos_embedding\n"
        "rotary_pos_embedding.get_pos_emb_on_this_cp_rank = (\n"
        "    lambda positions, dim, group: positions.chunk(group.size(), dim)[group.rank()]\n"
        ")",
        SEQUENCE, "other-recorded-gradient",
    ),
    "parts of a sequence in order for chunks from either end": (
        "from megatron.core import utils\n"
        "utils.get_batch_on_this_cp_rank = lambda batch: {\n"
        "    name: part.chunk(2, 1)[parallel_state.get_context_parallel_rank()] for name, part in batch.items()\n"
        "}",
        SEQUENCE, "other-recorded-gradient",
    ),
    "gradients that are reduced over replicas and not over context-parallel ranks": (
        "replicas = parallel_state.get_data_parallel_group\n"
        "parallel_state.get_data_parallel_group = lambda *_, **__: replicas()",
        SEQUENCE, "other-recorded-gradient",
    ),
    "a loss that is multiplied by the number of context-parallel ranks": (
        "from megatron.core.pipeline_parallel import schedules\n"
        "loss_of = schedules.forward_step_calc_loss\n"
        "schedules.forward_step_calc_loss = lambda *given: loss_of(*given[:8], 2 * given[8], *given[9:])",
        SEQUENCE, "other-recorded-gradient",
    ),
    "another learning rate on one rank": (
        "from megatron.core.optimizer import optimizer\n"
        "plain = optimizer.FP32Optimizer.step_with_ready_grads\n"
        "def faster(self):\n"
        "    for group in self.optimizer.param_groups:\n"
        "        group['lr'] *= 1 + parallel_state.get_tensor_model_parallel_rank()\n"
        "    return plain(self)\n"
        "optimizer.FP32Optimizer.step_with_ready_grads = faster",
        (*SP, *CLIPPED), "other-recorded-weight",
    ),
}  # fmt: skip


def test_the_page_lists_what_is_tried_here() -> None:
    page = (ROOT / "docs" / "capture.md").read_text()
    rows = [row for row in page[page.index("## Published defects") :].splitlines() if row.startswith("| #")]
    tried = {name for name, (fault, _, _) in FAULTS.items() if fault}
    named = {found for row in rows for found in re.findall(r"“(.*?)”", row)}
    assert len(rows) > 10
    assert named <= tried
    assert len(named) > 5


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_megatron_is_refuted(name: str, tmp_path: Path) -> None:
    fault, arguments, reason = FAULTS[name]
    path = repr(os.fspath(PROGRAMS / "megatron_gpt.py"))
    (tmp_path / "program.py").write_text(PROGRAM.replace("FAULT", fault).replace("PATH", path))
    launch = ("torchrun", "--nproc-per-node", "2", "program.py", *arguments)
    done = tvlint("capture", "-o", ".", "--name", "parallel", "--", *launch, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kind = next((f"{each}_" for each in ("tied", "latent") if f"--{each}" in arguments), "")
    kind = "llama_cp_" if arguments is SEQUENCE else kind
    reference = f"megatron_gpt_{kind}reference"
    recorded = os.fspath(PROGRAMS / "recorded" / f"{reference}.capture.jsonl.gz")
    if "--clip" in arguments:
        done = tvlint("capture", "-o", ".", "--name", "reference", "--", "python", path.strip("'"), *CLIPPED, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        recorded = "reference.capture.jsonl.gz"
    done = tvlint("prove", "parallel.capture.jsonl.gz", "--reference", recorded, cwd=tmp_path)
    assert done.returncode == bool(fault), done.stdout + done.stderr
    assert not reason or f"[{reason}]" in done.stdout, done.stdout + done.stderr


def test_a_window_over_parts_of_the_sequence_is_an_error(tmp_path: Path) -> None:
    fault = (
        "from megatron.core.transformer import transformer_config\n"
        "plain = transformer_config.TransformerConfig.__post_init__\n"
        "def with_window(self):\n"
        "    self.window_size = (2, 0)\n"
        "    plain(self)\n"
        "transformer_config.TransformerConfig.__post_init__ = with_window"
    )
    path = repr(os.fspath(PROGRAMS / "megatron_gpt.py"))
    (tmp_path / "program.py").write_text(PROGRAM.replace("FAULT", fault).replace("PATH", path))
    done = tvlint("capture", "-o", ".", "--", "torchrun", "--nproc-per-node", "2", "program.py", *SEQUENCE, cwd=tmp_path)
    assert done.returncode == 2
    assert "a window of attention over parts of the sequence" in done.stdout + done.stderr
