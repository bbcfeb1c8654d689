"""The nearest settings that satisfy all rules, in the help of a finding about sizes."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tvlint.findings import Finding
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

RULES = load_rules()
SIZES = {
    "nproc": 8,
    "tensor-model-parallel-size": 2,
    "pipeline-model-parallel-size": 2,
    "num-layers": 48,
    "hidden-size": 2048,
    "num-attention-heads": 16,
    "seq-length": 2048,
    "max-position-embeddings": 2048,
    "micro-batch-size": 1,
    "global-batch-size": 64,
}


def found(**changed: int | str) -> list[Finding]:
    sizes: dict[str, int | str] = {**SIZES, **{name.replace("_", "-"): value for name, value in changed.items()}}
    nproc = sizes.pop("nproc")
    options = " ".join(f"--{name} {value}" for name, value in sizes.items())
    text = f"torchrun --nproc-per-node {nproc} pretrain_gpt.py {options} --train-iters 100 --lr 1e-4 --bf16\n"
    document = read("run.sh", text.encode())
    assert document is not None
    return [item for own in document.configurations for item in evaluate(own, RULES) if isinstance(item, Finding)]


def repairs(finding: Finding) -> list[dict[str, int]]:
    """The changes that the help of a finding names, one mapping for each alternative."""
    said = finding.help.rpartition("; ")[2]
    match = re.fullmatch(r"(?:all rules hold|no other rule breaks) with (.*)", said)
    if match is None:
        return []
    parts = match[1].split(", or with ")
    return [{name: int(value) for name, value in re.findall(r"`--([a-z-]+) (\d+)`", part)} for part in parts]


def test_sizes_that_fit_need_no_repair() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"num_layers": 47}, {"num-layers": 48}),
        ({"global_batch_size": 63}, {"global-batch-size": 64}),
        ({"num_attention_heads": 15}, {"num-attention-heads": 16}),
    ],
)
def test_one_wrong_size_is_put_right_by_the_nearest(changed: dict[str, int], first: dict[str, int]) -> None:
    assert repairs(found(**changed)[0])[0] == first


@pytest.mark.parametrize(
    "changed",
    [
        {"num_layers": 47},
        {"num_layers": 46, "pipeline_model_parallel_size": 4},
        {"tensor_model_parallel_size": 3},
        {"tensor_model_parallel_size": 3, "num_attention_heads": 20, "global_batch_size": 100},
        {"num_layers": 47, "global_batch_size": 63},
        {"nproc": 12, "tensor_model_parallel_size": 8},
        {"pipeline_model_parallel_size": 3, "num_layers": 40, "micro_batch_size": 3},
        {"hidden_size": 1000, "num_attention_heads": 24},
    ],
)
def test_every_repair_satisfies_every_rule(changed: dict[str, int]) -> None:
    before = found(**changed)
    offered = [finding for finding in before if repairs(finding)]
    assert offered
    if len(before) == 1 or len(offered) == 1:
        alternatives = [repair for finding in offered for repair in repairs(finding)]
    else:
        alternatives = [{name: value for finding in offered for name, value in repairs(finding)[0].items()}]
    for repair in alternatives:
        after = found(**{**changed, **{name.replace("-", "_"): value for name, value in repair.items()}})
        assert [finding.rule for finding in after] == []


def test_where_one_size_is_not_enough_several_change_together() -> None:
    changed: dict[str, int | str] = {
        "nproc": 16,
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 3,
        "num_layers": 47,
        "num_attention_heads": 18,
        "micro_batch_size": 3,
        "kv_channels": 128,
    }
    findings = found(**changed, num_query_groups="6 --group-query-attention")
    together = [repair for finding in findings for repair in repairs(finding)]
    assert together
    assert all(set(repair) <= {*SIZES, "num-query-groups"} for repair in together)


def test_the_cheapest_changes_of_several_settings_are_the_same_in_every_run() -> None:
    cheapest = [{"global-batch-size": 96, "tensor-model-parallel-size": 2}]
    other = [{"pipeline-model-parallel-size": 3, "tensor-model-parallel-size": 4}]
    (finding,) = found(nproc=12, tensor_model_parallel_size=8)
    assert repairs(finding) == cheapest + other


def test_a_mistake_that_is_not_about_sizes_names_no_sizes() -> None:
    text = "torchrun --nproc-per-node 8 pretrain_gpt.py --fp16 --bf16 --num-layers 4 --hidden-size 64 --num-attention-heads 4\n"
    document = read("run.sh", text.encode())
    assert document is not None
    findings = [item for own in document.configurations for item in evaluate(own, RULES) if isinstance(item, Finding)]
    assert [finding.rule for finding in findings] == ["fp16-and-bf16"]
    assert repairs(findings[0]) == []


def test_numbers_beyond_all_sizes_are_left_alone() -> None:
    findings = found(num_layers=10**30 + 1, global_batch_size=10**25 + 1)
    assert findings
    for finding in findings:
        assert not {"num-layers", "global-batch-size"} & {name for repair in repairs(finding) for name in repair}


def test_no_repair_is_what_stands_there() -> None:
    offered = 0
    for micro, evaluated in product((1, 2), ({"eval_global_batch_size": 63}, {"eval_micro_batch_size": 3}, {"num_layers": 47})):
        changed: dict[str, int | str] = {"micro_batch_size": micro, "global_batch_size": 62, **evaluated}
        present = {**SIZES, **{name.replace("_", "-"): value for name, value in changed.items()}}
        for finding in found(**changed):
            for repair in repairs(finding):
                offered += 1
                assert [name for name, value in repair.items() if present[name] == value] == []
    assert offered > 6


def test_the_model_stays_where_the_way_it_is_run_can_change() -> None:
    (finding,) = found(num_layers=126, pipeline_model_parallel_size=8, nproc=16)
    assert repairs(finding) == [{"pipeline-model-parallel-size": 2}]
    assert "`--pipeline-model-parallel-size 2` (now 8)" in finding.help


def test_no_kind_of_parallelism_is_given_up_before_the_model_is_put_right() -> None:
    (finding,) = found(num_layers=47)
    assert repairs(finding)[0] == {"num-layers": 48}


def test_no_more_than_three_settings_change_at_once_where_that_is_enough() -> None:
    changed: dict[str, int | str] = {"nproc": 12, "tensor_model_parallel_size": 8, "num_layers": 47, "global_batch_size": 63}
    offered = [repair for finding in found(**changed) for repair in repairs(finding)]
    assert offered
    assert all(len(repair) <= 3 for repair in offered)


def test_a_repair_beside_a_mistake_of_another_kind_claims_no_more_than_it_does() -> None:
    finding = next(own for own in found(num_layers=47, fp16="") if own.rule == "layers-not-divisible-by-pp")
    assert "no other rule breaks with" in finding.help
    assert "all rules hold" not in finding.help
