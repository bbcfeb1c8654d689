"""Write `tvlint/frameworks/neox.json`: what GPT-NeoX takes in its configurations, as the data classes of a checkout declare it.

python -m benchmarks.neox_settings CHECKOUT > tvlint/frameworks/neox.json
"""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fork_options import WIDTH, said_by_git

MODULES = ("deepspeed_args.py", "neox_args.py")
PLAIN = frozenset({"int", "float", "bool"})


def main() -> int:
    """Print the table of the checkout that is named."""
    checkout = Path(sys.argv[1])
    kinds: dict[str, set[str]] = {}
    choices: dict[str, str] = {}
    for name, kind, taken in settings_of(checkout):
        kinds.setdefault(kind, set()).add(name)
        if taken:
            choices[name] = " ".join(taken)
    wrapped = {kind: textwrap.wrap(" ".join(sorted(names)), WIDTH) for kind, names in sorted(kinds.items())}
    source, commit = (said_by_git(checkout, *words) for words in (("remote", "get-url", "origin"), ("rev-parse", "HEAD")))
    print(json.dumps({"source": source, "commit": commit, "kinds": wrapped, "choices": choices}, indent=1))
    return 0


def settings_of(checkout: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each field of the data classes with its type, `other` where that is none of the plain ones, and its choices."""
    for module in MODULES:
        tree = ast.parse((checkout / "megatron" / "neox_arguments" / module).read_text())
        for node in ast.walk(tree):
            for field in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    written = ast.unparse(field.annotation)
                    is_choice = written.startswith("Literal[")
                    kind = written if written in PLAIN else "choice" if is_choice else "other"
                    taken = list(ast.literal_eval(f"[{written[len('Literal[') : -1]}]")) if is_choice else []
                    yield field.target.id, kind, taken


if __name__ == "__main__":
    sys.exit(main())
