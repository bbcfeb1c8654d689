"""Tensors that the step makes of nothing are recorded with their numbers where no operator of the table describes them."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: pip install 'tvlint[capture]'", allow_module_level=True)

import torch
import torch.distributed as dist

from tvlint.capture.recorder import Recorder

pytestmark = pytest.mark.heavy


def received(x: Any) -> Any:
    """Return zeros into which the process group of one rank puts a sum."""
    whole = torch.zeros(3)
    dist.all_reduce(whole)
    return whole


@pytest.mark.parametrize(
    ("make", "is_given"),
    [
        (lambda x: torch.tril_indices(3, 3), True),
        (lambda x: torch.eye(3), True),
        (lambda x: torch.linspace(0, 1, 3), True),
        (lambda x: torch.arange(3), False),
        (lambda x: torch.full((3,), 2.0), False),
        (lambda x: torch.arange(3).float().log1p().to(torch.long), True),
        (lambda x: torch.tensor([0.5, 1.5]).to(torch.long), True),
        (lambda x: torch.arange(3).to(torch.int32), False),
        (lambda x: x.to(torch.long), False),
        (lambda x: (torch.arange(3) + x).to(torch.long), False),
        (lambda x: torch.zeros(3).copy_(x).to(torch.long), False),
        (lambda x: torch.zeros(3).normal_().to(torch.long), False),
        (lambda x: received(x).to(torch.long), False),
    ],
)
def test_constants_that_no_operator_of_the_table_describes_are_given(make: Any, is_given: bool) -> None:
    written: list[dict[str, Any]] = []
    recorder = Recorder(lambda line: written.append(json.loads(line)))
    x = torch.rand(3)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with recorder:
            recorder.recording = True
            made = recorder.identify(make(x))
    finally:
        dist.destroy_process_group()
    storage = next(each["storage"] for each in written if each.get("tensor") == made)
    assert any("values" in each for each in written if each.get("given") == storage) == is_given
    assert any(made in each.get("outputs", ()) for each in written) != is_given


def test_a_constant_that_is_made_again_is_one_until_it_is_written() -> None:
    recorder = Recorder(lambda line: None)
    with recorder:
        recorder.recording = True
        first, second, third = torch.eye(3), torch.eye(3), torch.eye(2)
        same, other = recorder.identify(first) == recorder.identify(second), recorder.identify(third)
        first.mul_(2)
        assert same
        assert other != recorder.identify(first)
        assert recorder.identify(torch.eye(3)) != recorder.identify(first)
        assert recorder.identify(torch.eye(2)) == other
