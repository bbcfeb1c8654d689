"""Generated code that does something else than it seems to, and once was proved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tvlint.findings import Outcome
from tvlint.run.prove import Pair, prove_pair

FIXTURE = ROOT / "fixtures" / "clean" / "generated-code"

LINEAR = "        linear_22 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)\n"

CHECKPOINTED = """        h_1 = torch.nn.functional.gelu(data_20)
        def recompute(data_20):
            h_1 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)
            linear_22 = nnscaler.runtime.function.identity(h_1)
            return linear_22
        linear_22 = ckpt.checkpoint(recompute, data_20, use_reentrant=False)
        linear_22 = nnscaler.runtime.function.identity(h_1)
"""

CHANGES = {
    "nothing is changed": ("nothing", "nothing"),
    "gradients cleared between micro-batches": (
        "    glinear_132 = nnscaler",
        "    model.zero_grad()\n    glinear_132 = nnscaler",
    ),
    "a segment without autograd": ("*(data_20, ), requires_grad=True)", "*(data_20, ), requires_grad=False)"),
    "a result that is detached": (
        "    _ = nnscaler.runtime.executor.backward('segment10', (), (linear_22, )",
        "    linear_22 = linear_22.detach()\n    _ = nnscaler.runtime.executor.backward('segment10', (), (linear_22, )",
    ),
    "names from anywhere": ("import nnscaler.flags\n", "import nnscaler.flags\nfrom model import *\n"),
    "a reducer twice": ("        self.wreducer90.sync_grads()\n", "        self.wreducer90.sync_grads()\n" * 2),
    "a bias twice": ("self.up_weight_21, bias=None)", "self.up_weight_21, None, bias=None)"),
    "a name inside of a checkpointed function": (LINEAR, CHECKPOINTED),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_what_generated_code_does_otherwise_is_not_read_as_if_it_did_not(name: str, tmp_path: Path) -> None:
    before, after = CHANGES[name]
    folder = tmp_path / "code"
    shutil.copytree(FIXTURE, folder)
    changed = 0
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        if "ckpt" in after:
            text = text.replace("import nnscaler.flags\n", "import nnscaler.flags\nimport torch.utils.checkpoint as ckpt\n", 1)
        changed += before in text
        path.write_text(text.replace(before, after))
    assert changed or name == "nothing is changed"
    outcomes = [verdict.outcome for verdict in prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"))).verdicts]
    assert (outcomes == [Outcome.PROVED]) == (name == "nothing is changed")
