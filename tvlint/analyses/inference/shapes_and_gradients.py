"""Shapes and gradients that a plan need not declare, because its operators imply them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from tvlint.analyses.dataflow.attention import is_any_attention
from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Literal, Operator, Value
from tvlint.ir.plan import Role, Tensor
from tvlint.ops.dtypes import expected_types, promoted
from tvlint.ops.families.shaping import viewed_shape
from tvlint.ops.kinds import Kind, gives_places, kind_of, kinds_made
from tvlint.ops.spec import Bound, Call, DtypeError, Family, MisfitError, OpSpec, Trait, UnsupportedError
from tvlint.ops.table import call_in, has_kind, has_trait, spec_of
from tvlint.ops.usual_calls import as_of_flags, usual
from tvlint.plurals import counted

_ROUNDS = 6
_FLOATS = ("float", "bfloat", "complex")
_SHORT = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
_NUMBERS = ("torch.", "float", "bfloat", "int", "uint", "bool")


def derive_tensors(
    tensors: Mapping[str, Tensor], open_roles: frozenset[str], operators: Iterable[Operator], mesh: Mesh
) -> dict[str, Tensor]:
    """`tensors` and those that `operators` produce and whose shape and dtype follow.

    `open_roles` are declared tensors of which it is not said whether they are gradients: what backward gives for an operand
    is its gradient, and what is made from gradients is one.
    """
    found = dict(tensors)
    for name in open_roles & found.keys():
        if found[name].role is Role.GRADIENT and _named_after(name, found):
            found[name] = replace(found[name], gradient_of=_named_after(name, found))
    pending = list(operators)
    undecided = set(open_roles)
    given = {name for operator in pending for name in reads(operator)} - {n for operator in pending for n in writes(operator)}
    for _ in range(_ROUNDS):
        before = len(found), len(undecided)
        for name in given - found.keys():
            of = _named_after(name, found)
            if of:
                found[name] = Tensor(name, found[of].shape, found[of].dtype, Role.GRADIENT, gradient_of=of)
        pending = [operator for operator in pending if not _settle(operator, found, undecided, mesh, given)]
        if (len(found), len(undecided)) == before or not pending:
            break
    return _with_own_buffers(found)


def _with_own_buffers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, those after which the buffer of another is named in the buffer of their name."""
    shared = {tensor.storage for tensor in tensors.values()} & tensors.keys()
    for name in shared:
        if not tensors[name].storage:
            tensors[name] = replace(tensors[name], storage=name)
    return tensors


def implied_types(
    operator: Compute | Communicate, tensors: Mapping[str, Tensor], mesh: Mesh
) -> list[tuple[tuple[int, ...], str]]:
    """Return shape and dtype of every result, by those of the operands; empty where they do not follow."""
    try:
        return result_types(operator, tensors, mesh)
    except MisfitError:
        return []


def result_types(
    operator: Compute | Communicate, tensors: Mapping[str, Tensor], mesh: Mesh
) -> list[tuple[tuple[int, ...], str]]:
    """As `implied_types`; raises MisfitError where no framework runs the operator on operands of such shapes."""
    known = [tensors[name] for name in reads(operator) if name in tensors]
    if len(known) < len(reads(operator)):
        return []
    if not known:
        return _made(operator) if isinstance(operator, Compute) else []
    if isinstance(operator, Communicate):
        return _collective_shapes(operator, known, mesh)
    return _shapes(operator, tensors)


