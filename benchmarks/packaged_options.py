"""Write `tvlint/frameworks/packaged.json`: the options of programs that packages install, by the fields of their data classes.

Each checkout is read at every tag and at its newest commit, so that an option is known which some version had. A field has the
type and the choices that all versions agree on.

    python -m benchmarks.packaged_options NAME=CHECKOUT ... > tvlint/frameworks/packaged.json
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from tvlint.frameworks.megatron import Option
from tvlint.frameworks.transformers import options as usual
from tvlint.readers.megatron.dataclass_options import option_of_field

WIDTH = 125
CLASS = re.compile(r"Arg|Config|Param|Mixin")
"""What classes are called whose fields may be options."""
NO_PROGRAMS = re.compile(r"(?:^|/)tests?/|^(?:docs?|examples?|projects|scripts)/")


def main() -> int:
    """Print the table of the checkouts that are named."""
    named = (word.partition("=") for word in sys.argv[1:])
    print(json.dumps({"packages": {name: _package(checkout) for name, _, checkout in named}}, indent=1))
    return 0


def _package(checkout: str) -> dict[str, object]:
    found: dict[str, Option] = {}
    seen: set[str] = set()
    for revision in (*said_by_git(checkout, "tag").split(), "HEAD"):
        for line in said_by_git(checkout, "ls-tree", "-r", revision).split("\n"):
            blob, _, path = line.partition("\t")
            name = blob.split()[-1] if blob else ""
            if path.endswith(".py") and name not in seen and not NO_PROGRAMS.search(path):
                seen.add(name)
                for option in _options_in(said_by_git(checkout, "cat-file", "blob", name)):
                    known = found.get(option.dest) or usual().get(option.dest)
                    found[option.dest] = option if known is None else _joined(known, option)
    types: dict[str, list[str]] = {}
    for name, option in sorted(found.items()):
        types.setdefault(option.type, []).append(name)
    return {
        "source": said_by_git(checkout, "config", "remote.origin.url"),
        "commit": said_by_git(checkout, "rev-parse", "HEAD"),
        "options": {kind: _lines(names) for kind, names in sorted(types.items())},
        "choices": {name: " ".join(map(str, each.choices)) for name, each in sorted(found.items()) if each.choices},
    }


def _lines(names: list[str]) -> list[str]:
    return textwrap.wrap(" ".join(names), WIDTH, break_long_words=False, break_on_hyphens=False)


def _options_in(text: str) -> Iterator[Option]:
    """Yield the options of the data classes of a module; of a field whose metadata are not written out, the name."""
    try:
        module = ast.parse(text) if "dataclass" in text else ast.Module([], [])
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and CLASS.search(node.name):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    name = each.target.id
                    keywords = each.value.keywords if isinstance(each.value, ast.Call) else []
                    metadata = next((keyword.value for keyword in keywords if keyword.arg == "metadata"), None)
                    yield option_of_field(name, each.annotation, metadata, None) or Option(name, (), "store", "other")


def _joined(one: Option, other: Option) -> Option:
    """Return the option that takes what either takes."""
    kinds = {one.type, other.type}
    kind = one.type if len(kinds) == 1 else "float" if kinds == {"int", "float"} else "other"
    choices = tuple(dict.fromkeys((*one.choices, *other.choices))) if one.choices and other.choices else ()
    return Option(one.dest, (), "store", kind, choices=choices if kind == "str" else ())


def said_by_git(checkout: str, *words: str) -> str:
    """Return what a command of git prints in the checkout; nothing where it fails."""
    done = subprocess.run(["git", "-C", checkout, *words], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
