"""Megatron-Core on CPUs: what replaces its GPU-only parts, where its step ends, how its weights lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from tvlint.capture import megatron_attention
from tvlint.capture.imports import Change
from tvlint.capture.step import Step

Replace = Callable[[str], object]

_CORE = "megatron.core."


def changes(step: Step, replace: Replace) -> Mapping[str, Change]:
    """Return how the modules of Megatron are changed, by their names."""
    return {
        _CORE + "tensor_parallel.random": _recomputation,
        _CORE + "tensor_parallel.data": lambda module: _batches_of_each_rank(module, replace),
        _CORE + "tensor_parallel.inference_layers": _no_layers_for_inference,
        _CORE + "models.bert.bert_layer_specs": lambda module: _layers_of_bert(module, replace),
        _CORE + "models.bert.bert_model": lambda module: _masks_of_bert(module, replace),
        _CORE + "transformer.torch_norm": lambda module: _norms(module, replace),
        _CORE + "transformer.dot_product_attention": lambda module: megatron_attention.change(module, replace),
        _CORE + "transformer.moe.moe_utils": _experts,
        _CORE + "transformer.moe.token_dispatcher": _counts_on_cpu,
        _CORE + "pipeline_parallel.schedules": lambda module: _schedules(module, step),
        _CORE + "optimizer.optimizer": lambda module: _optimizers(module, step),
    }


def _recomputation(module: Any) -> None:
    """Keep the states of random numbers of the CPU, and none of FP8 where TransformerEngine, which has it, is not installed."""
    module._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    module._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    segment = getattr(module, "CheckpointWithoutOutput", None)
    if segment is None or getattr(module, "HAVE_TE", False):
        return
    begin, again = segment.__init__, segment._recompute

    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.fp8 = False

    def recompute(self: Any, *args: Any) -> None:
        run = self.run_function
        if self.ctx is not None:
            released = [_Released(tensor) for tensor in self.outputs]
            self.outputs = tuple(released)
            self.run_function = lambda *inputs: _given_to(released, run(*inputs))
        again(self, *args)

    segment.__init__, segment._recompute = begun, recompute
    module._get_share_storage = lambda: lambda released, _: released.copy_(None)


class _Released:
    """The result of a segment whose memory is released until the segment is run again, which then fills it by a copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.again = tensor

    def untyped_storage(self) -> _Released:
        """Return what stands for the memory: this."""
        return self

    def data_ptr(self) -> None:
        """Return no address: the memory is that of no other tensor."""

    def resize_(self, _: int) -> None:
        """Leave the size as it is: that of what is copied."""

    def copy_(self, _: object) -> None:
        """Fill the tensor with what the segment gave when it was run again."""
        self.tensor.untyped_storage().resize_(self.again.untyped_storage().nbytes())
        self.tensor.data.copy_(self.again)


