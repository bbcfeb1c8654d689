"""Folders of code that nnScaler generates from models of our own: writes them, proves them, and runs those that are refuted.

    python benchmarks/nnscaler_examples.py generate FOLDER [WORD...]   with torch and nnScaler installed
    python benchmarks/nnscaler_examples.py prove FOLDER [WORD...]      with tvlint installed
    python benchmarks/nnscaler_examples.py run FOLDER [WORD...]        with torch and nnScaler installed

`WORD` chooses the folders whose name holds it. `run` trains one step of each with one CPU process a rank (gloo), and
compares the gradients of all parameters with those of the model itself, in double precision.
"""

from __future__ import annotations

import argparse
import importlib.util
import linecache
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROWS = 2
"""The rows of a micro-batch, where a layout does not say."""
_RAISED = re.compile(r"^(?:\[rank\d+\]: )?(\w*Error: .*)$", re.MULTILINE)
_FOLLOWS = ("Connection closed", "remaining segment")
"""What other ranks say when one has raised an error."""
DECLARED = Path(__file__).resolve().parent.parent / "fixtures" / "nnscaler" / "tvlint.toml"
"""What declares the operators that our models register."""
EXPORTED = Path("mgener.pkl")
"""What the branch of nnScaler that exports plans writes, in the folder that it runs in."""
TOLERANCE = 1e-6
"""How far gradients may differ, as a share of the largest of a parameter."""


@dataclass(frozen=True)
class Layout:
    """A policy, and how many ranks run it in how many replicas."""

    policy: str
    planned: int = 1
    ranks: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    rows: int = ROWS

    @property
    def tensor_parallel(self) -> int:
        """The ranks of a pipeline stage."""
        return self.planned // int(self.plan.get("pp_size", self.plan.get("pipeline_nstages", 1)))


def _staged(stages: int, micro_batches: int, scheduler: str = "1f1b", **more: Any) -> dict[str, Any]:
    return {"pipeline_nstages": stages, "pipeline_nmicros": micro_batches, "pipeline_scheduler": scheduler, **more}


_ESTIMATED = {"mem_constraint": 16, "parallel_profile": False}

LAYOUTS = {
    "dp2": Layout("dp", 1, 2),
    "tp2": Layout("tp", 2),
    "tp2_dp2": Layout("tp", 2, 4),
    "tp4": Layout("tp", 4),
    "data2": Layout("data", 2),
    "pp2": Layout("pp", 2, plan=_staged(2, 2)),
    "pp2_gpipe": Layout("pp", 2, plan=_staged(2, 2, "gpipe")),
    "hybrid_pp2_tp2": Layout("hybrid", 4, plan=_staged(2, 2, pp_size=2)),
    "hybrid_pp2_tp2_dp2": Layout("hybrid", 4, 8, plan=_staged(2, 2, pp_size=2)),
    "hybrid_pp2_tp4": Layout("hybrid", 8, plan=_staged(2, 2, pp_size=2)),
    "interleaved": Layout("hybrid", 2, plan=_staged(4, 4, "1f1b_interleaved", pp_size=2)),
    "zero_dp2": Layout("dp", 1, 2, {"use_zero": True}),
    "zero_groups": Layout("dp", 1, 4, {"use_zero": True, "zero_ngroups": 2}),
    "zero_scatter_async": Layout("dp", 1, 2, {"use_zero": True, "zero_use_reduce_scatter": True, "use_async_reducer": True}),
    "autodist2": Layout("autodist", 2, plan=_ESTIMATED),
    "autodist4": Layout("autodist", 4, plan=_ESTIMATED),
    "inference_tp2": Layout("tp", 2, 2, {"inference_only": True}),
    "single_2": Layout("dp"),
    "single_4": Layout("dp", rows=4),
    "single_8": Layout("dp", rows=8),
    "loop_tp2": Layout("tp", 2, 2, {"use_end2end": False}),
}

