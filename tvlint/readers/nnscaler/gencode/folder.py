"""nnScaler's folder of generated code (`gencode{rank}.py`, `compute_config.pt`, `graph.ckp`) as a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvlint.checkout.opening import is_file, names_in
from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import NOT_UNDERSTOOD, Compute
from tvlint.ir.plan import Phase, Plan, Program, Segment, Step
from tvlint.ops.annotations.declared import Declared
from tvlint.readers.document import Document, ReadError
from tvlint.readers.nnscaler.gencode.compute_config import read_compute_config, whole_number
from tvlint.readers.nnscaler.gencode.lint.parameter_slices import match_by_number, same_slices
from tvlint.readers.nnscaler.gencode.lint.reductions import same_order
from tvlint.readers.nnscaler.gencode.lint.training_loop import with_loop
from tvlint.readers.nnscaler.gencode.lower.folder import Folder
from tvlint.readers.nnscaler.gencode.lower.infer_inputs import fields_of, loaders_of, solved
from tvlint.readers.nnscaler.gencode.lower.plan import FORMAT, build
from tvlint.readers.nnscaler.gencode.lower.rank_shift import as_first_replica
from tvlint.readers.nnscaler.gencode.lower.replica import Replica
from tvlint.readers.nnscaler.gencode.lower.replica_classes import Difference, classes_of, differences, smallest_replica
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind
from tvlint.readers.nnscaler.gencode.syntax.containers import Field, take_apart
from tvlint.readers.nnscaler.gencode.syntax.nodes import Fails
from tvlint.readers.nnscaler.gencode.syntax.rank_file import MODULE, read_rank
from tvlint.readers.nnscaler.gencode.syntax.records import RankFile
from tvlint.readers.nnscaler.graph_file import GRAPH
from tvlint.readers.sources.python_syntax import Source, parse, read_bytes
from tvlint.readers.sources.resource_limits import without_collection

if TYPE_CHECKING:
    from tvlint.readers.nnscaler.gencode.lower.traced_containers import Traced

_FILE = re.compile(r"gencode(0|[1-9]\d{0,6})\.py", re.ASCII)
_VERSION = re.compile(rb"^runtime_version = ", re.MULTILINE)
LARGEST_GRAPH = 4 << 30
CONFIG = "compute_config.pt"
_AGAIN = "generate the code of all ranks again"


def is_folder(path: str) -> bool:
    """Return whether a folder holds generated code."""
    try:
        return is_file(Path(path, "gencode0.py"))
    except (OSError, ValueError):
        return False


def read_folder(path: str, operators: tuple[Declared, ...] = ()) -> Document:
    """Return the plan in a folder of generated code, and what is wrong with the code.

    Where a file holds what is not understood, nothing is known of the plan. Raises ReadError when a file cannot be read.
    `operators` are those that the project declares.
    """
    from tvlint.readers.nnscaler.gencode.lint.findings import findings

    with without_collection():
        given = _given(path)
        try:
            folder = _built(given, operators)
        except ReadError as error:
            return _unread(given, error)
    return Document(
        path,
        FORMAT,
        folder.plan,
        findings=tuple(findings(folder)),
        variants=tuple(plan for _, plan, _ in folder.variants),
    )


def reference_of_folder(
    path: str, parallel: Plan | None = None, operators: tuple[Declared, ...] = (), graph: Path | None = None
) -> Plan | None:
    """Return a traced single-device graph with the batch of all replicas and micro-batches of the folder's plan.

    That is `graph`, else the one in the folder; None without one. `parallel` is the folder's plan where the caller has it.
    """
    from tvlint.readers.nnscaler.gencode.traced_graph import read_graph

    graph = Path(path, GRAPH) if graph is None else graph
    if not is_file(graph):
        return None
    plan = opened(path, operators).plan if parallel is None else parallel
    scalar = _scalar(read_bytes(Path(path, "gencode0.py")))
    found = read_graph(
        str(graph), read_bytes(graph, LARGEST_GRAPH), plan.replication.count * plan.micro_batches, scalar, operators
    )
    return with_loop(found, plan)


def _scalar(data: bytes) -> tuple[int, ...]:
    """Return the shape of a sum over everything: files without a version have the older one."""
    return () if _VERSION.search(data) else (1,)


def opened(path: str, operators: tuple[Declared, ...] = ()) -> Folder:
    """Read the folder's files. Raises ReadError at the first thing that is not generated code."""
    with without_collection():
        return _built(_given(path), operators)


