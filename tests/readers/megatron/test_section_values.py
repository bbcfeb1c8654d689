"""Values and names of sections that Megatron core does not take, and how many ranks run the roles of reinforcement learning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding, Severity
from tvlint.readers.document import Document
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

RULES = load_rules()
SECTION = "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n  num_layers: 4\n  hidden_size: 64\n"


def document(text: str, name: str = "conf.yaml") -> Document:
    found = read(name, text.encode())
    assert found is not None
    return found


def errors(text: str, name: str = "conf.yaml") -> list[str]:
    results = [result for each in document(text, name).configurations for result in evaluate(each, RULES)]
    return [each.message for each in results if isinstance(each, Finding) and each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("line", "help"),
    [
        ("recompute_granularity: selectiv", "did you mean `selective`?"),
        ("recompute_granularity: fulll", "did you mean `full`?"),
        ("moe_token_dispatcher_type: altoall", "did you mean `alltoall`?"),
        ("global_batch_size: 32.5", "write an integer"),
        ("num_attention_heads: 4x", "write an integer"),
    ],
)
def test_a_value_that_megatron_core_does_not_take_is_a_warning_at_its_place(line: str, help: str) -> None:
    (finding,) = document(f"{SECTION}  {line}\n").findings
    assert (finding.severity, finding.help, finding.location.line) == (Severity.WARNING, help, 6)


@pytest.mark.parametrize(
    "line",
    [
        "normalization: rms_norm",
        "normalization: layernorm1p",
        "transformer_impl: transformer-engine",
        "optimizer: adamw",
        "optimizer: fused_adam",
        "fp8: e5m2",
        "lr_decay_style: cosine_annealing",
        "tokenizer_type: HFTokenizer",
        "global_batch_size: 32.0",
        "micro_batch_size: auto",
        "micro_batch_size: ${mbs}",
        "recompute_granularity: null",
        "save_interval: 0.5",
    ],
)
def test_a_value_that_may_be_a_word_of_a_framework_is_left_alone(line: str) -> None:
    assert document(f"{SECTION}  {line}\n").findings == ()


def test_a_mapping_of_many_settings_needs_no_sizes_to_be_held_to_their_names() -> None:
    many = ["bf16", "lr", "min_lr", "seed", "weight_decay", "clip_grad", "adam_beta1", "adam_beta2"]
    text = SECTION + "training:\n" + "".join(f"  {name}: 1\n" for name in many) + "  use_distributed_optimzer: true\n"
    assert [finding.location.line for finding in document(text).findings] == [15]
    assert document(text.replace("  seed: 1\n", "")).findings == ()


@pytest.mark.parametrize(
    ("path", "section", "is_held"),
    [
        ("a.yaml", "actor", True),
        ("a.yaml", "rollout", False),
        ("rollout/a.yaml", "vllm", False),
        ("actor/a.yaml", "megatron", True),
    ],
)
def test_an_inference_engine_has_names_of_its_own(path: str, section: str, is_held: bool) -> None:
    sizes = (
        "tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  expert_parallel_size: 1\n  seed: 1\n  bf16: true\n"
    )
    found = read(path, f"{section}:\n  {sizes}".encode())
    assert found is not None
    assert [finding.rule for finding in found.findings] == ["misspelled-option"] * is_held


@pytest.mark.parametrize(
    ("override", "help"),
    [
        ("+a.actor.megatron.override_transformer_config.recompute_method=unifrom", "did you mean `uniform`?"),
        (
            "+a.actor.optim.override_optimizer_config.optimizer_cpu_ofload=True",
            "did you mean `a.actor.optim.override_optimizer_config.optimizer_cpu_offload`?",
        ),
    ],
)
def test_what_verl_hands_to_megatron_core_is_held_to_its_names_and_values(override: str, help: str) -> None:
    command = f"python3 -m verl.trainer.main_ppo a.actor.megatron.tensor_model_parallel_size=2 {override}\n"
    assert [finding.help for finding in document(command, "run.sh").findings] == [help]
    right = command.replace("unifrom", "uniform").replace("ofload", "offload")
    assert document(right, "run.sh").findings == ()


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("algorithm.adv_estimator=gea", "gae"),
        ("algorithm.adv_estimator=rlo", "rloo"),
        ("algorithm.adv_estimator=grpo2", ""),
        ("algorithm.adv_estimator=grpo", ""),
        ("actor_rollout_ref.rollout.name=vlm", "vllm"),
        ("actor_rollout_ref.actor.strategy=fsdp3", ""),
        ("other.adv_estimator=gea", ""),
        ("algorithm.adv_estimator=$KIND", ""),
    ],
)
def test_a_word_that_is_a_slip_away_from_one_of_verl_is_a_warning(override: str, meant: str) -> None:
    command = f"python3 -m verl.trainer.main_ppo a.actor.megatron.tensor_model_parallel_size=2 {override}\n"
    found = [(each.severity, each.help) for each in document(command, "run.sh").findings]
    assert found == ([(Severity.WARNING, f"did you mean `{meant}`?")] if meant else [])


@pytest.mark.parametrize(("role", "shown"), [("actor_rollout_ref", "`actor_rollout_ref."), ("a" * 300, "`...aaa")])
def test_the_name_of_an_override_is_shown_from_its_beginning(role: str, shown: str) -> None:
    section = f"{role}.actor.megatron"
    command = f"python3 -m verl.trainer.main_ppo {section}.tensor_model_parallel_size=2 +{section}.{{}}\n"
    text = command.format("override_transformer_config.recompute_granularity=ful")
    (finding,) = document(text, "run.sh").findings
    assert finding.message.startswith(shown)
    assert finding.message.endswith(".recompute_granularity` does not take `ful`")


def test_a_section_of_many_names_that_are_none_of_megatron_is_not_held_to_any() -> None:
    near = "".join(f"  recompute_granularitx{number}: full\n" for number in range(5))
    other = "".join(f"  own_name_{number}: 1\n" for number in range(500))
    assert len(document(SECTION + near).findings) == 5
    assert document(SECTION + near + other).findings == ()


ROLL = """\
actor_train:
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      tensor_model_parallel_size: TP
      context_parallel_size: 2
      pipeline_model_parallel_size: 1
  device_mapping: DEVICES
