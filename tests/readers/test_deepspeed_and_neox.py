"""DeepSpeed JSON and GPT-NeoX YAML: what is recognised, where values stand, and what the rules say of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import sampled
from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, SettingValue, Unknown
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.readers.sources.json_nodes import NotJson, parse
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules


def configuration(text: str, path: str = "file") -> Configuration:
    """The one configuration of the file."""
    document = read(path, text.encode())
    assert document is not None
    (found,) = document.configurations
    return found


def errors(found: Configuration) -> list[str]:
    """The rules that the configuration breaks."""
    return [each.rule for each in evaluate(found, load_rules()) if isinstance(each, Finding)]


def test_a_deepspeed_file_gives_its_settings_at_their_places() -> None:
    found = configuration(
        '{\n\t"train_batch_size": 32,\n\t"train_micro_batch_size_per_gpu": "auto",\n\t"zero_optimization": {"stage": 3}\n}'
    )
    assert (found.framework, found.format) == ("deepspeed", "deepspeed-json")
    batch, stage = found.settings["train_batch_size"], found.settings["zero_optimization_stage"]
    assert (batch.value, batch.location.line, batch.location.column, batch.location.end_column) == (32, 2, 22, 24)
    assert (stage.value, stage.written, stage.location.column) == (3, "zero_optimization.stage", 33)
    assert found.settings["train_micro_batch_size_per_gpu"].value == Unknown("filled in later (`auto`)", given=True)


def test_elastic_training_chooses_the_batch() -> None:
    found = configuration(
        '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {}, "elasticity": {"on": 1}}'
    )
    assert errors(found) == []


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}, ["train-batch-not-multiple"]),
        ({"train_batch_size": 30, "gradient_accumulation_steps": 4}, ["train-batch-not-multiple"]),
        (
            {"train_batch_size": 36, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 6},
            ["train-batch-not-multiple"],
        ),
        ({"train_batch_size": 36, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, []),
        ({"train_batch_size": 36, "train_micro_batch_size_per_gpu": "auto"}, []),
        ({"train_batch_size": 36}, []),
    ],
)
def test_the_batch_is_a_multiple_of_what_is_given(batch: dict[str, object], expected: list[str]) -> None:
    assert errors(configuration(json.dumps({**batch, "zero_optimization": {"stage": 2}}))) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"train_batch_size": 4}',
        '{"zero_optimization": {"stage": 3}}',
        '{"a": {"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}}}',
        '[{"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}}]',
        '{"zero_optimization": {"stage": 3}, "fp16": {"enabled": true},}',
        '{"zero_optimization": {"stage": CONFIG_STAGE}, "fp16": {"enabled": true}}',
        '{"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}} more',
        "pipe_parallel_size: 1\nmodel_parallel_size: 1\n",
        "launcher:\n  pipe_parallel_size: 1\n  pos_emb: rotary\n  no_weight_tying: true\n",
        "pipe_parallel_size: 1\npos_emb: [\nno_weight_tying: true\n",
    ],
)
def test_what_is_not_surely_one_of_them_is_passed_over(text: str) -> None:
    assert read("file", text.encode()) is None


def test_neox_keys_have_hyphens_or_underscores_and_the_file_is_never_complete() -> None:
    found = configuration(
        '# one\n{\n  "pipe-parallel-size": 2,\n  "model_parallel_size": 8, # tensor\n  "num-attention-heads": 12,\n'
        '  "pos-emb": "rotary",\n  "no-weight-tying": True,\n}\n'
    )
    assert (found.framework, found.complete) == ("gpt-neox", False)
    values: dict[str, SettingValue | Unknown] = {name: setting.value for name, setting in found.settings.items()}
    assert values == {"pipe_parallel_size": 2, "model_parallel_size": 8, "num_attention_heads": 12}
    assert errors(found) == ["heads-not-divisible-by-model-parallel"]


@pytest.mark.parametrize(("kind", "expected"), [("global", 1), ("flash", 1), ("mamba", 0), ("rwkv", 0), ("${KIND}", 0)])
def test_heads_of_other_layers_are_not_judged(kind: str, expected: int) -> None:
    found = configuration(
        f'pipe_parallel_size: 1\nmodel_parallel_size: 8\nnum_attention_heads: 12\nattention_config: [[["{kind}"], 12]]\n'
        "pos_emb: rotary\n"
    )
    assert len(errors(found)) == expected


def plain(node: YamlNode) -> object:
    """The value of the node, as Python's own parser has it."""
    if isinstance(node, YamlMapping):
        return {key.text: plain(value) for key, value in node.entries if isinstance(key, YamlScalar)}
    if isinstance(node, YamlSequence):
        return [plain(item) for item in node.items]
    return json.loads(node.text) if node.plain else node.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=80)
@given(VALUES, st.sampled_from([None, 1, "\t"]))
def test_json_has_the_values_of_the_standard_parser(value: object, indent: int | str | None) -> None:
    assert plain(parse("file", json.dumps(value, indent=indent))) == value


