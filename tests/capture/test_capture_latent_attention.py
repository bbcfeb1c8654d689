"""Latent attention of Megatron: where TransformerEngine is asked for, each rank projects down by whole layers."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)


@dataclass
class Submodules:
    linear_q_down_proj: Any = "a part"
    linear_q_up_proj: Any = "a part"
    linear_kv_down_proj: Any = "a part"


class Attention:
    def __init__(self, config: Any, submodules: Submodules, layer_number: int) -> None:
        self.config, self.submodules, self.layer_number = config, submodules, layer_number


@pytest.mark.parametrize("asked", [True, False])
def test_projections_are_whole_where_the_launch_asks_for_transformer_engine(asked: bool) -> None:
    from tvlint.capture.megatron_attention import WholeLinear, take_whole_projections

    replaced: list[str] = []
    kind = type("MLASelfAttention", (Attention,), {})
    module = SimpleNamespace(MLASelfAttention=kind, TELinear=None)
    take_whole_projections(module, lambda: asked, replaced.append)
    made = module.MLASelfAttention("sizes", Submodules(linear_q_down_proj=None), 3)
    assert (made.config, made.layer_number) == ("sizes", 3)
    assert made.submodules == Submodules(None, "a part", WholeLinear if asked else "a part")
    assert bool(replaced) is asked
    assert module.TELinear is WholeLinear


def test_projections_are_shared_out_where_those_of_transformer_engine_are() -> None:
    from tvlint.capture.megatron_attention import take_whole_projections

    replaced: list[str] = []
    module = SimpleNamespace(MLASelfAttention=type("MLASelfAttention", (Attention,), {}))  # as of Megatron core 0.10 to 0.13
    take_whole_projections(module, lambda: True, replaced.append)
    assert module.MLASelfAttention("sizes", Submodules(), 3).submodules == Submodules()
    assert replaced == []


def test_a_whole_layer_multiplies_and_is_synchronised_as_norms_are() -> None:
    import torch

    from tvlint.capture.megatron_attention import WholeLinear

    config = SimpleNamespace(params_dtype=torch.float32, sequence_parallel=True)
    layer = WholeLinear(3, 2, config=config, init_method=torch.nn.init.ones_, bias=False, skip_bias_add=False, tp_group=None)
    result, bias = layer(torch.tensor([[1.0, 2.0, 3.0]]))
    assert bias is None
    assert result.tolist() == [[6.0, 6.0]]
    assert [weight.sequence_parallel for weight in layer.parameters()] == [True]
