"""Bounds of one training step: from the first use of a weight to the end of the first step of its optimizers."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import GradientEdge
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from tvlint.capture.flat_weights import check_gradient, check_optimizer, flat_weights, is_flat, parts_of
from tvlint.capture.launch import LaunchError
from tvlint.capture.megatron_weights import fill, says_pieces
from tvlint.capture.recorder import Recorder
from tvlint.capture.weights import (
    State,
    clipped_gradient_of,
    gradient_of,
    held_by_modules,
    leaves_of,
    local_part,
    meshes,
    named_state,
    state_of,
)

_CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_")
"""Functions of torch that stand between the backward passes and the optimizer."""


class CapturedError(BaseException):
    """Ends the program once its step is recorded."""


class Step:
    """Follows one training step of the program and tells the recorder what belongs to it."""

    def __init__(self, recorder: Recorder, replace: Callable[[str], object]) -> None:
        self.recorder = recorder
        self.replace = replace
        self.weights: dict[int, State] = {}
        self.module_names: dict[int, str] = {}
        self.calls: dict[int, int] = {}
        self.wholes: dict[int, int] = {}
        self.depth = 0
        self.backward_depth = 0
        self.roots = 0
        self.finished = False
        self.optimizers: list[Optimizer] = []
        self.stepping: Optimizer | None = None
        self.phase_before = ""
        self.begun: set[int] = set()
        self.compared: set[int] = set()
        self.elsewhere: list[State] = []
        self.clips = False
        self.clipped: list[dict[str, Any]] = []
        self.parts: dict[int, int] = {}

    def watch(self) -> None:
        """Follow the modules, the backward passes and the optimizers of this process."""
        self.recorder.begin = self.begin
        register_module_forward_pre_hook(self._enter)
        register_module_forward_hook(self._leave, always_call=True)
        self._watch_optimizers()
        register_optimizer_step_pre_hook(self._before_update)
        register_optimizer_step_post_hook(self._after_update)
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def recorded(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            with self._backward(tensors, grad_tensors):
                backward(tensors, grad_tensors, *args, **kwargs)

        def given(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
            with self._backward(outputs, grad_outputs):
                return grad(outputs, inputs, grad_outputs, *args, **kwargs)

        torch.autograd.backward, torch.autograd.grad = recorded, given
        for name in _CLIPPING:
            clipped = self.before(getattr(nn.utils, name))
            for place in (clip_grad, nn.utils):
                setattr(place, name, clipped)

    def _watch_optimizers(self) -> None:
        """Follow which optimizers the program makes."""
        made = Optimizer.__init__

        def watched(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.optimizers.append(optimizer)
            made(optimizer, *args, **kwargs)

        Optimizer.__init__ = watched  # type: ignore[method-assign, unused-ignore]

    def begin(self) -> None:
        """Begin to record, and name what the program holds."""
        if self.recorder.recording or self.finished or self.recorder.away:
            return
        self.recorder.recording = True
        for mesh in meshes():
            self.recorder.emit(mesh)
        self.recorder.begin_with_messages()

    def begin_with(self, roots: Sequence[nn.Module], mesh: dict[str, Any] | None) -> None:
        """Begin to record a step that the modules take part in, on a mesh that their framework names."""
        for root in roots:
            if says_pieces(root):
                self.fill(root)
        self.begin()
        if mesh is not None:
            self.recorder.emit(mesh)
        for root in roots:
            self.name_state(root)
            self.calls[id(root)] = 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run what is no part of the step."""
        recording, self.recorder.recording = self.recorder.recording, False
        away, self.recorder.away = self.recorder.away, True
        try:
            yield
        finally:
            self.recorder.recording, self.recorder.away = recording, away

    def fill(self, root: nn.Module) -> None:
        """Let the weights begin with the numbers that their names give."""
        self.replace("weights filled with numbers that their names give")
        with torch.no_grad(), _disable_current_modes():
            fill(root)

    def name_state(self, root: nn.Module) -> None:
        """Record the names of the parameters and buffers of a module that is called from outside of any other."""
        taken = {weight.name for weight in self.weights.values()}
        flat = list(flat_weights(root))
        self.parts.update(pair for state in flat for pair in parts_of(state).items())
        entries = [
            *flat,
            *(state for state in named_state(root) if not is_flat(state.tensor) and id(state.tensor) not in self.parts),
        ]
        clash = any(entry.name in taken and id(entry.tensor) not in self.weights for entry in entries)
        prefix = f"{type(root).__name__}{len(self.calls)}." if clash else ""
        for state in entries:
            if id(state.tensor) not in self.weights:
                self.name(replace(state, name=prefix + state.name))

    def name_leaves(self, roots: Sequence[torch.Tensor]) -> None:
        """Record names of weights that are used outside of calls of modules.

        Those that no module holds are numbered in the order in which the backward pass finds them. What a pipeline stage is
        sent has a gradient too, and is no weight.
        """
        trained = set[int]().union(*map(self._weights_of, self.optimizers))
        found = []
        for tensor in leaves_of(roots):
            is_sent = id(tensor) not in trained and self.recorder.is_received(tensor)
            if id(tensor) not in self.weights and not self.recorder.is_made(tensor) and not is_sent:
                found.append(tensor)
        held = held_by_modules(found)
        for tensor in found:
            state = held.get(id(tensor))
            if state is None or any(weight.name == state.name for weight in self.weights.values()):
                state = state_of(f"weight{len(self.weights)}", "weight", tensor)
            self.name(state)

    def name(self, state: State) -> None:
        """Record the name of a weight or buffer."""
        number = self.recorder.name(state.held)
        wanted = {"trained": True} if state.role == "weight" and state.tensor.requires_grad else {}
        self.recorder.emit_of(state.held, {"name": state.name, "role": state.role, "of": number, **wanted, **state.place})
        if state.role == "weight":
            self.weights[id(state.tensor)] = state

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        outermost, self.depth = self.depth == 0 and not self.recorder.away, self.depth + 1
        if not torch.is_grad_enabled() and not self.recorder.recording:
            return
        if outermost and not self.backward_depth:
            self._end_where_one_has_stepped({id(weight) for weight in module.parameters()})
            is_new = id(module) not in self.calls and id(module) not in self.wholes
            if is_new and says_pieces(module):
                self.fill(module)
            if next(module.parameters(), None) is not None:
                self.begin()
            if is_new:
                self.name_state(module)
            if self.recorder.recording:
                self.recorder.phase = "forward"
            self.recorder.micro_batch = self._count(module) - 1
        self.recorder.modules.append(self.module_names.get(id(module), ""))

    def _count(self, module: nn.Module) -> int:
        """Return how often a module was called, or the one of which it is called as a part, as a head for parts of a batch."""
        if id(module) not in self.calls and id(module) in self.wholes:
            return self.calls[self.wholes[id(module)]]
        count = self.calls[id(module)] = self.calls.get(id(module), 0) + 1
        weights = len([*module.parameters()])
        for name, inner in module.named_modules():
            self.module_names[id(inner)] = name
            if count == 1 and len([*inner.parameters()]) < weights:
                self.wholes[id(inner)] = id(module)
        return count

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.depth -= 1
        if self.recorder.modules:
            self.recorder.modules.pop()

    @contextmanager
    def _backward(self, tensors: Any, gradients: Any) -> Iterator[None]:
        """Run a backward pass, from tensors, or from operators in the midst of one (edges)."""
        recorder = self.recorder
        if not self.backward_depth:
            self._end_where_one_has_stepped()
        if recorder.recording and not self.backward_depth:
            every = tensors if isinstance(tensors, Sequence) and not isinstance(tensors, GradientEdge) else (tensors,)
            given = gradients if isinstance(gradients, Sequence) else (gradients,) * len(every)
            roots = [(root, gradient) for root, gradient in zip(every, given, strict=True) if isinstance(root, torch.Tensor)]
            self.name_leaves([root for root, _ in roots])
            for root, gradient in roots:
                recorder.backward_micro_batch = recorder.micro_batch_of(root)
                self._begin_backward(root, gradient)
            recorder.phase = "backward"
        self.backward_depth += 1
        try:
            yield
        finally:
            self._end_backward()

    def _begin_backward(self, root: torch.Tensor, gradient: torch.Tensor | None) -> None:
        recorder = self.recorder
        event: dict[str, Any] = {"root": recorder.identify(local_part(root))}
        if gradient is not None:
            event["from"] = recorder.identify(local_part(gradient))
        if root.numel() == 1:
            event["values"] = recorder.values(local_part(root))
        recorder.emit({**recorder.mark(event), "micro_batch": recorder.backward_micro_batch})

    def _end_backward(self) -> None:
        self.backward_depth -= 1
        if not self.backward_depth and self.recorder.recording:
            self.recorder.phase = "forward"
            self.roots += 1
            if not self.calls:
                self.recorder.micro_batch = self.roots

    def before(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that clips gradients, with the gradients recorded where it begins."""

        def clipped(*args: Any, **kwargs: Any) -> Any:
            self.before_clipping()
            return clip(*args, **kwargs)

        return clipped

    def before_clipping(self) -> None:
        """Record the gradients where the program begins to clip them; those that it steps by are recorded as well."""
        if self.recorder.recording and not self.finished:
            self.clips = True
            if self.recorder.phase != "optimizer":
                self.replace("gradients that the program has before it clips them")
                self.results()
                self.recorder.phase = "optimizer"

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if self.stepping is None:
            self.stepping, self.phase_before = optimizer, self.recorder.phase
            for key in self._weights_of(optimizer) & self.weights.keys():
                check_optimizer(self.weights[key].tensor, _held_by(optimizer))
            self.begun |= self._weights_of(optimizer)
            self.before_update(self._left())
            self.clipped = self._clipped(self._weights_of(optimizer))

    def before_update(self, left: Container[int] = frozenset()) -> None:
        """Record the gradients where an optimizer begins its step, but for those of weights that are left for others."""
        if self.recorder.recording and not self.finished and self.recorder.phase != "optimizer":
            self.results(left)
            self.recorder.phase = "optimizer"

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        """End the program after the last optimizer; of those that step within each other the outermost has the weights."""
        if optimizer is self.stepping:
            self.after_update(type(optimizer).__name__, self._weights_of(optimizer), self._left())
            self.stepping, self.recorder.phase = None, "optimizer" if self.elsewhere else self.phase_before

    def after_update(self, optimizer: str, held: Container[int] | None, left: Container[int] = frozenset()) -> None:
        """End the program where the step of an optimizer ends, if no weights are left for others.

        `held` are the weights that it holds (None: all).
        """
        if self.recorder.recording and not self.finished:
            updated = [weight for key, weight in self.weights.items() if held is None or key in held]
            event: dict[str, Any] = {"update": [weight.name for weight in updated], "optimizer": optimizer}
            event["clipped"] = self.clipped
            event["values"] = {weight.name: self.recorder.values(weight.held) for weight in updated}
            self.recorder.emit(event)
            if held is None:
                self.begun.update(self.weights, *map(self._weights_of, self.optimizers))
            self._note_stepped_elsewhere()
            if not left and not self.elsewhere:
                self.end()

    @contextmanager
    def stepping_by(self, optimizer: Any) -> Iterator[None]:
        """Run the step of a framework's optimizer: those of torch inside of it belong to it."""
        before, self.stepping = self.stepping, optimizer
        try:
            yield
        finally:
            self.stepping = before

    def clipped_now(self) -> None:
        """Note the gradients that a framework's optimizer steps by."""
        self.clipped = self._clipped(self.weights)

    def _clipped(self, held: Container[int]) -> list[dict[str, Any]]:
        """Return the gradients that an optimizer finds, where the program has clipped gradients."""
        if not (self.clips and self.recorder.recording):
            return []
        every = [clipped_gradient_of(weight) for key, weight in self.weights.items() if key in held]
        return [self._gradient(found) for found in every if found is not None]

    def _gradient(self, found: State) -> dict[str, Any]:
        number, values = self.recorder.identify(found.held), self.recorder.values(found.held)
        return {"gradient": found.name, "of": number, "values": values, **found.place}

    def _left(self) -> set[int]:
        """Return the weights of optimizers that have not begun to step, with gradients unless they are still to come."""
        trained = {key for key, state in self.weights.items() if self.backward_depth or gradient_of(state) is not None}
        return (trained - self.begun) & set[int]().union(*map(self._weights_of, self.optimizers))

    def _note_stepped_elsewhere(self) -> None:
        """Note the weights with gradients that no optimizer of this rank holds: other ranks may step and send them."""
        if dist.is_initialized() and dist.get_world_size() > 1:
            held = self.begun.union(*map(self._weights_of, self.optimizers))
            found = {key: state for key, state in self.weights.items() if key not in held}
            self.elsewhere = [state for state in found.values() if gradient_of(state) is not None]

    def _end_where_one_has_stepped(self, used: Set[int] = frozenset()) -> None:
        """End the program where it computes, with such weights, after one of its optimizers has stepped.

        Raises LaunchError where it trains weights of another one too: one step is recorded, and nothing would be said of those.
        """
        if self.recorder.recording and self.begun and self.stepping is None:
            self.end()
        if not self.finished:
            return
        if self._others().isdisjoint(used | self.weights.keys()):
            raise CapturedError
        raise LaunchError(
            "the program goes on with weights of another optimizer after one has stepped, and one step alone is recorded",
            "capture a program that steps all optimizers one after the other, or one program for each",
        )

    def end(self) -> None:
        """Record the gradients that no optimizer has found, and end the program; where weights of other optimizers are left it
        goes on, to see whether they are trained in this step too. What other ranks step is recorded as it is then.

        Raises LaunchError where the optimizer steps tensors that are no weights.
        """
        self.results()
        if self.elsewhere:
            values = {state.name: self.recorder.values(state.held) for state in self.elsewhere}
            self.recorder.emit({"update": [*values], "elsewhere": True, "clipped": [], "values": values})
        self.finish()
        if self.weights and self.begun and self.begun.isdisjoint(self.weights):
            raise LaunchError(
                "the optimizer steps tensors that no module holds, as flat copies of weights are: they are not followed",
                "shard the model with `fully_shard`, or for the capture set `zero_optimization.stage` of DeepSpeed to 0",
            )
        if not self._others():
            raise CapturedError

    def _others(self) -> set[int]:
        """Return the weights of optimizers of which no weight has been stepped."""
        every = (self._weights_of(optimizer) for optimizer in self.optimizers if _holds_weights(optimizer))
        return set[int]().union(*(weights for weights in every if self.begun.isdisjoint(weights)))

    def results(self, left: Container[int] = frozenset()) -> None:
        """Record the gradients as the optimizer finds them, but for those of weights that are left for later."""
        for key, weight in self.weights.items():
            found = gradient_of(weight) if key not in self.compared and key not in left else None
            if found is None:
                continue
            check_gradient(weight.tensor)
            self.compared.add(key)
            self.recorder.emit_of(weight.held, self._gradient(found))

    def _weights_of(self, optimizer: Any) -> frozenset[int]:
        """Return the weights that an optimizer holds, flat ones for their parts."""
        return frozenset(self.parts.get(key, key) for key in _held_by(optimizer))

    def finish(self) -> None:
        """Record no more."""
        self.recorder.recording = False
        self.finished = True


def _held_by(optimizer: Any) -> frozenset[int]:
    """Return the tensors that an optimizer holds."""
    return frozenset(id(each) for group in getattr(optimizer, "param_groups", ()) for each in group["params"])


def _holds_weights(optimizer: Optimizer) -> bool:
    """Return whether an optimizer holds weights of a model, and not copies of them."""
    groups = getattr(optimizer, "param_groups", ())
    return any(isinstance(each, nn.Parameter) and each.requires_grad for group in groups for each in group["params"])