def _made(operator: Compute) -> list[tuple[tuple[int, ...], str]]:
    """Return shape and dtype of a tensor that is made of constants alone."""
    spec = spec_of(operator.op)
    if spec is None or operator.tensor_operands:
        return []
    given = tuple(operand for operand in operator.inputs if isinstance(operand, Literal))
    try:
        bound = spec.bind(Call(operator.op, given, operator.attributes))
        sizes = bound.sizes_of(operator.op, [])
        shapes = [tuple(sizes[name] for name in names) for names in bound.outputs]
    except (UnsupportedError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        return []
    dtype = operator.attributes.get("dtype", "float32" if has_trait(operator.op, Trait.FILLED) else "int64")
    if not isinstance(dtype, str) or bound.operands or bound.draws is not None:
        return []
    return [(shape, _SHORT.get(dtype, dtype).removeprefix("torch.")) for shape in shapes]


def for_every_operand(outputs: tuple[str, ...], operands: Sequence[str], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the gradients of all operands, none put in for operands of whole numbers (indices, masks) that have none."""
    whole = [name in tensors and tensors[name].dtype.startswith(("int", "uint", "bool")) for name in operands]
    if len(outputs) == len(operands) or len(outputs) != whole.count(False):
        return outputs
    given = iter(outputs)
    return tuple("" if indices else next(given) for indices in whole)


def link_gradients(tensors: Mapping[str, Tensor]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return what the gradient of each tensor is, by the tensors' own claims; and the candidates where they do not decide."""
    candidates: dict[str, list[str]] = {}
    for tensor in tensors.values():
        if tensor.gradient_of:
            candidates.setdefault(tensor.gradient_of, []).append(tensor.name)
    chosen: dict[str, str] = {}
    undecided: dict[str, list[str]] = {}
    for name, gradients in candidates.items():
        word = f"grad({name})"
        if len(gradients) == 1 or word in gradients:
            chosen[name] = word if word in gradients else gradients[0]
        else:
            undecided[name] = gradients
    return chosen, undecided


def _settle(operator: Operator, found: dict[str, Tensor], undecided: set[str], mesh: Mesh, given: Set[str]) -> bool:
    """Add what follows from `operator`; whether nothing more can follow from it."""
    if isinstance(operator, Backward):
        return _settle_backward(operator, found, undecided, given)
    if not isinstance(operator, Compute | Communicate):
        return True
    inputs = [found.get(name) for name in reads(operator)]
    if all(name in found and name not in undecided for name in operator.outputs):
        return True
    gradients = [tensor for tensor in inputs if tensor is not None and tensor.role is Role.GRADIENT]
    role = Role.GRADIENT if gradients else Role.ACTIVATION
    source = gradients[0].gradient_of if len(gradients) == 1 == len(inputs) and isinstance(operator, Communicate) else ""
    if gradients:
        for name in operator.outputs:
            if name in undecided:
                undecided.discard(name)
                found[name] = replace(
                    found[name], role=role, gradient_of=found[name].gradient_of or _named_after(name, found) or source
                )
    known = [tensor for tensor in inputs if tensor is not None]
    if len(known) < len(inputs):
        return False
    for name, (shape, dtype) in zip(operator.outputs, implied_types(operator, found, mesh), strict=False):
        if name not in found:
            found[name] = Tensor(name, shape, dtype, role, gradient_of=_named_after(name, found) or source)
    return False


def _named_after(name: str, found: Mapping[str, Tensor]) -> str:
    """Return the declared tensor that `grad(NAME)` says it is the gradient of."""
    of = name[5:-1] if name.startswith("grad(") and name.endswith(")") else ""
    return of if of in found else ""


def _settle_backward(operator: Backward, found: dict[str, Tensor], undecided: set[str], given: Set[str]) -> bool:
    """Add the gradients that `operator` makes or takes; one that nothing makes, in `given`, is not that of what takes it."""
    operands = operator.forward.tensor_operands
    pairs = [*zip(operator.inputs, operator.forward.outputs, strict=False), *zip(operator.outputs, operands, strict=False)]
    settled = True
    for gradient, of in pairs:
        if not gradient or not of:
            continue
        if gradient in undecided:
            undecided.discard(gradient)
            known = found[gradient]
            owner = known.gradient_of or _named_after(gradient, found) or of
            found[gradient] = replace(known, role=Role.GRADIENT, gradient_of=owner)
        elif gradient not in found and of in found and gradient not in given:
            owner = _named_after(gradient, found) or of
            found[gradient] = Tensor(gradient, found[of].shape, found[of].dtype, Role.GRADIENT, gradient_of=owner)
        settled = settled and (gradient in found or gradient in given)
    return settled


def _collective_shapes(operator: Communicate, inputs: list[Tensor], mesh: Mesh) -> list[tuple[tuple[int, ...], str]]:
    group = operator.group
    size = len(set(group.ranks)) if group.ranks else 1
    for axis in group.axes:
        size *= mesh.axis_size(axis)
    shapes = []
    for tensor in inputs:
        _cut_or_joined(operator, tensor.shape, size)
        shape = _collective_shape(operator, tensor.shape, size)
        if shape is None:
            return []
        shapes.append((shape, tensor.dtype))
    return shapes


def _cut_or_joined(operator: Communicate, shape: tuple[int, ...], size: int) -> None:
    """Raise MisfitError where the collective names a dimension that is not there, or cuts one that does not divide."""
    rank, said = len(shape), f"`{operator.kind.value}` of shape {shape} over {counted(size, 'rank')}"
    for dim in (operator.dim, operator.concat_dim):
        if dim is not None and rank and not -rank <= dim < rank:
            raise MisfitError(said, f"dimension {dim} has to be from {-rank} to {rank - 1}")
    is_cut = operator.kind in (Collective.REDUCE_SCATTER, Collective.SCATTER, Collective.ALL_TO_ALL)
    if operator.dim is None or not is_cut or not rank or operator.splits or operator.receive_splits:
        return
    if shape[operator.dim] % size:
        raise MisfitError(said, f"dimension {operator.dim}, {shape[operator.dim]} long, has to divide into {size} equal parts")


def _collective_shape(operator: Communicate, shape: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    if operator.splits or operator.receive_splits:
        return None
    result = list(shape)

    def scale(dim: int | None, up: bool) -> bool:
        if dim is None or not -len(shape) <= dim < len(shape) or (not up and result[dim] % size):
            return False
        result[dim] = result[dim] * size if up else result[dim] // size
        return result[dim] < 2**62

    match operator.kind:
        case Collective.ALL_REDUCE | Collective.BROADCAST | Collective.REDUCE:
            return shape
        case Collective.ALL_GATHER | Collective.GATHER:
            return tuple(result) if scale(operator.dim, True) else None
        case Collective.REDUCE_SCATTER | Collective.SCATTER | Collective.CHUNK:
            return tuple(result) if scale(operator.dim, False) else None
        case Collective.ALL_TO_ALL:
            return tuple(result) if scale(operator.dim, False) and scale(operator.joined_dim, True) else None
        case Collective.BARRIER:
            return None


def _shapes(operator: Compute, found: Mapping[str, Tensor]) -> list[tuple[tuple[int, ...], str]]:
    cast = _cast_to(operator)
    written, operator = operator, usual(as_of_flags(operator, found))
    spec = spec_of(operator.op)
    bound = None if spec is None else _bound(spec, operator, found)
    if spec is not None and not spec.assumption:
        _check_types(spec, None if bound is None else bound[0], operator, found)
    if cast and len(operator.outputs) == 1 and isinstance(operator.inputs[0], str):
        return [(found[operator.inputs[0]].shape, cast)]
    if bound is None and is_any_attention(operator):
        query, _, value = [found[name] for name in operator.tensor_operands][:3]
        return [((*query.shape[:-1], *value.shape[-1:]), query.dtype)]
    if has_kind(operator.op, Trait.CLASS_LOSS) and operator.attributes.get("reduction", "mean") in ("mean", "sum"):
        first = operator.inputs[0]
        return [((), found[first].dtype)] if isinstance(first, str) and len(operator.outputs) == 1 else []
    tensors = [found[name] for name in operator.tensor_operands]
    is_cast = has_trait(operator.op, Trait.CONVERSION)
    alike = is_cast and operator.op.rsplit(".", 1)[-1] == "type_as"
    if (alike or has_trait(operator.op, Trait.LIKE)) and len(operator.outputs) == 1:
        return [(tensors[0].shape, _stated_type(operator) or tensors[-1 if alike else 0].dtype)]
    if is_cast and bound is not None and bound[0].attributes == () and len(operator.outputs) == len(tensors) == 1:
        return [(tensors[0].shape, tensors[0].dtype)]  # to a device, or as it is stored
    if spec is not None and spec.family is Family.RESHAPE and len(operator.outputs) == len(tensors) == 1:
        shape = _viewed(written, found)
        return [] if shape is None else [(shape, tensors[0].dtype)]
    if spec is None and has_kind(operator.op, Trait.MASKED_LOOKUP) and len(tensors) == 2:
        return [(tensors[1].shape, tensors[0].dtype)]
    dtypes = {tensor.dtype for tensor in tensors}
    of_numbers = {dtype for dtype in dtypes if dtype.startswith(_FLOATS)} or dtypes - {"bool"} or dtypes
    widens = has_trait(operator.op, Trait.SUM, Trait.SCALING) and all(tensor.shape for tensor in tensors)
    dtype = promoted(of_numbers) if widens or len(of_numbers) == 1 else ""
    dtype = dtype or ("bool" if has_trait(operator.op, Trait.COMPARISON) else "")
    if spec is None or bound is None or is_cast or not dtype:
        return []
    (meaning, sizes), is_choice = bound, gives_places(spec, len(operator.outputs))
    if not dtype.startswith(_FLOATS) and not is_choice:
        dtype = _of_whole_numbers(operator, spec, meaning, found, dtype)
    dtype = "bool" if has_trait(operator.op, Trait.COMPARISON) else dtype
    dtype = _stated_type(operator) or dtype
    if not all(name in sizes for names in meaning.outputs for name in names):
        return []
    dtypes_of = [dtype] * len(meaning.outputs)
    if is_choice and len(dtypes_of) == len(operator.outputs):
        dtypes_of[-1:] = ["int64"] * len(dtypes_of[-1:])
    return [(tuple(sizes[name] for name in names), each) for names, each in zip(meaning.outputs, dtypes_of, strict=True)]


def _viewed(operator: Compute, found: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    """Return the shape of a view; None where it is not known. Raises MisfitError."""
    call = call_in(operator, found)
    try:
        return None if call is None else viewed_shape(call, call.shapes[0])
    except MisfitError:
        raise
    except UnsupportedError:
        return None


def _of_whole_numbers(operator: Compute, spec: OpSpec, bound: Bound, found: Mapping[str, Tensor], dtype: str) -> str:
    """Return the type of what the operator makes of whole numbers of type `dtype`; empty where it may be no whole number."""
    kind = kinds_made(operator, spec, bound, [kind_of(found[name].dtype) for name in operator.tensor_operands])[0]
    if kind is None or kind is Kind.REAL:
        return ""
    counts = Trait.REDUCTION in spec.traits and Trait.PEAK not in spec.traits
    return "bool" if kind is Kind.FLAGS else "int64" if counts or dtype == "bool" else dtype


def _check_types(spec: OpSpec, bound: Bound | None, operator: Compute, found: Mapping[str, Tensor]) -> None:
    """Raise DtypeError for operands whose types of numbers the operator does not take together."""
    dtypes = [found[name].dtype for name in operator.tensor_operands]
    expected = expected_types(spec, bound, dtypes, operator.attributes) if dtypes else ""
    if expected:
        raise DtypeError(f"`{operator.op}` of types {', '.join(dtypes)}", expected)


def _bound(spec: OpSpec, operator: Compute, found: Mapping[str, Tensor]) -> tuple[Bound, dict[str, int]] | None:
    """Return what this use means and the size of each of its named dimensions; None where it has no meaning in the table.

    Raises MisfitError.
    """
    operands = tuple(name if isinstance(name, Literal) else found[name].shape for name in operator.inputs)
    try:
        bound = spec.bind(Call(operator.op, operands, operator.attributes))
        shapes = [shape for shape in operands if not isinstance(shape, Literal)]
        return bound, bound.sizes_of(operator.op, shapes)
    except MisfitError:
        raise
    except (UnsupportedError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        return None


def _stated_type(operator: Compute) -> str:
    """Return the dtype that a call gives its result by an argument; empty where it does not."""
    said = operator.attributes.get("dtype")
    return _SHORT.get(said, said).removeprefix("torch.") if isinstance(said, str) else ""


def _cast_to(operator: Compute) -> str:
    """Return the dtype that a cast gives; empty for other operators, and where it does not say."""
    if not operator.inputs or not has_kind(operator.op, Trait.CONVERSION):
        return ""
    given = [operand.value for operand in operator.inputs[1:] if isinstance(operand, Literal)]
    dtype = operator.attributes.get("dtype", given[0] if given else _type_of_name(operator))
    dtype = _SHORT.get(dtype, dtype) if isinstance(dtype, str) else dtype
    return dtype.removeprefix("torch.") if isinstance(dtype, str) and dtype.startswith(_NUMBERS) else ""


def _type_of_name(operator: Compute) -> Value:
    """Return the dtype after which a cast of one operand is named (`x.half()`); None for any other."""
    spec = spec_of(operator.op)
    if spec is None or len(operator.inputs) != 1 or operator.attributes:
        return None
    return next(iter(spec.bind(Call(operator.op, ((),), {})).attributes), None)
