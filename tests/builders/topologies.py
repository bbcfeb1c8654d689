"""Topologies of configurations that are written as settings."""

from __future__ import annotations

from typing import Any

from shared import ROOT

from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.readers.document import Document
from tvlint.readers.read import read
from tvlint.run.judge.topology import topologies
from tvlint.topology.topology import Topology

HERE = Location("settings")

LLAMA = {
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_layers": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "swiglu": True,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "padded_vocab_size": 128256,
    "hidden_dropout": 0.0,
    "seq_length": 8192,
    "max_position_embeddings": 8192,
    "micro_batch_size": 1,
}
"""The settings of Llama 3 8B, without any parallelism."""


def topology(**settings: Any) -> Topology:
    """The topology of a Megatron-LM run with exactly these settings."""
    named = {name: Setting(name, value, name, HERE, HERE) for name, value in settings.items()}
    configuration = Configuration("settings", "megatron-shell", "megatron-lm", named)
    (found,) = topologies(Document("settings", "megatron-shell", configurations=(configuration,)))
    assert isinstance(found, Topology)
    return found


def shipped(name: str) -> Topology:
    """The topology of a launch script in the fixtures."""
    document = read(str(ROOT / "fixtures" / "clean" / name / "train.sh"))
    assert document is not None
    (found,) = topologies(document)
    assert isinstance(found, Topology)
    return found


def known(value: Any) -> Any:
    """The value, which must not be unknown."""
    assert not isinstance(value, Unknown), value
    return value
