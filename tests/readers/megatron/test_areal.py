"""AReaL's YAML: the sizes that a backend stands for."""

from __future__ import annotations

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules


def configurations(text: str) -> tuple[Configuration, ...]:
    document = read("run.yaml", text.encode())
    assert document is not None
    return document.configurations


def rules_of(backend: str, model: str = "Qwen/Qwen2.5-7B") -> set[str]:
    """Return the rules that an actor with the backend breaks."""
    (found,) = configurations(f"actor:\n  backend: {backend}\n  path: {model}\n")
    return {each.rule for each in evaluate(found, load_rules()) if isinstance(each, Finding)}


@pytest.mark.parametrize(
    ("backend", "sizes"),
    [
        ("megatron:d4p2t2", (2, 2, 1, 1, 16)),
        ('"megatron[actor]:d2c2e4"', (1, 1, 2, 4, 4)),
        ('"megatron:(attn:d4p4t2|ffn:d2p4e4)"', (2, 4, 1, 4, 32)),
    ],
)
def test_a_backend_stands_for_sizes(backend: str, sizes: tuple[int, ...]) -> None:
    (found,) = configurations(f"cluster:\n  n_nodes: 1\nactor:\n  backend: {backend}\n")
    names = ("tensor_model", "pipeline_model", "context", "expert_model")
    values = [found.settings[f"{name}_parallel_size"].value for name in names]
    assert (*values, found.settings["world_size"].value) == sizes
    assert (found.framework, found.section, found.complete) == ("areal", "actor", False)
    assert found.settings["world_size"].location.line == 4


def test_a_section_may_take_the_backend_of_another_one_and_others_are_left_out() -> None:
    text = "actor:\n  backend: megatron:d4\nref:\n  backend: ${actor.backend}\nrollout:\n  backend: sglang:d4t2\n"
    assert [each.section for each in configurations(text)] == ["actor", "ref"]
    assert read("run.yaml", b"actor:\n  backend: fsdp:d4\n") is None


def test_sizes_that_do_not_fit_the_model_or_the_ranks_are_errors() -> None:
    assert rules_of("megatron:d4p2t2") == set()
    assert "heads-not-divisible-by-tp" in rules_of("megatron:d1t8")
    assert rules_of("megatron:d1p3") == set()
    assert "world-size-not-divisible" in rules_of("megatron:d3e2", "other")
    assert rules_of("megatron:d4e2", "other") == set()


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("megatron:d4p1x1", "AReaL reads no backend `megatron:d4p1x1`"),
        ("megatron:d4t0", "AReaL reads no backend `megatron:d4t0`"),
        ("megatron:(attn:d1p4t4|ffn:p2e4)", "experts run in 2 pipeline stages and attention in 4"),
        ("megatron:(attn:d1p4t4|ffn:d2p4e4)", "experts take 32 ranks and attention 16"),
        ("megatron:(attn:d1p4t4|ffn:d1e4)", ""),
        ("megatron:(attn:d1p4t4|ffn:e4)", ""),
        ("megatron:${sizes}", ""),
    ],
)
def test_a_backend_that_areal_refuses_is_an_error(backend: str, message: str) -> None:
    document = read("run.yaml", f'actor:\n  backend: "{backend}"\nref:\n  backend: "megatron:d1"\n'.encode())
    assert document is not None
    found = [(each.rule, each.message, each.location.line) for each in document.findings]
    assert found == ([("invalid-backend", message, 2)] if message else [])


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("sglang.d4p1t1+d4p1t1", ""),
        ("sglang:d4t2+megatron:d2p2t2", ""),
        ("sglang[rollout]:d2+megatron[actor]:d4|fsdp[critic]:d4", ""),
        ("sglang:d4+megatron:(attn:d1p4t2|ffn:d1p4e2)", ""),
        ("vllm:d8+eval", ""),
        ("sglang.d4+fsdp.d4", "AReaL reads no `fsdp.d4` in an allocation"),
        ("sglang:d4x2+d4", "AReaL reads no `sglang:d4x2` in an allocation"),
        ("sglang:d4+megatron:d4x1", "AReaL reads no `megatron:d4x1` in an allocation"),
        ("vllm:d4|megatron:d2p4", "parts that take turns on the same ranks take 4 and 8"),
        ("sglang:d8t2+d1p2", "the allocation takes 18 GPUs, and the cluster has 16"),
    ],
)
def test_an_allocation_that_areal_refuses_is_an_error(mode: str, message: str) -> None:
    text = f'allocation_mode: "{mode}"\ncluster:\n  n_nodes: 2\n  n_gpus_per_node: 8\n'
    document = read("run.yaml", text.encode())
    assert document is not None
    found = [(each.rule, each.message, each.location.line) for each in document.findings]
    assert found == ([("invalid-backend", message, 1)] if message else [])


@pytest.mark.parametrize(
    ("scheduler", "mode", "takes"),
    [("null", "sglang:d1+d1", 0), ("local", "sglang:d1+d1", 0), ("local", "sglang:d1+d2", 2), ("ray", "sglang:d1+d1", 2)],
)
def test_parts_on_one_node_may_share_its_gpus(scheduler: str, mode: str, takes: int) -> None:
    cluster = "cluster: {n_nodes: 1, n_gpus_per_node: 1}"
    document = read("run.yaml", f"allocation_mode: {mode}\n{cluster}\nscheduler: {{type: {scheduler}}}\n".encode())
    assert document is not None
    message = f"the allocation takes {takes} GPUs, and the cluster has 1"
    assert [each.message for each in document.findings] == ([message] if takes else [])


def test_what_megatron_trains_in_an_allocation_is_held_to_the_rules() -> None:
    found = configurations("allocation_mode: sglang:d4t2+d1p2t8\nactor:\n  path: Qwen/Qwen2.5-7B\n")
    assert [each.settings["world_size"].value for each in found] == [16]
    rules = {each.rule for each in evaluate(found[0], load_rules()) if isinstance(each, Finding)}
    assert "heads-not-divisible-by-tp" in rules


@pytest.mark.parametrize("mode", ["sglang.d4p1m1+d2p2m1", "heuristic", "actor_gen:d4,*:d4", "sglang(prefill:d1|decode:d2)"])
def test_an_allocation_of_another_version_is_left_alone(mode: str) -> None:
    assert read("run.yaml", f'allocation_mode: "{mode}"\n'.encode()) is None
