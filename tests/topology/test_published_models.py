"""Sizes of published models that a recipe only names, and the roles of the parts of reinforcement learning."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.builders.topologies import known
from tvlint.data import data_path
from tvlint.ir.configuration import Unknown
from tvlint.readers.read import read
from tvlint.reporters.html import topology as topology_html
from tvlint.reporters.json import topology as topology_json
from tvlint.reporters.text import topology as topology_text
from tvlint.run.judge.topology import topologies
from tvlint.topology.published_models import MODELS, published
from tvlint.topology.role import Role
from tvlint.topology.topology import Topology

PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.3-70B": 70_553_706_496,
}
"""The numbers of parameters that the repositories of the weights state."""
SCRIPT = """\
MODEL_PATH=${{MODEL_PATH:-"$HOME/models/{model}"}}
python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer \\
  actor_rollout_ref.model.path="$MODEL_PATH" \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
  actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2 \\
  critic.model.path=elsewhere/{model}-critic \\
  critic.megatron.tensor_model_parallel_size=2 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=1
"""


def of_script(model: str) -> dict[str, Topology]:
    document = read("run.sh", SCRIPT.format(model=model).encode())
    assert document is not None
    found = topologies(document)
    return {each.section: each for each in found if isinstance(each, Topology)}


def test_every_model_has_a_published_number_of_parameters() -> None:
    assert PUBLISHED.keys() == MODELS.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_that_is_named_has_its_published_size(name: str) -> None:
    actor = of_script(name)["actor_rollout_ref.actor.megatron"]
    assert known(actor.parameters).total == PUBLISHED[name]
    assert f"the sizes of the model are those that are published of {name}" in actor.notes


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("/models/Qwen3-30B-A3B-Instruct-2507/", "Qwen3-30B-A3B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen2.5-Math-7B", "Qwen2.5-7B"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", ""),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", ""),
        ("Qwen/Qwen3-8B-Eagle", ""),
        ("", ""),
    ],
)
def test_only_what_is_called_like_a_model_is_taken_for_it(path: str, name: str) -> None:
    assert published(path) == name


def test_a_section_has_the_model_around_it() -> None:
    found = of_script("Qwen3-8B")
    assert isinstance(found["critic.megatron"].parameters, Unknown)
    text = "actor_rollout_ref:\n  model: {path: Qwen/Qwen3-8B}\n  actor:\n    megatron:\n      tensor_model_parallel_size: 2\n"
    document = read("run.yaml", (text + "      context_parallel_size: 1\nother: {model: {path: Qwen/Qwen3-4B}}\n").encode())
    assert document is not None
    assert [each.model for each in document.configurations] == ["Qwen/Qwen3-8B"]


def test_each_part_of_reinforcement_learning_is_what_it_is() -> None:
    found = of_script("Qwen3-8B")
    actor, rollout, ref = (found[f"actor_rollout_ref.{name}"] for name in ("actor.megatron", "rollout", "ref.megatron"))
    assert [each.role for each in (actor, rollout, ref)] == [Role.TRAINS, Role.SERVES, Role.SCORES]
    assert known(known(actor.memory)[0].optimizer) > 0
    for each, ranks in ((rollout, 4), (ref, 2)):
        (stage,) = known(each.memory)
        assert (stage.gradients, stage.optimizer) == (0, 0)
        assert known(stage.weights) >= 2 * PUBLISHED["Qwen3-8B"] / ranks


def test_a_rollout_is_shown_as_replicas_that_train_nothing() -> None:
    found = of_script("Qwen3-8B")
    said = str(topology_text.write([found["actor_rollout_ref.rollout"]], 120, False).text)
    assert "2 of 4 ranks (tp 4), to draw samples: nothing is trained" in said
    for word in ("Batch", "bubble", "embedding ", "distributed optimizer:"):
        assert word not in said
    said = str(topology_text.write([found["actor_rollout_ref.ref.megatron"]], 120, False).text)
    assert "global batch" not in said
    assert "bubble" not in said
    page = topology_html.write([found["actor_rollout_ref.rollout"]], "1").text
    assert "to draw samples" in page
    assert "bubble" not in page


def test_roles_stand_in_the_report_for_programs() -> None:
    content = json.loads(topology_json.write(tuple(of_script("Qwen3-8B").values())).text)
    jsonschema.validate(content, json.loads((data_path("schemas") / "topology.schema.json").read_text(encoding="utf-8")))
    assert [each["role"] for each in content["topologies"]] == ["trains", "serves", "scores", "trains"]
