"""Configurations are judged in three values, and findings stand at the smallest place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders.page_examples import read_examples
from tvlint.data import data_path
from tvlint.findings import Finding, NotEvaluated, Related, Severity
from tvlint.frameworks import releases
from tvlint.frameworks.megatron import names as option_names
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.explain import explain
from tvlint.rulebook.language.derived import DERIVED, KEPT_FROM_CHECKPOINT, TAKEN_FROM_CHECKPOINT
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.pages import PageError, from_data, load_rules, read_page, read_rules, to_data

RULES = load_rules()
HEADS = {"heads": RULES["heads-not-divisible-by-tp"]}
HOLDER = "run.sh"
PAGE = """---
kind: config
severity: error
summary: a thing is wrong
require: num_layers == 1
message: "{num_layers} layers"
location: [num_layers]
frameworks: {"megatron-lm": "*"}
sources: ["file:1"]
---

# a-rule

## Example

```sh invalid line=1
x
```
"""


def configuration(
    *, complete: bool = True, framework: str = "megatron-lm", version: str = "", **settings: SettingValue | Unknown
) -> Configuration:
    """Settings written one a line, in order, from line 1 on."""
    return configured(settings, complete, framework, version)


def configured(
    settings: Mapping[str, SettingValue | Unknown], complete: bool = True, framework: str = "megatron-lm", version: str = ""
) -> Configuration:
    """The same of a mapping."""
    places = {name: Location(HOLDER, line, 20) for line, name in enumerate(settings, start=1)}
    return Configuration(
        HOLDER,
        "megatron-shell",
        framework,
        {
            name: Setting(name, value, f"--{name.replace('_', '-')}", places[name], places[name])
            for name, value in settings.items()
        },
        complete=complete,
        version=version,
    )


def said(configured: Configuration, rules: dict[str, Rule] = HEADS) -> list[Finding | NotEvaluated]:
    return list(evaluate(configured, rules))


def test_a_violation_stands_at_the_first_setting_and_names_the_others() -> None:
    assert said(configuration(num_attention_heads=12, tensor_model_parallel_size=8)) == [
        Finding(
            "heads-not-divisible-by-tp",
            Severity.ERROR,
            "12 attention heads do not divide over 8 tensor-parallel ranks",
            Location(HOLDER, 1, 20),
            "use 8 or 16 heads, or a tensor-parallel size of 6 or 12; all rules hold with "
            "`--tensor-model-parallel-size 4` (now 8)",
            (Related("`--tensor-model-parallel-size` is 8 here", Location(HOLDER, 2, 20)),),
            about=(),
            section="",
        )
    ]


def test_a_rule_that_holds_or_does_not_apply_is_silent() -> None:
    assert said(configuration(num_attention_heads=16, tensor_model_parallel_size=8)) == []
    assert said(configuration(num_attention_heads=13)) == []
    assert said(configuration(num_attention_heads=12, tensor_model_parallel_size=8, framework="other")) == []


@pytest.mark.parametrize(
    ("configured", "reason"),
    [
        (configuration(num_attention_heads=Unknown("depends on `$1`"), tensor_model_parallel_size=8), "depends on `$1`"),
        (configuration(num_attention_heads=12, complete=False), "`tensor_model_parallel_size` may be set elsewhere"),
        (configuration(num_attention_heads="twelve", tensor_model_parallel_size=8), "twelve is not an integer"),
        (configuration(num_attention_heads=12, tensor_model_parallel_size="8"), "have no order"),
    ],
)
def test_an_unknown_is_never_a_violation(configured: Configuration, reason: str) -> None:
    (result,) = said(configured)
    assert isinstance(result, NotEvaluated)
    assert reason in result.reason


def test_an_absent_setting_has_its_default_only_where_the_configuration_is_complete() -> None:
    assert Values(configuration()).value("tensor_model_parallel_size") == 1
    assert isinstance(Values(configuration(complete=False)).value("tensor_model_parallel_size"), Unknown)
    assert isinstance(Values(configuration(framework="nemo")).value("tensor_model_parallel_size"), Unknown)
    assert isinstance(Values(configuration()).value("world_size"), Unknown)


def test_settings_that_a_checkpoint_gives_are_unknown() -> None:
    values = Values(configuration(use_checkpoint_args=True, num_query_groups=4, num_layers=24))
    assert values.value("num_layers") == 24
    assert isinstance(values.value("hidden_size"), Unknown)
    assert isinstance(values.value("num_query_groups"), Unknown)
    assert isinstance(values.is_set("hidden_size"), Unknown)
    assert values.value("tensor_model_parallel_size") == 1
    grid = Values(configuration(use_checkpoint_args=True, use_mp_args_from_checkpoint_args=True, tensor_model_parallel_size=4))
    assert isinstance(grid.value("tensor_model_parallel_size"), Unknown)


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ({"world_size": 64, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2}, "data_parallel_size", 8),
        ({"tensor_model_parallel_size": 4, "expert_model_parallel_size": 3}, "minimum_world_size", 12),
        ({"context_parallel_size": 8, "expert_model_parallel_size": 6}, "minimum_world_size", 24),
        ({"world_size": 8, "micro_batch_size": 2, "global_batch_size": 64}, "micro_batches", 4),
        ({"world_size": 8, "micro_batch_size": 2}, "effective_global_batch_size", 16),
        ({"num_attention_heads": 16}, "effective_query_groups", 16),
        ({"num_attention_heads": 16, "group_query_attention": True}, "effective_query_groups", 1),
        ({"hidden_size": 4096, "swiglu": True}, "effective_ffn_hidden_size", 10880),
        ({"hidden_size": 4096}, "effective_ffn_hidden_size", 16384),
        ({"vocab_size": 50257, "tensor_model_parallel_size": 4}, "padded_vocabulary", 50688),
        (
            {"num_layers": 16, "pipeline_model_parallel_size": 4, "num_layers_per_virtual_pipeline_stage": 2},
            "virtual_stages",
            2,
        ),
        ({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et|t|t|tL"}, "virtual_stages", 2),
        ({"tensor_model_parallel_size": 4, "expert_tensor_parallel_size": 1}, "effective_expert_tensor_parallel_size", 1),
        ({"tensor_model_parallel_size": 2, "tensor_parallel_num_weight_shards": 4}, "dense_grid_size", 4),
    ],
)
def test_a_derived_setting_follows_from_the_others(settings: dict[str, SettingValue], name: str, expected: object) -> None:
    assert Values(configuration(**settings)).value(name) == expected


def test_what_does_not_divide_derives_nothing() -> None:
    assert isinstance(Values(configuration(world_size=10, tensor_model_parallel_size=4)).value("data_parallel_size"), Unknown)


def test_no_derived_name_is_an_option_and_checkpoint_names_are() -> None:
    assert set(DERIVED) & set(option_names()) == set()
    assert set(option_names()) >= KEPT_FROM_CHECKPOINT | TAKEN_FROM_CHECKPOINT


def test_what_is_decided_without_the_unknown_is_told_without_it() -> None:
    rules = {name: RULES[name] for name in ("global-batch-not-divisible", "sequence-not-divisible-by-tp")}
    sequence: dict[str, SettingValue] = {"tensor_model_parallel_size": 8, "sequence_parallel": True, "seq_length": 2044}
    batch: dict[str, SettingValue] = {"decrease_batch_size_if_needed": False, "micro_batch_size": 3, "global_batch_size": 16}
    on_batch, on_sequence = said(configuration(complete=False, perform_rl_step=False, **sequence, **batch), rules)
    assert isinstance(on_batch, Finding)
    assert isinstance(on_sequence, Finding)
    assert on_batch.message == "a global batch of 16 is not a multiple of the micro-batch 3"
    assert on_batch.help == "use a global batch of 15 or 18"
    assert on_sequence.message == "a sequence of 2044 tokens does not divide over 8 tensor-parallel ranks"


def test_an_unstated_version_is_told_in_the_help() -> None:
    rules = {"rampup": RULES["rampup-batch-size-ignored"]}
    (found,) = said(configuration(rampup_batch_size=(8, 8, 100), global_batch_size=64), rules)
    assert isinstance(found, Finding)
    assert found.message.endswith("the batch is 64 from the first step")
    assert found.help.endswith("(holds for megatron-lm >=0.18, taken as given)")
    assert said(configuration(rampup_batch_size=(8, 8, 100), version="0.12"), rules) == []


@pytest.mark.parametrize(
    ("version", "more", "severity"),
    [
        ("", {}, Severity.NOTE),
        ("", {"moe_router_topk": 2}, Severity.ERROR),
        ("0.12", {}, Severity.ERROR),
        ("0.4", {}, Severity.ERROR),
        ("0.3", {}, None),
    ],
)
def test_an_option_that_later_versions_refuse_is_a_note_where_none_is_told(
    version: str, more: dict[str, SettingValue], severity: Severity | None
) -> None:
    found = said(configuration(version=version, checkpoint_activations=True, **more), {"removed": RULES["removed-option"]})
    assert [each.severity for each in found if isinstance(each, Finding)] == ([severity] if severity is not None else [])


@pytest.mark.parametrize(
    ("version", "severity"), [("", Severity.NOTE), ("0.19", Severity.ERROR), ("0.19-tree", Severity.NOTE), ("0.17", None)]
)
def test_what_the_newest_release_refuses_is_a_note_where_nothing_tells_that_it_runs(
    version: str, severity: Severity | None
) -> None:
    rules = {"fusion": RULES["rejected-cross-entropy-fusion"]}
    given = configuration(version=version, cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")
    found = said(given, rules)
    assert [each.severity for each in found if isinstance(each, Finding)] == ([severity] if severity is not None else [])


@pytest.mark.parametrize(
    ("version", "severity"), [("0.16-tree", Severity.NOTE), ("0.17-tree", Severity.WARNING), ("0.16", Severity.WARNING)]
)
def test_a_warning_of_the_release_that_a_tree_is_developed_towards_is_a_note(version: str, severity: Severity) -> None:
    rules = {"save": RULES["async-save-ignored"]}
    (found,) = said(configuration(version=version, async_save=True, ckpt_format="torch_dist"), rules)
    assert isinstance(found, Finding)
    assert found.severity is severity


@pytest.mark.parametrize(("version", "severity"), [("0.12-tree", Severity.WARNING), ("0.12", Severity.ERROR)])
def test_what_an_older_release_refuses_is_a_warning_in_a_tree_that_is_developed_towards_it(
    version: str, severity: Severity
) -> None:
    page = PAGE.replace('"*"', '">=0.12"')
    (found,) = said(configuration(num_layers=2, version=version), {"a-rule": read_page("a-rule", page)})
    assert isinstance(found, Finding)
    assert found.severity is severity


def test_experts_of_mindspeed_train_without_sequence_parallelism() -> None:
    rules = {"experts": RULES["moe-tensor-parallel-without-sequence-parallel"]}
    launch = configuration(num_experts=8, tensor_model_parallel_size=2, train_iters=5, sequence_parallel=False)
    assert [type(each) for each in said(launch, rules)] == [Finding]
    assert said(replace(launch, framework="mindspeed"), rules) == []


def test_what_an_older_release_refuses_is_a_warning_where_nothing_tells_the_release() -> None:
    rules = {"bias": RULES["grouped-experts-with-bias"]}
    (found,) = said(configuration(num_experts=8, num_layers=4, moe_grouped_gemm=True), rules)
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("expert-parallel-without-experts", {"expert_model_parallel_size": 8}),
        ("mtp-with-learned-positions", {"mtp_num_layers": 1}),
        ("expert-bias-with-softmax", {"moe_router_enable_expert_bias": True, "moe_router_score_function": "softmax"}),
    ],
)
def test_a_launch_without_the_sizes_of_a_model_has_the_model_from_elsewhere(
    rule: str, settings: dict[str, SettingValue]
) -> None:
    launch = replace(configuration(model_name="deepseek-v3", **settings), location=Location(HOLDER, 1))
    (unknown,) = said(launch, {rule: RULES[rule]})
    assert isinstance(unknown, NotEvaluated)
    assert "described elsewhere" in unknown.reason
    sized = replace(configuration(num_layers=4, **settings), location=Location(HOLDER, 1))
    (found,) = said(sized, {rule: RULES[rule]})
    assert isinstance(found, Finding)


def test_the_grid_of_a_launch_that_names_its_model_is_judged() -> None:
    rules = {"world": RULES["world-size-not-divisible"]}
    launch = configuration(train_iters=10, model_name="llama3", tensor_model_parallel_size=3, world_size=8)
    (found,) = said(replace(launch, location=Location(HOLDER, 1)), rules)
    assert isinstance(found, Finding)
    assert found.severity is Severity.ERROR


def test_no_rule_trips_over_values_of_any_type() -> None:
    for value in (None, True, -1, 0, 10**400, 1.5, float("nan"), "", "'", (), ("a", 1), Unknown("hidden")):
        for name in {name for rule in RULES.values() for name in rule.location if not name.startswith("env.")}:
            said(configuration(**{"num_attention_heads": 16, "pipeline_model_parallel_size": 4, name: value}), dict(RULES))


def test_every_page_is_a_rule_in_alphabetical_order() -> None:
    assert list(load_rules()) == sorted(path.stem for path in data_path("rules").rglob("*.md"))


@pytest.mark.parametrize("width", [30, 100])
def test_a_page_explains_itself_in_the_terminal(width: int) -> None:
    for rule in RULES.values():
        lines = explain(rule, width).splitlines()
        assert lines[0].startswith(rule.name)
        inside = [line for line in lines[1:] if not line.startswith("    ") and " " in line.strip()]
        assert all(len(line) <= width or "`" in line or "|" in line or "/" in line for line in inside)
        assert not any(line.startswith(("#", "```")) for line in lines)
        for example in read_examples(rule):
            for line in example.text.splitlines():
                assert f"    {line}".rstrip() in lines


def test_an_example_is_told_right_from_wrong() -> None:
    text = explain(RULES["heads-not-divisible-by-tp"], 80)
    assert "  wrong:\n    torchrun" in text
    assert "  right:\n    torchrun" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("---\nkind", "kind"),
        ("\n---\n\n#", "\n\n#"),
        ("# a-rule", "# another-rule"),
        ("kind: config", "kind: wish"),
        ("severity: error", "severity: error\nseverity: note"),
        ("summary: a thing", 'summary: "a thing'),
        ("summary: a thing is", "summary: a: thing is"),
        ("[num_layers]", "[num_layers"),
        ("summary", "sumary"),
    ],
)
def test_a_wrong_page_is_an_error_of_ours(old: str, new: str) -> None:
    assert read_page("a-rule", PAGE).message == "{num_layers} layers"
    assert old in PAGE
    with pytest.raises(PageError, match="a-rule"):
        read_page("a-rule", PAGE.replace(old, new, 1))


def test_an_example_that_does_not_end_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a-rule.md").write_text(PAGE.removesuffix("```\n"), encoding="utf-8")
    (rule,) = read_rules(tmp_path).values()
    with pytest.raises(PageError, match="a-rule"):
        read_examples(rule)


def test_compiled_pages_are_the_pages() -> None:
    folder = data_path("rules")
    assert from_data(to_data(read_rules(folder)), folder) == read_rules(folder)


def test_a_long_value_goes_on_over_indented_lines(tmp_path: Path) -> None:
    (tmp_path / "a-rule.md").write_text(PAGE.replace("a thing is wrong", "a thing\n  is wrong"), encoding="utf-8")
    (rule,) = read_rules(tmp_path).values()
    assert rule.summary == "a thing is wrong"
    assert rule.kind is RuleKind.CONFIG
    assert [(example.valid, example.language, example.text, example.line) for example in read_examples(rule)] == [
        (False, "sh", "x\n", 18)
    ]


def test_judging_a_configuration_loads_nothing_heavy() -> None:
    program = """
