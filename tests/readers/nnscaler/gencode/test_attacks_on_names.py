"""Generated code that gives known names to other things, or does more than is read, and once was proved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tvlint.findings import Outcome
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FIXTURE = ROOT / "fixtures" / "clean" / "generated-code"

FLAGS = "import nnscaler.flags\n"
LINEAR = "        linear_22 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)\n"
EMPTY = "torch.empty((8, 8), dtype=torch.float32)"
SEGMENT = "    def segment10("
STEP = "def _train_step"
SYNC = "        self.wreducer90.sync_grads()\n"
LAST = "########## Generated Schedule Code"

Change = tuple[str, str]


def _checkpointed(
    call: str = "recompute, data_20, use_reentrant=False",
    made: str = "import torch.utils.checkpoint as ckpt\n",
    inner: str = "",
) -> tuple[Change, ...]:
    function = f"        def recompute(data_20):\n    {LINEAR}            return linear_22\n"
    return (LINEAR, f"{inner}{function}        linear_22 = ckpt.checkpoint({call})\n"), (FLAGS, FLAGS + made)


def _method(name: str) -> tuple[Change, ...]:
    return ((SEGMENT, f"    def {name}:\n        pass\n\n{SEGMENT}"),)


SAME: dict[str, tuple[Change, ...]] = {
    "nothing is changed": (),
    "a checkpointed function": _checkpointed(),
}

CHANGES: dict[str, tuple[Change, ...]] = {
    "recomputed with other random numbers": _checkpointed("recompute, data_20, use_reentrant=False, preserve_rng_state=False"),
    "checkpointed without gradient": _checkpointed("recompute, data_20, use_reentrant=True"),
    "checkpointed as the version of torch likes": _checkpointed("recompute, data_20"),
    "checkpointed by something else": _checkpointed(made="import elsewhere as ckpt\n"),
    "a decorated function": _checkpointed(inner="        @torch.no_grad()\n"),
    "recomputed of another value": (
        (
            LINEAR,
            "        h_1 = nnscaler.runtime.function.identity(data_20)\n        def recompute(data_20):\n"
            "            linear_22 = torch.nn.functional.linear(h_1, self.up_weight_21, bias=None)\n"
            "            return linear_22\n"
            "        linear_22 = ckpt.checkpoint(recompute, data_20, use_reentrant=False)\n"
            "        h_1 = torch.nn.functional.gelu(data_20)\n",
        ),
        (FLAGS, FLAGS + "import torch.utils.checkpoint as ckpt\n"),
    ),
    "an attribute with the name of a value": (
        (
            LINEAR,
            "        linear_22 = torch.nn.functional.gelu(data_20)\n"
            "        self.linear_22 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)\n",
        ),
    ),
    "a parameter that is a local name": (("data_20, self.up_weight_21, bias", "data_20, up_weight_21, bias"),),
    "a method that a value has": ((LINEAR, LINEAR + "        _ = linear_22.zero_()\n"),),
    "a frozen parameter": ((f"{EMPTY})", f"{EMPTY}, requires_grad=False)"),),
    "a frozen parameter by position": ((f"{EMPTY})", f"{EMPTY}, False)"),),
    "parameters that are never filled": _method("_post_init(self, init_params)"),
    "gradients that are never cleared": _method("zero_grad(self)"),
    "reducers that are never added": _method("add_reducer(self, reducer)"),
    "another constructor": _method("__init__(self)"),
    "another forward": _method("_forward_impl(self)"),
    "a step without gradients": ((STEP, f"@torch.no_grad()\n{STEP}"),),
    "a constructor without gradients": (("    def __init__", "    @torch.no_grad()\n    def __init__"),),
    "a decorated class": (("class GenModel", "@torch.compile\nclass GenModel"),),
    "a class of another class": (("ParallelModule)", "ParallelModule, metaclass=torch.Meta)"),),
    "a class that is not loaded": (("class GenModel", "class GenModels"),),
    "another `next`": ((FLAGS, f"{FLAGS}from elsewhere import twice as next\n"),),
    "another `slice`": ((FLAGS, f"{FLAGS}from elsewhere import slice\n"),),
    "another `slice` later": ((LAST, f"import elsewhere as slice\n{LAST}"),),
    "another class": ((LAST, f"from elsewhere import GenModel\n{LAST}"),),
    "another step": (("    return sum_29, sum_129", "    return sum_29, sum_129\n\nfrom elsewhere import _train_step\n"),),
    "a value that is a module": (
        (LINEAR, LINEAR.replace("        linear_22", "        torch") + "        linear_22 = torch.neg(torch)\n"),
    ),
    "parameters that are not filled by default": (("init_params=True", "init_params=0"),),
    "parameters that are not filled by a default that is computed": (("init_params=True", "init_params=(not True)"),),
    "a value from annotations": ((f"{SEGMENT}self, data_20)", f"{SEGMENT}self, data_20: torch.manual_seed(0))"),),
    "a reducer that does more": ((SYNC, f"{SYNC}        _ = torch.Tensor.zero_(self.up_weight_21)\n"),),
    "a reducer that does more before": ((SYNC, f"        _ = torch.Tensor.zero_(self.up_weight_21)\n{SYNC}"),),
    "a weight that is cleared": ((LINEAR, f"{LINEAR}        _ = torch.Tensor.zero_(self.up_weight_21)\n"),),
    "a result that is cleared": (
        (LINEAR, f"{LINEAR}        with torch.no_grad():\n            _ = torch.Tensor.zero_(linear_22)\n"),
    ),
    "a reducer that is a method": (("self.wreducer90", "self.segment10"),),
    "a reducer that is asynchronous": (("async_op=async_op", "async_op=1"),),
    "a reducer with an unknown setting": (("zero=False)", "zero=False, when='never')"),),
    "shards of groups that nothing reduces": (("zero=False", "zero_ngroups=2, zero=False"),),
    "shards of groups that are scattered": (("zero=False", "zero=True, zero_ngroups=2, zero_use_reduce_scatter=True"),),
    "a parameter that is filled as another": (("'mid_weight_40', 7,", "'mid_weight_40', 3,"),),
    "a segment that is given more": (("*(data_20, ), requires_grad=True)", "*(data_20, ), requires_grad=True, when=1)"),),
    "another flag": (("RuntimeFlag.skip_zero_grad", "RuntimeFlags.skip_zero_grad"),),
    "another class that is made": (("super().__init__()", "object().__init__()"),),
    "another way to clear gradients": (("model.zero_grad()", "model.zero_grad(set_to_none=False)"),),
    "a function that is imported": (
        (FLAGS, f"{FLAGS}from elsewhere import linear\n"),
        (LINEAR, LINEAR.replace("torch.nn.functional.linear", "linear")),
    ),
    "a function of a module that is imported": (
        (FLAGS, f"{FLAGS}import F\n"),
        (LINEAR, LINEAR.replace("torch.nn.functional.linear", "F.linear")),
    ),
    "a function of the file": (
        (FLAGS, f"{FLAGS}\ndef linear(*given, **more):\n    return given[0] * 2\n"),
        (LINEAR, LINEAR.replace("torch.nn.functional.linear", "linear")),
    ),
    "a function of the method": (
        (LINEAR, f"        def linear(x, *more, **words):\n            return x\n{LINEAR.replace('torch.nn.functional.', '')}"),
    ),
    "a parameter that is deleted": ((LINEAR, f"{LINEAR}        del self.up_weight_21\n"),),
    "a model that is deleted": (("    data_20 = next", "    del model\n    data_20 = next"),),
}


def _outcomes(folder: Path, changes: tuple[Change, ...]) -> list[Outcome]:
    shutil.copytree(FIXTURE, folder)
    texts = {path: path.read_text() for path in folder.glob("gencode*.py")}
    for path, text in texts.items():
        for before, after in changes if all(before in text for before, _ in changes) else ():
            text = text.replace(before, after)
        path.write_text(text)
    assert not changes or any(path.read_text() != text for path, text in texts.items())
    return [verdict.outcome for verdict in prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).verdicts]


@pytest.mark.parametrize("name", list(CHANGES))
def test_what_a_name_is_given_to_is_not_taken_for_what_it_stands_for(name: str, tmp_path: Path) -> None:
    assert Outcome.PROVED not in _outcomes(tmp_path / "code", CHANGES[name])


@pytest.mark.parametrize("name", list(SAME))
def test_generated_code_as_it_is_written_is_proved(name: str, tmp_path: Path) -> None:
    assert _outcomes(tmp_path / "code", SAME[name]) == [Outcome.PROVED]