@settings(max_examples=150)
@given(st.text(alphabet='{}[],:"\\0 1-.etrufalsn\n', max_size=30))
def test_what_json_refuses_is_refused(text: str) -> None:
    try:
        parse("file", text)
    except NotJson:
        return
    json.loads(text)


@pytest.mark.parametrize(
    "text", sampled(["[" * 100_000, '{"a":' * 100_000, "[" + "0," * 500_000 + "0]", '"' + "\\" * 99_999, "9" * 10**6], 3)
)
def test_hostile_json_ends(text: str) -> None:
    try:
        parse("file", text)
    except (NotJson, ReadError):
        return
    assert text[0] == "9"


def test_a_configuration_that_is_cut_off_is_a_problem_at_its_place() -> None:
    text = '{\n  "train_batch_size": 64,\n  "zero_optimization": {"stage": 7},\n'
    with pytest.raises(ReadError, match="not JSON") as raised:
        read("ds.json", text.encode())
    assert raised.value.problem.location.line == 4
    assert read("ds.json", (text.replace("64", "{{ batch }}")).encode()) is None
    assert read("log.json", b'{"train_batch_size": 64}\n{"train_batch_size": 64}\n') is None


def test_aliases_of_aliases_end() -> None:
    bomb = "b0: &b0 [global, 1]\n" + "".join(
        f"b{level}: &b{level} [{', '.join([f'*b{level - 1}'] * 10)}]\n" for level in range(1, 14)
    )
    text = "pipe_parallel_size: 1\npos_emb: rotary\nmodel_parallel_size: 8\nnum_attention_heads: 12\n"
    assert len(errors(configuration(f"{text}{bomb}attention_config: *b13\n"))) == 1


@pytest.mark.parametrize(
    ("entry", "severity", "meant"),
    [
        ('"zero_optimization": {"stage": 2, "overlap_com": true}', "error", "overlap_comm"),
        ('"zero_optimization": {"stage": 2, "ovelrap_comm": true}', "error", "overlap_comm"),
        ('"zero_optimization": {"stage": 2, "overlap_com": 1, "overlap_comm": 1}', "", ""),
        ('"zero_optimization": {"stage": 2, "of_a_fork": true}', "", ""),
        ('"zero_optimization": {"cpu_offload_params": true, "stage3_max_live_parameters": 1}', "", ""),
        ('"bf16": {"enable": true}', "warning", "enabled"),
        ('"gradient_cliping": 1.0', "warning", "gradient_clipping"),
    ],
)
def test_a_key_that_deepspeed_does_not_read_is_a_slip(entry: str, severity: str, meant: str) -> None:
    document = read("ds.json", f'{{"train_micro_batch_size_per_gpu": 4, "train_batch_size": 64,\n{entry}}}'.encode())
    assert document is not None
    found = [(each.rule, each.severity.value, each.help, each.location.line) for each in document.findings]
    assert found == ([("misspelled-option", severity, f"did you mean `{meant}`?", 2)] if meant else [])


@pytest.mark.parametrize(
    ("zero", "found"),
    [
        ('"stage": "three"', "`stage` takes an integer, not `three`"),
        ('"stage": "3"', ""),
        ('"stage": "auto", "reduce_bucket_size": 5e8, "overlap_comm": 1', ""),
        ('"stage": 3, "reduce_bucket_size": "5GB"', "`reduce_bucket_size` takes an integer, not `5GB`"),
        ('"stage": 3, "stage3_prefetch_bucket_size": 0.5', "`stage3_prefetch_bucket_size` takes an integer, not `0.5`"),
        ('"stage": 3, "overlap_comm": "yes please"', "`overlap_comm` takes `true` or `false`, not `yes please`"),
        ('"stage": 3, "overlap_comm": "Yes"', ""),
        ('"stage": 3, "offload_param": {"device": "gpu"}', "`device` does not take `gpu`"),
        ('"stage": 3, "offload_param": {"device": "cpu", "pin_memry": true}', "DeepSpeed has no setting `pin_memry`"),
        ('"stage": 3, "offload_param": {"device": "cpu", "buffer_count": "few"}', "`buffer_count` takes an integer, not `few`"),
        ('"stage": 3, "offload_param": {"device": "${device}"}, "offload_optimizer": {"device": "nvme"}', ""),
    ],
)
def test_a_value_that_deepspeed_does_not_convert_is_an_error(zero: str, found: str) -> None:
    document = read("ds.json", f'{{"train_batch_size": 4,\n"zero_optimization": {{{zero}}}}}'.encode())
    assert document is not None
    assert [(each.message, each.location.line) for each in document.findings] == ([(found, 2)] if found else [])


@pytest.mark.parametrize("count", ["many", "8"])
def test_a_batch_is_a_number(count: str) -> None:
    document = read("ds.json", f'{{"train_batch_size": "{count}", "zero_optimization": {{"stage": 1}}}}'.encode())
    assert document is not None
    assert [each.rule for each in document.findings] == (["option-value-not-a-number"] if count == "many" else [])