import sys
from tvlint.rulebook.pages import load_rules
from tvlint.rulebook.evaluate import evaluate
from tvlint.ir.configuration import Configuration
list(evaluate(Configuration("x", "megatron-shell", "megatron-lm", {}), load_rules()))
print(sorted({"z3", "numpy", "networkx", "jsonschema", "yaml", "tree_sitter"} & set(sys.modules)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert ran.stdout.strip() == "[]"


def test_an_unknown_world_size_names_its_minimum() -> None:
    rules = {"size": RULES["world-size-not-divisible"]}
    sizes: dict[str, SettingValue | Unknown] = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 4,
        "expert_model_parallel_size": 8,
    }
    sizes |= {"world_size": Unknown("depends on $1"), "expert_tensor_parallel_size": 1}
    (result,) = said(configured(sizes), rules)
    assert isinstance(result, NotEvaluated)
    assert result.reason == "`world_size`: depends on $1; these sizes need a multiple of 32 ranks"
    (result,) = said(configured({**sizes, "tensor_model_parallel_size": Unknown("depends on $2")}), rules)
    assert isinstance(result, NotEvaluated)
    assert "multiple" not in result.reason


def test_what_is_surely_given_is_set_although_its_value_is_unknown() -> None:
    rules = {"save": RULES["save-without-interval"]}
    assert isinstance(said(configuration(save=Unknown("depends on $1"), micro_batch_size=1), rules)[0], NotEvaluated)
    (finding,) = said(configuration(save=Unknown("depends on $1", given=True), micro_batch_size=1), rules)
    assert isinstance(finding, Finding)


def test_a_flag_without_a_value_decides_nothing() -> None:
    rules = {"save": RULES["distributed-activations-unsupported"]}
    settings: dict[str, SettingValue | Unknown] = {"distribute_saved_activations": None, "sequence_parallel": True}
    assert isinstance(said(configured(settings), rules)[0], NotEvaluated)


def test_a_rule_of_some_versions_is_open_only_where_it_would_find_something() -> None:
    page = PAGE.replace('"*"', '"<0.15"').replace("require:", "when: micro_batch_size == 1\nrequire:")
    rules = {"a-rule": read_page("a-rule", page)}
    assert said(configuration(num_layers=2, micro_batch_size=2), rules) == []
    assert said(configuration(num_layers=1, micro_batch_size=1), rules) == []
    (result,) = said(configuration(num_layers=2, micro_batch_size=1), rules)
    assert isinstance(result, NotEvaluated)
    assert "version" in result.reason


def test_releases_are_as_many_days_apart_as_the_calendar_says() -> None:
    first = datetime(2023, 1, 1, tzinfo=UTC)
    days = [first + timedelta(days=count) for count in range(0, 3000, 13)]
    assert [releases._day(day.strftime("%y%m%d")) - releases._day("230101") for day in days] == list(range(0, 3000, 13))
    assert releases.is_fresh(releases.RELEASES[-1][1])
    assert not releases.is_fresh("0.2")
