"""Bounds of one training step: from the first use of a weight to the end of the optimizer's first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tvlint.capture.recorder import Recorder
from tvlint.capture.weights import leaves_of, local_part, meshes, named_state, placement_of


class CapturedError(BaseException):
    """Ends the program once its step is recorded."""


class Step:
    """Follows one training step of the program and tells the recorder what belongs to it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.weights: dict[int, tuple[str, torch.Tensor]] = {}
        self.module_names: dict[int, str] = {}
        self.calls: dict[int, int] = {}
        self.depth = 0
        self.backward_depth = 0
        self.roots = 0
        self.finished = False

    def watch(self) -> None:
        """Follow the modules, the backward passes and the optimizers of this process."""
        self.recorder.begin = self.begin
        register_module_forward_pre_hook(self._enter)
        register_module_forward_hook(self._leave, always_call=True)
        register_optimizer_step_pre_hook(self._before_update)
        register_optimizer_step_post_hook(self._after_update)
        backward = torch.autograd.backward

        def recorded(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            self._begin_backward(tensors, grad_tensors)
            try:
                backward(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._end_backward()

        torch.autograd.backward = recorded

    def begin(self) -> None:
        """Begin to record, and name what the program holds."""
        if self.recorder.recording or self.finished:
            return
        self.recorder.recording = True
        for mesh in meshes():
            self.recorder.emit(mesh)

    def name_state(self, root: nn.Module) -> None:
        """Record the names of the parameters and buffers of a module that is called from outside of any other."""
        taken = {name for name, _ in self.weights.values()}
        entries = list(named_state(root))
        clash = any(name in taken and id(tensor) not in self.weights for name, _, tensor in entries)
        prefix = f"{type(root).__name__}{len(self.calls)}." if clash else ""
        for name, role, tensor in entries:
            if id(tensor) not in self.weights:
                self.name(prefix + name, role, tensor)

    def name_leaves(self, roots: Sequence[torch.Tensor]) -> None:
        """Record names of weights that no module holds, numbered in the order in which the backward pass finds them."""
        for tensor in leaves_of(roots):
            if id(tensor) not in self.weights:
                self.name(f"weight{len(self.weights)}", "weight", tensor)

    def name(self, name: str, role: str, tensor: torch.Tensor) -> None:
        """Record the name of a weight or buffer."""
        number = self.recorder.identify(local_part(tensor))
        wanted = {"trained": True} if role == "weight" and tensor.requires_grad else {}
        self.recorder.emit({"name": name, "role": role, "of": number, **wanted, **placement_of(tensor)})
        if role == "weight":
            self.weights[id(tensor)] = (name, tensor)

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        outermost, self.depth = self.depth == 0, self.depth + 1
        if not torch.is_grad_enabled() and not self.recorder.recording:
            return
        if outermost and not self.backward_depth:
            if next(module.parameters(), None) is not None:
                self.begin()
            if id(module) not in self.calls:
                self.name_state(module)
            count = self.calls[id(module)] = self.calls.get(id(module), 0) + 1
            self.recorder.micro_batch = count - 1
            self.module_names.update({id(own): name for name, own in module.named_modules()})
        self.recorder.modules.append(self.module_names.get(id(module), ""))

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.depth -= 1
        if self.recorder.modules:
            self.recorder.modules.pop()

    def _begin_backward(self, tensors: Any, gradients: Any) -> None:
        recorder = self.recorder
        if recorder.recording and not self.backward_depth:
            roots = tensors if isinstance(tensors, Sequence) else (tensors,)
            self.name_leaves(roots)
            given = gradients if isinstance(gradients, Sequence) else (gradients,) * len(roots)
            for root, gradient in zip(roots, given, strict=True):
                event: dict[str, Any] = {"root": recorder.identify(local_part(root))}
                if gradient is not None:
                    event["from"] = recorder.identify(local_part(gradient))
                if root.numel() == 1:
                    event["values"] = recorder.values(local_part(root))
                recorder.emit(recorder.mark(event))
            recorder.phase = "backward"
            recorder.backward_micro_batch = recorder.micro_batch
        self.backward_depth += 1

    def _end_backward(self) -> None:
        self.backward_depth -= 1
        if not self.backward_depth and self.recorder.recording:
            self.recorder.phase = "forward"
            self.roots += 1
            if not self.calls:
                self.recorder.micro_batch = self.roots

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if self.recorder.recording and not self.finished:
            self.results()
            self.recorder.phase = "optimizer"

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        if self.recorder.recording and not self.finished:
            held = {id(each) for group in optimizer.param_groups for each in group["params"]}
            names = [name for own, (name, _) in self.weights.items() if own in held]
            self.recorder.emit({"update": names, "optimizer": type(optimizer).__name__})
            self.finish()
            raise CapturedError

    def results(self) -> None:
        """Record the gradients as the optimizer finds them."""
        for name, tensor in self.weights.values():
            if tensor.grad is not None:
                own = local_part(tensor.grad)
                event = {"gradient": name, "of": self.recorder.identify(own), "values": self.recorder.values(own)}
                self.recorder.emit({**event, **placement_of(tensor.grad)})

    def finish(self) -> None:
        """Record no more."""
        self.recorder.recording = False
        self.finished = True
