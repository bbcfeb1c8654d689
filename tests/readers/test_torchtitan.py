"""torchtitan's job configuration, in TOML and in JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.readers.document import ReadError
from tvlint.readers.read import read

TOML = """\
title = "x"
[training]
local_batch_size = 8  # samples
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 4  # four
[parallelism.other]
tensor_parallel_degree = 9
"""
JSON = '{"training": {"local_batch_size": 8},\n "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 4}}'


@pytest.mark.parametrize(("text", "place"), [(TOML, (6, 26, 27)), (JSON, (2, 78, 79))])
def test_the_settings_are_found_at_their_places(text: str, place: tuple[int, int, int]) -> None:
    document = read("job", text.encode())
    assert document is not None
    (found,) = document.configurations
    values: dict[str, SettingValue | Unknown] = {name: setting.value for name, setting in found.settings.items()}
    assert values == {"local_batch_size": 8, "data_parallel_shard_degree": -1, "tensor_parallel_degree": 4}
    assert (found.framework, found.format, found.complete) == ("torchtitan", "torchtitan", False)
    at = found.settings["tensor_parallel_degree"].location
    assert (at.line, at.column, at.end_column) == place


def test_degrees_are_found_where_they_stood_before_they_had_a_table() -> None:
    document = read(
        "job.toml", b"[training]\nbatch_size = 8\ntensor_parallel_degree = 0\n[experimental]\npipeline_parallel_degree = 2\n"
    )
    assert document is not None
    (found,) = document.configurations
    assert {name: setting.written for name, setting in found.settings.items()} == {
        "tensor_parallel_degree": "training.tensor_parallel_degree",
        "pipeline_parallel_degree": "experimental.pipeline_parallel_degree",
    }


@pytest.mark.parametrize(
    "text",
    [
        "[parallelism]\nother = 4\n# tensor_parallel_degree\n",
        "[parallel]\ntensor_parallel_degree = 4\n",
        "[parallelism]\ntensor_parallel_degree = 4\ntensor_parallel_degree = 4\n",
        "[parallelism]\ntensor_parallel_degree = {{ tp }}\n",
        '{"parallelism": {"tensor_parallel_degree": 4}',
        '{"parallelism": [{"tensor_parallel_degree": 4}]}',
        "[parallelism]\ntensor_parallel_degree = " + "[" * 50_000,
        "```toml\n[parallelism]\ntensor_parallel_degree = 4\n```\n",
    ],
)
def test_what_is_not_surely_one_is_passed_over(text: str) -> None:
    assert read("job", text.encode()) is None


def test_a_file_with_a_key_that_is_too_long_to_read_is_not_passed_over() -> None:
    text = "[parallelism]\ntensor_parallel_degree = 4\n" + ".".join("a" * 500) + " = 1\n"
    with pytest.raises(ReadError, match="a key of more than 64 parts"):
        read("a.toml", text.encode())


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("job.toml", "[parallelism]\ntensor_parallel_degree = \n", 2),
        ("job.toml", "[parallelism]\ntensor_parallel_degree = 4\ntensor_parallel_degree = 4\n", 3),
        ("job.json", '{"parallelism": {"tensor_parallel_degree": 4}', 1),
        ("job.toml", "[parallelism]\ntensor_parallel_degree = 4\n" + "#" * (1 << 20), None),
    ],
)
def test_one_that_is_broken_or_too_large_is_a_problem(name: str, text: str, line: int | None) -> None:
    with pytest.raises(ReadError) as raised:
        read(name, text.encode())
    assert raised.value.problem.location.line == line


SOURCE = """\
@dataclass
class Parallelism:
    tensor_parallel_degree: int = 1
    pipeline_parallel_degree: int = 1
    schedule: str | None = None

@dataclass
class Linear:
    recipe: Literal["tensorwise", "rowwise"] = "rowwise"

@dataclass
class Quantize:
    linear: Linear = field(default_factory=Linear)

@dataclass
class JobConfig:
    parallelism: Parallelism = field(default_factory=Parallelism)
    quantize: Quantize = field(default_factory=Quantize)
