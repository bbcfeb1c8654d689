"""The arguments of a script after a loop that takes them."""

from __future__ import annotations

import pytest

from tvlint.readers.read import read

LAUNCH = 'torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 8 "$@"\n'
TAKES_EACH = "; do\n  case $1 in\n    --layers) LAYERS=$2; shift ;;\n    *) exit 1 ;;\n  esac\n  shift\ndone\n"


def is_complete(script: str) -> bool:
    """Return whether nothing but what the script writes can be among the options of its launch."""
    document = read("run.sh", script.encode())
    assert document is not None
    (configuration,) = document.configurations
    return configuration.complete


@pytest.mark.parametrize(
    "condition",
    [
        "[[ $# -gt 0 ]]",
        "[ $# -gt 0 ]",
        '[ "$#" -gt 0 ]',
        "[[ ${#} -ne 0 ]]",
        "[ $# != 0 ]",
        "(( $# ))",
        "(($# > 0))",
        "[[ $# -ge 1 ]]",
    ],
)
def test_a_loop_that_takes_all_arguments_leaves_none(condition: str) -> None:
    assert is_complete(f"while {condition}{TAKES_EACH}{LAUNCH}")


@pytest.mark.parametrize(
    "script",
    [
        LAUNCH,
        f"while [[ $# -gt 1 ]]{TAKES_EACH}{LAUNCH}",
        f"while [[ $# -gt 0 && $1 != -- ]]{TAKES_EACH}{LAUNCH}",
        f"until [[ $# -gt 0 ]]{TAKES_EACH}{LAUNCH}",
        f"while [[ $# -gt 0 ]]{TAKES_EACH}{LAUNCH}".replace("exit 1", "break"),
        f"if [ -n $X ]; then while [[ $# -gt 0 ]]{TAKES_EACH}fi\n{LAUNCH}",
        f'while [[ $# -gt 0 ]]{TAKES_EACH}set -- "${{REST[@]}}"\n{LAUNCH}',
        f'while [[ $# -gt 0 ]]{TAKES_EACH}set "${{REST[@]}}"\n{LAUNCH}',
        f'while [[ $# -gt 0 ]]{TAKES_EACH}eval set -- "$REST"\n{LAUNCH}',
        f'take() {{ while [[ $# -gt 0 ]]{TAKES_EACH}}}\ntake "$@"\n{LAUNCH}',
    ],
)
def test_arguments_that_a_loop_may_leave_or_that_are_set_again_stay_open(script: str) -> None:
    assert not is_complete(script)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("[0]*$DENSE+[1]*$EXPERTS", "[0]*1+[1]*46"),
        ("[0]*$DENSE+[1]*46", "[0]*1+[1]*46"),
        ("'[0]*'$DENSE+[1]*46", "[0]*1+[1]*46"),
    ],
)
def test_a_word_that_begins_like_a_pattern_is_one_word_with_its_variables(word: str, value: str) -> None:
    options = f"--tensor-model-parallel-size 2 --micro-batch-size 1 --moe-layer-freq {word} --num-layers 47"
    document = read("run.sh", f"DENSE=1\nEXPERTS=46\ntorchrun pretrain_gpt.py {options}\n".encode())
    assert document is not None
    settings = document.configurations[0].settings
    assert (settings["moe_layer_freq"].value, settings["num_layers"].value) == (value, 47)