@dataclass(frozen=True, slots=True)
class _Given:
    """The files of a folder: what they say of the plan is not read yet."""

    path: str
    config: Mapping[str, Any]
    texts: list[str]
    size: int
    classes: list[list[int]]
    sources: Mapping[int, Source]
    """The parsed files of the first replica of each class, by rank."""
    graph: Traced | None


def _given(path: str) -> _Given:
    files = _files(path)
    config = _config(path)
    raw = [read_bytes(file) for file in files]
    texts = [data.decode("utf-8", "replace") for data in raw]
    size = _size(path, texts, config)
    classes = classes_of(texts, size)
    parsed = [rank for members in classes for rank in range(members[0] * size, (members[0] + 1) * size)]
    sources = {rank: parse(str(files[rank]), raw[rank]) for rank in parsed}
    for file, text in zip(files, texts, strict=True):
        if "ParallelModule" not in text:
            raise ReadError(f"no class in this file is a `{MODULE}`", Location(str(file)))
    return _Given(path, config, texts, size, classes, sources, traced_in(path))


def _unread(given: _Given, error: ReadError) -> Document:
    """Return a plan of one statement of unknown effect, at the place of what is not understood or ends the run."""
    fails, problem = isinstance(error, Fails), error.problem
    operator = Compute("python.file_", (), (), {NOT_UNDERSTOOD: problem.message}, source=problem.location)
    ranks = tuple(range(len(given.texts)))
    said = problem.message if fails else f"{problem.message}: nothing is known of what the ranks compute"
    rule, severity = ("step-fails", Severity.ERROR) if fails else ("statement-not-understood", Severity.WARNING)
    plan = Plan(
        given.path,
        FORMAT,
        Mesh((Axis("dp", len(ranks)),)),
        {},
        {"file": Segment("file", Phase.FORWARD, (), (), (operator,))},
        (Program(ranks, (Step("file", source=problem.location),)),),
    )
    return Document(
        given.path, FORMAT, plan, findings=(Finding(rule, severity, said, problem.location, problem.help or _AGAIN),)
    )


def _built(given: _Given, operators: tuple[Declared, ...]) -> Folder:
    path, texts, size, classes, graph = given.path, given.texts, given.size, given.classes, given.graph
    count = len(texts) // size
    read: dict[int, tuple[RankFile, ...]] = {}
    for members in classes:
        low = members[0] * size
        read[members[0]] = tuple(_rank_file(given.sources[rank], rank, operators) for rank in range(low, low + size))
    _all_prepared(file for replica in read.values() for file in replica)
    same_slices(read.values())
    match_by_number(read.values(), graph.numbers if graph is not None else {})
    same_order(read.values())
    for replica in read.values():
        take_apart(replica)
    main = classes[0][0]
    scalar = _scalar(texts[0].encode())
    inputs = _inputs(graph.given if graph is not None else None, Replica(read[main], count, size, main * size), scalar)
    plan, built = build(path, Replica(read[main], count, size, main * size), inputs, scalar)
    plan = as_first_replica(plan, main * size, f"replica {main}" if len(classes) > 1 else "")
    variants = []
    found: list[Difference] = []
    for members in classes[1:]:
        low = members[0] * size
        other, other_built = build(path, Replica(read[members[0]], count, size, low), inputs, scalar)
        variants.append((members[0], as_first_replica(other, low, f"replica {members[0]}"), other_built))
        found += differences(texts, size, members[0], main)
    parsed = tuple(file for members in classes for file in read[members[0]])
    undecided = len(classes) > 1 and len(classes[1]) == len(classes[0])
    return Folder(path, plan, built, tuple(variants), tuple(found), undecided, given.config, parsed, graph)


