"""Single edits of generated code: each changes a line of a file, as a bug in a code generator or a slip would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COLLECTIVE = re.compile(r"= nnscaler\.runtime\.adapter\.(nn\.)?(\w+)\((\w+), (?:\w+=\d+, )*ranks=\[([\d, ]+)\]")
_OPERATOR = re.compile(r"= (torch\.|nnscaler\.runtime\.function\.)(?!empty)")
_FLIPPED = {
    "allreduce_identity": "identity_allreduce",
    "identity_allreduce": "allreduce_identity",
    "allgather_split": "allgather_reducescatter",
    "allgather_reducescatter": "allgather_split",
    "split_allgather": "identity_allreduce",
    "reducescatter_allgather": "split_allgather",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed text; `line` is the number of the line that was changed or taken out, the first of them where two were."""

    kind: str
    line: int
    text: str


def edits(text: str) -> Iterator[Edit]:
    """All edits of a generated file, in order of their lines; none where the schedule of inference begins."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.startswith("def _infer_step"):
            return
        if not line.strip().startswith("#"):
            for kind, new in _edited(lines, index):
                yield Edit(kind, index + 1, "\n".join((*lines[:index], *new)))


def _edited(lines: list[str], index: int) -> Iterator[tuple[str, list[str]]]:
    """The kind of each edit at a line, and what stands from there on."""
    line, rest = lines[index], lines[index + 1 :]
    bare = line.strip()
    for kind, new in (*_communication(line), *_initialisation(lines, line), *_operators(lines, line)):
        if new != line:
            yield kind, [new, *rest]
    if bare.startswith("del ") or "register_parameter" in bare:
        return
    if bare.startswith(("self.", "model.zero_grad")) or "executor." in bare or "= next(" in bare:
        yield "drop " + _what(bare), rest
    if "executor." in bare:
        yield "run twice " + _what(bare), [line, line, *rest]
        follower = next((at for at, other in enumerate(rest) if "executor." in other), None)
        if follower is not None:
            between = rest[:follower]
            yield "swap steps", [*between, rest[follower], line, *rest[follower + 1 :]]
    if "adapter." in bare and " = " in bare and "Reducer(" not in bare and "executor" not in bare:
        yield "drop communication", rest
    if bare == "import nnscaler" and not any("class GenModel" in other for other in lines[:index]):
        yield "drop imports", [other for other in rest if not other.startswith("import nnscaler")]


def _what(bare: str) -> str:
    for word in (
        "init_group",
        "add_param",
        "add_reducer",
        "add_full_map",
        "zero_grad",
        "sync_grads",
        "fexecute",
        "aexecute",
        "backward",
    ):
        if word in bare:
            return word
    return "step" if "next(" in bare or "executor" in bare else "line"


def _communication(line: str) -> Iterator[tuple[str, str]]:
    moved = re.search(r"src=(\d+), dst=(\d+)", line)
    if moved is not None:
        source, target = int(moved[1]), int(moved[2])
        yield "wrong destination", line.replace(moved[0], f"src={source}, dst={target ^ 1}")
        yield "wrong source", line.replace(moved[0], f"src={source ^ 1}, dst={target}")
        yield "swap source and destination", line.replace(moved[0], f"src={target}, dst={source}")
        yield "wrong message shape", re.sub(r"shape=\((\d+)", lambda found: f"shape=({int(found[1]) * 2}", line)
    found = _COLLECTIVE.search(line)
    if found is None:
        return
    name, operand, ranks = found[2], found[3], [int(rank) for rank in found[4].split(",")]
    group = f"ranks=[{found[4]}]"
    yield "group too small", line.replace(group, f"ranks={ranks[:-1]}")
    yield "group of others", line.replace(group, f"ranks={[rank + len(ranks) for rank in ranks]}")
    head = line[: line.index("= nnscaler")]
    yield "communication to identity", f"{head}= nnscaler.runtime.function.identity({operand})"
    yield "wrong dimension", re.sub(r"\b(i?dim)=(\d)", lambda dim: f"{dim[1]}={(int(dim[2]) + 1) % 2}", line, count=1)
    if name in _FLIPPED:
        yield "other gradient", line.replace(f"nn.{name}(", f"nn.{_FLIPPED[name]}(")
    if name == "all_gather":
        yield "gather to sum", re.sub(r"all_gather\((\w+), dim=\d, ", r"all_reduce(\1, ", line)
    if name == "all_reduce":
        yield "sum to chunk", line.replace("all_reduce(" + operand, f"chunk({operand}, dim=0")


def _initialisation(lines: list[str], line: str) -> Iterator[tuple[str, str]]:
    if "adapter.Reducer(" in line:
        ranks = re.search(r"ranks=\[([\d, ]+)\]", line)
        assert ranks is not None
        listed = [int(rank) for rank in ranks[1].split(",")]
        yield "reducer too small", line.replace(ranks[0], f"ranks={listed[:-1]}")
        yield "reducer too large", line.replace(ranks[0], f"ranks={[*listed, max(listed) + 1]}")
        yield "reducer of maxima", line.replace("reduce_op='sum'", "reduce_op='max'")
    if "add_full_map(" in line:
        place = re.search(r"slice\((\d+), (\d+), None\)", line)
        if place is not None:
            low, high = int(place[1]), int(place[2])
            yield "slice shifted", line.replace(place[0], f"slice({high}, {2 * high - low}, None)", 1)
            yield "slice off by one", line.replace(place[0], f"slice({low + 1}, {high + 1}, None)", 1)
        named = re.search(r"(True|False), '([\w.]+)', \(", line)
        if named is not None:
            yield "other full name", line.replace(f"'{named[2]}', (", f"'{named[2]}x', (")
    if "register_parameter(" in line:
        yield "half a parameter", re.sub(r"empty\(\((\d+)", lambda size: f"empty(({max(1, int(size[1]) // 2)}", line)
    if bare := re.match(r"(\s+)return (\w+), (.*)$", line):
        yield "return dropped", f"{bare[1]}return {bare[3].rstrip(', ')}"
    if "skip_reducer = " in line:
        yield "reducer switch", line.replace("True", "?").replace("False", "True").replace("?", "False")
    if re.match(r"\s+rank = \d+$", line):
        yield "other rank", re.sub(r"\d+$", lambda rank: str(int(rank[0]) + 1), line)
    if "nmicros_per_scheduler_step" in line:
        yield "other number of micro-batches", re.sub(r"\d+$", lambda count: str(int(count[0]) + 1), line)


def _operators(lines: list[str], line: str) -> Iterator[tuple[str, str]]:
    if not _OPERATOR.search(line):
        return
    yield "constant changed", re.sub(r"(?<![\w.])(\d+\.\d+|\de-\d+)", lambda number: str(float(number[0]) * 2), line, count=1)
    yield "sum to mean", line.replace("torch.sum(", "torch.mean(")
    yield "operator changed", line.replace("torch.add(", "torch.sub(").replace("silu(", "relu(").replace("gelu(", "relu(")
    yield "operands swapped", re.sub(r"\((\w+), (\w+)([,)])", r"(\2, \1\3", line, count=1)
    yield "dimension changed", re.sub(r"\bdim(0?)=(-?\d)", lambda dim: f"dim{dim[1]}={(int(dim[2]) + 1) % 2}", line, count=1)
    yield "view changed", re.sub(r"(size|shape)=\((\d+), (\d+)", r"\1=(\3, \2", line)
    yield "embedding range", re.sub(r"stop=(\d+)", lambda stop: f"stop={int(stop[1]) - 1}", line)
    weight = re.search(r"self\.(\w+weight\w*)", line)
    if weight is not None:
        shapes = dict(
            re.findall(r"register_parameter\('(\w+)', torch\.nn\.Parameter\(torch\.empty\((\([^)]*\))", "\n".join(lines))
        )
        same = [name for name, shape in shapes.items() if shape == shapes.get(weight[1]) and name != weight[1]]
        if same:
            yield "other weight", line.replace(f"self.{weight[1]}", f"self.{same[0]}")
