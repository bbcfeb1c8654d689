"""How many ranks a functional test runs on, by its recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

RULE = "world-size-not-divisible"
RECIPE = """
spec:
  model: gpt
  nodes: {nodes}
  gpus: {gpus}
  script: |-
    ARGUMENTS=("TRAINING_SCRIPT_PATH=pretrain_gpt.py")
    {export}
    bash ./tests/functional_tests/shell_test_utils/run_ci_test.sh
products:
  - test_case: [one]
"""
EXPORT = "export GPUS_PER_NODE={gpus}"
STARTS = "GPUS_PER_NODE=${GPUS_PER_NODE:-8}\n"


@pytest.mark.parametrize(
    ("recipes", "starts", "own", "ranks"),
    [
        ([(2, "4", EXPORT)], "", "", 8),
        ([(2, "4", EXPORT), (1, "8", EXPORT)], "", "", 8),
        ([(1, "4", EXPORT), (1, "8", EXPORT)], "", "", None),
        ([(2, "1", "")], STARTS, "", 16),
        ([(2, "1", "")], "", "", None),
        ([(2, "1", "GPUS_PER_NODE=4")], STARTS, "", 8),
        ([(2, "1", "GPUS_PER_NODE=$N")], STARTS, "", None),
        ([(2, "4\n  gpus: 8", EXPORT)], STARTS, "", None),
        ([(1, "8", EXPORT)], "", "ENV_VARS:\n  GPUS_PER_NODE: 4\n", None),
        ([(1, "8", EXPORT)], "", "  --encoder-pipeline-model-parallel-size: 1\n", 8),
    ],
)
def test_a_test_case_runs_on_the_nodes_of_its_recipe(
    recipes: list[tuple[int, str, str]], starts: str, own: str, ranks: int | None, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    tests = tmp_path / "tests"
    files = {f"test_utils/recipes/{number}/gpt.yaml": recipe for number, recipe in enumerate(recipes)}
    texts = {
        name: RECIPE.replace("{nodes}", str(nodes)).replace("gpus: {gpus}", f"gpus: {gpus}").replace("{export}", export)
        for name, (nodes, gpus, export) in files.items()
    }
    texts["functional_tests/shell_test_utils/_run_training.sh"] = starts
    case = "functional_tests/test_cases/gpt/one/model_config.yaml"
    texts[case] = f"MODEL_ARGS:\n  --tensor-model-parallel-size: 3\n{own}"
    for name, text in texts.items():
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).write_text(text)
    document = read(str(tests / case))
    assert document is not None
    (configuration,) = document.configurations
    size = configuration.settings.get("world_size")
    assert (size and size.value) == ranks
    found = [each.message for each in evaluate(configuration, {RULE: load_rules()[RULE]}) if isinstance(each, Finding)]
    told = f"{ranks} ranks do not divide into groups of 3 (tensor x pipeline x context parallel)"
    assert found == ([told] if ranks and "encoder" not in own else [])
    if size is not None:
        assert (size.location.path, size.location.line) == (str(tests / "test_utils/recipes/0/gpt.yaml"), 4)


@pytest.mark.parametrize("is_started", [True, False])
def test_false_is_a_word_after_the_switch_where_the_runner_of_test_cases_lies_around(is_started: bool, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    texts = {"test_cases/gpt/one/model_config.yaml": "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: false\n"}
    if is_started:
        texts["shell_test_utils/_run_training.sh"] = STARTS
    for name, text in texts.items():
        file = tmp_path / "tests" / "functional_tests" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    file = tmp_path / "tests" / "functional_tests" / "test_cases" / "gpt" / "one" / "model_config.yaml"
    document = read(str(file), file.read_bytes())
    assert document is not None
    found = [(finding.rule, finding.location.line) for finding in document.findings]
    assert found == ([("value-after-complete-option", 3)] if is_started else [])
