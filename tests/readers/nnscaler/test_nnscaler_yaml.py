"""nnScaler configurations: both layouts, what is resolved, where it stands, and what stays unknown."""

from __future__ import annotations

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.document import Document, ReadError
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

TRAINER = """\
compute_config:
  plan_ngpus: 2
  runtime_ngpus: 8
  use_end2end: true
  pas_config:
    pipeline_nmicros: 4
    pipeline_pivots: [Layer, 'Head']
micro_batch_size: 1e3
checkpoint:
  save_type: deduped
precision: {param: bf16}
"""


def document(text: str) -> Document:
    found = read("train.yaml", text.encode())
    assert found is not None
    return found


def only(text: str) -> Configuration:
    (configuration,) = document(text).configurations
    return configuration


def test_trainer_arguments_are_one_flat_configuration() -> None:
    configuration = only(TRAINER)
    assert (configuration.framework, configuration.format, configuration.complete) == ("nnscaler", "nnscaler-yaml", True)
    values = {name: setting.value for name, setting in configuration.settings.items()}
    assert isinstance(values.pop("precision"), Unknown)
    assert values == {
        "plan_ngpus": 2,
        "runtime_ngpus": 8,
        "use_end2end": True,
        "pipeline_nmicros": 4,
        "pipeline_pivots": ("Layer", "Head"),
        "micro_batch_size": 1000.0,
        "checkpoint_save_type": "deduped",
    }
    setting = configuration.settings["pipeline_nmicros"]
    assert (setting.written, setting.location.line, setting.location.column) == ("pas_config.pipeline_nmicros", 6, 23)


def test_a_compute_config_alone_may_be_completed_elsewhere() -> None:
    assert not only("compute_config:\n  plan_ngpus: 2\n").complete
    assert only("compute_config:\n  plan_ngpus: 2\nmax_epochs: 1\n").complete


def test_the_early_layout_is_known_by_its_fields() -> None:
    text = "compute_config: {plan_ngpus: 2, use_pipeline: true, pipeline_nstages: 2}\n"
    configuration = only(text)
    assert configuration.version == "0.3"
    assert configuration.settings["pipeline_nstages"].value == 2
    assert only(TRAINER).version == ""


def test_several_compute_configs_are_told_apart() -> None:
    text = "a:\n  compute_config: {plan_ngpus: 2}\nb:\n  compute_config: {plan_ngpus: 4}\n"
    assert [(each.section, each.settings["plan_ngpus"].value) for each in document(text).configurations] == [("a", 2), ("b", 4)]


@pytest.mark.parametrize("text", ["$(vars.gpus)", "${GPUS}", "'{{ gpus }}'", "{a: 1}"])
def test_what_is_filled_in_later_is_unknown(text: str) -> None:
    value = only(f"compute_config:\n  plan_ngpus: {text}\n").settings["plan_ngpus"].value
    assert isinstance(value, Unknown)


def test_a_misspelled_setting_is_reported_with_its_neighbour() -> None:
    (finding,) = document("compute_config:\n  plan_ngpus: 2\n  zero_ngroup: 2\n  _mine: 1\n").findings
    assert finding.rule == "unknown-compute-setting"
    assert (finding.location.line, finding.help) == (3, "did you mean `zero_ngroups`?")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("max_epoch: 1", "max_epochs"),
        ("global_batch_sise: 8", "global_batch_size"),
        ("own_batches: 8", ""),
        ("micro_batch_sizes: 8", ""),
        ("val_every_n_train_tokens: 5", ""),
    ],
)
def test_an_argument_of_the_trainer_is_misspelt_where_the_one_alike_is_not_given(line: str, meant: str) -> None:
    text = f"compute_config:\n  plan_ngpus: 2\n  use_end2end: true\nmicro_batch_size: 2\n{line}\n"
    found = [(finding.rule, finding.location.line, finding.help) for finding in document(text).findings]
    assert found == ([("unknown-trainer-argument", 5, f"did you mean `{meant}`?")] if meant else [])


OTHERS = [
    "plan_ngpus: 2\n",
    "compute_config: 3\nplan_ngpus: 2\n",
    "compute_config:\n  gpus: 2 # plan_ngpus\n",
    "import os\n\nclass A:\n    compute_config: Config = Config(plan_ngpus=2)\n",
    "# Title\n\n```yaml\ncompute_config:\n  plan_ngpus: 2\n```\n",
]


@pytest.mark.parametrize("text", OTHERS)
def test_other_files_are_left_alone(text: str) -> None:
    assert read("train.md", text.encode()) is None


@pytest.mark.parametrize("data", [b"compute_config:\n  plan_ngpus: [\n", b"compute_config:\n  plan_ngpus: \xff\n"])
def test_a_broken_file_is_a_located_problem(data: bytes) -> None:
    with pytest.raises(ReadError) as error:
        read("train.yaml", data)
    assert error.value.problem.location.line is not None


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("run_mode: run", "run_mode: go"), ("gen_reuse: moo", "gen_reuse: mo"), ("plan_ngpus: 2", "plan_ngpus: 0")],
)
def test_of_several_settings_on_one_page_the_wrong_one_is_shown(line: str, wrong: str) -> None:
    compute = "compute_config:\n  plan_ngpus: 2\n  runtime_ngpus: 4\n  use_end2end: true\n"
    text = compute + "run_mode: run\ngen_reuse: moo\nmax_epochs: 1\n"
    document = read("trainer.yaml", text.replace(line, wrong).encode())
    assert document is not None
    found = [each for each in evaluate(document.configurations[0], load_rules()) if isinstance(each, Finding)]
    assert [text.splitlines()[(each.location.line or 1) - 1].strip() for each in found] == [line]


def test_a_doubled_key_is_reported_and_the_last_one_counts() -> None:
    found = document("compute_config:\n  plan_ngpus: 2\n  runtime_ngpus: 3\n  runtime_ngpus: 4\n")
    assert [(each.rule, each.location.line) for each in found.findings] == [("yaml-duplicate-key", 4)]
    assert [each.settings["runtime_ngpus"].value for each in found.configurations] == [4]