WHERE = {
    "mlp": list(LAYOUTS),
    "gpt": list(LAYOUTS),
    "gpt_bias": ["dp2", "tp2", "hybrid_pp2_tp2", "autodist2"],
    "gpt_dropout": ["tp2", "pp2", "autodist2"],
    "gpt_anchors": ["tp2", "pp2", "hybrid_pp2_tp2"],
    "llama": list(LAYOUTS),
    "vit": ["dp2", "tp2", "tp4", "data2", "pp2", "hybrid_pp2_tp2", "hybrid_pp2_tp2_dp2", "zero_dp2", "autodist2"],
    "swin": ["dp2", "tp2", "data2", "pp2", "hybrid_pp2_tp2", "zero_groups"],
    "swin_drop": ["dp2", "tp2"],
    "moe": ["dp2", "tp2", "tp4", "data2", "pp2", "hybrid_pp2_tp2", "zero_dp2", "autodist2"],
    "softmax": ["dp2", "tp2"],
    "unbound": ["dp2", "tp2"],
    "hidden": ["dp2", "tp2"],
    "shaped": ["dp2", "pp2"],
    "recurrent": ["dp2", "tp2"],
    "positions": ["dp2", "tp2"],
    "frozen": ["dp2", "pp2"],
    "transposed": ["dp2", "tp2"],
    "pooled": ["pp2"],
}


def cases() -> Iterator[tuple[str, str, Layout]]:
    """Yield the name, the model and the layout of each folder."""
    for model, layouts in WHERE.items():
        for layout in layouts:
            yield f"{model}--{layout}", model, LAYOUTS[layout]


def generate(name: str, model: str, layout: Layout, out: Path) -> None:
    """Let nnScaler write the folder `name` below `out`."""
    import torch

    _suit_torch()
    from nnscaler.parallel import ComputeConfig, parallelize

    torch.manual_seed(0)
    random.seed(0)
    if layout.policy == "autodist":
        _estimate_by_size()
    chosen: dict[str, Any] = {"use_end2end": True, "constant_folding": True, "trace_strategy": "cpu", **layout.settings}
    chosen |= {**layout.plan, "use_pipeline": "pipeline_nstages" in layout.plan}
    chosen["pas_config"] = {**layout.plan, "_tp_size": layout.tensor_parallel}
    known = ComputeConfig.__dataclass_fields__
    ranks = layout.ranks or layout.planned
    config = ComputeConfig(layout.planned, ranks, **{word: value for word, value in chosen.items() if word in known})
    told = _models()[model]
    made = told.make()
    with tempfile.TemporaryDirectory() as written:
        sample = {"sample": told.sample(layout.rows)}
        parallelize(made, sample, layout.policy, config, gen_savedir=written, reuse="override", load_module=False)
        (folder,) = {file.parent for file in Path(written).rglob("gencode0.py")}
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(folder, out / name)
    if EXPORTED.is_file():
        EXPORTED.replace(out / name / EXPORTED.name)


@cache
def _models() -> dict[str, Any]:
    """Return the models, whose lines generated code then names as those of a file of this project, wherever it lies."""
    path = Path(__file__).with_name("nnscaler_models.py")
    module = types.ModuleType("nnscaler_models")
    sys.modules[module.__name__] = module
    named = f"{path.parent.name}/{path.name}"
    text = path.read_text(encoding="utf-8")
    linecache.cache[named] = (len(text), None, text.splitlines(keepends=True), named)
    exec(compile(text, named, "exec"), module.__dict__)
    found: dict[str, Any] = module.__dict__["MODELS"]
    return found


def _suit_torch() -> None:
    """Leave out what nnScaler 0.8 trips over in a torch newer than those that it names: it changes no generated line."""
    import torch

    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    try:
        from nnscaler.graph.tracer import torch_fx_patcher, wrap_utils
    except ImportError:
        from nnscaler.graph.parser.fx.concrete_trace_utils import concrete_tracer

        known = concrete_tracer.node_is_impure_wrapper
        concrete_tracer.node_is_impure_wrapper = lambda node, *_: known(node)
        return
    _leave_out_unnamed(wrap_utils.default_autowrap_leaf_function)
    is_impure = torch_fx_patcher.TorchFXPatcher.is_impure_new
    torch_fx_patcher.TorchFXPatcher.is_impure_new = staticmethod(lambda node, *_: is_impure(node))


def _leave_out_unnamed(table: dict[Any, Any]) -> None:
    for function in [one for one in table if getattr(one, "__qualname__", "").startswith("pybind11_")]:
        del table[function]