"""


@pytest.mark.parametrize(
    ("size", "devices", "count"),
    [
        ("3", "list(range(0,16))", 1),
        ("3", "list(range(4, 16))", 0),
        ("8", "list(range(16))", 0),
        ("3", "${mapping}", 0),
    ],
)
def test_the_devices_of_a_role_say_how_many_ranks_it_has(size: str, devices: str, count: int) -> None:
    assert len(errors(ROLL.replace("TP", size).replace("DEVICES", devices))) == count


def test_ranks_that_experts_and_stages_do_not_divide_are_too_few_however_wide_experts_are() -> None:
    roles = ROLL.replace("TP", "1").replace("DEVICES", "list(range(0,32))").replace("context", "expert_model")
    assert errors(roles) == []
    wrong = roles.replace("expert_model_parallel_size: 2", "expert_model_parallel_size: 5")
    (message,) = errors(wrong)
    assert message.startswith("32 ranks do not divide into groups of 5 (expert x pipeline parallel)")
    assert errors(wrong + "  num_gpus_per_worker: 2\n") == []


@pytest.mark.parametrize(("size", "count"), [("5", 1), ("4", 0)])
def test_the_processors_of_mindspeed_rl_are_those_of_its_actor(size: str, count: int) -> None:
    text = f"actor_config:\n  tensor_model_parallel_size: {size}\n  pipeline_model_parallel_size: 1\n"
    assert len(errors(f"{text}rl_config:\n  actor_resource:\n    num_npus: 16\n")) == count


def test_a_refused_number_of_ranks_names_the_groups_that_do_not_fit_and_another_number() -> None:
    sizes = "a.m.tensor_model_parallel_size=4 a.m.pipeline_model_parallel_size=1 a.m.context_parallel_size=3"
    command = f"N=${{N:-4}}\npython3 -m verl.trainer.main_ppo {sizes} a.rollout.tensor_model_parallel_size=12"
    text = f"{command} trainer.n_gpus_per_node=8 trainer.nnodes=$N\n"
    found = [result for each in document(text, "run.sh").configurations for result in evaluate(each, RULES)]
    refused = [each for each in found if isinstance(each, Finding) and each.rule == "world-size-not-divisible"]
    assert [each.message.partition(", unless")[0] for each in refused] == [
        "32 ranks do not divide into groups of 12 (tensor x pipeline x context parallel)",
        "32 ranks do not divide into groups of 12 (tensor parallel)",
    ]
    assert all((each.help or "").startswith("use 24 or 36 ranks, or smaller groups") for each in refused)


def test_what_another_option_takes_is_no_slip_of_a_letter(tmp_path: Path) -> None:
    text = "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  rope_type: {}\n"
    path = tmp_path / "model.yaml"
    found = {}
    for value in ("mrope", "yarm"):
        path.write_text(text.format(value))
        document = read(str(path))
        assert document is not None
        found[value] = [each.rule for each in document.findings]
    assert found == {"mrope": [], "yarm": ["option-value-not-a-choice"]}


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("--recompute_granularity ful", "option-value-not-a-choice"),
        ("--moe_permut_fusion true", "misspelled-option"),
        ("--recompute_granularity none", None),
        ("--packing true --split_dataset_ratio 0.01", None),
    ],
)
def test_commands_of_ms_swift_are_held_to_their_own_names_and_to_the_words_of_megatron(
    tmp_path: Path, written: str, rule: str | None
) -> None:
    path = tmp_path / "sft.sh"
    path.write_text(f"NPROC_PER_NODE=8 megatron sft --tensor_model_parallel_size 2 --model Qwen/Qwen3-8B {written}\n")
    document = read(str(path))
    assert document is not None
    assert [each.rule for each in document.findings] == ([rule] if rule else [])
    fixes = [edit.text for each in document.findings for fix in each.fixes for edit in fix.edits]
    assert fixes == {"option-value-not-a-choice": ["full"], "misspelled-option": ["--moe_permute_fusion"]}.get(rule or "", [])


@pytest.mark.parametrize(
    ("lines", "meant"),
    [
        ("logger:\n  enabled: ture\n", "did you mean `true`?"),
        ("  sequence_parallel: Flase\n", "did you mean `false`?"),
        ("logger:\n  enabled: Flse\n", "did you mean `false`?"),
        ("logger:\n  enabled: truue\n", "did you mean `true`?"),
        ("logger:\n  name: tree\n  kind: leafs\n", ""),
    ],
)
def test_a_truth_value_with_swapped_letters_is_none_under_any_name(lines: str, meant: str) -> None:
    found = [(each.severity, each.help) for each in document(SECTION + lines).findings]
    assert found == [(Severity.WARNING, meant)] * bool(meant)


@pytest.mark.parametrize(
    ("override", "is_refused"),
    [
        ("trainer.n_gpus_per_node=8x", True),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=64.5", True),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4x", True),
        ("trainer.n_gpus_per_node=auto", False),
        ("trainer.n_gpus_per_node='${n}'", False),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=64.0", False),
        ("data.shard_size=5GB", False),
    ],
)
def test_a_count_that_is_none_is_a_warning_under_names_of_any_framework(override: str, is_refused: bool) -> None:
    command = "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"
    found = document(f"{command} {override}\n", "run.sh").findings
    assert [each.rule for each in found] == ["option-value-not-a-number"] * is_refused


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("critic.ppo_micro_batch_size_per_gpu=0", "option-value-out-of-range"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=1.5", "option-value-out-of-range"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=1", ""),
        ("actor_rollout_ref.actor.entropy_coeff=0.001x", "option-value-not-a-number"),
        ("actor_rollout_ref.actor.entropy_coeff=1e-3", ""),
        ("data.train_batch_size=0", ""),
        ("trainer.nnodes=0", ""),
        ("trainer.project_name=7b", ""),
    ],
)
def test_numbers_of_verl_that_are_none(override: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        f"python -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=1 {override}\n", encoding="utf-8"
    )
    found = read(str(path))
    assert found is not None
    assert [(each.rule, each.severity) for each in found.findings] == ([(rule, Severity.WARNING)] if rule else [])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("strategy: fsdp", ""),
        ("strateyg: fsdp", "did you mean `strategy`?"),
        ("batch_micro_size: 4", "did you mean `micro_batch_size`?"),
        ("swap_space: 4", ""),
        ("strateyg: fsdp\n    strategy: fsdp", ""),
    ],
)
def test_a_key_that_nothing_in_the_package_of_verl_reads_is_a_slip(key: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "verl" / "trainer" / "config"
    folder.mkdir(parents=True)
    reads = "def run(config):\n    return config.actor.strategy, config.get('micro_batch_size'), config.rollout.name\n"
    names = "actor_rollout_ref actor rollout tensor_model_parallel_size"
    (tmp_path / "verl" / "__init__.py").write_text("")
    (tmp_path / "verl" / "trainer" / "__init__.py").write_text("")
    (tmp_path / "verl" / "trainer" / "main.py").write_text(reads + f"NAMES = '{names}'\n")
    path = folder / "ppo.yaml"
    path.write_text(f"actor_rollout_ref:\n  actor:\n    {key}\n  rollout:\n    name: vllm\n    tensor_model_parallel_size: 2\n")
    found = read(str(path))
    assert found is not None
    assert [(each.severity, each.help) for each in found.findings] == ([(Severity.WARNING, meant)] if meant else [])
