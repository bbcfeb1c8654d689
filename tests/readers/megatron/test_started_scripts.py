"""Scripts that start others of the checkout, with the variables and arguments that they give them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import process_time

import pytest

from tvlint.readers.document import ReadError
from tvlint.readers.megatron.recognise_launch import LARGEST_STARTER, starts_others
from tvlint.readers.read import read

OPTIONS = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --hidden-size 1024 --num-attention-heads 16"
TRAIN = f"NL=${{NL:-24}}\ntorchrun --nproc-per-node 8 pretrain_gpt.py {OPTIONS} --num-layers $NL\n"
BY_ARGUMENT = f"torchrun --nproc-per-node 8 pretrain_gpt.py {OPTIONS} --num-layers $1\n"
JOB = f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python pretrain_gpt.py {OPTIONS} --num-layers $NL\n"


def settings_of(folder: Path, text: str, name: str) -> list[tuple[object, str]]:
    """Return the value of a setting of each configuration of a script, and the text that stands where it comes from."""
    (folder / ".git").mkdir()
    for file, content in {"train.sh": TRAIN, "one.sh": BY_ARGUMENT, "job.sbatch": JOB, "start.sh": text}.items():
        (folder / file).write_text(content)
    document = read(str(folder / "start.sh"))
    found = []
    for configuration in document.configurations if document is not None else ():
        setting = configuration.settings[name]
        place = setting.location
        line = Path(place.path).read_text().splitlines()[(place.line or 1) - 1]
        found.append((setting.value, line[(place.column or 1) - 1 : (place.end_column or len(line) + 1) - 1]))
    return found


@pytest.mark.parametrize(
    "text",
    [
        "NL=25 bash train.sh\n",
        "export NL=25\n./train.sh\n",
        "NL=25\nexport NL\nnohup sh -e ./train.sh > log 2>&1 &\n",
        "env NL=25 bash train.sh\n",
        "sbatch --export=ALL,NL=25 job.sbatch\n",
        "sbatch -J name --export=NONE,NL=25,X=1 job.sbatch\n",
        "export NL=25\nsbatch --export=X=1,NL job.sbatch\n",
        "sbatch --export=NL=23 --export ALL,NL=25 job.sbatch\n",
        "bash one.sh 25\n",
        "export NL=25\nsrun -N 2 --label bash train.sh\n",
        "NL=25 srun ./train.sh\n",
        "srun bash one.sh 25\n",
    ],
)
def test_a_script_is_judged_with_what_it_is_given(tmp_path: Path, text: str) -> None:
    assert settings_of(tmp_path, text, "num_layers") == [(25, "25")]


@pytest.mark.parametrize(
    "text",
    [
        "NL=25\nbash train.sh\n",
        "bash train.sh\n",
        "export NL=25\nsrun --export=NONE bash train.sh\n",
        "export NL=25\nsrun docker run image bash train.sh\n",
        "NL=25 bash other.sh\n",
        "export OTHER=25\nbash train.sh\n",
        "# NL=25 bash train.sh\n",
        "bash -c 'NL=25 bash train.sh'\n",
        "export NL=25\nsbatch --export=X=1 job.sbatch\n",
        "env NL=25 sbatch --export NONE job.sbatch\n",
        "export NL=25\nsbatch --export=$LIST job.sbatch\n",
        "export NL=25\nsbatch --export-file=list job.sbatch\n",
        "NL=25 bash train.sh --num-layers 26\n",
    ],
)
def test_a_script_that_is_given_nothing_is_judged_by_itself_alone(tmp_path: Path, text: str) -> None:
    assert settings_of(tmp_path, text, "num_layers") == []


@pytest.mark.parametrize(("options", "ranks"), [("-J name", 16), ("--nodes=4", None), ("-N 4", None), ("$MORE", None)])
def test_a_job_has_the_ranks_of_its_script_unless_the_command_may_say_others(
    tmp_path: Path, options: str, ranks: int | None
) -> None:
    ((value, _),) = settings_of(tmp_path, f"sbatch {options} --export=ALL,NL=24 job.sbatch\n", "world_size")
    assert value == ranks or (ranks is None and not isinstance(value, int))


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("NL=24 bash job.sbatch", 32),
        ("sbatch --export=ALL,NL=24 job.sbatch", 16),
        ("sbatch --export=ALL,NL=24 -N 3 job.sbatch", None),
        ("sbatch --export=ALL,NL=24 nodes.sbatch", None),
    ],
)
def test_a_script_of_a_job_has_the_ranks_of_that_and_a_further_job_its_own(
    tmp_path: Path, start: str, ranks: int | None
) -> None:
    (tmp_path / "nodes.sbatch").write_text(JOB.replace("#SBATCH --nodes=2\n", ""))
    text = f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n{start}\n"
    ((value, _),) = settings_of(tmp_path, text, "world_size")
    assert value == ranks or (ranks is None and not isinstance(value, int))


def test_each_start_is_judged_and_a_script_that_starts_itself_ends(tmp_path: Path) -> None:
    assert [value for value, _ in settings_of(tmp_path, "NL=23 bash train.sh\nNL=25 bash train.sh\n", "num_layers")] == [23, 25]
    (tmp_path / "train.sh").write_text(TRAIN + "NL=$NL bash train.sh\n")
    document = read(str(tmp_path / "start.sh"))
    assert document is not None
    assert len(document.configurations) < 60


def test_an_installer_is_no_launch_and_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "install.sh"
    path.write_bytes(b"NL=25 bash train.sh\n\0payload")
    assert read(str(path)) is None
    path.write_text("for a in 1 2 3 4 5 6 7 8 9; do\n" * 9 + "NL=25 bash train.sh\n" + "done\n" * 9)
    assert read(str(path)) is None
    path.write_text("NL=25 bash train.sh\n" + "$(" * 4000)
    assert read(str(path)) is None


@pytest.mark.parametrize("part", ["./", "sh ", ".sh", "bash x.sh ", "/a.sh ./", "//"])
def test_a_line_of_any_length_is_recognised_in_linear_time(part: str) -> None:
    begun = process_time()
    starts_others("start.sh", part.encode() * (LARGEST_STARTER // len(part)))
    assert process_time() - begun < 5


EXPORTS = "".join(f"export A{number}=\n" for number in range(4000))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        EXPORTS + "./none.sh\n" * 8000,
        EXPORTS + "bash asked.sh\n" * 40,
        "sbatch " + " ".join(f"--export=A{number}=" for number in range(20_000)) + " asked.sh\n",
    ],
)
def test_starts_with_much_that_is_exported_cost_no_more_than_a_script_is_worth(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "asked.sh").write_text("$B " * 300_000)
    path = tmp_path / "start.sh"
    path.write_text(text + TRAIN)
    begun = process_time()
    with suppress(ReadError):
        read(str(path))
    assert process_time() - begun < 10


@pytest.mark.heavy
def test_a_script_that_takes_too_much_work_keeps_no_other_from_being_judged(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "heavy.sh").write_text("echo $NL\n" + "a\n" * 450_000)
    path = tmp_path / "start.sh"
    path.write_text(f"NL=25 bash heavy.sh\nNL=24\n{TRAIN}")
    document = read(str(path))
    assert document is not None
    assert document.configurations[-1].settings["num_layers"].value == 24


def test_a_script_that_cannot_be_read_keeps_no_other_from_being_judged(tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text("echo $NL" + "$(" * 4000)
    path = tmp_path / "start.sh"
    path.write_text(f"NL=25 bash bad.sh\nNL=24\n{TRAIN}")
    document = read(str(path))
    assert document is not None
    assert [each.settings["num_layers"].value for each in document.configurations] == [24]
