"""The presets that experiments of Primus build on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.topology import configuration_topology

PRESETS = {
    "primus/configs/modules/megatron/pre_trainer.yaml": "extends: base.yaml\nmicro_batch_size: 2\nnum_query_groups: 4\n",
    "primus/configs/modules/megatron/base.yaml": "bf16: true\nmicro_batch_size: 1\nseq_length: 4096\n",
    "primus/configs/models/megatron/small.yaml": "extends: [llama.yaml]\nnum_layers: 12\nnum_query_groups: 2\n",
    "primus/configs/models/megatron/llama.yaml": "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 8\n",
}
EXPERIMENT = """\
work_group: amd
exp_name: small
modules:
  pre_trainer:
    framework: {framework}
    config: pre_trainer.yaml
    model: ${{PRIMUS_MODEL:{model}}}.yaml
    overrides:
      tensor_model_parallel_size: ${{PRIMUS_TP:{tensor}}}
      pipeline_model_parallel_size: 1
      seq_length: 8192
{more}"""


def experiment(
    folder: Path, framework: str = "megatron", model: str = "small", tensor: int = 4, more: str = ""
) -> Configuration:
    text = EXPERIMENT.format(framework=framework, model=model, tensor=tensor, more=more)
    for name, content in {**PRESETS, "examples/small.yaml": text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / ".git").mkdir(exist_ok=True)
    document = read(str(folder / "examples/small.yaml"))
    assert document is not None
    (found,) = document.configurations
    return found


def test_the_overrides_win_over_the_module_and_that_over_the_model(tmp_path: Path) -> None:
    found = experiment(tmp_path)
    assert found.framework == "primus"
    assert found.complete
    assert {name: setting.value for name, setting in found.settings.items()} == {
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 1,
        "seq_length": 8192,
        "micro_batch_size": 2,
        "bf16": True,
        "num_query_groups": 4,
        "num_layers": 12,
        "hidden_size": 64,
        "num_attention_heads": 8,
    }
    assert found.settings["num_attention_heads"].location.path.endswith("llama.yaml")


def test_a_mistake_between_the_experiment_and_its_model_is_found_in_both_files(tmp_path: Path) -> None:
    results = evaluate(experiment(tmp_path, tensor=3), load_rules())
    (found,) = (each for each in results if isinstance(each, Finding) and each.rule == "heads-not-divisible-by-tp")
    places = {Path(place.path).name for place in (found.location, *(each.location for each in found.related))}
    assert places == {"small.yaml", "llama.yaml"}
    assert "judged as primus" in found.help


def test_the_topology_has_the_sizes_of_the_model(tmp_path: Path) -> None:
    found = configuration_topology(experiment(tmp_path))
    assert found.pipeline.layers == (12,)


@pytest.mark.parametrize(("framework", "model"), [("torchtitan", "small"), ("megatron", "absent"), ("megatron", "../llama")])
def test_an_experiment_of_which_a_preset_is_not_found_stands_alone(tmp_path: Path, framework: str, model: str) -> None:
    found = experiment(tmp_path, framework, model)
    assert not found.complete
    assert "num_layers" not in found.settings


def test_layers_that_primus_splits_by_a_list_of_its_own_are_not_judged(tmp_path: Path) -> None:
    found = experiment(tmp_path, more="      decoder_pipeline_manual_split_list: [3, 9]\n")
    assert isinstance(found.settings["pipeline_model_parallel_layout"].value, Unknown)
    assert (
        "pipeline_model_parallel_layout"
        not in experiment(tmp_path, more="      decoder_pipeline_manual_split_list: null\n").settings
    )


def test_an_experiment_that_sets_no_size_itself_is_read_with_those_of_its_presets(tmp_path: Path) -> None:
    experiment(tmp_path)
    path = tmp_path / "primus/configs/models/megatron/small.yaml"
    path.write_text(path.read_text() + "expert_model_parallel_size: 8\ncontext_parallel_size: 2\n")
    module = "framework: megatron, config: pre_trainer.yaml, model: small.yaml"
    own = f"modules:\n  pre_trainer: {{{module}}}\nwork_group: a\n"
    (tmp_path / "examples/bare.yaml").write_text(own)
    document = read(str(tmp_path / "examples/bare.yaml"))
    assert document is not None
    assert document.configurations[0].settings["expert_model_parallel_size"].value == 8


def test_layers_that_do_not_divide_are_told_where_the_experiment_sets_the_stages(tmp_path: Path) -> None:
    found = experiment(tmp_path, more="      pipeline_model_parallel_size: 5\n")
    results = [each for each in evaluate(found, load_rules()) if isinstance(each, Finding)]
    (finding,) = (each for each in results if each.rule == "layers-not-divisible-by-pp")
    assert (Path(finding.location.path).name, finding.location.line) == ("small.yaml", 12)
    assert finding.location.path == found.path
