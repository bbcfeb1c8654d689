"""Numbers that `seq` counts are words like those that a script writes."""

from __future__ import annotations

import pytest

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.readers.read import read


def value(argument: str) -> SettingValue | Unknown:
    document = read(
        "train.sh", f"N=7\npython pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers {argument}\n".encode()
    )
    assert document is not None
    (only,) = document.configurations
    return only.settings["num_layers"].value


@pytest.mark.parametrize(
    ("counted", "number"),
    [("$(seq 1)", 1), ("$(seq 3 3)", 3), ("$(seq 4 9 12)", 4), ("$(seq $N -2 6)", 7), ("$( seq 5 $((2 + 3)) )", 5)],
)
def test_a_number_that_is_counted_is_known(counted: str, number: int) -> None:
    assert value(counted) == number


@pytest.mark.parametrize(
    "counted", ["$(seq $1)", "$(seq -s, 3)", "$(seq 1 0 5)", "$(seq 9999999)", "$(seq 1.5)", "$(seq 2 | tail -1)", "$(seq)"]
)
def test_what_is_not_counted_is_unknown(counted: str) -> None:
    assert isinstance(value(counted), Unknown)


def test_counted_numbers_leave_the_command_complete() -> None:
    text = b"python pretrain_gpt.py --tensor-model-parallel-size 2 --recompute-modules $(seq 16 8 32) --num-layers 4\n"
    document = read("train.sh", text)
    assert document is not None
    (only,) = document.configurations
    assert only.complete
    assert only.settings["num_layers"].value == 4
