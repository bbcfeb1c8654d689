"""Devices that a program names to modules, replicas and meshes, which torch's function modes do not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel


def name_devices(on_cpu: Callable[[Any], Any]) -> None:
    """Let modules, replicas and meshes lie on the CPU where a GPU is named; `on_cpu` gives the device for one that is named."""
    module: Any = torch.nn.Module
    mesh: Any = DeviceMesh
    replicas: Any = DistributedDataParallel
    module.to = _to(module.to, on_cpu)
    mesh.__init__ = _of_type(mesh.__init__, on_cpu)
    replicas.__init__ = _without_devices(replicas.__init__, on_cpu)


def _to(move: Any, on_cpu: Callable[[Any], Any]) -> Any:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        return move(self, *(on_cpu(argument) for argument in args[:1]), *args[1:], **kwargs)

    return to


def _of_type(begin: Any, on_cpu: Callable[[Any], Any]) -> Any:
    def of_type(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, str(on_cpu(device_type)), *args, **kwargs)

    return of_type


def _without_devices(begin: Any, on_cpu: Callable[[Any], Any]) -> Any:
    """Return a constructor that names no devices for a module on the CPU."""

    def without(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any) -> None:
        if len(device_ids or ()) > 1 or any(parameter.device.type != "cpu" for parameter in module.parameters()):
            begin(self, module, device_ids, output_device, *args, **kwargs)
            return
        for device in device_ids or ():
            on_cpu(device)
        begin(self, module, None, None, *args, **kwargs)

    return without
