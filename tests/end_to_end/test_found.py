"""`docs/found.md`: tvlint says of the recorded programs what the page says, and the programs do it where they can run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import sampled
from tvlint.findings import Outcome, Verdict
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "found.md").read_text()
FOLDERS, CAPTURES = ROOT / "fixtures" / "nnscaler" / "folders", ROOT / "fixtures" / "capture" / "recorded"
SMOOTHING = ROOT / "fixtures" / "found" / "megatron_label_smoothing.py"
GRADIENTS = ROOT / "fixtures" / "found" / "megatron_expert_gradients.py"
EXAMPLES = ROOT / "benchmarks" / "nnscaler_examples.py"

FOUND = {
    "mlp--hybrid_pp2_tp4": ("pieces-not-in-rank-order", "gencode1.py:62"),
    "gpt--pp2": ("use-before-definition", "gencode1.py:212"),
    "softmax--dp2": ("shape-mismatch", "gencode0.py:44"),
    "unbound--dp2": ("undefined-tensor", "gencode0.py:79"),
    "hidden--tp2": ("undefined-tensor", "gencode0.py:88"),
    "recurrent--dp2": ("undefined-tensor", "gencode0.py:117"),
    "shaped--pp2": ("undefined-tensor", "gencode1.py:91"),
    "frozen--pp2": ("step-fails", "gencode0.py:104"),
    "transposed--tp2": ("other-numbers", "gencode0.py:91"),
    "positions--tp2": ("wrong-gradient-scale", "gencode0.py:36"),
    "megatron_label_smoothing": ("other-recorded-gradient", "cross_entropy.py:182"),
    "megatron_gpt_experts": ("missing-gradient-reduction", "finalize_model_grads.py:376"),
}


def _verdict(name: str) -> Verdict:
    if name.startswith("megatron"):
        captures = (CAPTURES / f"{name}_{which}.capture.jsonl.gz" for which in ("tp2", "reference"))
        pair = Pair(*map(str, captures))
    else:
        pair = Pair(str(FOLDERS / name), "")
    report = prove_pair(pair)
    assert not report.problems, report.problems
    return report.verdicts[0]


@pytest.mark.parametrize("name", sampled(FOUND, 3))
def test_the_page_says_what_tvlint_says(name: str) -> None:
    verdict = _verdict(name)
    reason, place = FOUND[name]
    first = next(own for own in verdict.reasons if own.refutes)
    assert (verdict.outcome, first.name) == (Outcome.REFUTED, reason)
    assert f"{Path(first.location.path).name}:{first.location.line}" == place
    assert f"{first.message} [{reason}]" in PAGE
    assert place in PAGE
    assert first.repair in PAGE


def test_the_page_says_where_megatron_smooths_by_another_share() -> None:
    own = next(own for own in _verdict("megatron_label_smoothing").reasons if own.name == "other-constant")
    assert own.message.partition(":")[0] in PAGE
    assert f"cross_entropy.py:{own.location.line}" in PAGE


def test_the_control_is_proved() -> None:
    assert _verdict("mlp--hybrid_pp2_tp2_dp2").outcome is Outcome.PROVED


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    return done.stdout + done.stderr


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="Megatron-Core is not installed")
def test_megatron_smooths_labels_by_the_number_of_ranks() -> None:
    ranks = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(SMOOTHING))
    losses = [re.findall(r"loss .*", _said(*command)) for command in ((sys.executable, str(SMOOTHING)), ranks)]
    assert all(len(own) == 1 and own[0] in PAGE for own in losses), losses
    assert losses[0] != losses[1]
    assert _said(sys.executable, str(SMOOTHING), "0").splitlines()[-1] == _said(*ranks, "0").splitlines()[-1]


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="Megatron-Core is not installed")
def test_megatron_does_not_sum_the_gradients_of_whole_experts() -> None:
    ranks = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(GRADIENTS))
    said = [
        sorted(re.findall(r"rank .*", _said(*command))) for command in ((sys.executable, str(GRADIENTS)), ranks, (*ranks, "2"))
    ]
    assert [len(lines) for lines in said] == [1, 2, 2]
    assert all(line in PAGE for lines in said for line in lines), said
    (alone,), copies, shares = ([float(line.split()[-1]) for line in lines] for lines in said)
    assert copies[0] != copies[1]
    assert sum(shares) == pytest.approx(alone, rel=1e-4)


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("nnscaler") is None, reason="nnScaler is not installed")
def test_folders_of_nnscaler_train_another_model_or_none(tmp_path: Path) -> None:
    stopped = ("gpt--pp2", "softmax--dp2", "unbound--dp2", "hidden--tp2", "recurrent--dp2", "shaped--pp2", "frozen--pp2")
    trained = ("mlp--hybrid_pp2_tp2_dp2", "mlp--hybrid_pp2_tp4", "positions--dp2", "positions--tp2")
    names = (*trained, "transposed--dp2", "transposed--tp2", *stopped)
    for word in ("generate", "run"):
        said = _said(sys.executable, str(EXAMPLES), word, str(tmp_path), *names)
    outcomes = dict(re.findall(r"^(\S+--\S+) +(\w+)", said, re.MULTILINE))
    assert [outcomes[name] for name in names] == ["agrees", "differs"] * 3 + ["fails"] * len(stopped)
    errors = dict(re.findall(r"^(\S+--\S+) +fails +(.*)", said, re.MULTILINE))
    assert [name for name in stopped if errors[name] not in PAGE] == []
