"""Search a text for what opens a script or a YAML by its name, without reading it.

Readers open three kinds of files for a text: those that a shell sources or starts, those that a YAML names, and what they look
for themselves, which is Python and the recipes of functional tests.
"""

from __future__ import annotations

from tvlint.ir.patterns import Pattern
from tvlint.readers.languages import SHELL_NAMES, YAML_NAMES, condensed, is_yaml, names
from tvlint.readers.megatron.functional_tests import is_recipe
from tvlint.readers.megatron.recognise_launch import recognise, starts_others
from tvlint.readers.read import NAMES_MEGATRON

RUNS = Pattern(rb"\bsource\b|(?<![\w./$])\.(?![\w./])")
"""A command that runs another script, also one that a variable holds."""
PARTS = Pattern(rb"\b(?:defaults|extends|modules|load_plan_path)\b")
"""A key that names other files."""


def is_opened_by_name(path: str) -> bool:
    """Return whether readers open the file for those texts only that name it."""
    return path.lower().endswith((*SHELL_NAMES, *YAML_NAMES)) and not is_recipe(path)


def opens_by_name(path: str, text: bytes) -> bool:
    """Return whether readers may open another file for the text because that names it."""
    if PARTS.search(text) is not None and is_yaml(path, text):
        return True
    if starts_others(path, text):
        return True
    return names(condensed(path, text), NAMES_MEGATRON) and RUNS.search(text) is not None and recognise(path, text)
