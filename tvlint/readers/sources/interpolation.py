"""Interpolations of OmegaConf, Hydra and Primus (`${a.b}`, `${..b}`, `${oc.env:X,1}`, `${X:1}`), within one file."""

from __future__ import annotations

import re

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, YamlSequence, merged

DEEPEST = 12
WHOLE = Pattern(r"\$\{([^${}]{1,300})\}")
PATH = Pattern(r"\.*[\w-]+(?:\.[\w-]+|\[\d{1,6}\])*")
ENVIRONMENT = Pattern(r"oc\.env:\s*\w+\s*,(?P<hydra>.*)|[A-Z_][A-Z0-9_]*:(?P<primus>.*)")
SELECT = Pattern(r"oc\.select:\s*([^,]+?)\s*(?:,(.*))?")


@dataclass(frozen=True, slots=True)
class Interpolation:
    """The values of the interpolations of one document."""

    root: YamlMapping
    visits: Visits
    tables: dict[int, dict[str, YamlNode]] = field(default_factory=dict)
    """The merged entries of each mapping that was looked into, so that many interpolations cost one visit."""

    def resolve(self, node: YamlNode, where: tuple[str, ...], depth: int = 0) -> YamlNode:
        """Return what `node`, standing in the mapping at the path `where`, stands for; `node` itself where that is not
        known.

        A value from the environment counts as its default, as it does in launch scripts.
        """
        if not isinstance(node, YamlScalar) or depth > DEEPEST or (whole := WHOLE.fullmatch(node.text.strip())) is None:
            return node
        inside = whole[1].strip()
        select = SELECT.fullmatch(inside)
        path, default = (select[1], select[2]) if select else (inside, None)
        if PATH.fullmatch(path):
            found = self._find(path, where)
            if found is not None:
                return self.resolve(found[0], found[1], depth + 1)
            return node if default is None else _default(default, node)
        environment = ENVIRONMENT.fullmatch(inside)
        return _default(environment[environment.lastgroup or 0], node) if environment else node

    def _find(self, path: str, where: tuple[str, ...]) -> tuple[YamlNode, tuple[str, ...]] | None:
        """The node at `path` and the path of the mapping it stands in."""
        name = path.lstrip(".")
        up = len(path) - len(name)
        if up > len(where) + 1:
            return None
        steps = (*(where[: len(where) - (up - 1)] if up else ()), *re.findall(r"[\w-]+", name))
        node = self.at(steps)
        return (node, steps[:-1]) if node is not None else None

    def at(self, path: tuple[str, ...]) -> YamlNode | None:
        """Return the node at a path from the top; None where there is none."""
        node: YamlNode | None = self.root
        for step in path:
            node = self._step(node, step) if node is not None else None
        return node

    def _step(self, node: YamlNode, step: str) -> YamlNode | None:
        if isinstance(node, YamlSequence):
            return node.items[int(step)] if step.isdigit() and int(step) < len(node.items) else None
        if not isinstance(node, YamlMapping):
            return None
        if id(node) not in self.tables:
            self.tables[id(node)] = {key.text: value for key, value in merged(node, self.visits)}
        return self.tables[id(node)].get(step)


def _default(text: str, node: YamlScalar) -> YamlNode:
    stripped = text.strip()
    quoted = len(stripped) > 1 and stripped[0] in "'\"" and stripped[-1] == stripped[0]
    return YamlScalar(stripped[1:-1] if quoted else stripped, not quoted, node.location)
