"""AReaL's YAML: what trains or serves says its parallel sizes in one word (`backend: megatron:d4p2t2`), or all in one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.plurals import counted
from tvlint.readers.document import Document, refuse_larger
from tvlint.readers.languages import is_yaml
from tvlint.readers.sources.interpolation import Interpolation
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, mappings, merged, only_document

FORMAT = "areal-yaml"
LARGEST = 1 << 20
KEYS = re.compile(rb"^(?:[ \t]*backend:[ \t]*[\"']?megatron(?:\[\w+\])?:|allocation_mode:)", re.MULTILINE)
DIMENSIONS = r"(?:[dptce][1-9]\d{0,5})+"
BACKEND = Pattern(
    rf"(?:(?P<serves>sglang|vllm)(?:\[\w+\])?[:.]|(?:(?P<trains>fsdp|megatron|archon)(?:\[\w+\])?|\[\w+\]):)?"
    rf"(?:(?P<all>{DIMENSIONS})|\(?attn:(?P<attention>{DIMENSIONS})\|ffn:(?P<experts>{DIMENSIONS})\)?)"
)
"""What serves or trains: a program and its sizes; of sizes alone, what trains follows."""
MODE = "allocation_mode"
BESIDE = re.compile(r"\+|\|(?!ffn:|[^()]*\))")
"""What stands between the parts of an allocation: beside each other, or in turns on the same ranks."""
OF_MODE = re.compile(r"(?:sglang|vllm)(?:\[\w+\])?[:.]|(?:fsdp|megatron|archon)(?:\[\w+\])?:|[dpt]\d")
OTHER_MODE = re.compile(r"m\d|(?:sglang|vllm)\(|\*")
"""What only allocations of other versions have: sizes of `m`, and programs that serve in several parts."""
EVALUATES = ("cpu", "eval")
CLUSTER = ("n_nodes", "n_gpus_per_node")
APART = ("slurm", "ray")
"""Schedulers that give each part its GPUs; the one for a single node gives them out again from the first on."""
DIMENSION = re.compile(r"([dptce])(\d+)")
UNREADABLE = "AReaL reads no backend `{}`"
WRITE = "write sizes of `d`, `p`, `t`, `c` and `e`, each from 1 on, such as `megatron:d4p2t2`"
UNREADABLE_PART = "AReaL reads no `{}` in an allocation"
LONGEST = 60
SIZES = {
    "t": "tensor_model_parallel_size",
    "p": "pipeline_model_parallel_size",
    "c": "context_parallel_size",
}
ELSEWHERE = "another file"
RULE = "invalid-backend"
STARTS = Pattern(r"megatron(?:\[\w+\])?:")


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` may be YAML and names Megatron as the backend of a section, or allocates ranks."""
    is_named = b"allocation_mode:" in data or b"backend:" in data
    return is_named and KEYS.search(data) is not None and is_yaml(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return a configuration for each section that Megatron trains, none complete; None where there is none."""
    refuse_larger(path, data, LARGEST)
    root = only_document(path, data)
    if not isinstance(root, YamlMapping):
        return None
    visits = Visits(path)
    modes = ((key, value) for key, value in merged(root, visits) if key.text == MODE and isinstance(value, YamlScalar))
    mode = next(((key, value) for key, value in modes if OF_MODE.match(value.text) and not OTHER_MODE.search(value.text)), None)
    of_mode = tuple(_allocated(path, root, visits, *mode)) if mode is not None else ()
    found = (*_configurations(path, root, Visits(path)), *(each for each in of_mode if isinstance(each, Configuration)))
    mistakes = (*_mistakes(root, Visits(path)), *(each for each in of_mode if isinstance(each, Finding)))
    if not (found or mistakes or mode):
        return None
    return Document(path, FORMAT, configurations=found, findings=tuple(dict.fromkeys(mistakes)))


def _allocated(
    path: str, root: YamlMapping, visits: Visits, key: YamlScalar, value: YamlScalar
) -> Iterator[Configuration | Finding]:
    """Yield the configuration of each part of an allocation that Megatron trains, and what AReaL refuses of it."""
    parts_of_root = [(name.text, node) for name, node in merged(root, visits) if isinstance(node, YamlMapping)]
    sections = {name: {one.text: each for one, each in merged(node, visits)} for name, node in parts_of_root}
    model = sections.get("actor", {}).get("path")
    ranks: list[int] = []
    for beside in value.text.replace(" ", "").split("+"):
        parts = [part for part in BESIDE.split(beside) if part not in EVALUATES]
        taken = set[int]()
        for part in parts:
            match = BACKEND.fullmatch(part)
            if match is None:
                help = f"write `{part.replace('.', ':', 1)}`" if BACKEND.fullmatch(part.replace(".", ":", 1)) else WRITE
                yield Finding(RULE, Severity.ERROR, UNREADABLE_PART.format(part[:LONGEST]), value.location, help)
                return
            sizes = _sizes(match["all"] or match["attention"], match["experts"] or "")
            taken.add(sizes["world_size"])
            is_split = sizes["pipeline_model_parallel_size"] > 1 or sizes["expert_model_parallel_size"] > 1
            if match["trains"] == "megatron" or (is_split and not match["trains"] and not match["serves"]):
                yield _configuration(path, sizes, MODE, key, value, model, value.location)
        if len(taken) > 1:
            message = f"parts that take turns on the same ranks take {' and '.join(map(str, sorted(taken)))}"
            yield Finding(RULE, Severity.ERROR, message, value.location, "give them the same number of ranks")
            return
        ranks.append(max(taken, default=0))
    given = [sections.get("cluster", {}).get(name) for name in CLUSTER]
    counts = [int(each.text) for each in given if isinstance(each, YamlScalar) and each.text.isdecimal()]
    scheduler = sections.get("scheduler", {}).get("type")
    may_share = counts[:1] == [1] and not (isinstance(scheduler, YamlScalar) and scheduler.text in APART)
    needed = max(ranks, default=0) if may_share else sum(ranks)
    if len(counts) == len(CLUSTER) and needed > math.prod(counts):
        message = f"the allocation takes {needed} GPUs, and the cluster has {math.prod(counts)}"
        yield Finding(RULE, Severity.ERROR, message, value.location, "give the cluster more nodes, or take fewer GPUs")


def _configurations(path: str, root: YamlMapping, visits: Visits) -> Iterator[Configuration]:
    interpolation = Interpolation(root, visits)
    for where, mapping in mappings(root, visits):
        entries = {key.text: (key, interpolation.resolve(value, where)) for key, value in merged(mapping, visits)}
        key, value = entries.get("backend", (None, None))
        match = BACKEND.fullmatch(value.text.replace(" ", "")) if isinstance(value, YamlScalar) else None
        if key is None or not isinstance(value, YamlScalar) or match is None or match["trains"] != "megatron":
            continue
        model = entries["path"][1] if "path" in entries else None
        sizes = _sizes(match["all"] or match["attention"], match["experts"] or "")
        yield _configuration(path, sizes, ".".join(where), key, value, model, mapping.location)


def _configuration(
    path: str,
    sizes: dict[str, int],
    section: str,
    key: YamlScalar,
    value: YamlScalar,
    model: YamlNode | None,
    place: Location,
) -> Configuration:
    settings = {name: Setting(name, size, key.text, value.location, key.location) for name, size in sizes.items()}
    known = model.text if isinstance(model, YamlScalar) and "${" not in model.text else ""
    return Configuration(path, FORMAT, "areal", settings, {}, section, False, place, elsewhere=ELSEWHERE, model=known)


def _mistakes(root: YamlMapping, visits: Visits) -> Iterator[Finding]:
    """Yield what AReaL refuses of the backends of sections."""
    for _, mapping in mappings(root, visits):
        for key, value in merged(mapping, visits):
            if key.text != "backend" or not isinstance(value, YamlScalar) or "${" in value.text or not STARTS.match(value.text):
                continue
            match = BACKEND.fullmatch(value.text.replace(" ", ""))
            message, help = _refused(match["attention"] or "", match["experts"] or "") if match else (UNREADABLE, WRITE)
            if message:
                yield Finding(RULE, Severity.ERROR, message.format(value.text[:LONGEST]), value.location, help)


def _refused(every: str, of_experts: str) -> tuple[str, str]:
    """Return what is wrong with the sizes of attention beside those of experts, and what to do; empty where nothing is."""
    one, other = (dict(DIMENSION.findall(text)) for text in (every, of_experts))
    stages = other.get("p", one.get("p", "1"))
    if stages != one.get("p", "1"):
        message = f"experts run in {stages} pipeline stages and attention in {one.get('p', '1')}"
        return message, "use the same `p` in both, or leave it out of `ffn`"
    ranks, experts = (math.prod(map(int, sizes.values())) for sizes in (one, {"p": stages, **other}))
    if "d" in other and ranks != experts:
        return (
            f"experts take {counted(experts, 'rank')} and attention {ranks}",
            "leave `d` out of `ffn`: it follows from the others",
        )
    return "", ""


def _sizes(every: str, of_experts: str) -> dict[str, int]:
    """Return the sizes that dimensions stand for, and the ranks that they multiply to; what is left out is 1."""
    given = {letter: int(number) for letter, number in DIMENSION.findall(every)}
    experts = {letter: int(number) for letter, number in DIMENSION.findall(of_experts)}
    found = {name: given.get(letter, 1) for letter, name in SIZES.items()}
    found["expert_model_parallel_size"] = experts.get("e", given.get("e", 1))
    found["expert_tensor_parallel_size"] = experts.get("t", 1)
    ranks = 1
    for letter in "dtpc":
        ranks *= given.get(letter, 1)
    found["world_size"] = ranks
    return found
