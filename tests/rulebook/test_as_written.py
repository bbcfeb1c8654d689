"""Commands of which words are not known are judged as they are written."""

from __future__ import annotations

import pytest
from builders.page_examples import read_examples

from tvlint.findings import Finding, NotEvaluated
from tvlint.readers.read import read
from tvlint.rule import RuleKind
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

RULES = load_rules()
MODEL = (
    "--num-layers 7 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1"
)


def judged(text: str, repairs: bool = False) -> list[Finding | NotEvaluated]:
    document = read("train.sh", text.encode())
    assert document is not None
    return [result for each in document.configurations for result in evaluate(each, RULES, repairs=repairs)]


def errors(text: str) -> dict[str, str]:
    return {each.rule: each.message for each in judged(text) if isinstance(each, Finding) and each.severity.value == "error"}


@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ('"$@"', "`$@`"),
        ("$EXTRA_ARGS", "`$EXTRA_ARGS`"),
        ("${A[@]} $B $C", "`${A[@]}` or `$B`"),
        ("$(cat extra.txt)", "`$(cat extra.txt)`"),
        ('$(if [[ "$A" == 1 && -n "$B" ]]; then cat extra.txt; fi)', "what a command prints"),
    ],
)
def test_an_error_that_only_unknown_words_could_prevent_is_found_and_says_so(rest: str, shown: str) -> None:
    found = errors(f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size 2 {rest}\n")
    said = found["layers-not-divisible-by-pp"]
    assert said.startswith(f"7 layers do not divide over 2 pipeline stages, unless {shown} sets `--")
    assert said.endswith(" or the like")


def test_unknown_words_that_statements_give_are_named_by_their_line() -> None:
    loop = "for word in $*; do\n  MORE=$word\ndone\n"
    found = errors(f"{loop}torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size 2 $MORE\n")
    assert ", unless the code at line 1 sets `--" in found["layers-not-divisible-by-pp"]


@pytest.mark.parametrize(
    "body", ["DATA=$word", "if [ -n $word ]; then DATA=$word; fi", "case $word in a) DATA=$word;; b) DATA=b;; esac"]
)
def test_a_value_that_a_loop_chooses_is_the_value_of_its_option(body: str) -> None:
    loop = f"for word in $*; do\n  {body}\ndone\n"
    command = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size 2 --load $DATA --bf16\n"
    assert errors(loop + command)["layers-not-divisible-by-pp"] == "7 layers do not divide over 2 pipeline stages"


def test_a_decided_error_names_no_condition() -> None:
    found = errors(f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size 2\n")
    assert found == {"layers-not-divisible-by-pp": "7 layers do not divide over 2 pipeline stages"}


def test_what_launches_usually_give_is_not_supposed_to_be_left_out() -> None:
    """Sequence parallelism needs a tensor-parallel size, which the words that are not known may well give."""
    command = "torchrun --nproc-per-node 8 pretrain_gpt.py --sequence-parallel --num-experts 4 --moe-router-topk 2 $REST\n"
    assert errors(command) == {}
    assert any(isinstance(each, NotEvaluated) and "may be set elsewhere" in each.reason for each in judged(command))


def test_what_another_script_gives_is_named_so() -> None:
    text = f'ARGS="{MODEL} --pipeline-model-parallel-size 2"\n'
    assert errors(text)["layers-not-divisible-by-pp"].count("unless the launch that takes these lists sets") == 1


def test_layers_that_a_fork_pads_need_not_divide() -> None:
    command = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size 2"
    assert "layers-not-divisible-by-pp" in errors(command + "\n")
    assert "layers-not-divisible-by-pp" not in errors(command + " --allow-padding-num-layers\n")
    blocks = " --pipeline-model-parallel-method block --pipeline-model-parallel-blocks 3,4\n"
    assert "layers-not-divisible-by-pp" not in errors(command + blocks)


@pytest.mark.parametrize(
    ("stages", "sizes", "said"),
    [
        (2, "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2", "4 of 7|there are no others"),
        (2, "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4", "8 of 7|there are no others"),
        (4, "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4", "8 of 7|none is left for the others"),
        (4, "--decoder-first-pipeline-num-layers 2", "2 of 7|the rest does not divide over the 3 others"),
        (
            4,
            "--decoder-first-pipeline-num-layers 2 --num-virtual-stages-per-pipeline-rank 2",
            "2 of 7|the rest does not divide over the 6 virtual stages of the others",
        ),
    ],
)
def test_an_uneven_split_says_what_is_left_for_the_other_stages(stages: int, sizes: str, said: str) -> None:
    layers, rest = said.split("|")
    found = errors(f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --pipeline-model-parallel-size {stages} {sizes}\n")
    message = f"{layers} layers are in pipeline stages whose size is given, and {rest}"
    assert found["uneven-split-not-divisible"] == message


NEMO = """\
trainer:
  devices: 8
  num_nodes: 4
exp_manager: {}
model:
  micro_batch_size: 1
  global_batch_size: BATCH
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  context_parallel_size: 1
  virtual_pipeline_model_parallel_size: VIRTUAL
  num_layers: 48
"""


def errors_of_yaml(text: str) -> dict[str, str]:
    document = read("conf/training/gpt3.yaml", text.encode())
    assert document is not None
    results = [result for each in document.configurations for result in evaluate(each, RULES, repairs=False)]
    return {each.rule: each.message for each in results if isinstance(each, Finding) and each.severity.value == "error"}


def test_a_section_is_judged_as_it_is_written() -> None:
    assert errors_of_yaml(NEMO.replace("BATCH", "64").replace("VIRTUAL", "null")) == {}
    found = errors_of_yaml(NEMO.replace("BATCH", "63").replace("VIRTUAL", "7"))
    assert found.keys() == {"global-batch-not-divisible", "layers-not-divisible-by-virtual-stages"}
    assert "unless another file sets `decrease_batch_size_if_needed`" in found["global-batch-not-divisible"]


def test_a_section_with_the_further_settings_of_another_mapping_is_not_supposed_to_have_none() -> None:
    further = "  override_transformer_config: ${oc.select:actor.override_transformer_config,{}}\n"
    assert errors_of_yaml(NEMO.replace("BATCH", "64").replace("VIRTUAL", "7") + further) == {}


VERL = (
    "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=$N"
    " actor_rollout_ref.model.path=Qwen/Qwen3-235B-A22B actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8"
)
SPLIT = "+actor_rollout_ref.actor.megatron.override_transformer_config.account_for_{}_in_pipeline_split=True"


def test_a_run_that_names_a_published_model_has_its_sizes() -> None:
    found = errors(f"{VERL}\n")
    assert found["layers-not-divisible-by-pp"].startswith("94 layers do not divide over 8 pipeline stages, unless another file")
    whole = f"{VERL} {SPLIT.format('embedding')} {SPLIT.format('loss')}"
    assert errors(f"{whole}\n") == {}


def test_a_section_may_take_from_another_one_what_a_command_gives_that() -> None:
    both = f"{SPLIT.format('embedding')} {SPLIT.format('loss')} actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=8"
    assert errors(f"{VERL} {both}\n") == {}


def test_what_serves_a_model_may_split_its_layers_as_it_likes() -> None:
    assert errors(f"{VERL.replace('actor.megatron', 'rollout')}\n") == {}


def test_a_section_that_is_not_used_is_not_supposed_to_be_whole() -> None:
    text = NEMO.replace("BATCH", "64").replace("VIRTUAL", "7")
    assert errors_of_yaml(text).keys() == {"layers-not-divisible-by-virtual-stages"}
    assert errors_of_yaml(f"{text}  enabled: false\n") == {}


def test_a_split_model_on_a_single_rank_is_no_launch_as_it_is() -> None:
    text = NEMO.replace("BATCH", "64").replace("VIRTUAL", "7")
    assert errors_of_yaml(text.replace("num_nodes: 4", "num_nodes: 1")).keys() == {"layers-not-divisible-by-virtual-stages"}
    assert errors_of_yaml(text.replace("devices: 8", "devices: 1").replace("num_nodes: 4", "num_nodes: 1")) == {}


CLUSTER = """\
cluster:
  gpus_per_node: 8
  num_nodes: 20
policy:
  megatron_cfg:
    tensor_model_parallel_size: 8
    pipeline_model_parallel_size: 8
    context_parallel_size: 1
  generation:
    colocated:
      enabled: true
      resources:
        num_nodes: null
"""


def test_a_cluster_that_draws_samples_on_nodes_of_their_own_does_not_train_on_all() -> None:
    assert errors_of_yaml(CLUSTER).keys() == {"world-size-not-divisible"}
    assert errors_of_yaml(CLUSTER.replace("enabled: true", "enabled: false")) == {}
    assert errors_of_yaml(CLUSTER.replace("num_nodes: null", "num_nodes: 4")) == {}


def test_a_launch_of_slime_is_known_by_its_options_and_trains_without_a_number_of_iterations() -> None:
    sizes = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --num-experts 8 --tensor-model-parallel-size 2"
    sizes += " --disable-bias-linear"
    command = f"ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --num-rollout 30 {sizes}"
    assert errors(f"{command} --sequence-parallel\n") == {}
    assert errors(f"{command}\n").keys() == {"moe-tensor-parallel-without-sequence-parallel"}


def _opened() -> list[tuple[str, str]]:
    """Return the wrong launches of the rule pages, each with words at its end that are not known."""
    pages = [(name, rule) for name, rule in sorted(RULES.items()) if rule.kind is RuleKind.CONFIG]
    wrong = [(name, each) for name, rule in pages for each in read_examples(rule) if not each.valid and each.language == "sh"]
    return [(name, each.text.rstrip() + " $MORE\n") for name, each in wrong]


@pytest.mark.parametrize(("name", "text"), _opened(), ids=[name for name, _ in _opened()])
def test_what_is_said_of_an_open_launch_has_no_gaps_and_a_help(name: str, text: str) -> None:
    """Of several causes of which a page speaks, one that is not known is no reason to show nothing."""
    for each in judged(text, repairs=True):
        if isinstance(each, Finding) and each.severity.value == "error":
            assert each.help, each
            assert "?" not in each.message


def test_the_cause_that_is_known_is_told_and_not_one_that_could_be() -> None:
    flags = "--batch-invariant-mode --attention-backend flash --flash-attention-version 2"
    opened = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} {flags} $MORE\n"
    said = errors(opened)["batch-invariant-without-flash-attention"]
    assert said == "`--batch-invariant-mode` needs `--flash-attention-version 3` or 4"
