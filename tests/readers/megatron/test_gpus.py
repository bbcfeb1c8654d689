"""The generation of the GPUs that a file is for: named by its path, by what it asks Slurm for, or by a recipe of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.megatron.gpus import generation_of
from tvlint.readers.read import read

OPTIONS = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 2\n"
CASE = "ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 8}\nMODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --num-layers: 2\n"
RECIPE = "spec:\n  model: gpt\n  nodes: 1\n  gpus: 8\n  platforms: {default}\nproducts:\n  - test_case: [one]\n    products:\n"


@pytest.mark.parametrize(
    ("path", "generation"),
    [
        ("examples/train_llama3_8b_h100_fp8.sh", "hopper"),
        ("launch/a100/train.sh", "ampere"),
        ("configs/GB200/base.yaml", "blackwell"),
        ("h100_and_b200/train.sh", ""),
        ("h100/team/project/launch/train.sh", ""),
        ("train_h1000.sh", ""),
        ("train.sh", ""),
    ],
)
def test_a_path_names_the_gpus_near_the_file_only(path: str, generation: str) -> None:
    assert generation_of(path) == generation


@pytest.mark.parametrize(
    ("line", "generation"),
    [
        ("#SBATCH --gres=gpu:h100:8", "hopper"),
        ("#SBATCH --gpus-per-node=a100:4", "ampere"),
        ("srun --gpus b200:8 true", "blackwell"),
        ("#SBATCH --gres=gpu:8", ""),
        ("# works on an h100 too", ""),
    ],
)
def test_slurm_is_asked_for_the_gpus_of_a_script(line: str, generation: str) -> None:
    document = read("train.sh", f"#!/bin/bash\n{line}\n{OPTIONS}".encode())
    assert document is not None
    assert document.configurations[0].gpus == generation


@pytest.mark.parametrize(
    ("default", "of_case", "generation"),
    [
        ("dgx_h100", "dgx_h100", "hopper"),
        ("dgx_h100", "dgx_a100", "ampere"),
        ("dgx_h100", "dgx_gb200", ""),
        ("dgx_gb200", "dgx_gb200", "blackwell"),
    ],
)
def test_the_recipe_of_a_functional_test_names_its_platform(
    tmp_path: Path, default: str, of_case: str, generation: str
) -> None:
    case = tmp_path / "tests" / "functional_tests" / "test_cases" / "gpt" / "one" / "model_config.yaml"
    recipe = tmp_path / "tests" / "test_utils" / "recipes" / "some" / "gpt.yaml"
    for path in (case, recipe):
        path.parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    recipe.write_text(RECIPE.format(default=default) + f"      - platforms: [{of_case}]\n", encoding="utf-8")
    case.write_text(CASE, encoding="utf-8")
    document = read(str(case), case.read_bytes())
    assert document is not None
    assert [each.gpus for each in document.configurations] == [generation]


def test_a_case_of_several_recipes_runs_on_the_oldest_of_their_platforms(tmp_path: Path) -> None:
    case = tmp_path / "tests" / "functional_tests" / "test_cases" / "gpt" / "one" / "model_config.yaml"
    case.parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for platform in ("gb200", "h100"):
        recipe = tmp_path / "tests" / "test_utils" / "recipes" / platform / "gpt.yaml"
        recipe.parent.mkdir(parents=True)
        recipe.write_text(RECIPE.format(default=f"dgx_{platform}"), encoding="utf-8")
    case.write_text(CASE, encoding="utf-8")
    document = read(str(case), case.read_bytes())
    assert document is not None
    assert [each.gpus for each in document.configurations] == ["hopper"]
