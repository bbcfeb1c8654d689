"""YAML configurations of Megatron: blocks of options, snake_case sections, and what YAML hides."""

from __future__ import annotations

import pytest

from tvlint.findings import Severity
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.document import Document, ReadError
from tvlint.readers.megatron.model_args_yaml import read, recognise


def document(text: str) -> Document:
    found = read("model.yaml", text.encode())
    assert found is not None
    return found


def only(text: str) -> Configuration:
    (configuration,) = document(text).configurations
    return configuration


def test_options_of_a_block_have_values_and_places() -> None:
    text = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"
    configuration = only(text + "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: true\n")
    setting = configuration.settings["tensor_model_parallel_size"]
    assert setting.value == 2
    assert (setting.location.line, setting.location.column, setting.location.end_column) == (4, 33, 34)
    assert (setting.name_location.line, setting.name_location.column) == (4, 3)
    assert configuration.settings["bf16"].value is True
    assert configuration.environment["CUDA_DEVICE_MAX_CONNECTIONS"].value == 1
    assert configuration.complete
    assert configuration.section == "MODEL_ARGS"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("--lr: 1e-5", "lr", 1e-5),
        ('--lr: "1e-5"', "lr", 1e-5),
        ("--num-layers: 010", "num_layers", 10),
        ("--num-layers: 1:30", "num_layers", "1:30"),
        ("--num-layers: many", "num_layers", "many"),
        ("--bf16: false", "bf16", False),
        ("--no-masked-softmax-fusion: true", "masked_softmax_fusion", False),
        ('--cp-comm-type: "[p2p a2a]"', "cp_comm_type", ("p2p", "a2a")),
        ("--cp-comm-type: [p2p, a2a]", "cp_comm_type", ("p2p", "a2a")),
        ("--moe-layer-freq: ([0]*3+[1]*24)", "moe_layer_freq", "([0]*3+[1]*24)"),
        ("--load: ${CHECKPOINT}", "load", Unknown("depends on a variable that is substituted later", given=True)),
        ("--data-path: $DATA", "data_path", Unknown("depends on a variable that is substituted later", given=True)),
        ("--brand-new: 3", "brand_new", 3),
    ],
)
def test_values_are_what_the_command_line_gets(line: str, name: str, value: object) -> None:
    found = only(f"MODEL_ARGS:\n  {line}\n").settings[name].value
    assert found == value
    assert type(found) is type(value)


def test_further_blocks_inherit_through_merge_keys() -> None:
    text = (
        "BASE: &base\n  --num-layers: 4\n  --tensor-model-parallel-size: 1\n"
        "MODEL_ARGS:\n  <<: *base\n"
        "MODEL_ARGS_2:\n  <<: *base\n  --tensor-model-parallel-size: 2\n"
    )
    first, second = document(text).configurations
    assert [first.section, second.section] == ["MODEL_ARGS", "MODEL_ARGS_2"]
    assert [each.settings["tensor_model_parallel_size"].value for each in (first, second)] == [1, 2]
    assert second.settings["num_layers"].location.line == 2
    assert not document(text).findings


def test_world_size_comes_from_the_environment_of_the_block() -> None:
    text = "MODEL_ENV_VARS:\n  MODEL_ARGS:\n    GPUS_PER_NODE: 8\n    NNODES: 2\nMODEL_ARGS:\n  --num-layers: 2\n"
    assert only(text).settings["world_size"].value == 16


@pytest.mark.parametrize(
    "text",
    [
        "MODEL_ARGS:\n  --num-layers: many\n  --num-layers: 24\n",
        "model:\n  num_layers: many\n  num_layers: 24\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n",
        "model:\n  num_layers: 7\nmodel:\n  num_layers: 24\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n",
        "base: &base\n  num_layers: 7\nMODEL_ARGS:\n  <<: *base\n  --num-layers: 7\n  --num-layers: 24\n",
    ],
)
def test_the_last_of_a_key_that_stands_twice_is_judged_alone(text: str) -> None:
    configuration = only(text)
    assert configuration.settings["num_layers"].value == 24
    assert configuration.overridden == ()
    assert not any("num_layers" in name for name in configuration.beside)


@pytest.mark.parametrize("name", ["recompute_modules", "offload_modules", "moe_router_load_balancing_type", "cp_comm_type"])
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[one]", ("one",)),
        ('["one", "two"]', ("one", "two")),
        ("\n  - one\n  - two", ("one", "two")),
        ("one", ("one",)),
        ("one, two", ("one", "two")),
        ("null", None),
        ("[]", ()),
        ("[one, [two]]", Unknown("holds more than plain values", given=True)),
        ('[one, "${two}"]', Unknown("holds more than plain values", given=True)),
    ],
)
def test_a_list_of_a_section_is_the_list_that_the_option_takes(name: str, written: str, value: object) -> None:
    text = f"model:\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n  {name}: {written}\n"
    assert only(text).settings[name].value == value


