"""Programs of torch, captured and proved from the command line; where torch is installed."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared import ROOT

from tests.builders.action_runner import new_runner, run
from tests.builders.capture_programs import PROGRAMS, tvlint

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: pip install 'tvlint[capture]'", allow_module_level=True)

pytestmark = pytest.mark.heavy


def blocks_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)


def test_the_page_runs_as_it_is_written() -> None:
    blocks = blocks_of((ROOT / "docs" / "capture.md").read_text())
    commands = [line for kind, text in blocks if kind == "sh" for line in text.splitlines() if line.startswith("tvlint ")]
    outputs = [text for kind, text in blocks if kind == "text"]
    assert len(commands) == 3
    for number, command in enumerate(commands):
        done = tvlint(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stdout + done.stderr
        if number == 0:
            assert re.sub(r"\S*/", "", done.stdout.splitlines()[0]) == outputs[0].strip()


def hook_of(page: str) -> dict[str, Any]:
    ((_, text),) = [(kind, text) for kind, text in re.findall(r"```(yaml hook)\n(.*?)```", page, re.DOTALL)]
    ((hook,),) = [repo["hooks"] for repo in yaml.safe_load(text)["repos"]]
    assert isinstance(hook, dict)
    return hook


def project_with_a_launch(folder: Path) -> None:
    shutil.copy(PROGRAMS / "tensor_parallel_mlp.py", folder)
    (folder / "tvlint.toml").write_text('[[proof]]\nlaunch = "torchrun --nproc-per-node 2 tensor_parallel_mlp.py"\n')


def test_the_hook_of_the_page_runs_the_launches_of_the_project(tmp_path: Path) -> None:
    project_with_a_launch(tmp_path)
    python, *arguments = hook_of((ROOT / "docs" / "capture.md").read_text())["entry"].split()
    assert (python, arguments[:2]) == ("python", ["-m", "tvlint"])
    done = tvlint(*arguments[2:], cwd=tmp_path)
    assert (done.returncode, "proved:" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("fault", [False, True])
def test_the_action_runs_the_launches_of_the_project(fault: bool, tmp_path: Path) -> None:
    runner = new_runner(tmp_path)
    project_with_a_launch(runner / "workspace")
    program = runner / "workspace" / "tensor_parallel_mlp.py"
    text = program.read_text()
    program.write_text(text.replace("            dist.all_reduce(gradient)", "            pass") if fault else text)
    assert (program.read_text() != text) == fault
    step = run(runner, capture_python=sys.executable)
    assert step.outputs["exit-code"] == ("1" if fault else "0"), step.log
    assert "torchrun --nproc-per-node 2" in step.summary
    assert ("refuted" if fault else "proved") in step.summary


FAULTS = {
    "no sum in the forward pass": ("tensor_parallel_mlp.py", "            dist.all_reduce(x)", "            pass"),
    "a sum that a method of the group issues and nothing waits for": (
        "tensor_parallel_mlp.py",
        "            dist.all_reduce(x)",
        "            dist.group.WORLD.allreduce([x])",
    ),
    "no sum of gradients": ("tensor_parallel_mlp.py", "            dist.all_reduce(gradient)", "            pass"),
    "a bias on every rank": ("tensor_parallel_mlp.py", "linear(h, self.down))", "linear(h, self.down, self.down_bias))"),
    "another activation": ("tensor_parallel_mlp.py", "gelu(nn", "silu(nn"),
    "gradients that are not reduced": ("data_parallel.py", "index == MICRO_BATCHES - 1", "False"),
    "a loss that is not divided": ("data_parallel.py", ".mean() / MICRO_BATCHES", ".mean()"),
    "a partial sum left by DTensor": ("dtensor_mlp.py", '"down": RowwiseParallel()', '"down": Partial()'),
    "gradients that `fully_shard` does not reduce": (
        "fully_sharded.py",
        "    optimizer = torch.optim.AdamW(",
        "    getattr(model, 'set_requires_gradient_sync', bool)(False)\n    optimizer = torch.optim.AdamW(",
    ),
    "a learning rate of the rank's own": (
        "fully_sharded.py",
        "AdamW(model.parameters())",
        "AdamW(model.parameters(), lr=1e-3 * (1 + RANK))",
    ),
    "a weight that is changed between the passes": (
        "data_parallel.py",
        "    optimizer.step()",
        "    model.requires_grad_(False)[-1].bias.add_(0.1) if WORLD > 1 else None\n    optimizer.step()",
    ),
    "gradients of shards that are divided by another number": (
        "fully_sharded.py",
        "    optimizer = torch.optim.AdamW(",
        "    getattr(model, 'set_gradient_divide_factor', bool)(4.0)\n    optimizer = torch.optim.AdamW(",
    ),
    "a loss of flat weights that is not divided": ("flat_shards.py", ".mean() / count)", ".mean())"),
    "flat gradients that each rank reduces by itself": (
        "flat_shards.py",
        "use_orig_params=True)",
        "use_orig_params=True, process_group=dist.new_subgroups(1)[0])",
    ),
    "clipping of flat gradients by another norm": (
        "flat_shards.py",
        "model.clip_grad_norm_(0.5)",
        "model.clip_grad_norm_(0.3)",
    ),
    "gradients of parts of the sequence that are not added": (
        "sequence_parts.py",
        "        fully_shard(model, mesh=mesh)\n",
        "",
    ),
    "pairs that each rank counts from the first": ("contrastive.py", "torch.arange(size) + RANK * size", "torch.arange(size)"),
    "what other ranks have taken without its gradient": ("contrastive.py", ".nn.all_gather(x)", ".nn.all_gather(x.detach())"),
    "positions that turn the other way": ("complex_positions.py", "pairs * positions[", "pairs * positions.conj()["),
    "a scaled loss that is divided by the ranks": ("loss_scaling.py", ", y[own])).b", ", y[own]) / WORLD).b"),
    "gradients of shards that are not reduced": (
        "accumulation.py",
        "is_last = index == MICRO_BATCHES - 1",
        "is_last = False",
    ),
    "gradients of shards that are gathered once, and are not reduced": (
        "accumulation.py",
        "is_last = index == MICRO_BATCHES - 1",
        "is_last = index == MICRO_BATCHES",
    ),
    "gradients of keys and values that ranks do not add": (
        "context_parallel.py",
        "        dist.reduce_scatter_tensor(part, gradient.contiguous())",
        "        part.copy_(gradient.chunk(WORLD)[RANK])",
    ),
    "gradients of a second optimizer that are not reduced": (
        "sampled_batches.py",
        "average([*model.norm.parameters(), *model.head.parameters()])",
        "average([])",
    ),
    "micro-batches of a sample that are summed": ("single_samples.py", " / len(batches)", ""),
    "gradients of a pipeline that are not divided": ("pipeline.py", "n_microbatches=M", "scale_grads=False, n_microbatches=M"),
    "a loss of a pipeline that is not divided": ("pipeline_messages.py", "target) / MICRO_BATCHES", "target)"),
    "a table at both ends of a pipeline that is not synchronised": (
        "tied_stages.py",
        "    dist.all_reduce(model.embedding.weight.grad)",
        "    pass",
    ),
    "a head whose gradients nothing reduces": ("filled_shards.py", "in (*blocks, model):", "in blocks:"),
    "masks of the first rank's sentences": ("padded_sentences.py", "is_word[own])", "is_word[:size])"),
    "rows that no other rank has, of a loss that is not divided": ("few_rows.py", " / count).backward()", ").backward()"),
    "blocks of the sequence that one rank reads through": (
        "flexible_attention.py",
        "query // BLOCK == key // BLOCK",
        "query // BLOCK <= key // BLOCK + RANK",
    ),
    "a joined weight that is cut through": ("joined_weights.py", "(3 * width, HIDDEN), parts=3)", "(3 * width, HIDDEN))"),
    "parts of a joined weight that ranks take for each other": (
        "joined_weights.py",
        "silu(gate) * up,",
        "silu(up if WORLD > 1 else gate) * (gate if WORLD > 1 else up),",
    ),
    "keys from both ends that are taken for keys in order": (
        "zigzag.py",
        "torch.cat([ends(torch.arange(SEQUENCE), rank) for rank in range(WORLD)])",
        "torch.arange(SEQUENCE)",
    ),
    "heads that turn by the places of another rank": (
        "rotary_heads.py",
        "chunk(WORLD)[RANK]\n    opt",
        "chunk(WORLD)[0]\n    opt",
    ),
    "preferences of two models of which one is taken for the other": (
        "preferences.py",
        "(margin - usual)",
        "((margin - usual) if WORLD == 1 else (usual - margin))",
    ),
    "a message of what a stage is given": ("pipeline_messages.py", "dist.send(output.detach()", "dist.send(own.detach()"),
}
PARTIAL = """
class Partial(RowwiseParallel):
    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh):
        return outputs.to_local()
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_program_is_refuted(fault: str, tmp_path: Path) -> None:
    name, right, wrong = FAULTS[fault]
    text = (PROGRAMS / name).read_text()
    assert text.count(right) == 1
    changed = text.replace(right, wrong)
    if "Partial()" in wrong:
        changed = changed.replace("\n\nclass MLP", f"\n{PARTIAL}\n\nclass MLP")
    (tmp_path / "program.py").write_text(changed)
    (tmp_path / "reference.py").write_text(text)
    arguments = {"data_parallel.py": ["2"], "accumulation.py": ["kept" if "once" in fault else "fsdp"]}.get(name, [])
    launch = ["torchrun", "--nproc-per-node", "2", "program.py", *arguments]
    done = tvlint("prove", "--captured", "--reference", "python reference.py", "--", *launch, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("refuted:")


def test_attention_in_blocks_that_the_program_lists_is_refused_where_its_function_says_others() -> None:
    import torch
    from torch.nn.attention import flex_attention as module

    from tvlint.capture.failures import KernelError
    from tvlint.capture.flexible_attention import changes

    def causal(_: object, __: object, query: Any, key: Any) -> Any:
        return query >= key

    plain, count, every = module.flex_attention, torch.ones(1, 1, 3, dtype=torch.int32), torch.arange(3, dtype=torch.int32)
    first, diagonal = every.expand(1, 1, 3, 3).contiguous(), every.view(3, 1).expand(1, 1, 3, 3).contiguous()
    in_blocks = {"BLOCK_SIZE": 2, "mask_mod": causal}
    wrong = [
        module.BlockMask.from_kv_blocks(count, diagonal, **in_blocks),
        module.BlockMask.from_kv_blocks(3 * count, first, count, diagonal, **in_blocks),
    ]
    right = [
        *(module.create_block_mask(causal, None, None, 6, 6, "cpu", BLOCK_SIZE=size) for size in (2, 4, 128)),
        module.BlockMask.from_kv_blocks(3 * count, first, **in_blocks),
    ]
    value = torch.randn(1, 2, 6, 4)
    try:
        changes(lambda _: None)["torch.nn.attention.flex_attention"](module)
        for mask in right:
            torch.testing.assert_close(module.flex_attention(value, value, value, block_mask=mask), expected(value))
        for mask in wrong:
            with pytest.raises(KernelError, match="other blocks"):
                module.flex_attention(value, value, value, block_mask=mask)
        with pytest.raises(ValueError, match="lengths"):
            module.flex_attention(value[:, :, :4], value, value, block_mask=right[0])
        with pytest.raises(ValueError, match="heads"):
            module.flex_attention(value, value[:, :1], value[:, :1])
    finally:
        module.flex_attention = plain


def expected(value: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(value, value, value, is_causal=True)


def test_weights_of_parts_that_a_rank_calls_have_the_names_of_the_model(tmp_path: Path) -> None:
    launch = ["torchrun", "--nproc-per-node", "2", str(PROGRAMS / "tied_stages.py")]
    done = tvlint("prove", "--captured", "--", *launch, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gradients 5," in done.stdout


HOLDERS = """
import torch
from torch import nn
from tvlint.capture.weights import named_state

def names(module):
    return [own.name for own in named_state(module)]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    def forward(self, x):
        return self.second(self.first(x))

model, stages = Model(), [Model(), Model()]
print(names(model.second), names(model))
listed, traced = nn.ModuleList(stages), torch.fx.symbolic_trace(model)
print(names(stages[1]), names(model.second))
wrapped = nn.Sequential(model)
print(names(model.first))
trainer = Model()
trainer.model = model
print(names(model.first))
"""


def test_the_largest_module_that_can_be_called_names_a_part(tmp_path: Path) -> None:
    (tmp_path / "holders.py").write_text(HOLDERS)
    done = subprocess.run([sys.executable, "holders.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == [
        "['second.weight'] ['first.weight', 'second.weight']",
        "['first.weight', 'second.weight'] ['second.weight']",
        "['first.weight']",
        "['model.first.weight']",
    ]


SHAPES = """
import torch
from torch import nn
model = nn.Linear(2, 2)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
batch = torch.rand(2, 2)
tried = torch.empty_strided((2, 2), (1, 0), device="meta") + 1
loss = model(batch).sum()
tried = torch.empty_strided((2, 2), (1, 0), device="meta") + 1
loss.backward()
optimizer.step()
"""


def test_what_only_tries_or_takes_shapes_is_no_part_of_the_step(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SHAPES)
    done = tvlint("capture", "-o", "plans", "--", "python", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with gzip.open(next((tmp_path / "plans").glob("*.jsonl.gz")), "rt") as text:
        operators = [line["op"] for line in map(json.loads, text) if "op" in line]
    assert "aten.addmm.default" in operators
    assert {"aten.empty_strided.default", "aten.full_like.default", "aten.rand.default"}.isdisjoint(operators)


UNEQUAL = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, model = dist.get_rank(), torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sent = torch.full((LENGTHS[rank], 2), float(rank + 1))
x = model(torch.ones(4, 2))
parts = [torch.empty(3, 2), torch.empty(1, 2)]
dist.all_gather(parts, sent)
assert [part.sum().item() for part in parts] == [6, 4]
(x * torch.cat(parts)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize("lengths", [(3, 1), (2, 1), (1, 3)])
def test_parts_of_unequal_lengths_are_gathered_where_each_has_its_length(lengths: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNEQUAL.replace("LENGTHS", str(lengths)))
    launch = ("torchrun", "--nproc-per-node", "2", "program.py")
    done = tvlint("capture", "-o", "plans", "--name", "unequal", "--", *launch, cwd=tmp_path)
    assert (done.returncode == 0) is (lengths == (3, 1)), done.stdout + done.stderr
    if done.returncode:
        assert done.stderr.startswith("program.py:10: error: rank ")
        assert "allgather" in done.stderr


def test_a_program_that_fails_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\n\nraise ValueError('no data')\n")
    done = tvlint("capture", "-o", "plans", "--", "python", "program.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("program.py:3: error: rank 0: ValueError: no data")
    assert not (tmp_path / "plans").exists()


def test_a_rank_that_a_signal_ends_names_the_signal(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, signal, torch\n\nos.kill(os.getpid(), signal.SIGABRT)\n")
    done = tvlint("capture", "-o", "plans", "--", "torchrun", "--nproc-per-node", "2", "program.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "of `program.py` was ended by the signal SIGABRT" in done.stderr
    assert not (tmp_path / "plans").exists()


KERNEL = """
import torch
import triton
import triton.language as tl

@triton.autotune(configs=[], key=[])
@triton.jit
def double(x, size: tl.constexpr):
    tl.store(x, tl.load(x) * 2)

double[(1,)](torch.ones(4), isinstance(4, triton.runtime.jit.JITFunction))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_a_kernel_that_is_launched_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(KERNEL)
    done = tvlint("capture", "-o", "plans", "--", "python", "program.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("program.py:11: error: rank 0: KernelError: the kernel `double` of Triton")
    assert "operators of torch" in done.stderr


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_a_norm_of_which_the_weight_is_kept_without_one_computes_with_it(kind: str) -> None:
    import torch

    from tvlint.capture.megatron import center

    norm, plain = getattr(torch.nn, kind)(4, eps=1e-3), getattr(torch.nn, kind)(4, eps=1e-3)
    center(norm)
    assert [name for name, _ in norm.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert not norm.weight.any()
    given, added = torch.randn(3, 4), torch.randn(4)
    with torch.no_grad():
        norm.weight.copy_(added)
        plain.weight.copy_(added + 1)
    torch.testing.assert_close(norm(given), plain(given))
    norm(given).square().sum().backward()
    plain(given).square().sum().backward()
    torch.testing.assert_close(norm.weight.grad, plain.weight.grad)


GIVEN = """
import os
import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
batch, target = torch.randn(2, 8, 8), torch.randn(2, 8, 8)
gate = torch.randn(16, 8)
model = nn.Linear(8, 8)
if WORLD > 1:
    dist.init_process_group("gloo")
"""
MEAN = """
if WORLD > 1:
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= WORLD
"""
SHARDED_STEPS = (
    GIVEN
    + """
from torch.distributed.optim import ZeroRedundancyOptimizer
if WORLD > 1:
    batch, target = (each.chunk(WORLD)[RANK] for each in (batch, target))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
else:
    optimizer = torch.optim.AdamW(model.parameters())
nn.functional.mse_loss(model(batch), target).backward()
"""
    + MEAN
    + "optimizer.step()\n"
)


@pytest.mark.parametrize("program", [SHARDED_STEPS], ids=["an optimizer in shards"])
def test_a_program_is_proved_and_without_the_mean_of_gradients_refuted(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    done = tvlint("prove", "--captured", "--", "torchrun", "--nproc-per-node", "2", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "wrong.py").write_text(program.replace(MEAN, ""))
    launch = ["torchrun", "--nproc-per-node", "2", "wrong.py"]
    done = tvlint("prove", "--captured", "--reference", "python program.py", "--", *launch, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "[missing-gradient-reduction]" in done.stdout


JOINED = """
class Model(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.gate = nn.Parameter(gate)
    def forward(self, x):
        return sum(x.matmul(part.t()).square().sum() for part in self.gate.chunk(2))
optimizer = torch.optim.SGD((model := Model(CUT if WORLD > 1 else gate)).parameters(), 0.1)
loss = model(batch)
loss.backward()
optimizer.step()
"""


def test_a_weight_that_is_no_one_piece_of_the_whole_is_an_error_and_no_guess(tmp_path: Path) -> None:
    for name, cut in (
        ("right.py", "gate.chunk(2)[RANK]"),
        ("wrong.py", "gate.chunk(2)[RANK].t().contiguous()"),
    ):
        (tmp_path / name).write_text(GIVEN + JOINED.replace("CUT", cut))
    errors = {}
    for name in ("right.py", "wrong.py"):
        done = tvlint("prove", "--captured", "--", "torchrun", "--nproc-per-node", "2", name, cwd=tmp_path)
        errors[name] = "holds the numbers of no one piece of the reference's" in done.stdout + done.stderr
        assert not done.stdout.startswith("proved")
    assert errors == {"right.py": False, "wrong.py": True}


@pytest.mark.parametrize(("stated", "seen"), [("CUDA_DEVICE_MAX_CONNECTIONS=32", "32"), ("", "1")])
def test_a_variable_that_the_launch_states_is_left_as_it_is(stated: str, seen: str, tmp_path: Path) -> None:
    program = "import os\nraise ValueError(os.environ['CUDA_DEVICE_MAX_CONNECTIONS'])\n"
    (tmp_path / "train.py").write_text(program)
    done = tvlint("capture", "--", *stated.split(), "python", "train.py", cwd=tmp_path)
    assert f"ValueError: {seen}" in done.stdout + done.stderr


TWO_STEPS = """import torch

first, second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
steps = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (first, second)]
second(torch.ones(2, 8)).sum().backward()
steps[1].step()
second(first(torch.ones(2, 4)).tanh()).sum().backward()
steps[0].step()
"""


def test_weights_that_another_optimizer_trains_after_the_first_has_stepped_are_not_passed_over(tmp_path: Path) -> None:
    for name, text in (("two.py", TWO_STEPS), ("one.py", TWO_STEPS.replace("(first, second)", "(second, second)"))):
        (tmp_path / name).write_text(text)
    done = tvlint("capture", "-o", str(tmp_path), "--", "python", "two.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("two.py:7: error: the program goes on with weights of another optimizer")
    assert not list(tmp_path.glob("*.gz"))
    assert tvlint("capture", "-o", str(tmp_path), "--", "python", "one.py", cwd=tmp_path).returncode == 0


FLAT = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FullyShardedDataParallel(torch.nn.Linear(4, 2), use_orig_params=True)
step = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
for weight in model.parameters():
    weight.grad = weight.grad
step.step()
"""


def test_a_model_is_sharded_flat_on_the_cpu_where_no_device_is_named(tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT)
    done = tvlint("capture", "-o", str(tmp_path), "--", "torchrun", "--nproc-per-node", "2", "flat.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_gradients_that_are_put_in_the_place_of_those_in_a_flat_one_are_an_error_at_the_line(tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT.replace("= weight.grad\n", "= None if weight.grad is None else weight.grad * 2\n"))
    done = tvlint("capture", "-o", str(tmp_path), "--", "torchrun", "--nproc-per-node", "2", "flat.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("flat.py:12: error: the gradient of a part of a flat weight is replaced by another tensor")


@pytest.mark.parametrize(("held", "is_captured"), [("[model.weight]", False), ("[{'params': [each]} for each in ALL]", True)])
def test_an_optimizer_of_some_weights_in_a_flat_one_is_an_error(held: str, is_captured: bool, tmp_path: Path) -> None:
    """Its step would be compared with one of all of them."""
    given = held.replace("ALL", "model.parameters()")
    (tmp_path / "flat.py").write_text(FLAT.replace("SGD(model.parameters()", f"SGD({given}"))
    done = tvlint("capture", "-o", str(tmp_path), "--", "torchrun", "--nproc-per-node", "2", "flat.py", cwd=tmp_path)
    assert done.returncode == (0 if is_captured else 2), done.stderr
    place = "flat.py:12: error: an optimizer steps some of the weights in a flat weight and leaves others"
    assert is_captured or done.stderr.startswith(place), done.stderr


@pytest.mark.parametrize("named", ["parts", ":parts/..", "{folder}/parts"])
def test_a_program_imports_from_the_folders_that_its_launch_names(named: str, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "parts" / "own_model.py").write_text("import torch\n\nmodel = torch.nn.Linear(2, 2)\n")
    module = "parts.own_model" if named.startswith(":") else "own_model"
    step = "torch.optim.SGD(model.parameters(), 0.1)"
    text = f"import torch\nfrom {module} import model\n\nstep = {step}\nmodel(torch.ones(1, 2)).sum().backward()\nstep.step()\n"
    (tmp_path / "scripts" / "train.py").write_text(text)
    launch = [f"PYTHONPATH={named.format(folder=tmp_path)}", "python", "scripts/train.py"]
    done = tvlint("capture", "-o", str(tmp_path), "--", *launch, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_tensor_without_memory_has_no_elements_to_write() -> None:
    import torch

    from tvlint.capture.encoding import bytes_of

    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    for tensor in (torch.empty(3, device="meta"), freed):
        with pytest.raises(ValueError, match="has no memory"):
            bytes_of(tensor)
    assert bytes_of(torch.empty(0)) == ""
    assert base64.b64decode(bytes_of(torch.tensor([1, 2], dtype=torch.uint8))) == b"\x01\x02"


GPU_IN_BACKWARD = """import torch


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1.0

    @staticmethod
    def backward(context, gradient):
        return torch.empty(gradient.shape, device=torch.cuda.current_device()).copy_(gradient) + torch.zeros(2, device="cuda")


options = torch.distributed.ProcessGroupNCCL.Options(is_high_priority_stream=True)
options.config.cga_cluster_size = 4
device = torch.device("cuda", torch.cuda.current_device())
model = torch.nn.Linear(4, 2).to(device)
step = torch.optim.SGD(model.parameters(), lr=0.1)
Kept.apply(model(torch.ones(2, 4, device=torch.cuda.current_device()))).sum().backward()
step.step()
"""


def test_a_gpu_that_a_backward_function_names_is_the_cpu_and_nccl_has_options(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(GPU_IN_BACKWARD)
    done = tvlint("capture", "-o", str(tmp_path), "--", "python", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_context_parallelism_of_the_local_layers_of_megatron_is_refused() -> None:
    from types import SimpleNamespace

    from tvlint.capture.launch import Launch, LaunchError
    from tvlint.capture.megatron_training import _fit

    arguments = SimpleNamespace(context_parallel_size=2, transformer_impl="local")
    with pytest.raises(LaunchError, match="has no context parallelism"):
        _fit(arguments, Launch(2, "pretrain_gpt.py", ()), print, print)


@pytest.mark.parametrize(("is_sharded", "connections"), [(False, "1"), (True, "32")])
def test_variables_that_megatron_compares_with_a_gpu_are_those_of_a_cpu(
    is_sharded: bool, connections: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from tvlint.capture.megatron_training import _set_variables

    for name, value in {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NVTE_FUSED_ATTN": "1", "NVTE_BATCH": "1"}.items():
        monkeypatch.setenv(name, value)
    _set_variables(SimpleNamespace(use_torch_fsdp2=is_sharded))
    names = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_FUSED_ATTN", "NVTE_BATCH")
    assert [os.environ.get(name) for name in names] == [connections, None, "1"]


def test_an_encoder_and_a_decoder_are_given_texts_of_their_lengths() -> None:
    from types import SimpleNamespace

    from tvlint.capture.megatron_training import _batch, _reduce_sequence

    lengths = {"seq_length": None, "encoder_seq_length": 512, "decoder_seq_length": 128}
    arguments = SimpleNamespace(**lengths, micro_batch_size=2, padded_vocab_size=32)
    _reduce_sequence(arguments, 16)
    arguments.seq_length = arguments.encoder_seq_length  # as Megatron sets it when it validates them
    batch = _batch(0, arguments)
    encoded, decoded = ("text_enc", "enc_mask"), ("text_dec", "dec_mask", "labels", "loss_mask")
    assert {tuple(batch[name].shape) for name in encoded} == {(2, 32)}
    assert {tuple(batch[name].shape) for name in decoded} == {(2, 16)}
    assert arguments.max_position_embeddings == 32


def test_a_schedule_of_batch_sizes_begins_with_its_first() -> None:
    from types import SimpleNamespace

    from tvlint.capture.launch import Launch
    from tvlint.capture.megatron_training import _reduce_batch

    sizes = {"micro_batch_size": 4, "global_batch_size": None, "pipeline_model_parallel_size": 2}
    arguments = SimpleNamespace(**sizes, step_batch_size_schedule="0:384 200B:768")
    _reduce_batch(arguments, Launch(8, "pretrain_gpt.py", ("--pipeline-model-parallel-size", "2")), 2)
    assert arguments.global_batch_size == 2 * 4 * 4  # two samples in each of four micro-batches of four replicas
    assert arguments.step_batch_size_schedule is None


COPIES = """
import torch
from torch import nn

model = nn.Linear(2, 2)
flat = nn.Parameter(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
optimizer = torch.optim.SGD([flat], lr=0.1)
model(torch.ones(2, 2)).sum().backward()
flat.grad = torch.cat([weight.grad.flatten() for weight in model.parameters()])
for weight in model.parameters():
    weight.grad = None
optimizer.step()
"""


@pytest.mark.parametrize("kept", ["weight.grad", "None"])
def test_an_optimizer_of_flat_copies_is_an_error_and_no_missing_gradient(kept: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COPIES.replace("weight.grad = None", f"weight.grad = {kept}"))
    done = tvlint("capture", "-o", "plans", "--", "python", "program.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("program.py:12: error: the optimizer steps tensors that no module holds")
    assert not (tmp_path / "plans").exists()


CLIPPED = """
import os
import sys
import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
model, x = nn.Linear(4, 2), 9 * torch.randn(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if WORLD > 1:
    from deepspeed.runtime.utils import clip_grad_norm_
    dist.init_process_group("gloo")
else:
    from torch.nn.utils import clip_grad_norm_
size = 4 // WORLD
model(x[RANK * size : (RANK + 1) * size]).pow(2).mean().backward()
for weight in model.parameters() if WORLD > 1 else ():
    dist.all_reduce(weight.grad)
    weight.grad.div_(WORLD)
if sys.argv[1:] != ["unclipped"]:
    clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
"""
OF_DEEPSPEED = """
def clip_grad_norm_(parameters, max_norm):
    gradients = [weight.grad for weight in parameters]
    norm = sum(gradient.double().pow(2).sum() for gradient in gradients) ** 0.5
    for gradient in gradients:
        gradient.mul_(float(max_norm / norm))
"""


@pytest.mark.parametrize(("options", "code"), [((), 0), (("unclipped",), 1)])
def test_gradients_that_deepspeed_clips_are_compared_before_and_after_it(
    options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    package = tmp_path / "deepspeed" / "runtime"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "utils.py").write_text(OF_DEEPSPEED)
    (tmp_path / "program.py").write_text(CLIPPED)
    reference = shlex.join(["python", "program.py", *options])
    launch = ["torchrun", "--nproc-per-node", "2", "program.py"]
    done = tvlint("prove", "--captured", "--reference", reference, "--", *launch, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr


HOOKED = """import os
import torch
import torch.distributed as dist

torch.manual_seed(0)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
model, x = torch.nn.Linear(4, 2), torch.randn(4, 4)


def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer().div_(world), async_op=True)
    RETURNED


if world > 1:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, hook)
step = torch.optim.SGD(model.parameters(), lr=0.1)
model(x.chunk(world)[rank]).pow(2).mean().backward()
step.step()
"""


@pytest.mark.parametrize(
    ("returned", "code", "said"),
    [
        ("return work.get_future().then(lambda future: future.value()[0])", 0, "proved: "),
        ("return torch.futures.collect_all([work.get_future()]).then(lambda all: all.value()[0].value()[0])", 0, "proved: "),
        ("done = torch.futures.Future()\n    done.set_result(bucket.buffer())\n    return done", 1, "[missing-wait]"),
        (
            "other, _ = dist.all_reduce(torch.zeros(1), async_op=True), work.get_future()\n"
            "    return other.get_future().then(lambda future: bucket.buffer())",
            1,
            "[missing-wait]",
        ),
    ],
    ids=["of the reduction", "of all", "of nothing", "of another one"],
)
def test_torch_waits_for_the_future_that_a_hook_of_its_reducer_returns(
    returned: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(HOOKED.replace("RETURNED", returned))
    launch = ("torchrun", "--nproc-per-node", "2", "program.py")
    done = tvlint("prove", "--captured", "--reference", "python program.py", "--", *launch, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout


def test_weights_of_a_part_that_is_wrapped_have_the_names_that_they_have_without() -> None:
    import torch

    from tvlint.capture.weights import plain_name

    replicas = torch.nn.parallel.DistributedDataParallel.__new__(torch.nn.parallel.DistributedDataParallel)
    torch.nn.Module.__init__(replicas)
    replicas.module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    named = torch.nn.ModuleDict({"module": torch.nn.Linear(2, 2, bias=False), "encoder": replicas})
    names = ["module.weight", "encoder.0.weight", "encoder.0.bias"]
    assert [plain_name(named, name) for name, _ in named.named_parameters()] == names
    assert plain_name(replicas, "module.0.") == "0."


def test_weights_that_are_used_outside_of_calls_have_the_names_of_the_largest_module_that_holds_them() -> None:
    import torch

    from tvlint.capture.weights import held_by_modules

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word, self.head = torch.nn.Parameter(torch.ones(2)), torch.nn.Linear(2, 2)

        def forward(self) -> None:
            pass

    model, alone = torch.nn.ModuleDict({"text": Text()}), torch.ones(2, requires_grad=True)
    text = model["text"]
    found = held_by_modules([text.word, text.head.weight, alone])
    assert {state.name for state in found.values()} == {"word", "head.weight"}
    assert id(alone) not in found
    assert held_by_modules([]) == {}
