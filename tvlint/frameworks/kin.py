"""Kinship of frameworks: whose code each runs, what it replaces, and the packages by which it is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from tvlint.ir.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework.

    `runs` are the frameworks whose checks it passes through: their rules hold for it too, but for those in `replaces`, each
    with the place where the framework does otherwise, and those in `replaces_with` where one of the settings is given that they
    are listed by. `defaults` are settings that it gives another default than the parser that it
    runs. `packages` are the Python packages that its programs import. `folders` are those that its repositories are usually
    cloned to, in lower case and without what joins their words. `version` is the release of Megatron core that it is a fork of,
    where all its versions are of one. `has_roles`: sections of its files have roles of reinforcement learning.
    """

    runs: tuple[str, ...] = ()
    replaces: Mapping[str, str] = field(default_factory=dict)
    replaces_with: Mapping[str, frozenset[str]] = field(default_factory=dict)
    defaults: frozenset[str] = frozenset()
    packages: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    version: str = ""
    has_roles: bool = False


DISTINCT = frozenset({"nnscaler", "deepspeed", "gpt-neox", "torchtitan"})
"""Frameworks of their own, whose configurations are never those of another one, whatever the project says."""
MEGATRON = "megatron-lm"
CORE = "megatron-core"
BEFORE_RELEASES = "0.1"
"""The version of a tree that is older than the releases of Megatron core."""
_PARSER_AND_CORE = (MEGATRON, CORE)

_SPLIT_OF_LAYERS = frozenset({"layers-not-divisible-by-pp", "layers-not-divisible-by-virtual-stages"})

_SIZES_OF_ENCODERS = ("encoder_pipeline_model_parallel_size", "encoder_tensor_model_parallel_size")

_BIASES_OF_EXPERTS = frozenset({"grouped-experts-with-bias", "moe-bias-with-expert-tensor-parallel"})

FRAMEWORKS: Mapping[str, Framework] = {
    "mindspeed": Framework(
        _PARSER_AND_CORE,
        {
            "context-parallel-with-local-attention": "mindspeed/core/context_parallel",
            "expert-bias-with-softmax": "mindspeed_llm/core/transformer/transformer_config.py:47",
            "recompute-method-without-granularity": "mindspeed/core/memory/recompute",
            "mtp-with-learned-positions": "mindspeed_llm/core/transformer/multi_token_prediction.py",
            "topk-one-without-pre-softmax": "mindspeed_llm/core/transformer/transformer_config.py:22",
            "latent-attention-with-rope-fusion": "mindspeed_llm/core/transformer/transformer_config.py: a check of its own",
            # MindSpeed-LLM of 2025 has a `forward` without that check
            "moe-tensor-parallel-without-sequence-parallel": "mindspeed_llm/core/transformer/moe/moe_layer.py:64",
            **dict.fromkeys(_BIASES_OF_EXPERTS, "mindspeed_llm/core/transformer/transformer_config.py:33"),
        },
        # mindspeed_llm/features_manager/pipeline_parallel/num_layer_list.py:18
        dict.fromkeys(("num_layer_list", "noop_layers", "schedules_method"), _SPLIT_OF_LAYERS),
        packages=("mindspeed_llm", "mindspeed_mm", "mindspeed", "modellink", "ascendspeed"),
        folders=("mindspeedllm",),
        # MindSpeed README.md at 028de58c: all that is supported are branches of core_r0.12.1, and older ones
        version="0.12",
    ),
    "slime": Framework(
        _PARSER_AND_CORE,
        # slime/backends/megatron_utils/arguments.py: _set_default_megatron_args; slime/utils/arguments.py
        defaults=frozenset(
            {
                "bf16",
                "global_batch_size",
                "max_position_embeddings",
                "micro_batch_size",
                "padded_vocab_size",
                "rope_type",
                "seq_length",
                "tokenizer_model",
                "tokenizer_type",
                "use_distributed_optimizer",
            }
        ),
        packages=("slime", "miles"),
        folders=("slime", "miles"),
    ),
    "flagscale": Framework(_PARSER_AND_CORE, packages=("flagscale",), folders=("flagscale",)),
    "pai": Framework(
        _PARSER_AND_CORE,
        {"several-data-sources": "megatron_patch/data/__init__.py takes each path for a dataset of its own"},
        packages=("megatron_patch",),
        folders=("paimegatronpatch",),
    ),
    "primus": Framework(
        (CORE,),
        {
            # with `recompute_layer_ids`, which settings need not name
            "full-recompute-without-method": "primus/backends/megatron/patches/recompute_layer_patches.py:98",
            "pipeline-layout-mtp-count": "primus/backends/megatron/core/transformer/pipeline_parallel_layer_layout.py:13",
        },
        packages=("primus",),
        folders=("primus",),
    ),
    "ms-swift": Framework((CORE,), packages=("swift",)),
    "megatron-bridge": Framework((CORE,), packages=("megatron.bridge",), folders=("megatronbridge",)),
    "nemo-rl": Framework((CORE,), packages=("nemo_rl",), folders=("nemorl",), has_roles=True),
    "neuronx-nemo": Framework(
        (CORE,),
        {"heads-not-divisible-by-tp": "nemo/collections/nlp/modules/common/megatron/falcon_module.py:250"},
        packages=("lightning_neuron_patch",),
        folders=("neuronxnemomegatron",),
    ),
    "nemo": Framework(
        (CORE,),
        {
            # copies `cpu_offloading` as it is given: the number of layers alone turns nothing on
            "cpu-offloading-in-pipeline": "nemo/collections/nlp/models/language_modeling/megatron_base_model.py:603",
            "cpu-offloading-of-all-layers": "nemo/collections/nlp/models/language_modeling/megatron_base_model.py:603",
        },
        packages=("nemo", "nemo_run"),
        folders=("nemo",),
    ),
    "verl": Framework((CORE,), packages=("verl",), folders=("verl",), has_roles=True),
    "areal": Framework(
        (CORE,),
        # splits layers by their parameters
        dict.fromkeys(_SPLIT_OF_LAYERS, "areal/engine/megatron_utils/pipeline_parallel.py:65"),
        packages=("areal",),
    ),
    "roll": Framework((CORE,), packages=("roll", "mcore_adapter"), has_roles=True),
    "megatron-deepspeed": Framework(
        (MEGATRON,),
        {
            "layers-not-divisible-by-pp": "megatron/model/gpt_model.py: GPTModelPipe leaves the split to PipelineModule",
            "aux-loss-without-coefficient": "megatron/arguments.py:919: --moe-loss-coeff, 0.1 unless it is given",
            "experts-of-default-width": "megatron/arguments.py: experts have the width of --ffn-hidden-size alone",
        },
        # tasks/eval_harness/evaluate.py: load_ds_checkpoint_and_setup_megatron takes all sizes from the checkpoint
        dict.fromkeys(("task_list", "results_path"), frozenset({"model-size-below-one"})),
        # megatron/arguments.py:851
        defaults=frozenset({"recompute_num_layers"}),
        packages=("deepspeed",),
        folders=("megatrondeepspeed",),
        version=BEFORE_RELEASES,
    ),
    MEGATRON: Framework(
        (CORE,),
        # sail-sg/zero-bubble-pipeline-parallelism megatron/training/arguments.py:261
        # IEIT-Yuan/Yuan2.0-M32 megatron/arguments.py:121
        # encoders on ranks of their own: megatron/training/arguments.py of core 0.9 to 0.12, `total_model_size`
        replaces_with={
            **dict.fromkeys(("allow_padding_num_layers", "pipeline_model_parallel_blocks"), _SPLIT_OF_LAYERS),
            **dict.fromkeys(_SIZES_OF_ENCODERS, frozenset({"world-size-not-divisible"})),
            # what `use_megatron_fsdp` was called before core 0.13: megatron/training/arguments.py of 0.12
            "use_custom_fsdp": frozenset({"several-connections-before-blackwell"}),
            # baidu-baige/LoongForge loongforge/train/validators.py:455, :528
            "custom_pipeline_layers": _SPLIT_OF_LAYERS,
            "custom_pipeline_recompute_layers": frozenset({"full-recompute-without-method"}),
            # CodexDive/Holmes megatron/training/arguments.py:248
            "hetero_micro_batch_sizes": frozenset({"required-setting-missing"}),
        },
        packages=("megatron.training", "megatron.arguments", "megatron.initialize"),
        folders=("megatronlm",),
    ),
    CORE: Framework(),
}
"""By name; a program is of the first framework of which it imports a package, so that a user stands above what it runs."""
KNOWN = DISTINCT | FRAMEWORKS.keys()
"""The frameworks that a configuration may be of."""


