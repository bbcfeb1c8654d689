"""Dotted overrides on a command line: which section they set, what is resolved, and what stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules


def configurations(text: str) -> tuple[Configuration, ...]:
    document = read("run.sh", text.encode())
    assert document is not None
    assert document.format == "hydra-overrides"
    return document.configurations


SCRIPT = """\
TP=4
python3 -m verl.trainer.main_ppo \\
  trainer.n_gpus_per_node=8 \\
  trainer.nnodes=2 \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${TP} \\
  +actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\
  ++critic.megatron.tensor_model_parallel_size=$1 \\
  actor_rollout_ref.actor.lr=1e-6 $@
"""


def test_every_section_with_sizes_is_a_configuration_of_its_own() -> None:
    actor, critic = configurations(SCRIPT)
    assert (actor.section, actor.framework, actor.complete) == ("actor_rollout_ref.actor.megatron", "verl", False)
    assert {name: setting.value for name, setting in actor.settings.items()} == {
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2,
        "world_size": 16,
        "use_dynamic_bsz": False,
    }
    assert critic.section == "critic.megatron"
    assert isinstance(critic.settings["tensor_model_parallel_size"].value, Unknown)


def test_a_value_stands_where_it_is_written() -> None:
    (actor, _) = configurations(SCRIPT)
    setting = actor.settings["pipeline_model_parallel_size"]
    assert (setting.location.line, setting.location.column, setting.location.end_column) == (6, 66, 67)
    assert setting.written == "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size"
    assert actor.settings["tensor_model_parallel_size"].location.line == 1


def test_the_last_override_wins_and_a_launch_with_options_comes_first() -> None:
    (only,) = configurations("python3 x.py a.tensor_model_parallel_size=2 a.tensor_model_parallel_size=4\n")
    assert only.settings["tensor_model_parallel_size"].value == 4
    document = read("run.sh", b"python3 x.py --tensor-model-parallel-size 2 a.tensor_model_parallel_size=4\n")
    assert document is not None
    assert document.format == "megatron-shell"


def test_interpolations_and_unresolved_world_sizes_stay_unknown() -> None:
    (only,) = configurations("python3 x.py 'a.tensor_model_parallel_size=${b.c}' trainer.n_gpus_per_node=$N trainer.nnodes=2\n")
    assert isinstance(only.settings["tensor_model_parallel_size"].value, Unknown)
    assert "world_size" not in only.settings


def test_a_number_of_nodes_that_the_environment_may_set_says_nothing() -> None:
    script = "N=${NODES:-1}\npython3 x.py a.tensor_model_parallel_size=16 trainer.n_gpus_per_node=8 trainer.nnodes=$N\n"
    (only,) = configurations(script)
    assert "world_size" not in only.settings


def test_what_is_deleted_is_not_set() -> None:
    sizes = "a.b.tensor_model_parallel_size=3 a.b.pipeline_model_parallel_size=3"
    (only,) = configurations(f"python3 x.py {sizes} '~a.b.tensor_model_parallel_size'\n")
    assert set(only.settings) == {"pipeline_model_parallel_size"}
    (only,) = configurations(f"python3 x.py {sizes} ~a.b.tensor_model_parallel_size=3 ++a.b.tensor_model_parallel_size=2\n")
    assert only.settings["tensor_model_parallel_size"].value == 2
    assert read("run.sh", f"python3 x.py {sizes} ~a\n".encode()) is None


def test_what_verl_sets_of_megatron_core_belongs_to_the_section() -> None:
    text = "a.megatron.tensor_model_parallel_size=2 +a.megatron.override_transformer_config.recompute_granularity=full"
    (only,) = configurations(f"python3 x.py {text}\n")
    assert only.section == "a.megatron"
    assert only.settings["recompute_granularity"].value == "full"


def ranks(script: str) -> list[tuple[str, object]]:
    each = configurations(script)
    return [(one.section, one.settings["world_size"].value if "world_size" in one.settings else None) for one in each]


def test_rollouts_with_nodes_of_their_own_do_not_run_on_the_ranks_of_the_trainer() -> None:
    script = (
        "python3 x.py trainer.n_gpus_per_node=4 trainer.nnodes=1 r.actor.tensor_model_parallel_size=2"
        " r.rollout.tensor_model_parallel_size=8"
    )
    assert ranks(f"{script}\n") == [("r.actor", 4), ("r.rollout", 4)]
    assert ranks(f"{script} r.rollout.nnodes=0\n") == [("r.actor", 4), ("r.rollout", 4)]
    assert ranks(f"{script} r.rollout.nnodes=1\n") == [("r.actor", 4), ("r.rollout", None)]
    assert ranks(f"{script} rollout.nnodes=$N\n") == [("r.actor", 4), ("r.rollout", None)]


def test_further_settings_of_a_section_are_none_of_their_own() -> None:
    script = (
        "python3 x.py a.tensor_model_parallel_size=2 +a.override_transformer_config.context_parallel_size=4"
        " +a.override_transformer_config.num_layers=8\n"
    )
    (only,) = configurations(script)
    assert only.section == "a"
    assert {name: each.value for name, each in only.settings.items()} == {
        "tensor_model_parallel_size": 2,
        "context_parallel_size": 4,
        "num_layers": 8,
    }


@pytest.mark.parametrize(
    ("program", "more", "expected"),
    [
        ("-m verl.trainer.main_ppo", "", True),
        ("/opt/verl/verl/trainer/main_ppo.py", "", True),
        ("-m verl.experimental.vla.main_ppo", "", False),
        ("-m verl.trainer.main_ppo", "actor_rollout_ref.actor.use_dynamic_bsz=True", False),
    ],
)
def test_the_trainer_of_verl_checks_its_batches_and_other_programs_do_not(program: str, more: str, expected: bool) -> None:
    command = (
        f"python3 {program} data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=16 "
        "actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.rollout.tensor_model_parallel_size=1"
    )
    (only,) = configurations(f"{command} {more}\n")
    found = {each.rule for each in evaluate(only, load_rules()) if isinstance(each, Finding)}
    assert ("mini-batch-above-train-batch" in found) is expected


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("assert config.data.train_batch_size >= config.actor_rollout_ref.actor.ppo_mini_batch_size", True),
        ("if train_batch_size < self.ppo_mini_batch_size:\n            raise ValueError", True),
        ("# assert config.data.train_batch_size >= config.actor_rollout_ref.actor.ppo_mini_batch_size", False),
        ("pass", False),
    ],
)
def test_a_trainer_in_the_checkout_is_held_to_its_own_checks(check: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "verl" / "trainer" / "ppo").mkdir(parents=True)
    (tmp_path / "verl" / "trainer" / "main_ppo.py").write_text("def main(config): ...\n")
    trainer = f"class T:\n    def validate(self, config):\n        {check}\n"
    (tmp_path / "verl" / "trainer" / "ppo" / "ray_trainer.py").write_text(trainer)
    path = tmp_path / "run.sh"
    path.write_text(
        "python3 -m verl.trainer.main_ppo data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=16 "
        "actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.rollout.tensor_model_parallel_size=1\n"
    )
    document = read(str(path))
    assert document is not None
    (only,) = document.configurations
    found = {each.rule for each in evaluate(only, load_rules()) if isinstance(each, Finding)}
    assert ("mini-batch-above-train-batch" in found) is expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", True),
        ("--config-name=ppo_megatron_trainer.yaml", True),
        ("--config-path=conf --config-name=mine", False),
        ("--config-dir=conf", False),
        ("actor_rollout_ref.actor.use_dynamic_bsz=$DYNAMIC", False),
        ("$MORE", True),
    ],
)
def test_what_the_packaged_configuration_of_verl_sets_holds_where_no_other_is_chosen(more: str, expected: bool) -> None:
    command = "python3 -m verl.trainer.main_ppo data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=16"
    (only,) = configurations(f"{command} actor_rollout_ref.rollout.tensor_model_parallel_size=1 {more}\n")
    found = {each.rule: each.message for each in evaluate(only, load_rules()) if isinstance(each, Finding)}
    assert ("mini-batch-above-train-batch" in found) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SCRIPT, []),
        (SCRIPT.replace("  trainer.nnodes", "\n  trainer.nnodes"), [("option-run-as-command", 5)]),
        (SCRIPT.replace("nnodes=2 \\", "nnodes=2 \\  # two"), [("option-run-as-command", 5)]),
        (SCRIPT.replace("nnodes=2 \\", "nnodes=2 \\ "), [("space-after-backslash", 4)]),
        (SCRIPT.replace("\n", "\r\n"), [("carriage-return-after-backslash", 2)]),
        (f"DATA_PATH=/d\n{SCRIPT.replace('$@', 'data.path=$DATA_PAHT')}", [("misspelled-variable", 9)]),
        (SCRIPT.replace("python3 -m", "torchrun --nproc_per_noe 8 -m"), [("misspelled-option", 2)]),
    ],
)
def test_a_slip_in_a_script_of_overrides_is_found_where_it_stands(text: str, expected: list[tuple[str, int]]) -> None:
    document = read("run.sh", text.encode())
    assert document is not None
    assert [(each.rule, each.location.line) for each in document.findings] == expected


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--cnfig-path=a", "--config-path"),
        ("--config_name=a", "--config-name"),
        ("--config--name a", "--config-name"),
        ("--config-name=a", ""),
        ("--conf a", ""),
        ("--config-file a", ""),
        ("--multi_run", "--multirun"),
    ],
)
def test_an_option_of_hydra_is_held_to_its_letters(option: str, meant: str) -> None:
    document = read("run.sh", SCRIPT.replace("trainer.nnodes=2", option).encode())
    assert document is not None
    assert [each.help for each in document.findings] == [f"did you mean `{meant}`?"] * bool(meant)