def _estimate_by_size() -> None:
    """Let autodist take the times of operators from sizes, where it would measure them on a GPU."""
    from nnscaler.ir.cten import IRTensor
    from nnscaler.profiler import database

    def profiled(_self: Any, node: Any, *_: Any, **__: Any) -> Any:
        tensors = [one for one in (*node.inputs(), *node.outputs()) if isinstance(one, IRTensor)]
        bytes_of = {id(one): 4 * math.prod(one.shape) for one in tensors}
        given = [bytes_of[id(one)] for one in node.inputs() if isinstance(one, IRTensor) and not one.is_attr()]
        weights = [bytes_of[id(one)] for one in node.inputs() if isinstance(one, IRTensor) and one.is_param()]
        time = 1e-3 * sum(bytes_of.values())
        return database.ProfiledMetrics(given, weights, [], time, 2 * time, sum(bytes_of.values()), given, [])

    database.ProfileDataBase.profile = profiled


def prove(name: str, out: Path) -> str:
    """Return what tvlint says of a folder, with its first reason."""
    from tvlint.run.project.project_file import load
    from tvlint.run.proof.pair import Pair
    from tvlint.run.proof.prove import prove_pair

    operators = load(DECLARED, DECLARED.name).operators
    report = prove_pair(Pair(str(out / name), "", operators=operators))
    if report.problems:
        problem = report.problems[0]
        return f"refused  {problem.message} ({Path(problem.location.path).name}:{problem.location.line})"
    if not report.verdicts:
        return "nothing"
    verdict = report.verdicts[0]
    reasons = [one for one in verdict.reasons if one.refutes] or list(verdict.reasons)
    said = f"{reasons[0].message} ({Path(reasons[0].location.path).name}:{reasons[0].location.line})" if reasons else ""
    return f"{verdict.outcome.name.lower():8} {said}"


