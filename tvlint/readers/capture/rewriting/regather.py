"""Collectives along another dimension than the first, which torch writes as one along the first and a rearrangement.

`cat(parts, d)` of the equal parts of `all-gather(x, 0)` is `all-gather(x, d)`, and `reduce-scatter(cat(parts, 0), 0)` of the
equal parts of x along d is `reduce-scatter(x, d)`, also where each part is joined of pieces along d. Where parts are cut again
along d before they are joined, the k-th part of `all-gather(x, 0)` is the k-th part of `all-gather(x, d)`. An all-to-all of
`cat(parts, 0)` of the equal parts of x along d, of which the parts are joined along e, splits x along d and joins along e.
Parts that are turned or viewed alike, each with d as a dimension of its own, are parts of x turned or viewed so. A gather of
what the same ranks have scattered of a sum, times a number or not, is their all-reduce, times that number.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.ir.reductions import ADDING
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, makers_of, outputs_of, readers_of
from tvlint.readers.capture.lifting.program import Exchange, Ref


def with_dimensions(lifted: Lifted) -> Lifted:
    """Return the program with gathers and scatters along the dimension that they are about."""
    lifted = _with_whole_sums(lifted)
    makers = makers_of(lifted)
    readers = readers_of(lifted)
    gathered: dict[int, list[LiftedNode]] = {}
    gone: set[int] = set()
    for node in lifted.nodes:
        if isinstance(node, Call) and node.op == "torch.cat":
            source = _parts_of(node, makers)
            exchange = makers.get(source[0]) if source is not None else None
            if source is None or source[1] != 0 or not isinstance(exchange, Exchange) or exchange.kind != "all-gather":
                continue
            if len(node.inputs) == len(exchange.group) == len(readers[source[0]]) and exchange.dim == 0:
                gathered[id(exchange)] = [replace(exchange, outputs=node.outputs, dim=_dim(node))]
                gone.add(id(node))
        if isinstance(node, Exchange) and node.kind == "reduce-scatter" and node.dim == 0:
            joined, turned = makers.get(node.inputs[0]), list[LiftedNode]()
            if not isinstance(joined, Call) or joined.op != "torch.cat" or _dim(joined) != 0:
                continue
            source = _parts_of(joined, makers) or _turned_parts_of(joined, makers, lifted, turned)
            source = source or _pieces_of(joined, makers, lifted, turned)
            if source is None or len(joined.inputs) != len(node.group):
                continue
            gathered[id(node)] = [*turned, replace(node, inputs=(source[0],), dim=source[1])]
    nodes = [each for node in lifted.nodes if id(node) not in gone for each in gathered.get(id(node), [node])]
    return _with_parts_along_joins(_with_exchanged_parts(replace(lifted, nodes=nodes)))


def _with_whole_sums(lifted: Lifted) -> Lifted:
    """Return the program with an all-reduce for each reduce-scatter whose results are gathered, and read by nothing else."""
    makers = makers_of(lifted)
    readers = readers_of(lifted)
    changed: dict[int, list[LiftedNode]] = {}
    for node in lifted.nodes:
        if not isinstance(node, Exchange) or node.kind != "all-gather" or node.dim != 0 or node.handle:
            continue
        factors: list[Call] = []
        source = makers.get(node.inputs[0])
        reader: LiftedNode = node
        while isinstance(source, Call) and _is_multiple(source) and readers[source.outputs[0]] == [reader]:
            factors.insert(0, source)
            reader, source = source, makers.get(inputs_of(source)[0])
        if not isinstance(source, Exchange) or (source.kind, source.dim, source.handle) != ("reduce-scatter", 0, ""):
            continue
        if readers[source.outputs[0]] != [reader] or source.group != node.group or source.reduce not in ADDING:
            continue
        type = lifted.program.types[source.inputs[0]]
        names = [lifted.program.fresh(type) for _ in factors] + [node.outputs[0]]
        total = replace(source, kind="all-reduce", outputs=(names[0],), dim=None)
        multiples = [
            replace(factor, inputs=(Ref(given), *factor.inputs[1:]), outputs=(made,))
            for factor, given, made in zip(factors, names, names[1:], strict=False)
        ]
        changed.update({id(factor): [] for factor in (*factors, source)})
        changed[id(node)] = [total, *multiples]
    return replace(lifted, nodes=[each for node in lifted.nodes for each in changed.get(id(node), [node])])


def _is_multiple(call: Call) -> bool:
    """Return whether a call multiplies or divides a tensor by a number."""
    if call.op not in ("torch.mul", "torch.div") or len(call.inputs) != 2 or call.attributes.get("rounding_mode"):
        return False
    tensor, number = call.inputs
    return isinstance(tensor, Ref) and isinstance(number, Literal) and isinstance(number.value, int | float)


def _with_exchanged_parts(lifted: Lifted) -> Lifted:
    """Return the program with each all-to-all of the parts of a value along the dimensions that it splits and joins."""
    makers = makers_of(lifted)
    readers = readers_of(lifted)
    changed: dict[int, list[LiftedNode]] = {}
    for node in lifted.nodes:
        if not isinstance(node, Exchange) or node.kind != "all-to-all" or (node.dim, node.joined) != (0, None) or node.splits:
            continue
        sent, joined = makers.get(node.inputs[0]), _join_of_all(node, readers, makers)
        if joined is None or not isinstance(sent, Call) or sent.op != "torch.cat" or _dim(sent) != 0:
            continue
        turned: list[LiftedNode] = []
        source = _parts_of(sent, makers) or _turned_parts_of(sent, makers, lifted, turned)
        if source is None or len(sent.inputs) != len(node.group):
            continue
        value, dim = source
        changed[id(node)] = [
            *turned, replace(node, inputs=(value,), outputs=joined.outputs, dim=dim, joined=_dim(joined)),
        ]  # fmt: skip
        changed[id(joined)] = []
    return replace(lifted, nodes=[each for node in lifted.nodes for each in changed.get(id(node), [node])])


def _join_of_all(exchange: Exchange, readers: dict[str, list[LiftedNode]], makers: dict[str, LiftedNode]) -> Call | None:
    """Return the one join of all that a collective gives, part by part in order; None where it is read in another way."""
    parts = readers.get(exchange.outputs[0], [])
    joins = {id(reader): reader for part in parts for name in outputs_of(part) for reader in readers.get(name, ())}
    join = next(iter(joins.values()), None)
    if len(joins) != 1 or not isinstance(join, Call) or join.op != "torch.cat":
        return None
    whole = _parts_of(join, makers) == (exchange.outputs[0], 0) and len(join.inputs) == len(parts) == len(exchange.group)
    return join if whole else None


def _turned_parts_of(
    call: Call, makers: dict[str, LiftedNode], lifted: Lifted, turned: list[LiftedNode]
) -> tuple[str, int] | None:
    """Return the value, with dimensions in another order or cut otherwise, and the dimension whose parts the call joins.

    The operators that give it are put into `turned`.
    """
    found = [makers.get(each.name) if isinstance(each, Ref) else None for each in call.inputs]
    moves = [node for node in found if isinstance(node, Call) and node.op in ("torch.permute", "torch.Tensor.view")]
    if len(moves) != len(call.inputs) or len({(node.op, str((node.inputs[1:], node.attributes))) for node in moves}) != 1:
        return None
    first = moves[0]
    within = replace(call, inputs=tuple(node.inputs[0] for node in moves))
    source = _parts_of(within, makers) or _turned_parts_of(within, makers, lifted, turned)
    if source is None:
        return None
    value, dim = source
    part, moved = (lifted.program.shape(name) for name in (inputs_of(first)[0], first.outputs[0]))
    dims, known = first.attributes.get("dims"), lifted.program.types[value]
    added = next((at for at, size in enumerate(moved) if size == 1 and (*moved[:at], *moved[at + 1 :]) == part), None)
    if added is not None and not isinstance(dims, tuple):
        return _counted(first, lifted, turned, value, dim, added)
    place = dims.index(dim) if isinstance(dims, tuple) else place_in_view(part, moved, dim)
    if place is None:
        return None
    shape = (*moved[:place], moved[place] * (known.shape[dim] // part[dim]), *moved[place + 1 :])
    name = lifted.program.fresh(known.of_shape(shape))
    inputs = (Ref(value),) if isinstance(dims, tuple) else (Ref(value), Literal(shape))
    turned.append(replace(first, inputs=inputs, outputs=(name,)))
    return name, place


def _counted(first: Call, lifted: Lifted, turned: list[LiftedNode], value: str, dim: int, added: int) -> tuple[str, int]:
    """Return the value with its equal parts along `dim` counted by a dimension that each of them has with size 1.

    One head of several is such a part.
    """
    known, size = lifted.program.types[value], lifted.program.shape(inputs_of(first)[0])[dim]
    shape = (*known.shape[:dim], known.shape[dim] // size, size, *known.shape[dim + 1 :])
    order = [at for at in range(len(shape)) if at != dim]
    order.insert(added, dim)
    cut = lifted.program.fresh(known.of_shape(shape))
    turned.append(replace(first, inputs=(Ref(value), Literal(shape)), outputs=(cut,)))
    if order == sorted(order):
        return cut, added
    name = lifted.program.fresh(known.of_shape(tuple(shape[at] for at in order)))
    turned.append(replace(first, op="torch.permute", inputs=(Ref(cut),), attributes={"dims": tuple(order)}, outputs=(name,)))
    return name, added


def _pieces_of(call: Call, makers: dict[str, LiftedNode], lifted: Lifted, joined: list[LiftedNode]) -> tuple[str, int] | None:
    """Return the value that the joined parts make along the dimension in which each of them is joined of pieces itself.

    The operator that gives it is put into `joined`.
    """
    found = [makers.get(each.name) if isinstance(each, Ref) else None for each in call.inputs]
    parts = [node for node in found if isinstance(node, Call) and node.op == "torch.cat"]
    if len(parts) != len(call.inputs) or len({_dim(part) for part in parts}) != 1:
        return None
    shapes, dim = {lifted.program.shape(part.outputs[0]) for part in parts}, _dim(parts[0])
    if len(shapes) != 1 or dim == 0:
        return None
    (shape,) = shapes
    wide = (*shape[:dim], len(parts) * shape[dim], *shape[dim + 1 :])
    name = lifted.program.fresh(lifted.program.types[parts[0].outputs[0]].of_shape(wide))
    joined.append(replace(parts[0], inputs=tuple(piece for part in parts for piece in part.inputs), outputs=(name,)))
    return name, dim


def place_in_view(shape: tuple[int, ...], viewed: tuple[int, ...], dim: int) -> int | None:
    """Return the dimension of a view that is the outermost part of a dimension of what is viewed; None where there is none.

    Equal parts of a dimension that are viewed so, one after the other, are all of it viewed so, with the indices of all parts.
    """
    begin = [place for place in range(len(viewed)) if prod(viewed[:place]) == prod(shape[:dim])]
    whole = (place for place in begin if viewed[place] == shape[dim])
    split = (place for place in begin if any(prod(viewed[place:end]) == shape[dim] for end in range(place, len(viewed) + 1)))
    return next(whole, next(split, None))


def _with_parts_along_joins(lifted: Lifted) -> Lifted:
    """Return the program with each gather that is read in its parts alone along the dimension in which they are joined."""
    makers, readers = makers_of(lifted), readers_of(lifted)
    joins: dict[str, set[int]] = {}
    for node in lifted.nodes:
        if isinstance(node, Call) and node.op == "torch.cat":
            for name in inputs_of(node):
                joins.setdefault(_uncut(name, _dim(node), makers), set()).add(_dim(node))
    changed: dict[int, LiftedNode] = {}
    for node in lifted.nodes:
        if not isinstance(node, Exchange) or node.kind != "all-gather" or node.dim != 0 or len(node.outputs) != 1:
            continue
        (gathered,), shape = node.outputs, lifted.program.shape(node.inputs[0])
        parts = [reader for reader in readers.get(gathered, ()) if isinstance(reader, Call) and _is_part(reader, shape[0])]
        dims = {dim for part in parts for dim in joins.get(part.outputs[0], ())}
        if len(parts) < len(readers.get(gathered, ())) or len(dims) != 1 or 0 in dims:
            continue
        (dim,), size = dims, shape[min(dims)]
        wide = (*shape[:dim], size * len(node.group), *shape[dim + 1 :])
        name = lifted.program.fresh(lifted.program.types[gathered].of_shape(wide))
        changed[id(node)] = replace(node, outputs=(name,), dim=dim)
        for part in parts:
            place = bounds_of(part)[1] // shape[0]
            changed[id(part)] = replace(part, inputs=(Ref(name), *map(Literal, (dim, place * size, size))))
    return replace(lifted, nodes=[changed.get(id(node), node) for node in lifted.nodes])


def _uncut(name: str, dim: int, makers: dict[str, LiftedNode]) -> str:
    """Return the value that a value is a range of along a dimension, of none but whole ranges along others."""
    maker = makers.get(name)
    while isinstance(maker, Call) and maker.op == "torch.narrow" and bounds_of(maker)[0] == dim:
        name = inputs_of(maker)[0]
        maker = makers.get(name)
    return name


def _is_part(call: Call, size: int) -> bool:
    return call.op == "torch.narrow" and (bounds_of(call)[0], bounds_of(call)[1] % size, bounds_of(call)[2]) == (0, 0, size)


def bounds_of(call: Call) -> tuple[int, int, int]:
    """Return the dimension, the start and the length of a range."""
    dim, start, length = (argument.value for argument in call.inputs[1:] if isinstance(argument, Literal))
    assert isinstance(dim, int)
    assert isinstance(start, int)
    assert isinstance(length, int)
    return dim, start, length


def _dim(call: Call) -> int:
    dim = call.attributes.get("dim", 0)
    assert isinstance(dim, int)
    return dim


def _parts_of(call: Call, makers: dict[str, LiftedNode]) -> tuple[str, int] | None:
    """Return the value and the dimension whose parts the call joins, all of them in order and of one size; None for others."""
    found: list[tuple[str, int, int, int]] = []
    for each_input in call.inputs:
        part = makers.get(each_input.name) if isinstance(each_input, Ref) else None
        if not isinstance(part, Call) or part.op != "torch.narrow" or not isinstance(part.inputs[0], Ref):
            return None
        found.append((part.inputs[0].name, *bounds_of(part)))
    name, dim, _, size = found[0]
    if any(part != (name, dim, at * size, size) for at, part in enumerate(found)):
        return None
    return name, dim