def _given_to(released: Sequence[_Released], outputs: Any) -> Any:
    """Remember what a segment that is run again gives, and return it."""
    for each, output in zip(released, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
        each.again = output
    return outputs


def _batches_of_each_rank(module: Any, replace: Replace) -> None:
    """Let each rank take its batch itself: the ranks that share one have equal ones."""

    def taken(keys: Iterable[str], data: Mapping[str, torch.Tensor], datatype: torch.dtype, *_: Any, **__: Any) -> Any:
        replace("batches that one rank passes on replaced by those that each rank takes itself")
        return {key: data[key].to(datatype) for key in keys}

    module.broadcast_data = taken


def _no_layers_for_inference(module: Any) -> None:
    """Take no layer for one of inference, whose classes are none where TransformerEngine is not installed."""
    if hasattr(module, "is_inference_column_parallel_linear"):
        module.is_inference_column_parallel_linear = lambda layer: False


def _layers_of_bert(module: Any, replace: Replace) -> None:
    """Let BERT take Megatron's own layers where it asks for those of TransformerEngine."""
    replace("layers of TransformerEngine replaced by Megatron's own")
    module.bert_layer_with_transformer_engine_spec = module.bert_layer_local_spec
    module.get_bert_layer_with_transformer_engine_spec = lambda: module.bert_layer_local_spec


def _masks_of_bert(module: Any, replace: Replace) -> None:
    """Let the attention of BERT be given masks as Megatron's own layers take them, whatever attention the launch asks for."""

    def dimension(model: Any) -> str:
        replace("masks of attention in the shape that Megatron's own layers take")
        return "b1ss"

    module.BertModel._sanity_check_attention_and_get_attn_mask_dimension = dimension


def _norms(module: Any, replace: Replace) -> None:
    """Let torch's norms be used with sequence parallelism, marked as the norms of Apex and TransformerEngine are.

    Weights that are kept without the one that they begin with get it where they are used.
    """
    plain = module.WrappedTorchNorm.__new__

    def new(kind: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        parallel, config.sequence_parallel = config.sequence_parallel, False
        centered, config.layernorm_zero_centered_gamma = config.layernorm_zero_centered_gamma, False
        try:
            norm = plain(kind, config, *args, **kwargs)
        finally:
            config.sequence_parallel, config.layernorm_zero_centered_gamma = parallel, centered
        if parallel:
            replace("norm of torch in place of Apex's and TransformerEngine's, under sequence parallelism too")
        if centered and isinstance(norm, torch.nn.LayerNorm | torch.nn.RMSNorm):
            replace("norm of torch, given one more than its weight, in place of Apex's and TransformerEngine's")
            center(norm)
        for parameter in norm.parameters():
            parameter.sequence_parallel = parallel
        return norm

    module.WrappedTorchNorm.__new__ = new


def center(norm: torch.nn.LayerNorm | torch.nn.RMSNorm) -> None:
    """Let the weight of a norm be what is added to one, and begin with nothing."""
    torch.nn.init.zeros_(norm.weight)

    def shifted(given: torch.Tensor) -> torch.Tensor:
        shape, weight = list(norm.normalized_shape), norm.weight + 1
        if isinstance(norm, torch.nn.LayerNorm):
            return functional.layer_norm(given, shape, weight, norm.bias, norm.eps)
        return functional.rms_norm(given, shape, weight, norm.eps)

    norm.forward = shifted  # type: ignore[method-assign,unused-ignore]


def _experts(module: Any) -> None:
    """Route tokens without TransformerEngine, whose product one version asks for without having looked for it."""
    _counts_on_cpu(module)
    if not hasattr(module, "te_general_gemm"):
        module.te_general_gemm = None


def _counts_on_cpu(module: Any) -> None:
    """Give counts of tokens as arrays where Megatron asks for that, though they are on the CPU already."""
    if hasattr(module, "maybe_move_tensor_to_cpu"):
        module.maybe_move_tensor_to_cpu = lambda tensor, as_numpy=False, *_, **__: (
            tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor
        )


def _schedules(module: Any, step: Step) -> None:
    """Begin the training step with the schedule; keep the outputs of stages, and let backward passes from them be seen."""
    step.recorder.begin = lambda: None
    module.deallocate_output_tensor = lambda *_, **__: None
    module.custom_backward = lambda output, gradient: torch.autograd.backward((output,), (gradient,))
    for name in dir(module):
        if name.startswith("forward_backward_") and callable(getattr(module, name)):
            setattr(module, name, _begun(getattr(module, name), step))


def _begun(schedule: Any, step: Step) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        chunks = kwargs["model"]
        step.begin_with(chunks if isinstance(chunks, list) else [chunks], _mesh())
        return schedule(*args, **kwargs)

    return run


def _mesh() -> dict[str, Any] | None:
    """Return the mesh that Megatron's parallel sizes make, where its ranks lie on it in the usual order."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state  # type: ignore[import-not-found,unused-ignore]

    sizes = {
        "pp": (state.get_pipeline_model_parallel_world_size(), state.get_pipeline_model_parallel_rank()),
        "dp": (state.get_data_parallel_world_size(), state.get_data_parallel_rank()),
        "cp": (state.get_context_parallel_world_size(), state.get_context_parallel_rank()),
        "tp": (state.get_tensor_model_parallel_world_size(), state.get_tensor_model_parallel_rank()),
    }
    rank = 0
    for size, place in sizes.values():
        rank = rank * size + place
    axes = [{"axis": name, "size": size} for name, (size, _) in sizes.items() if size > 1]
    return {"mesh": axes, "of": list(range(dist.get_world_size()))} if axes and rank == dist.get_rank() else None


def _optimizers(module: Any, step: Step) -> None:
    """End the training step where Megatron's outermost optimizer has stepped, and has gathered the weights again."""
    for kind in ("MixedPrecisionOptimizer", "FP32Optimizer", "ChainedOptimizer"):
        inner = getattr(module, kind, None)
        if inner is not None:
            inner.step = _ended(step, inner.step)
            inner.step_with_ready_grads = _with_clipped_gradients(step, inner.step_with_ready_grads)


def _ended(step: Step, plain: Callable[..., Any]) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if step.stepping is not None or not step.recorder.recording:
            return plain(self, *args, **kwargs)
        if self.config.clip_grad > 0:
            step.before_clipping()
        else:
            step.before_update()
        with step.stepping_by(self):
            result = plain(self, *args, **kwargs)
            with step.aside():
                _gather_weights(self)
        step.after_update(type(self).__name__, None)
        return result

    return run


def _with_clipped_gradients(step: Step, plain: Callable[..., Any]) -> Any:
    """Return the part of an optimizer's step behind its clipping, with the gradients recorded where it begins."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not step.recorder.recording:
            return plain(self, *args, **kwargs)
        step.clipped_now()
        with step.aside():
            return plain(self, *args, **kwargs)

    return run


def _gather_weights(optimizer: Any) -> None:
    """Gather the weights that ranks have stepped in shards, and would gather while the next step computes."""
    for each in getattr(optimizer, "chained_optimizers", [optimizer]):
        if getattr(getattr(each, "ddp_config", None), "overlap_param_gather", False):
            for chunk in getattr(each, "model_chunks", []):
                chunk.start_param_sync(force_sync=True)
