"""The weights and buffers of a program: their names, and where their shards lie."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from tvlint.capture.megatron_weights import pieces_of, says_pieces

_UNCALLED = nn.Module.forward
"""What modules have in place of a forward pass that only list others."""

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


@dataclass(frozen=True, slots=True)
class State:
    """A weight or buffer of the program by its name, what the rank holds of it, and what its framework says of its place."""

    name: str
    role: str
    tensor: torch.Tensor
    held: torch.Tensor
    place: Mapping[str, Any] = field(default_factory=dict)


def named_state(module: nn.Module) -> Iterator[State]:
    """Yield the parameters and buffers of a module, by the names that the largest module has for them.

    Where a framework names the weights of a module otherwise, its buffers have their names in the same place.
    """
    root = module if says_pieces(module) else holder_of(module)
    state = (*module.named_parameters(), *module.named_buffers())  # Megatron's data parallelism calls a list `buffers`
    inside = {id(tensor) for _, tensor in state}
    said = {id(piece.weight): piece for piece in pieces_of(root)} if says_pieces(root) else {}
    places: dict[str, str] = {}
    for name, tensor in root.named_parameters() if said else ():
        path, _, leaf = name.rpartition(".")
        if id(tensor) in said and said[id(tensor)].name.endswith(f".{leaf}"):
            places[path] = said[id(tensor)].name.removesuffix(leaf)
    for role, entries in (("weight", root.named_parameters()), ("buffer", root.named_buffers())):
        for name, tensor in entries:
            if id(tensor) not in inside:
                continue
            piece = said.get(id(tensor))
            if piece is None:
                path, _, leaf = name.rpartition(".")
                yield state_of(f"{places[path]}{leaf}" if path in places else plain_name(root, name), role, tensor)
                continue
            yield State(piece.name, role, tensor, piece.data, {"whole": list(piece.whole), "start": list(piece.start)})


def holder_of(module: nn.Module) -> nn.Module:
    """Return the largest module that holds a module and can be called, by whose names its weights are known.

    It is the module itself where none holds it, or none but lists of stages, modules that wrap it alone,
    and those that torch traced, which name their parts anew.
    """
    parents: dict[int, list[nn.Module]] = {}
    for get_object in gc.get_objects():
        if not issubclass(type(get_object), nn.Module) or isinstance(get_object, GraphModule):
            continue
        for child in nn.Module.children(get_object):
            parents.setdefault(id(child), []).append(get_object)
    holders, pending = {id(module): module}, [module]
    while pending:
        above = [parent for parent in parents.get(id(pending.pop()), ()) if id(parent) not in holders]
        holders.update((id(each), each) for each in above)
        pending += above
    called = [holder for holder in holders.values() if len(holder._modules) > 1 and type(holder).forward is not _UNCALLED]
    return max([module, *called], key=lambda holder: len([*holder.named_modules()]))


def held_by_modules(tensors: Sequence[torch.Tensor]) -> dict[int, State]:
    """Return the weights among tensors that modules hold, by the names that the largest module has for them."""
    wanted, found = {id(tensor) for tensor in tensors}, dict[int, State]()
    if not wanted:
        return found
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module) and not isinstance(each, GraphModule)]
    holders = [each for each in modules if not wanted.isdisjoint(map(id, each.__dict__.get("_parameters", {}).values()))]
    for holder in sorted(holders, key=lambda each: len([*each.named_modules()])):
        found.update((id(state.tensor), state) for state in named_state(holder) if id(state.tensor) in wanted)
    return found


def state_of(name: str, role: str, tensor: torch.Tensor) -> State:
    """Return a weight or buffer with the place that a distributed tensor declares."""
    return State(name, role, tensor, local_part(tensor), placement_of(tensor))


def gradient_of(weight: State) -> State | None:
    """Return the gradient of a weight as its optimizer finds it; None where there is none."""
    gradient = getattr(weight.tensor, "main_grad", None)
    if gradient is None:
        gradient = weight.tensor.grad
    if gradient is None:
        return None
    held = local_part(gradient)
    viewed = held if held.shape == weight.held.shape or "start" not in weight.place else held.view(weight.held.shape)
    return State(weight.name, "gradient", gradient, viewed, placement_of(gradient))


def clipped_gradient_of(weight: State) -> State | None:
    """Return the gradient that an optimizer steps by, which that of Megatron may hold beside the weight's."""
    found, stepped = gradient_of(weight), getattr(getattr(weight.tensor, "main_param", None), "grad", None)
    if stepped is None or (found is not None and stepped.untyped_storage()._cdata == found.held.untyped_storage()._cdata):
        return found
    held = stepped.view(weight.held.shape) if stepped.numel() == weight.held.numel() else stepped
    return State(weight.name, "gradient", stepped, held)


def leaves_of(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaves that the backward pass from `roots` gives gradients, in the order in which they were used first."""
    found: dict[int, torch.Tensor] = {}
    pending, seen = [root.grad_fn for root in roots], set[Any]()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.setdefault(id(leaf), leaf)
        pending += [following for following, _ in node.next_functions]
    return list(found.values())


def plain_name(root: nn.Module, name: str) -> str:
    """Return the name of a parameter without what wrappers put into it, of the root or of a module in it."""
    kept: list[str] = []
    module: nn.Module | None = root
    for part in name.split("."):
        if part != "module" or not _wraps(module):
            kept.append(part)
        module = module._modules.get(part) if module is not None else None
    name = ".".join(kept)
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _wraps(module: nn.Module | None) -> bool:
    replicates = isinstance(module, nn.parallel.DistributedDataParallel)
    return replicates or type(module).__module__ == "deepspeed.runtime.engine"


def placement_of(tensor: Any) -> dict[str, Any]:
    """Return the whole shape and the placements that a distributed tensor declares; nothing for a plain one."""
    placements, mesh = getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)
    if placements is None or mesh is None:
        return {}
    lies = {name: _placement(placement) for name, placement in zip(_axes_of(mesh), placements, strict=True)}
    return {"whole": list(tensor.shape), "placements": lies}


def _placement(placement: Any) -> dict[str, Any]:
    if placement.is_shard():
        return {"kind": "shard", "dim": placement.dim}
    if placement.is_partial():
        return {"kind": "partial", "reduce": str(placement.reduce_op)}
    return {"kind": "replicate"}


def local_part(tensor: Any) -> torch.Tensor:
    """Return what the rank holds of a tensor."""
    held = getattr(tensor, "_local_tensor", tensor)
    assert isinstance(held, torch.Tensor)
    return held


def meshes() -> list[dict[str, Any]]:
    """Return the device meshes that exist, with their ranks in row-major order."""
    from torch.distributed.device_mesh import DeviceMesh

    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for get_object in gc.get_objects():
        if isinstance(get_object, DeviceMesh):
            names, ranks = _axes_of(get_object), get_object.mesh.flatten().tolist()
            axes = [{"axis": name, "size": size} for name, size in zip(names, get_object.mesh.shape, strict=True)]
            found[names, tuple(ranks)] = {"mesh": axes, "of": ranks}
    return list(found.values())


def _axes_of(mesh: Any) -> tuple[str, ...]:
    """Return the names of a device mesh's axes, numbered where the program gives none."""
    return tuple(mesh.mesh_dim_names or (f"axis{i}" for i in range(mesh.mesh.ndim)))
