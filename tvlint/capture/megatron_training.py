"""Megatron's own training scripts on CPUs: their arguments, the sizes of their models, their data.

The script parses its arguments as ever. Then those are replaced that need a GPU, a file or chance, sizes are reduced so that a
step runs and is recorded on a laptop, and for the single-device reference the parallel sizes become one. All of it is listed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from math import lcm, prod
from typing import Any

import torch

from tvlint.capture.fitting import STAGES, TENSOR, declared_sizes
from tvlint.capture.imports import Change
from tvlint.capture.launch import Launch, LaunchError
from tvlint.capture.megatron_attention import take_whole_projections
from tvlint.capture.step import Step
from tvlint.frameworks.megatron_on_cpu import (
    OF_A_MICRO_BATCH,
    OF_REFERENCE,
    ON_CPU,
    OUTSIDE_THE_STEP,
    VARIABLES_ON_CPU,
)

Tell = Callable[[str], object]

_TRAINING = "megatron.training."


def changes(step: Step, launch: Launch, replace: Tell, reduce: Tell) -> Mapping[str, Change]:
    """Return how the modules of Megatron's training loop are changed, by their names."""

    asked: set[object] = set()

    def arguments(module: Any) -> None:
        parse = module.parse_args

        def parse_args(*args: Any, **kwargs: Any) -> Any:
            found = parse(*args, **kwargs)
            asked.add(getattr(found, "transformer_impl", None))
            _fit(found, launch, replace, reduce)
            return found

        module.parse_args = parse_args

    return {
        _TRAINING + "arguments": arguments,
        _TRAINING + "initialize": _initialize,
        _TRAINING + "training": lambda module: _data(module, step, replace),
        _TRAINING + "utils": lambda module: _batches(module, step),
        "megatron.core.transformer.multi_latent_attention": lambda module: take_whole_projections(
            module, lambda: "transformer_engine" in asked, replace
        ),
        "megatron.core.utils": lambda module: _batches(module, step),
        "megatron.core.datasets.t5_dataset": lambda module: _masks_of_samples(module, step),
    }


# ---- arguments ----


def _fit(args: Any, launch: Launch, replace: Tell, reduce: Tell) -> None:
    """Let the arguments be those of a step on CPUs; `replace` hears of those that say what the step computes."""
    if getattr(args, "context_parallel_size", 1) > 1 and getattr(args, "transformer_impl", "") == "local":
        text = "Megatron's own attention, which `--transformer-impl local` takes, has no context parallelism"
        raise LaunchError(text, "leave `--transformer-impl local` out")
    for name, value in OUTSIDE_THE_STEP.items():
        _set(args, name, value)
    for name, value in {**ON_CPU, **OF_A_MICRO_BATCH}.items():
        _set(args, name, value, replace)
    _set_variables(args)
    _reduce(args, launch, reduce)
    if getattr(args, "num_experts", None) and getattr(args, "moe_router_score_function", "") == "softmax":
        _set(args, "moe_router_pre_softmax", args.moe_router_topk == 1 or args.moe_router_pre_softmax, replace)
    modules = getattr(args, "recompute_modules", None) or []
    if "moe_act" in modules:  # which grouped kernels alone compute again, to the same numbers
        _set(args, "recompute_modules", [name for name in modules if name != "moe_act"], replace)
    if getattr(args, "moe_token_dispatcher_type", "") == "flex":  # which GPUs alone run
        _set(args, "moe_token_dispatcher_type", "alltoall", replace)
    if launch.single_of:
        for name, value in OF_REFERENCE.items():
            _set(args, name, value)
        args.micro_batch_size = args.global_batch_size


