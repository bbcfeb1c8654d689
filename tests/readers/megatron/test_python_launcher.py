"""Launchers in Python: what they pass is parsed, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.read import read

SIZES = "--tensor-model-parallel-size 2 --num-layers 4"


def read_program(folder: Path, body: str, name: str = "launch.py") -> tuple[Configuration, ...]:
    path = folder / name
    path.write_text("import os\n" + body)
    document = read(str(path))
    return document.configurations if document is not None else ()


def values(folder: Path, body: str) -> dict[str, object]:
    (own,) = read_program(folder, body)
    assert own.elsewhere
    assert not own.complete
    return {name: "?" if isinstance(each.value, Unknown) else each.value for name, each in own.settings.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("sizes = '--tensor-model-parallel-size 2 --num-layers 4'", {}),
        ("TP = 2\nsizes = f'--tensor-model-parallel-size {TP} ' + '--num-layers 4'", {}),
        ("TP = 2\ndef f():\n    s = ['--tensor-model-parallel-size', str(TP), '--num-layers', '4']\n    os.execv('a', s)", {}),
        ("def f():\n    s = ['--tensor-model-parallel-size', '2']\n    all = ['python', *s, '--num-layers', '4']", {}),
        ("def f(tp):\n    s = f'--tensor-model-parallel-size {tp} --num-layers 4'", {"tensor_model_parallel_size": "?"}),
        (
            "TP = 2\nif os.name:\n    TP = 4\ns = f'--tensor-model-parallel-size {TP} --num-layers 4'",
            {"tensor_model_parallel_size": "?"},
        ),
        ("for TP in (1, 2):\n    s = f'--tensor-model-parallel-size {TP} --num-layers 4'", {"tensor_model_parallel_size": "?"}),
        (
            "TP = 2\ndef f(TP):\n    s = f'--tensor-model-parallel-size {TP} --num-layers 4'",
            {"tensor_model_parallel_size": "?"},
        ),
        (f"s = '{SIZES} '\ns += '--micro-batch-size 8'", {"micro_batch_size": 8}),
        (f"s = '{SIZES} '\nif os.name:\n    s += '--micro-batch-size 8'", {"micro_batch_size": "?"}),
        (f"s = '{SIZES} --micro-batch-size ' + ('8' if os.name else '4')", {"micro_batch_size": "?"}),
        (
            f"n = 1\nwhile os.name:\n    s = f'{SIZES} --micro-batch-size {{n}}'\n    n = n + 1",
            {"micro_batch_size": "?"},
        ),
        (f"s = '{SIZES} --micro-batch-size $N'", {"micro_batch_size": "?"}),
    ],
)
def test_lists_and_texts_of_options_are_read(body: str, expected: dict[str, object], tmp_path: Path) -> None:
    assert values(tmp_path, body + "\n") == {"tensor_model_parallel_size": 2, "num_layers": 4, **expected}


def test_a_value_stands_where_it_is_written(tmp_path: Path) -> None:
    (own,) = read_program(tmp_path, "s = (\n    f'--load {os.name} '\n    f'--tensor-model-parallel-size 3 '\n)\n")
    place = own.settings["tensor_model_parallel_size"].location
    assert (place.line, place.column) == (4, 36)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (f"import pytest\ndef test_it():\n    s = '{SIZES}'\n", "test_launch.py"),
        (f"def f(: '{SIZES}'\n", "launch.py"),
        (f"s = '{SIZES}'\n", "launch.md"),
        ("print('--tensor-model-parallel-size 2 is wrong')\n", "launch.py"),
    ],
)
def test_what_passes_nothing_is_no_launcher(body: str, name: str, tmp_path: Path) -> None:
    assert read_program(tmp_path, body, name) == ()


def test_a_function_has_its_own_lists(tmp_path: Path) -> None:
    text = f"def a():\n    s = '{SIZES}'\ndef b():\n    s = '{SIZES.replace('2', '3')}'\n"
    both = read_program(tmp_path, text)
    assert [each.settings["tensor_model_parallel_size"].value for each in both] == [2, 3]