def _all_prepared(files: Iterable[RankFile]) -> None:
    """Raise ReadError where a class leaves parameters unfilled; code without a version may be cut short throughout."""
    read = list(files)
    odd = next((file for file in read if not file.prepared), None)
    if odd is not None and (odd.version or any(file.prepared for file in read)):
        said = f"`__init__` on rank {odd.rank} never calls `_post_init`, so parameters keep whatever their memory holds"
        help = "generate the code again: `__init__` ends with `self._post_init(init_params)`"
        raise ReadError(said, odd.class_source or Location(odd.source.path), help)


def _files(path: str) -> list[Path]:
    try:
        names = {int(found[1]): Path(path, name) for name in names_in(path) if (found := _FILE.fullmatch(name))}
    except OSError as error:
        raise ReadError(f"the folder cannot be opened: {error.strerror or 'unknown error'}", Location(path)) from None
    if not names:
        raise ReadError("the folder holds no `gencode0.py`", Location(path))
    missing = next((rank for rank in range(len(names)) if rank not in names), None)
    if missing is not None:
        raise ReadError(
            f"`gencode{missing}.py` is missing, and there is one for rank {max(names)}",
            Location(path),
            "give the whole folder: the plan is what all ranks do together",
        )
    return [names[rank] for rank in range(len(names))]


def _config(path: str) -> Mapping[str, Any]:
    file = Path(path, CONFIG)
    return read_compute_config(str(file), read_bytes(file)) if is_file(file) else {}


def _size(path: str, texts: list[str], config: Mapping[str, Any]) -> int:
    """Return the ranks of one replica."""
    ranks, planned = whole_number(config, "runtime_ngpus"), whole_number(config, "plan_ngpus")
    if ranks is not None and ranks != len(texts):
        raise ReadError(
            f"`{CONFIG}` says {ranks} ranks (`runtime_ngpus`), and there are {len(texts)} files",
            Location(path),
            "generate the code again, or give the folder that belongs to this configuration",
        )
    if planned is None:
        return smallest_replica(texts)
    if len(texts) % planned:
        raise ReadError(f"{len(texts)} ranks are no whole number of replicas of {planned} (`plan_ngpus`)", Location(path))
    return planned


def _rank_file(source: Source, rank: int, operators: tuple[Declared, ...]) -> RankFile:
    file = read_rank(source, operators)
    if file.rank != rank:
        place = file.rank_source or Location(source.path)
        raise ReadError(f"this file says `rank = {file.rank}`", place, f"its name says {rank}")
    return file


def texts_of(path: str) -> dict[str, str]:
    """Return the text of each file of the folder, by its path, in the order of ranks. Raises ReadError."""
    return {str(file): read_bytes(file).decode("utf-8", "replace") for file in _files(path)}


def traced_in(path: str) -> Traced | None:
    """Return what the graph in the folder was traced with; None without a graph."""
    from tvlint.readers.nnscaler.gencode.traced_graph import traced

    graph = Path(path, GRAPH)
    return traced(str(graph), read_bytes(graph, LARGEST_GRAPH)) if is_file(graph) else None


def _inputs(kinds: Mapping[Field, Kind] | None, replica: Replica, scalar: tuple[int, ...]) -> Mapping[tuple[str, int], Kind]:
    """Return shape and dtype of what the data loader gives: those of the traced graph, else those that fit the code."""
    wanted = loaders_of(replica.files)
    if kinds is not None:
        if len({loader for loader, _ in wanted}) == 1:
            fields = fields_of(replica.files)
            return {key: kinds[fields[key]] for key in wanted if fields[key] in kinds}
        if len(kinds) == len(wanted):
            return dict(zip(wanted, kinds.values(), strict=True))
    return solved(replica, wanted, scalar)