@pytest.mark.parametrize(
    ("entry", "help"),
    [
        ("train-itters: 1000", "did you mean `train-iters`?"),
        ("train_itters: 1000", "did you mean `train_iters`?"),
        ("a_key_of_a_fork: 1000", ""),
        ("train-iters: 1000.5", "write an integer"),
        ("train-iters: 1_000", ""),
        ("weight-decay: 1", ""),
        ("weight-decay: none", "write a number"),
        ("finetune: 1", "write `true` or `false`"),
        ("activation: GELU", ""),
        ("fp16: {enabled: true, los_scale: 0}", "did you mean `loss_scale`?"),
        ("fp16: {enabled: true, loss_scale: many}", "write a number"),
        ("fp16: {enabled: true, loss_scale: 0, initial_scale_power: 12, min_loss_scale: 1.0}", ""),
        ("zero_optimization: {stage: 1, contiguous_gradents: true}", "did you mean `contiguous_gradients`?"),
        (
            "activation: softmax",
            "one of `gelu`, `geglu`, `relu`, `softsign`, `swish`, `mish`, `silu`, `reglu`, `swiglu`, `bilinear`, `glu`",
        ),
        ("activation: softmax\nfork: 1", ""),
        ("activation: gleu\nfork: 1", "did you mean `gelu`?"),
        ("zero_optimization: {stage: 1, offload_optimizer: {device: gpu}}", "one of `none`, `cpu`, `nvme`"),
    ],
)
def test_what_gpt_neox_refuses_is_an_error_unless_a_fork_may_take_it(entry: str, help: str) -> None:
    text = f"pipe-parallel-size: 1\nmodel-parallel-size: 2\npos-emb: rotary\nno-weight-tying: true\n{entry}\n"
    document = read("125M.yml", text.encode())
    assert document is not None
    found = [(each.severity.value, each.help, each.location.line) for each in document.findings]
    assert found == ([("warning" if "los_scale" in entry else "error", help, 5)] if help else [])


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("train-iters: 143000k\nmy_own: 1", [("option-value-not-a-number", "write an integer")]),
        ("train-iters: auto\nmy_own: 1", []),
        ("train-iters: -1", [("option-value-out-of-range", "use 0 or more")]),
        ("train-iters: 0", []),
        ("attention-dropout: 1.5", [("option-value-out-of-range", "use a number from 0 to 1")]),
        ("hidden_dropout: 1", []),
        ("train_micro_batch_size_per_gpu: 0", [("option-value-out-of-range", "use 1 or more")]),
        ("attention_train_dropout: 0", []),
        ("dropout-attention: 0", [("misspelled-option", "did you mean `attention-dropout`?")]),
        ("use_attention_dropout: 0", [("misspelled-option", "did you mean `attention_dropout`?")]),
        ("use_attention_dropout: 0\nattention_dropout: 0", []),
        ("optimizer: {type: Adaam}", [("option-value-not-a-choice", "did you mean `Adam`?")]),
        ("optimizer: {type: FusedAdam}\nscheduler: {type: WarmupLR}", []),
        ("zero_optimization: {allgather-partitions: true}", [("misspelled-option", "did you mean `allgather_partitions`?")]),
        ("fp16: {loss_min_scale: 1}", [("misspelled-option", "did you mean `min_loss_scale`?")]),
    ],
)
def test_numbers_words_and_keys_of_gpt_neox_that_are_none(entry: str, found: list[tuple[str, str]]) -> None:
    document = read("a.yml", f"pipe-parallel-size: 1\nno-weight-tying: true\npos-emb: rotary\n{entry}\n".encode())
    assert document is not None
    assert [(each.rule, each.help) for each in document.findings] == found


@pytest.mark.parametrize(("size", "is_refused"), [("0", True), ("-1", True), ("1", False), ('"auto"', False), ("true", False)])
def test_a_batch_of_deepspeed_has_a_sample(size: str, is_refused: bool) -> None:
    document = read("a.json", f'{{"zero_optimization": {{"stage": 1}}, "train_micro_batch_size_per_gpu": {size}}}'.encode())
    assert document is not None
    assert [each.rule == "option-value-out-of-range" for each in document.findings if "number" not in each.rule] == (
        [True] if is_refused else []
    )


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ('"optimizer": {"type": "AdamW", "params": {"weight_deacy": 0}}', "did you mean `weight_decay`?"),
        ('"scheduler": {"type": "WarmupLR", "params": {"min_warmup_lr": 0}}', "did you mean `warmup_min_lr`?"),
        ('"optimizer": {"type": "Muon", "params": {"lr": 1, "muon_lr": 1, "rank": 2}}', ""),
        ('"gradient-accumulation-steps": 2', "did you mean `gradient_accumulation_steps`?"),
        ('"my-own": 2', ""),
    ],
)
def test_parameters_and_hyphens_of_deepspeed_are_held_to_its_names(entry: str, meant: str) -> None:
    document = read("a.json", f'{{"zero_optimization": {{"stage": 1}}, "train_batch_size": 2, {entry}}}'.encode())
    assert document is not None
    assert [each.help for each in document.findings] == ([meant] if meant else [])