def run(name: str, model: str, layout: Layout, out: Path) -> str:
    """Return how one step of a folder, run by all its ranks in double precision, compares with the model itself."""
    import torch

    ranks = layout.ranks or layout.planned
    with tempfile.TemporaryDirectory() as between:
        shutil.copytree(out / name, Path(between, name))
        for written in Path(between, name).glob("gencode*.py"):
            written.write_text(written.read_text().replace("torch.float32", "torch.float64"))
        command = [sys.executable, __file__, "rank", between, name, "--between", between, "--rank"]
        started = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
        said = [one.communicate(timeout=600)[1] for one in started]
        if any(one.returncode for one in started):
            raised = [error for text in said for error in _RAISED.findall(text)]
            own = [error for error in raised if not any(text in error for text in _FOLLOWS)]
            return f"fails    {[*own, *raised, 'without an error'][0]}"
        results = [torch.load(Path(between, f"{rank}.out")) for rank in range(ranks)]
    losses, gradients = _expected(model, layout)
    worst, of = 0.0, ""
    least = 1e-9 * max(float(one.abs().max()) for one in gradients.values())
    for rank, result in enumerate(results):
        for key, (bounds, delta) in result["gradients"].items():
            whole = gradients[key][tuple(slice(*pair) for pair in bounds)]
            error = float((whole - delta).abs().max() / max(float(gradients[key].abs().max()), least))
            if not error <= worst:
                worst, of = error, f"`{key}` on rank {rank}"
    count = _slots(layout)[1]
    expected = {rank: losses[rank // layout.planned * count :][:count] for rank in range(ranks)}
    held = {rank: result["losses"] for rank, result in enumerate(results) if result["losses"] is not None}
    apart = max((abs(a - b) for rank, own in held.items() for a, b in zip(own, expected[rank], strict=True)), default=0.0)
    word = "differs" if worst > TOLERANCE else "agrees"
    return f"{word:8} gradients by {worst:.1e}{' of ' + of if of else ''}; losses by {apart:.1e}"


def _slots(layout: Layout) -> tuple[int, int]:
    """Return the replicas and the micro-batches of each."""
    return (layout.ranks or layout.planned) // layout.planned, layout.plan.get("pipeline_nmicros", 1)


def _samples(model: str, layout: Layout) -> list[Any]:
    """Return one sample for every replica and micro-batch."""
    import torch

    torch.manual_seed(7)
    replicas, micro_batches = _slots(layout)
    models = _models()
    return [_doubled(models[model].sample(layout.rows)) for _ in range(replicas * micro_batches)]


def _doubled(sample: Any) -> Any:
    """Return the sample in double precision, where rounding is not taken for a difference."""
    if isinstance(sample, dict):
        return {key: _doubled(one) for key, one in sample.items()}
    if isinstance(sample, tuple | list):
        return type(sample)(_doubled(one) for one in sample)
    return sample.double() if sample.is_floating_point() else sample


def _expected(model: str, layout: Layout) -> tuple[list[float], dict[str, Any]]:
    """Return the loss of each sample, and the gradients of their sum by parameter."""
    import torch

    samples = _samples(model, layout)
    torch.manual_seed(0)
    made = _models()[model].make().double()
    losses = []
    for sample in samples:
        found = made(sample)
        loss = found[0] if isinstance(found, tuple) else found
        loss.backward()
        losses.append(float(loss.detach()))
    return losses, {key: one.grad for key, one in made.named_parameters(remove_duplicate=False) if one.grad is not None}


def _bounds(told: Any) -> list[tuple[int, int]]:
    """Return the part of a parameter that a rank has; of a single number nnScaler writes `...`."""
    return [(own.start, own.stop) for own in told.slicers] if told.shape else []


def run_rank(name: str, model: str, layout: Layout, out: Path, rank: int, between: Path) -> None:
    """Train one step on one rank, and write down by how much its parameters change."""
    import torch

    ranks = layout.ranks or layout.planned
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "0"}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    torch.set_num_threads(1)
    for function in ("set_device", "current_device", "default_stream", "synchronize", "empty_cache"):
        setattr(torch.cuda, function, lambda *_, **__: "cpu")
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=0)
    torch.distributed.init_process_group("gloo", init_method=f"file://{between}/store", rank=rank, world_size=ranks)
    samples = _samples(model, layout)
    import nnscaler

    nnscaler.init()
    told = importlib.util.spec_from_file_location("generated", out / name / f"gencode{rank}.py")
    assert told is not None
    assert told.loader is not None
    generated = importlib.util.module_from_spec(told)
    sys.modules["generated"] = generated
    told.loader.exec_module(generated)
    generated.GenModel._train_step = getattr(generated, "_train_step", None)
    module = generated.GenModel()
    module.train()
    held = list(module.parameters_for_optimizer()) or [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(held, lr=1.0)
    before = {key: one.detach().clone() for key, one in module.named_parameters()}
    micro_batches = _slots(layout)[1]
    replica = rank // layout.planned
    own = samples[replica * micro_batches : (replica + 1) * micro_batches]
    losses = [one[0] if isinstance(one, tuple) else one for one in module.train_step(own)]
    optimizer.step()
    module.gather_params()
    after = dict(module.named_parameters())
    gradients = {
        told.orig_name: (_bounds(told), before[key] - after[key].detach())
        for key, told in module.fullmap.items()
        if key in before
    }
    losses_held = [float(one) for one in losses] if torch.is_tensor(losses[0]) else None
    torch.save({"gradients": gradients, "losses": losses_held}, between / f"{rank}.out")


def main() -> int:
    """Generate, prove or run the folders that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("generate", "prove", "run", "rank"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--between", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    found = [case for case in cases() if not options.words or any(word in case[0] for word in options.words)]
    unmet = [word for word in options.words if not any(word in case[0] for case in found)]
    if options.action in ("prove", "run"):
        unmet += [name for name, _, _ in found if options.words and not (options.folder / name).is_dir()]
    if unmet:
        parser.error(f"there is no folder `{'`, `'.join(unmet)}`")
    if options.action == "rank":
        name, model, layout = next(case for case in cases() if case[0] == options.words[0])
        run_rank(name, model, layout, options.folder, options.rank, options.between)
        return 0
    count: Counter[str] = Counter()
    for name, model, layout in found:
        if options.action == "generate":
            try:
                generate(name, model, layout, options.folder)
                said = "written"
            except Exception as error:
                said = f"failed   {type(error).__name__}: {str(error.__cause__ or error).splitlines()[0][:150]}"
        elif not (options.folder / name).is_dir():
            continue
        else:
            said = prove(name, options.folder) if options.action == "prove" else run(name, model, layout, options.folder)
        count[said.split()[0]] += 1
        print(f"{name:28} {said}", flush=True)
    print(", ".join(f"{number} {word}" for word, number in sorted(count.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
