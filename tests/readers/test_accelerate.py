"""Configurations of accelerate: slips of their keys, and values that it does not take."""

from __future__ import annotations

import pytest

from tvlint.readers.read import read

FILE = """compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  offload_optimizer_device: cpu
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("", "", None),
        ("bf16\nnum", "'no'\nnum", None),
        ("bf16\nnum", "no\nnum", None),  # YAML's way to say false
        ("bf16\nnum", "{{ precision }}\nnum", None),
        ("bf16\nnum", "bfloat16\nnum", "option-value-not-a-choice"),
        ("DEEPSPEED", "DEEP_SPEED", "option-value-not-a-choice"),
        ("DEEPSPEED", "FSDP", None),
        ("stage: 3", "stage: 0", None),
        ("stage: 3", "stage: 4", "option-value-out-of-range"),
        ("device: cpu", "device: gpu", "option-value-not-a-choice"),
        ("num_machines", "num_machine", "misspelled-option"),
        ("num_machines", "machines_num", "misspelled-option"),
        ("num_machines: 1", "num_machines: 1\nof_a_later_version: 1", None),
        ("compute_environment", "environment", None),  # another file
    ],
)
def test_what_accelerate_refuses_is_an_error(old: str, new: str, rule: str | None) -> None:
    text = FILE.replace(old, new) if old else FILE
    assert text != FILE or not old
    document = read("zero3.yaml", text.encode())
    assert ([] if document is None else [each.rule for each in document.findings]) == ([rule] if rule else [])
