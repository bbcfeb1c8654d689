"""Published models: the sizes that a file leaves to a checkpoint which it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tvlint.ir.configuration import Configuration, Setting, SettingValue
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Published:
    """The sizes that a repository of weights states in its `config.json`, by the names that they have there."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    width: int
    tokens: int
    tied: bool
    query_bias: bool = False
    query_norm: bool = False
    experts: int | None = None
    chosen: int = 2
    expert_width: int | None = None

    def settings(self) -> Mapping[str, SettingValue]:
        """Return them under the names that Megatron has for them."""
        return {
            "num_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "group_query_attention": True,
            "num_query_groups": self.groups,
            "kv_channels": self.head,
            "ffn_hidden_size": self.width,
            "padded_vocab_size": self.tokens,
            "untie_embeddings_and_output_weights": not self.tied,
            "add_qkv_bias": self.query_bias,
            "qk_layernorm": self.query_norm,
            "num_experts": self.experts,
            "moe_router_topk": self.chosen,
            "moe_ffn_hidden_size": self.expert_width,
            **_OF_ALL,
        }


_OF_ALL: Final[Mapping[str, SettingValue]] = {
    "make_vocab_size_divisible_by": 1,
    "swiglu": True,
    "quick_geglu": False,
    "add_bias_linear": False,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "add_position_embedding": False,
    "multi_latent_attention": False,
    "attention_output_gate": False,
    "moe_layer_freq": 1,
    "moe_shared_expert_intermediate_size": None,
    "moe_latent_size": None,
}
"""What is the same of every model in the table."""


def _qwen2(layers: int, hidden: int, heads: int, groups: int, width: int, tied: bool) -> Published:
    tokens = 151_936 if tied else 152_064
    return Published(layers, hidden, heads, groups, hidden // heads, width, tokens, tied, query_bias=True)


def _qwen3(layers: int, hidden: int, heads: int, width: int, tied: bool) -> Published:
    return Published(layers, hidden, heads, 8, 128, width, 151_936, tied, query_norm=True)


def _experts_of_qwen3(layers: int, hidden: int, heads: int, width: int, expert_width: int) -> Published:
    sizes = Published(layers, hidden, heads, 4, 128, width, 151_936, False, query_norm=True)
    return replace(sizes, experts=128, chosen=8, expert_width=expert_width)


def _llama3(layers: int, hidden: int, heads: int, head: int, width: int, tied: bool = False) -> Published:
    return Published(layers, hidden, heads, 8, head, width, 128_256, tied)


MODELS: Final[Mapping[str, Published]] = {
    "Qwen2.5-0.5B": _qwen2(24, 896, 14, 2, 4_864, True),
    "Qwen2.5-1.5B": _qwen2(28, 1_536, 12, 2, 8_960, True),
    "Qwen2.5-3B": _qwen2(36, 2_048, 16, 2, 11_008, True),
    "Qwen2.5-7B": _qwen2(28, 3_584, 28, 4, 18_944, False),
    "Qwen2.5-14B": _qwen2(48, 5_120, 40, 8, 13_824, False),
    "Qwen2.5-32B": _qwen2(64, 5_120, 40, 8, 27_648, False),
    "Qwen2.5-72B": _qwen2(80, 8_192, 64, 8, 29_568, False),
    "Qwen3-0.6B": _qwen3(28, 1_024, 16, 3_072, True),
    "Qwen3-1.7B": _qwen3(28, 2_048, 16, 6_144, True),
    "Qwen3-4B": _qwen3(36, 2_560, 32, 9_728, True),
    "Qwen3-8B": _qwen3(36, 4_096, 32, 12_288, False),
    "Qwen3-14B": _qwen3(40, 5_120, 40, 17_408, False),
    "Qwen3-32B": _qwen3(64, 5_120, 64, 25_600, False),
    "Qwen3-30B-A3B": _experts_of_qwen3(48, 2_048, 32, 6_144, 768),
    "Qwen3-235B-A22B": _experts_of_qwen3(94, 4_096, 64, 12_288, 1_536),
    "Llama-3.1-8B": _llama3(32, 4_096, 32, 128, 14_336),
    "Llama-3.1-70B": _llama3(80, 8_192, 64, 128, 28_672),
    "Llama-3.2-1B": _llama3(16, 2_048, 32, 64, 8_192, True),
    "Llama-3.2-3B": _llama3(28, 3_072, 24, 128, 8_192, True),
    "Llama-3.3-70B": _llama3(80, 8_192, 64, 128, 28_672),
}
"""By the name of the repository, without its owner and without what fine-tuning adds to it."""
_TUNED = Pattern(r"-(?:Base|Instruct|Math|Coder|Thinking|Chat|it|\d{4})(?=-|$)", re.IGNORECASE)


def published(name: str) -> str:
    """Return the model of the table that a path or a repository is named after; empty where there is none."""
    plain = _TUNED.sub("", name.rstrip("/").rpartition("/")[2]).replace("Meta-", "")
    return plain if plain in MODELS else ""


def published_sizes(configuration: Configuration) -> Mapping[str, SettingValue]:
    """Return the sizes of the model that a configuration names and gives no sizes of; empty where it is in no table."""
    name = published(configuration.model) if configuration.model else ""
    return MODELS[name].settings() if name and "num_layers" not in configuration.settings else {}


def with_sizes(configuration: Configuration) -> tuple[Configuration, tuple[str, ...]]:
    """Return the configuration with the sizes of its model where it gives none, and a note that says so."""
    sized = published_sizes(configuration)
    if not sized:
        return configuration, ()
    at = configuration.location or Location(configuration.path)
    sizes = {key: Setting(key, value, key, at, at) for key, value in sized.items()}
    note = f"the sizes of the model are those that are published of {published(configuration.model)}"
    return replace(configuration, settings={**sizes, **configuration.settings}), (note,)
