"""The options of programs that packages install, in all their versions; `benchmarks/packaged_options.py` writes the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tvlint.frameworks.megatron import Option
from tvlint.frameworks.transformers import CHOICES
from tvlint.frameworks.transformers import options as usual
from tvlint.ir.patterns import Pattern

COMMANDS: Mapping[str, str] = {
    "swift": "ms-swift",
    "megatron": "ms-swift",
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
}
"""The package that installs each command."""
PROGRAMS = (
    (Pattern(r"(?:^|/)swift/cli/(?:sft|pt|rlhf|_megatron/(?:sft|pt|rlhf))\.py$|^swift\.cli\.(?:sft|pt|rlhf)$"), "ms-swift"),
    (Pattern(r"(?i:llama-factory)[\w.-]*/src/(?:train(?:_bash)?|llamafactory/launcher)\.py$"), "llamafactory"),
    (Pattern(r"^llamafactory\.(?:launcher|train\.tuner)$"), "llamafactory"),
)
"""How the programs of a package are called where they are started as files or modules."""


def package_of(command: str, program: str) -> str:
    """Return the package whose options a command takes; empty where none is known."""
    return COMMANDS.get(command, "") or next((name for pattern, name in PROGRAMS if pattern.search(program)), "")


@cache
def options(package: str) -> Mapping[str, Option]:
    """Return the options of a package's programs by their names, those of the training arguments among them."""
    table = json.loads(Path(__file__).with_name("packaged.json").read_bytes())["packages"][package]
    kinds = {name: kind for kind, lines in table["options"].items() for line in lines for name in line.split()}
    choices = {**CHOICES, **{name: tuple(words.split()) for name, words in table["choices"].items()}}
    arity = {"truth": "*", "other": "*"}
    made = {name: Option(name, (), "store", kind, arity.get(kind), choices.get(name, ())) for name, kind in kinds.items()}
    return {**usual(), **made}