@cache
def lineage(framework: str) -> tuple[str, ...]:
    """Return the framework and those whose code it runs, nearest first."""
    return (framework, *FRAMEWORKS[framework].runs) if framework in FRAMEWORKS else (framework,)


def replaces(framework: str, rule: str, settings: Collection[str]) -> bool:
    """Return whether the framework, with these settings given, does what the rule is about in its own way."""
    if framework not in FRAMEWORKS:
        return False
    return rule in FRAMEWORKS[framework].replaces or any(name in settings for name in _ways_around(framework).get(rule, ()))


@cache
def _ways_around(framework: str) -> Mapping[str, list[str]]:
    """Return the settings with which the framework does in its own way what a rule is about, by rule."""
    found: dict[str, list[str]] = {}
    for name, rules in FRAMEWORKS[framework].replaces_with.items():
        for rule in rules:
            found.setdefault(rule, []).append(name)
    return found


def own_ways(framework: str, settings: Collection[str]) -> frozenset[str]:
    """Return those of the settings with which the framework does something in its own way."""
    ways = FRAMEWORKS[framework].replaces_with if framework in FRAMEWORKS else {}
    return frozenset(name for name in ways if name in settings)


def parses_like_megatron(framework: str) -> bool:
    """Return whether the framework's options are those of Megatron-LM's parser of some version."""
    return MEGATRON in lineage(framework)


def own_defaults(framework: str) -> frozenset[str]:
    """Return the settings that the framework gives another default than the parser that it runs."""
    return FRAMEWORKS[framework].defaults if framework in FRAMEWORKS else frozenset()


def has_default_of_megatron(framework: str, setting: str) -> bool:
    """Return whether a setting that is left out has the default of Megatron-LM's parser."""
    return parses_like_megatron(framework) and setting not in own_defaults(framework)


def framework_of_packages(packages: frozenset[str]) -> str:
    """Return the framework that dotted names of packages or modules belong to; empty where they belong to none."""
    for name, framework in FRAMEWORKS.items():
        for each_package in framework.packages:
            if any(package == each_package or package.startswith(each_package + ".") for package in packages):
                return name
    return ""