def test_a_duplicate_key_is_found_where_it_stands() -> None:
    found = document("MODEL_ARGS:\n  --num-layers: 2\n  --bf16: true\n  --num-layers: 4\n")
    (finding,) = found.findings
    assert (finding.rule, finding.severity) == ("yaml-duplicate-key", Severity.WARNING)
    assert (finding.location.line, finding.location.column) == (4, 3)
    assert finding.related[0].location.line == 2
    (configuration,) = found.configurations
    assert configuration.settings["num_layers"].value == 4
    assert configuration.overridden == ()


def test_every_parallel_section_is_a_configuration_of_its_own() -> None:
    text = (
        "actor:\n  megatron:\n    tensor_model_parallel_size: 4\n    pipeline_model_parallel_size: ${pp}\n    lr: 1e-5\n"
        "ref:\n  megatron:\n    tensor_model_parallel_size: 2\n    sequence_parallel: yes\n"
        "rollout:\n  tensor_model_parallel_size: 8\n"
    )
    actor, ref = document(text).configurations
    assert [actor.section, ref.section] == ["actor.megatron", "ref.megatron"]
    assert actor.settings["tensor_model_parallel_size"].value == 4
    assert actor.settings["lr"].value == 1e-5
    assert isinstance(actor.settings["pipeline_model_parallel_size"].value, Unknown)
    assert ref.settings["sequence_parallel"].value is True
    assert not actor.complete


@pytest.mark.parametrize(
    ("written", "value"),
    [("010", 8), ("1_000", 1000), ("1:30", 90), ("null", None), ('"4"', "4"), ("08", 8), ("four", "four")],
)
def test_plain_words_have_the_types_of_yaml(written: str, value: object) -> None:
    text = f"model:\n  tensor_model_parallel_size: {written}\n  sequence_parallel: true\n"
    assert only(text).settings["tensor_model_parallel_size"].value == value


def test_documents_are_told_apart() -> None:
    text = "MODEL_ARGS: {--num-layers: 2}\n---\nMODEL_ARGS: {--num-layers: 4}\n"
    assert [each.section for each in document(text).configurations] == ["MODEL_ARGS", "document 2/MODEL_ARGS"]


def test_columns_count_code_points_and_line_ends_may_be_crlf() -> None:
    setting = only("\ufeffMODEL_ARGS:\r\n  # ü\r\n  {'--tokenizer-model': 'ü', --num-layers: 4}\r\n").settings["num_layers"]
    assert (setting.value, setting.location.line, setting.location.column) == (4, 3, 44)


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"MODEL_ARGS:\n  --num-layers: \xff\n", 2, "not UTF-8"),
        (b"MODEL_ARGS:\n\t--num-layers: 2\n", 2, "not valid YAML"),
        (b"MODEL_ARGS:\n  --num-layers: 2\0\n", 2, "not valid YAML"),
        (b"MODEL_ARGS: [\n", 2, "not valid YAML"),
        (b"MODEL_ARGS:\n  <<: *nowhere\n", 2, "no anchor"),
        (b"MODEL_ARGS: &a\n  <<: *a\n", 1, "circle"),
        (b"MODEL_ARGS:\n  <<: 3\n", 2, "does not name a mapping"),
        (b"MODEL_ARGS: " + b"[" * 100_000, 1, "nested deeper|nesting depth"),
        (b"MODEL_ARGS:\n" + b"- " * 100_000, 2, "nested deeper|nesting depth"),
        (b"MODEL_ARGS: " + b"{a: " * 100_000, 1, "nested deeper|nesting depth"),
    ],
)
def test_what_cannot_be_read_is_a_located_error(data: bytes, line: int, message: str) -> None:
    with pytest.raises(ReadError, match=message) as caught:
        read("model.yaml", data)
    assert caught.value.problem.location.line == line


def test_aliases_of_aliases_are_bounded() -> None:
    bomb = "a0: &a0 {--x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
    with pytest.raises(ReadError, match="aliases expand"):
        read("model.yaml", (bomb + "MODEL_ARGS: {<<: *a11}\n").encode())


def test_a_cycle_of_values_is_read_once() -> None:
    text = "model: &m\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n  self: *m\n  all: [*m, *m]\n"
    assert only(text).section == "model"


