"""Write `tvlint/frameworks/forks.json`: the options that forks of Megatron and frameworks around it add to its parser.

Taken are the calls of `add_argument` in functions that are given the parser, which is how a fork extends it, in modules that
make no parser of their own or that speak of Megatron. Names that Megatron has are left out, and a name stands with the first
checkout that has it.

    python -m benchmarks.fork_options CHECKOUT ... > tvlint/frameworks/forks.json
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tvlint.frameworks.megatron import is_option

WIDTH = 125
NO_PROGRAMS = frozenset({"test", "tests", "docs", "tools", "toolkits", "launcher"})
"""Folders of no program that trains."""
Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def main() -> int:
    """Print the table of the checkouts that are named."""
    seen: set[str] = set()
    forks = []
    for checkout in map(Path, sys.argv[1:]):
        own = sorted(set(options_of(checkout)) - seen)
        seen.update(own)
        lines = textwrap.wrap(" ".join(own), WIDTH, break_long_words=False, break_on_hyphens=False)
        source = said_by_git(checkout, "remote", "get-url", "origin")
        forks.append({"source": source, "commit": said_by_git(checkout, "rev-parse", "HEAD"), "options": lines})
    print(json.dumps({"forks": [each for each in forks if each["options"]]}, indent=1))
    return 0


def options_of(checkout: Path) -> Iterator[str]:
    """Yield the names, without hyphens in front, of the options that the checkout adds to a parser which it is given."""
    for name in said_by_git(checkout, "ls-files", "*.py").split("\n"):
        path = checkout / name
        if path.is_symlink() or not path.is_file() or not NO_PROGRAMS.isdisjoint(Path(name).parts):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if "add_argument" in text and ("ArgumentParser(" not in text or "egatron" in text):
            yield from options_in(text)


def options_in(text: str) -> Iterator[str]:
    """Yield the options that functions of a module add to a parser which they are given."""
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    for function in ast.walk(module):
        if not isinstance(function, Function) or not any("parser" in each.arg for each in function.args.args):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                yield from (flag[2:] for flag in map(text_of, call.args) if flag.startswith("--") and not is_option(flag))


def text_of(node: ast.expr) -> str:
    """Return the text of a literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def said_by_git(checkout: Path, *words: str) -> str:
    """Return what a command of git prints in the checkout."""
    return subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