def _set_variables(args: Any) -> None:
    """Give variables the values that Megatron asks for on a CPU; fully sharded data parallelism asks for other connections."""
    is_sharded = any(getattr(args, name, False) for name in ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp"))
    for name, value in VARIABLES_ON_CPU.items():
        if value is None:
            os.environ.pop(name, None)
        elif not is_sharded:
            os.environ[name] = value


def _set(args: Any, name: str, value: Any, tell: Tell | None = None) -> None:
    """Give an argument that the parser has another value."""
    if not hasattr(args, name):
        return
    held = getattr(args, name)
    value_of_kind = (
        next((kind for kind in type(held) if kind.name == value), held) if hasattr(type(held), "__members__") else value
    )
    if value_of_kind != held and tell is not None:
        tell(
            f"`{name}` switched off"
            if held is True
            else f"`{_spelled(name)} {_shown(held)}` replaced by `{_shown(value_of_kind)}`"
        )
    setattr(args, name, value_of_kind)


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    return str(getattr(value, "name", value))


# ---- sizes ----


def _reduce(args: Any, launch: Launch, tell: Tell) -> None:
    """Reduce the sizes of the model and of the batch; whatever divides another size still does."""
    tensor, context = args.tensor_model_parallel_size, getattr(args, "context_parallel_size", 1)
    before = {name: getattr(args, name, None) for name in _SIZES}
    _reduce_layers(args, launch)
    _reduce_width(args, launch, tensor)
    _reduce_chunks_at_once(args, launch)
    sequence = launch.sizes.sequence or min(args.seq_length or 16, lcm(16, 2 * context, tensor) * _times_for_experts(args))
    _reduce_sequence(args, sequence)
    args.padded_vocab_size = lcm(32, 8 * tensor)
    args.vocab_size = args.padded_vocab_size - 1
    args.make_vocab_size_divisible_by = args.padded_vocab_size // (1 if launch.single_of else tensor)
    _reduce_batch(args, launch, tensor * context * args.pipeline_model_parallel_size)
    for name, value in before.items():
        now = getattr(args, name, None)
        if value not in (None, now):
            change = "raised" if isinstance(value, int) and isinstance(now, int) and now > value else "reduced"
            tell(f"`{_spelled(name)}` {value} {change} to {now}" if now else f"`{_spelled(name)} {value}` left out")


def _reduce_sequence(args: Any, sequence: int) -> None:
    """Leave a sequence of a length; where an encoder is given a longer one than a decoder, one of twice the length."""
    args.max_position_embeddings = sequence
    if args.seq_length is not None or getattr(args, "decoder_seq_length", None) is None:
        args.seq_length = sequence
        return
    times = 2 if args.encoder_seq_length > args.decoder_seq_length else 1
    args.encoder_seq_length = args.max_position_embeddings = times * sequence
    args.decoder_seq_length = sequence


def _times_for_experts(args: Any) -> int:
    """Return how often the shortest sequence is taken, so that each rank has tokens for every expert, sixteen as a mean.

    What an expert without a token of a rank does with the others is not recorded.
    """
    if not getattr(args, "num_experts", None):
        return 1
    each: int = args.num_experts * args.tensor_model_parallel_size * getattr(args, "context_parallel_size", 1)
    return max(1, each // int(args.moe_router_topk) // 2)


_SIZES = (
    "num_layers", "encoder_num_layers", "decoder_num_layers", "encoder_seq_length", "decoder_seq_length",
    "num_layers_per_virtual_pipeline_stage", "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers", "moe_layer_freq", "hidden_size", "ffn_hidden_size", "num_attention_heads",
    "num_query_groups", "kv_channels", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size", "seq_length", "micro_batch_size", "global_batch_size", "step_batch_size_schedule",
    "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
)  # fmt: skip

_OF_LATENT_ATTENTION = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8}


def _reduce_layers(args: Any, launch: Launch) -> None:
    """Leave each pipeline chunk one layer, and where there is but one chunk two."""
    stages = args.pipeline_model_parallel_size
    if getattr(args, "pipeline_model_parallel_layout", None):
        return
    if args.num_layers is None:  # an encoder and a decoder, which are not cut into stages
        for name in ("encoder_num_layers", "decoder_num_layers"):
            setattr(args, name, min(getattr(args, name, None) or 0, launch.sizes.layers or 2) or None)
        return
    ends = sum(bool(getattr(args, f"account_for_{each}_in_pipeline_split", False)) for each in ("embedding", "loss"))
    within = getattr(args, "num_layers_per_virtual_pipeline_stage", None)
    chunks = getattr(args, "num_virtual_stages_per_pipeline_rank", None) or 1
    if within and stages > 1:
        chunks = max(1, (args.num_layers + ends) // declared_sizes(launch)[STAGES] // within)
    each = 2 if stages * chunks < 3 or ends else 1
    layers = launch.sizes.layers or min(args.num_layers, stages * chunks * each - ends)
    if (layers + ends) % (stages * chunks):
        raise LaunchError(f"{layers} layers do not divide over {stages * chunks} pipeline chunks", "choose another `--layers`")
    if within and stages > 1:
        args.num_layers_per_virtual_pipeline_stage = (layers + ends) // stages // chunks
    for name in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"):
        _set(args, name, None)
    pattern = getattr(args, "moe_layer_freq", None)
    if isinstance(pattern, list):
        args.moe_layer_freq = pattern[:layers]
    args.num_layers = layers


def _reduce_width(args: Any, launch: Launch, tensor: int) -> None:
    """Leave each tensor-parallel rank two heads, or groups of heads, of eight numbers."""
    heads, groups = args.num_attention_heads, getattr(args, "num_query_groups", None)
    args.num_attention_heads = min(heads, lcm(2 * tensor, 4))
    if groups and getattr(args, "group_query_attention", False):
        declared = declared_sizes(launch)[TENSOR]
        args.num_query_groups = min(groups, 2 * tensor) if groups >= declared else max(1, groups * tensor // declared)
        args.num_attention_heads = lcm(args.num_query_groups * min(heads // groups, 2), tensor)
    hidden = launch.sizes.hidden or min(args.hidden_size, 8 * args.num_attention_heads)
    if hidden % args.num_attention_heads:
        text = f"a hidden size of {hidden} does not divide by {args.num_attention_heads} heads"
        raise LaunchError(text, "choose another `--hidden`")
    args.hidden_size, args.kv_channels = hidden, hidden // args.num_attention_heads
    args.ffn_hidden_size = 2 * hidden
    if getattr(args, "multi_latent_attention", False):
        for name, most in _OF_LATENT_ATTENTION.items():
            if getattr(args, name, None):
                setattr(args, name, min(getattr(args, name), most))
    experts = getattr(args, "num_experts", None)
    if experts:
        args.num_experts = min(experts, lcm(4, 2 * args.expert_model_parallel_size))
        args.moe_router_topk = min(args.moe_router_topk, args.num_experts // 2)
        for name in ("moe_ffn_hidden_size", "moe_shared_expert_intermediate_size"):
            if getattr(args, name, None):
                setattr(args, name, 2 * hidden)


def _reduce_chunks_at_once(args: Any, launch: Launch) -> None:
    """Leave as many micro-batches a turn of an interleaved schedule as fewer stages take, where the command says how many."""
    stages, each = args.pipeline_model_parallel_size, getattr(args, "microbatch_group_size_per_vp_stage", None)
    if each and stages != (declared := declared_sizes(launch)[STAGES]):
        args.microbatch_group_size_per_vp_stage = max(stages, each * stages // declared)


def _reduce_batch(args: Any, launch: Launch, ranks: int) -> None:
    """Leave as many micro-batches as show the schedule, of two samples each; stages divide them that did before."""
    replicas = max(1, (launch.single_of or launch.ranks) // ranks)
    sizes = declared_sizes(launch)
    declared = max(1, (launch.declared or launch.single_of or launch.ranks) // prod(sizes.values()))
    schedule = getattr(args, "step_batch_size_schedule", None)
    first = int(schedule.split()[0].rpartition(":")[2]) if schedule else args.global_batch_size
    batch = first or args.micro_batch_size * declared
    micro_batches = max(1, batch // (args.micro_batch_size * declared))
    stages = args.pipeline_model_parallel_size
    left = min(micro_batches, 2 * stages)
    if micro_batches % sizes[STAGES] == 0:
        left -= left % stages
    args.micro_batch_size = 2
    args.global_batch_size = 2 * replicas * left
    if schedule:  # of which the step is one of the first
        args.step_batch_size_schedule = None


# ---- data and preparation ----


def _initialize(module: Any) -> None:
    """Let Megatron begin without a GPU, and without what it compiles for one."""
    begin = module.initialize_megatron
    module.initialize_megatron = lambda *args, **kwargs: begin(*args, **{**kwargs, "allow_no_cuda": True})
    for name in ("_compile_dependencies", "_initialize_tp_communicators", "set_jit_fusion_options", "_warmup_jit_function"):
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: None)


def _data(module: Any, step: Step, replace: Tell) -> None:
    """Let the model train on numbers that the place of each sample in the batch gives."""

    def iterators(*_: Any, **__: Any) -> Any:
        from megatron.training import get_args  # type: ignore[import-not-found,unused-ignore]

        args = get_args()
        args.do_train, args.do_valid, args.do_test = True, False, False
        replace("data replaced by numbers that the place of each sample gives")
        return _samples(args, step), None, None

    module.build_train_valid_test_data_iterators = iterators


def _samples(args: Any, step: Step) -> Iterator[_Batch]:
    """Yield the micro-batches of this rank, in the order of Megatron's sampler."""
    from megatron.core import parallel_state as state  # type: ignore[import-not-found,unused-ignore]

    replicas, replica = state.get_data_parallel_world_size(), state.get_data_parallel_rank()
    at = replica * args.micro_batch_size
    while True:
        yield step.aside()(_batch)(at, args)
        at += replicas * args.micro_batch_size


class _Batch(dict[str, torch.Tensor]):
    """What the scripts of GPT read of a micro-batch, and, where they are asked for, what those of BERT and T5 read."""

    def __init__(self, of_gpt: Mapping[str, torch.Tensor], of_others: Mapping[str, torch.Tensor]) -> None:
        super().__init__(of_gpt)
        self.of_others = of_others

    def __missing__(self, name: str) -> torch.Tensor:
        return self.of_others[name]


def _batch(at: int, args: Any) -> _Batch:
    """Return the samples of a micro-batch by the names that scripts read them by."""
    decoded = getattr(args, "decoder_seq_length", None) or args.seq_length
    text = _samples_at(at, args, args.seq_length).clamp(min=1)  # what is 0 fills up a text
    next_words = _samples_at(at, args, decoded + 1)
    whole, whole_decoded = torch.ones_like(text), torch.ones(len(text), decoded)
    places = torch.arange(args.seq_length).repeat(len(text), 1)
    tokens, labels = next_words[:, :-1].contiguous(), next_words[:, 1:].contiguous()
    order, seen = (at + torch.arange(len(text))) % 2, (text % 5 > 0).long()  # other places of each sample
    of_bert = {"text": text, "types": 2 * places // args.seq_length, "is_random": order, "padding_mask": seen}
    of_t5 = {"text_enc": text, "text_dec": tokens.clamp(min=1), "enc_mask": whole, "dec_mask": whole_decoded}
    of_gpt = {"tokens": tokens, "labels": labels, "loss_mask": whole_decoded, "position_ids": places}
    return _Batch(of_gpt, {**of_bert, **of_t5})


def _samples_at(at: int, args: Any, length: int) -> torch.Tensor:
    return torch.stack([_sample(at + number, args, length) for number in range(args.micro_batch_size)])


def _sample(place: int, args: Any, length: int) -> torch.Tensor:
    return torch.randint(0, args.padded_vocab_size, (length,), generator=torch.Generator().manual_seed(place))


def _batches(module: Any, step: Step) -> None:
    """Let batches be given to each rank: how ranks pass them on, and which part of the sequence each takes, is no part of
    the step.
    """
    for name in ("get_batch_on_this_tp_rank", "get_batch_on_this_cp_rank"):
        if hasattr(module, name):
            setattr(module, name, step.aside()(getattr(module, name)))


def _masks_of_samples(module: Any, step: Step) -> None:
    """Let masks be given that are made of each sample by itself."""
    dataset = module.T5MaskedWordPieceDataset
    dataset.config_attention_mask = staticmethod(step.aside()(dataset.config_attention_mask))