def test_a_template_is_not_judged() -> None:
    assert read("model.yaml", b"{% if x %}\nmodel:\n  tensor_model_parallel_size: {{ tp }}\n{% endif %}\n") is None


def test_a_byte_order_mark_hides_nothing() -> None:
    data = b"\xef\xbb\xbfMODEL_ARGS:\n  --tensor-model-parallel-size: 2\n"
    assert recognise("model", data)
    found = read("model.yaml", data)
    assert found is not None
    assert found.configurations[0].settings["tensor_model_parallel_size"].location.line == 2


INTERPOLATED = """\
sizes:
  tp: 4
  list: [2, 3]
base:
  deep: {{cp: 2}}
  model:
    tensor_model_parallel_size: {value}
    context_parallel_size: 1
"""


@pytest.mark.parametrize(
    ("value", "expected", "line"),
    [
        ("${sizes.tp}", 4, 2),
        ("${sizes.list[1]}", 3, 3),
        ("${.context_parallel_size}", 1, 8),
        ("${..deep.cp}", 2, 5),
        ("${oc.env:TP,8}", 8, 7),
        ("${TP:8}", 8, 7),
        ("${oc.select:sizes.tp,1}", 4, 2),
        ("${oc.select:sizes.none,1}", 1, 7),
    ],
)
def test_an_interpolation_stands_for_what_it_names_in_the_file(value: str, expected: int, line: int) -> None:
    configuration = only(INTERPOLATED.format(value=value))
    setting = configuration.settings["tensor_model_parallel_size"]
    assert (setting.value, setting.location.line) == (expected, line)


@pytest.mark.parametrize(
    "value",
    [
        "${sizes.pp}",
        "${oc.env:TP}",
        "${TP}",
        "${sizes.tp}x",
        "${.tensor_model_parallel_size}",
        "${eval:1+1}",
        "${.....x}",
        "${sizes}",
    ],
)
def test_an_interpolation_that_leads_nowhere_is_unknown(value: str) -> None:
    configuration = only(INTERPOLATED.format(value=value))
    assert isinstance(configuration.settings["tensor_model_parallel_size"].value, Unknown)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seq_length: 1:30", "YAML reads `1:30` as 90"),
        ("num_layers: 010", "YAML reads `010` as 8"),
        ("position_embedding_type: off", "YAML reads `off` as false"),
    ],
)
def test_a_value_that_yaml_reads_differently_is_found(line: str, message: str) -> None:
    found = document(f"m:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 1\n  {line}\n").findings
    assert [(each.rule, each.message, each.location.line) for each in found] == [("yaml-value-reinterpreted", message, 4)]


@pytest.mark.parametrize(
    "line", ["num_layers: '010'", "num_layers: 10", "sequence_parallel: on", "position_embedding_type: rope"]
)
def test_a_value_that_yaml_reads_as_written_is_not(line: str) -> None:
    assert document(f"m:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 1\n  {line}\n").findings == ()


def test_many_interpolations_of_a_large_file_are_resolved() -> None:
    filler = "".join(f"key{number}: 1\n" for number in range(500))
    sections = "".join(
        f"m{number}:\n  tensor_model_parallel_size: ${{tp}}\n"
        f"  context_parallel_size: ${{m{number}.tensor_model_parallel_size}}\n"
        for number in range(200)
    )
    found = document(filler + "tp: 2\n" + sections).configurations
    assert {each.settings["context_parallel_size"].value for each in found} == {2}
    assert len(found) == 200


def test_backslashes_for_the_shell_are_no_part_of_a_layout() -> None:
    text = "MODEL_ARGS:\n  --pipeline-model-parallel-size: 2\n  --pipeline-model-parallel-layout: Et\\\\|\\(tt\\|\\)*3L\n"
    document = read("model_config.yaml", text.encode())
    assert document is not None
    assert document.configurations[0].settings["pipeline_model_parallel_layout"].value == "Et|(tt|)*3L"


