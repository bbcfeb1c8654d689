"""The tensors of an nnScaler plan: names for records, and one declaration a name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tvlint.ir.plan import Box, Role, Tensor
from tvlint.readers.nnscaler.pickle.records import (
    Malformed,
    Work,
    described,
    dtype,
    fields,
    integer,
    integers,
    kind,
    printable,
    records_in,
    sequence,
)
from tvlint.readers.sources.inert_objects import Record

_VARIABLE = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


class Tensors:
    """Declares every tensor record that it is asked to name."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.declared: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}
        self._boxes: dict[Box, Box] = {}
        self._regions: dict[int, tuple[Box, object]] = {}
        """The box of each list of intervals, by identity; the list is kept, so that no other one can take its place."""
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._owners: dict[str, str] = {}
        """What each gradient is the gradient of, by the tensor that names it first."""
        self._gradient_of: dict[str, str] = {}
        self._wholes: dict[int, tuple[str, tuple[int, ...], str]] = {}
        self._variables: dict[int, object] = {}
        """What generated code calls each tensor, beside its id."""
        self._parents: dict[int, object] = {}
        self.full_ids: dict[str, str] = {}
        """The id of the full tensor that each name of a parameter is that of."""

    def name(self, record: Any, role: Role = Role.ACTIVATION) -> str:
        """Return the name of a tensor record: `w<id>` for parameters and buffers, `g<id>` for gradients, else `t<id>`.

        An `IRObject`, a value that is no tensor, is `o<id>`.
        """
        try:
            attributes = record.__dict__
            number, is_gradient, is_attribute = attributes["_id"], attributes["_is_grad"], attributes["_is_attr"]
        except (AttributeError, KeyError):
            return self._object(record)
        if type(number) is not int or type(is_gradient) is not bool or type(is_attribute) is not bool:
            raise Malformed("a tensor has no id, or does not say whether it is a gradient or an attribute")
        key = number * 4 + 2 * is_gradient + is_attribute
        name = self._names.get(key)
        if name is None:
            return self._declare(attributes, key, role)
        declared = self.declared[name]
        shape = attributes.get("_shape")
        if shape != declared.shape and integers(shape, f"the shape of `{name}`") != declared.shape:
            raise Malformed(f"`{name}` is declared with two shapes")
        if attributes.get("name") != self._variables[key]:
            raise Malformed(f"`{name}` has two names, under which generated code keeps two values")
        if attributes.get("_grad") is not None and attributes.get("_requires_grad") is not True:
            raise Malformed(f"`{name}` has a gradient and does not require one")
        if is_attribute:
            if self._region(attributes, name) != declared.region:
                raise Malformed(f"`{name}` is declared with two index maps")
            if attributes.get("_full_tensor") is not self._parents[key]:
                self._same_attribute(attributes, declared)
            if (attributes.get("_requires_grad") is True) != declared.requires_grad:
                raise Malformed(f"`{name}` is declared as a parameter and as a buffer")
        return name

    def _same_attribute(self, attributes: dict[str, Any], declared: Tensor) -> None:
        """Raise `Malformed` where a record of a parameter belongs to another whole than the first record of its id."""
        name = declared.name
        if (
            self._whole(attributes, True, name) != (declared.logical, declared.whole)
            or _part(attributes, name) != declared.part
        ):
            raise Malformed(f"`{name}` is a part of two full tensors")

    def names(self, value: object, what: str, role: Role = Role.ACTIVATION) -> list[str]:
        """Return the names of all tensors in a list, flattened; plain constants have no name and are left out."""
        name = self.name
        return [name(record, role) for record in records_in(sequence(value, what), self.work)]

    def has_gradient(self, record: Record, name: str) -> bool:
        """Return whether a tensor record has a gradient; if so, `name`, its current name, is what that is the gradient of."""
        found = record.__dict__.get("_grad")
        if found is None:
            return False
        self._gradient_of.setdefault(self.name(found), name)
        return True

    def variables(self) -> dict[str, str]:
        """Return what generated code derives the names of tensors from, by name; of parameters their full names."""
        return {
            name: self.declared[name].logical if key & 1 else str(self._variables[key] or "")
            for key, name in self._names.items()
        }

    def gradients(self, value: object) -> dict[str, str]:
        """Return the gradient of each tensor record in a list, by name."""
        found = {}
        for record in records_in(value, self.work):
            gradient = record.__dict__.get("_grad")
            found[self.name(record)] = "" if gradient is None else self.name(gradient)
        return found

    def version(self, name: str, count: int, gradient: str) -> str:
        """Return the name `<name>.<count>` for another value with the id of `name`; same declaration but for the gradient."""
        fresh = f"{name}.{count}"
        if fresh not in self.declared:
            self.declared[fresh] = replace(self.declared[name], name=fresh, gradient=gradient)
            self._owners.setdefault(gradient, fresh)
        return fresh

    def linked(self) -> dict[str, Tensor]:
        """Return all declarations, every gradient naming what it is the gradient of."""
        for name, tensor in self.declared.items():
            owner = self._owner(name)
            if owner != tensor.gradient_of:
                self.declared[name] = replace(tensor, gradient_of=owner)
        return self.declared

    def _owner(self, gradient: str) -> str:
        """Return what a gradient is the gradient of, as far as that is known; empty for anything else."""
        return self._gradient_of.get(gradient) or self._owners.get(gradient, "")

    def _object(self, record: object) -> str:
        if not kind(record).startswith("IR"):
            raise Malformed(f"a tensor is {described(record)}")
        attributes = fields(record, "an object")
        if "_shape" in attributes:
            raise Malformed(f"a tensor of class `{kind(record)}` lacks what a tensor has")
        name = f"o{integer(attributes.get('_id'), 'the id of an object')}"
        self.declared.setdefault(name, Tensor(name, (), "object", Role.BUFFER))
        return name

    def _declare(self, attributes: dict[str, Any], key: int, role: Role) -> str:
        number, is_gradient, is_attribute = key // 4, bool(key & 2), bool(key & 1)
        integer(number, "the id of a tensor")
        needs = attributes.get("_requires_grad") is True
        name = f"{'g' if is_gradient else 'w' if is_attribute else 't'}{number}"
        sizes = integers(attributes.get("_shape"), f"the shape of `{name}`")
        sizes = self._shapes.setdefault(sizes, sizes)
        logical, whole = self._whole(attributes, is_attribute and not is_gradient, name)
        if is_gradient:
            role = Role.GRADIENT
        elif is_attribute:
            role = Role.WEIGHT if needs else Role.BUFFER
        variable = attributes.get("name")
        if isinstance(variable, str) and not _VARIABLE.fullmatch(variable):
            raise Malformed(f"`{name}` has the name {described(variable)}, which generated code would hold as it is")
        if attributes.get("_grad") is not None and not needs:
            raise Malformed(f"`{name}` has a gradient and does not require one")
        gradient = self._gradient_name(attributes)
        self._names[key] = name
        self._variables[key], self._parents[key] = variable, attributes.get("_full_tensor")
        self._owners.setdefault(gradient, name)
        self.declared[name] = Tensor(
            name,
            sizes,
            dtype(attributes.get("_dtype")),
            role,
            logical,
            whole,
            self._region(attributes, name),
            _part(attributes, name),
            gradient_of=self._owner(name),
            gradient=gradient,
            requires_grad=needs,
        )
        return name

    def _gradient_name(self, attributes: dict[str, Any]) -> str:
        found = attributes.get("_grad")
        if found is None:
            return ""
        number = fields(found, "a gradient").get("_id")
        return f"g{integer(number, 'the id of a gradient')}"

    def _whole(self, attributes: dict[str, Any], named: bool, name: str) -> tuple[str, tuple[int, ...] | None]:
        full = attributes.get("_full_tensor")
        if full is None:
            return "", None
        held = self._wholes.get(id(full))
        if held is None:
            record = fields(full, f"the full tensor of `{name}`")
            number = integer(record.get("_id"), f"the id of the full tensor of `{name}`")
            sizes = integers(record.get("_shape"), f"the full shape of `{name}`")
            label = record.get("name")
            self._wholes[id(full)] = held = (
                printable(label) if isinstance(label, str) else "",
                sizes,
                str(number),
            )
        label, sizes, number_text = held
        if named and label and self.full_ids.setdefault(label, number_text) != number_text:
            raise Malformed(f"two full tensors are named `{label}`")
        return (label if named and label else number_text), sizes

    def _region(self, attributes: dict[str, Any], name: str) -> Box | None:
        found = attributes.get("_indmap")
        if found is None:
            return None
        indices = sequence(fields(found, f"the index map of `{name}`").get("_indices"), f"the index map of `{name}`")
        held = self._regions.get(id(indices))
        if held is None:
            box: Box = tuple([_interval(pair, name) for pair in indices])
            self._regions[id(indices)] = held = self._boxes.setdefault(box, box), indices
        return held[0]


def _interval(pair: object, name: str) -> tuple[int, int]:
    bounds = integers(pair, f"the index map of `{name}`")
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise Malformed(f"the index map of `{name}` holds {bounds}, not an interval")
    return bounds


def _part(attributes: dict[str, Any], name: str) -> tuple[int, int]:
    found = attributes.get("_valmap")
    if found is None:
        return (0, 1)
    weight = integers(fields(found, f"the value map of `{name}`").get("_weight"), f"the value map of `{name}`")
    if len(weight) != 2 or weight[0] >= weight[1]:
        raise Malformed(f"the value map of `{name}` holds {weight}, not part i of n")
    return weight