"""
JOB = "[parallelism]\ntensor_parallel_degree = 4\n"


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("pipeline_parallel_degree = 2\n", []),
        ("pipeline_paralel_degree = 2\n", ["unknown-option"]),
        ("own_degree = 2\n", []),
        ('schedule = """\npipeline_paralel_degree = 2\n"""\n', []),
        ('pipeline_parallel_degree = "2"\n', ["option-value-not-a-number"]),
        ('schedule = "2"\n', []),
        ('[quantize.linear]\nrecipe = "rowwise"\n', []),
        ('[quantize.linear]\nrecipe = "rowise"\n', ["option-value-not-a-choice"]),
        ('[quantize.linear]\nrecipe = "rowise"\n[job]\ncustom_config_module = "own"\n', []),
        ("[own.table]\nrecipe = 2\n", []),
    ],
)
@pytest.mark.parametrize("file", ["config/job_config.py", "config_manager.py"])
def test_a_job_is_held_to_the_dataclasses_of_the_tree_around_it(file: str, more: str, found: list[str], tmp_path: Path) -> None:
    source = tmp_path / "torchtitan" / file
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    job = tmp_path / "torchtitan" / "models" / "job.toml"
    job.parent.mkdir()
    job.write_text(JOB + more)
    (tmp_path / ".git").mkdir()
    document = read(str(job), job.read_bytes())
    assert document is not None
    assert [finding.rule for finding in document.findings] == found
    alone = read("job.toml", job.read_bytes())
    assert alone is not None
    assert alone.findings == ()


def test_a_class_that_is_inherited_many_times_is_read_once(tmp_path: Path) -> None:
    source = tmp_path / "torchtitan" / "config_manager.py"
    source.parent.mkdir()
    bases = ", ".join(["JobConfig"] * 400)
    first = 'class Strict(Wide):\n    mode: Literal["a", "b"] = "a"\n\nclass Wide:\n    mode: str = ""\n'
    table = "class Parallelism(Strict, Wide):\n    tensor_parallel_degree: int = 1\n"
    source.write_text(f"{first}\n{table}\nclass JobConfig({bases}):\n    parallelism: Parallelism = 0\n")
    job = tmp_path / "job.toml"
    job.write_text(JOB + 'mode = "c"\n')
    (tmp_path / ".git").mkdir()
    document = read(str(job), job.read_bytes())
    assert document is not None
    assert [finding.rule for finding in document.findings] == ["option-value-not-a-choice"]


OLD_PARSER = """
class JobConfig:
    def __init__(self):
        self.parser = argparse.ArgumentParser(description="torchtitan arg parser.")
        self.parser.add_argument("--job.config_file", type=str, default=None)
        self.parser.add_argument("--training.steps", type=int, default=10)
        self.parser.add_argument("--training.tensor_parallel_degree", type=int, default=1)
        self.parser.add_argument("--training.compile", action="store_true")
        self.parser.add_argument("--experimental.pipeline_parallel_schedule", choices=["1f1b", "gpipe"], default="1f1b")
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("steps = 100", None),
        ("compile = true", None),
        ("of_my_own = 1", None),
        ('steps = "100"', "option-value-not-a-number"),
        ("stepss = 100", "unknown-option"),
        ("[experimental]\npipeline_parallel_schedule = 'gpipe'", None),
        ("[experimental]\npipeline_parallel_schedule = 'zigzag'", None),
    ],
)
def test_tables_are_held_to_the_parser_of_2024(line: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "torchtitan").mkdir()
    (tmp_path / "torchtitan" / "config_manager.py").write_text(OLD_PARSER)
    path = tmp_path / "job.toml"
    path.write_text(f"[training]\ntensor_parallel_degree = 2\n{line}\n")
    document = read(str(path))
    assert document is not None
    assert [each.rule for each in document.findings] == ([found] if found else [])


@pytest.mark.parametrize(
    ("option", "help"),
    [
        ("--job.config_file x.toml --training.tensor-parallel-degree 2", ""),
        ("--job.config_flie x.toml", "did you mean `--job.config_file`?"),
        ("--of.my_own x.toml", ""),
    ],
)
def test_options_of_the_program_are_the_fields_of_the_tables(option: str, help: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "torchtitan").mkdir()
    (tmp_path / "torchtitan" / "config_manager.py").write_text(OLD_PARSER)
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node 8 ./train.py {option}\n")
    document = read(str(path))
    assert ([] if document is None else [each.help for each in document.findings]) == ([help] if help else [])