def test_a_section_may_write_a_list_as_words_with_commas() -> None:
    text = 'tensor_model_parallel_size: 2\npipeline_model_parallel_size: 1\nrecompute_modules: "mlp, core_attn"\n'
    assert only(text).settings["recompute_modules"].value == ("mlp", "core_attn")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("trainer: {devices: 8, num_nodes: 4}\n", 32),
        ("trainer: {devices: 8, num_nodes: 1}\n", None),
        ("trainer: {devices: auto, num_nodes: 4}\n", None),
        ("trainer: {devices: 8, num_nodes: '${nodes}'}\nnodes: 2\n", 16),
        ("trainer: {n_gpus_per_node: 8, nnodes: 1}\n", 8),
        ("trainer: {n_gpus_per_node: 1, nnodes: 1}\n", None),
        ("trainer: {n_gpus_per_node: 8}\n", None),
        ("cluster: {gpus_per_node: 8, num_nodes: 2}\n", 16),
    ],
)
def test_a_trainer_or_a_cluster_tells_how_many_ranks_run(text: str, size: int | None) -> None:
    found = only(text + "model: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}\n").settings.get("world_size")
    assert (found.value if found is not None else None) == size


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        ("", 4),
        ("nnodes: 0, n_gpus_per_node: 8, ", 4),
        ("nnodes: 2, n_gpus_per_node: 6, ", None),
        ("nnodes: '${trainer.nnodes}', ", None),
    ],
)
def test_a_section_with_nodes_of_its_own_does_not_run_on_the_ranks_of_the_trainer(pool: str, size: int | None) -> None:
    sizes = "inference: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 1}"
    found = only(f"distillation: {{{pool}teacher_models: {{one: {{{sizes}}}}}}}\ntrainer: {{n_gpus_per_node: 4, nnodes: 1}}\n")
    given = found.settings.get("world_size")
    assert (given.value if given is not None else None) == size


def test_one_size_makes_a_section_where_the_file_is_known_to_be_of_verl() -> None:
    text = "{key}:\n  rollout:\n    tensor_model_parallel_size: 5\ntrainer:\n  n_gpus_per_node: 8\n  nnodes: 1\n"
    rollout = only(text.format(key="actor_rollout_ref"))
    assert (rollout.section, rollout.framework) == ("actor_rollout_ref.rollout", "verl")
    assert (rollout.settings["tensor_model_parallel_size"].value, rollout.settings["world_size"].value) == (5, 8)
    assert read("model.yaml", text.format(key="model").encode()) is None


def test_what_verl_sets_of_megatron_core_belongs_to_the_section_around_it() -> None:
    text = "actor:\n  megatron:\n    tensor_model_parallel_size: 2\n    sequence_parallel: true\n    recompute_granularity: x\n"
    found = only(text + "    override_transformer_config:\n      recompute_granularity: full\n      num_layers: ${a}\na: 4\n")
    assert found.section == "actor.megatron"
    assert found.settings["recompute_granularity"].value == "full"
    assert found.settings["num_layers"].value == 4


SECTION = "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  num_layers: 4\n  hidden_size: 64\n"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("deteministic_mode: true", ["deterministic_mode"]),
        ("expert_parallel_size: 2", ["expert_model_parallel_size"]),
        ("num_attention_haeds: 2", ["num_attention_heads"]),
        ("distributed-timeout-minutes: 2", []),
        ("tensor_parallel_size: 2", []),
        ("num_moe_experts: 2", []),
        ("wandb: 2", []),
    ],
)
def test_a_key_that_is_nearly_a_setting_of_the_section_is_a_warning(key: str, meant: list[str]) -> None:
    found = [each for each in document(f"{SECTION}  {key}\n").findings if each.rule == "misspelled-option"]
    assert [(each.help, each.severity.value, each.location.line) for each in found] == [
        (f"did you mean `{name}`?", "warning", 6) for name in meant
    ]


def test_a_mapping_with_few_settings_of_megatron_may_name_its_keys_as_it_likes() -> None:
    few = SECTION.replace("  num_layers: 4\n  hidden_size: 64\n", "  num_attention_haeds: 2\n")
    assert document(few).findings == ()


@pytest.mark.parametrize("value", ["true_", "yes", "3", '"on"'])
def test_a_switch_of_a_block_with_another_value_than_a_boolean_is_found(value: str) -> None:
    (finding,) = document(f"MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: {value}\n").findings
    word = value.strip('"')
    assert (finding.rule, finding.severity) == ("value-after-complete-option", Severity.ERROR)
    assert finding.message == f"`--bf16` takes no value, and `{word}` stands after it"
    assert finding.location.line == 3
    assert bool(finding.fixes) is (word in ("yes", "on"))


@pytest.mark.parametrize("value", ["true", '"true"', "false", "${BF16}"])
def test_a_switch_of_a_block_may_be_a_boolean_or_open(value: str) -> None:
    assert document(f"MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: {value}\n").findings == ()


def test_switches_of_a_block_with_options_of_another_program_are_left_alone() -> None:
    text = "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --own-thing-of-a-fork: 1\n  --bf16: 3\n"
    assert document(text).findings == ()
