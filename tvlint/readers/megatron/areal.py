"""AReaL's YAML: what trains or serves says its parallel sizes in one word (`backend: megatron:d4p2t2`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.patterns import Pattern
from tvlint.readers.document import Document, refuse_larger
from tvlint.readers.languages import is_yaml
from tvlint.readers.sources.interpolation import Interpolation
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlScalar, mappings, merged, only_document

FORMAT = "areal-yaml"
LARGEST = 1 << 20
KEYS = re.compile(rb"^[ \t]*backend:[ \t]*[\"']?megatron(?:\[\w+\])?:", re.MULTILINE)
DIMENSIONS = r"(?:[dptce][1-9]\d{0,5})+"
BACKEND = Pattern(
    rf"megatron(?:\[\w+\])?:(?:(?P<all>{DIMENSIONS})|\(?attn:(?P<attention>{DIMENSIONS})\|ffn:(?P<experts>{DIMENSIONS})\)?)"
)
DIMENSION = re.compile(r"([dptce])(\d+)")
UNREADABLE = "AReaL reads no backend `{}`"
WRITE = "write sizes of `d`, `p`, `t`, `c` and `e`, each from 1 on, such as `megatron:d4p2t2`"
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
    """Return whether `data` may be YAML and names Megatron as the backend of a section."""
    return KEYS.search(data) is not None and is_yaml(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return a configuration for each section that Megatron trains, none complete; None where there is none."""
    refuse_larger(path, data, LARGEST)
    root = only_document(path, data)
    if not isinstance(root, YamlMapping):
        return None
    found = tuple(_configurations(path, root, Visits(path)))
    mistakes = tuple(dict.fromkeys(_mistakes(root, Visits(path))))
    return Document(path, FORMAT, configurations=found, findings=mistakes) if found or mistakes else None


def _configurations(path: str, root: YamlMapping, visits: Visits) -> Iterator[Configuration]:
    interpolation = Interpolation(root, visits)
    for where, mapping in mappings(root, visits):
        entries = {key.text: (key, interpolation.resolve(value, where)) for key, value in merged(mapping, visits)}
        key, value = entries.get("backend", (None, None))
        match = BACKEND.fullmatch(value.text.replace(" ", "")) if isinstance(value, YamlScalar) else None
        if key is None or not isinstance(value, YamlScalar) or match is None:
            continue
        model = entries["path"][1] if "path" in entries else None
        sizes = _sizes(match["all"] or match["attention"], match["experts"] or "")
        settings = {name: Setting(name, size, "backend", value.location, key.location) for name, size in sizes.items()}
        yield Configuration(
            path,
            FORMAT,
            "areal",
            settings,
            {},
            ".".join(where),
            False,
            mapping.location,
            elsewhere=ELSEWHERE,
            model=model.text if isinstance(model, YamlScalar) and "${" not in model.text else "",
        )


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
        return f"experts take {experts} ranks and attention {ranks}", "leave `d` out of `ffn`: it follows from the others"
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
