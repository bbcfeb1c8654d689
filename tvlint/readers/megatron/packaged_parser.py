"""Parsers of programs that a package installs, whose source is not in the checkout."""

from __future__ import annotations

import os
from functools import cache

from tvlint.frameworks.packaged import options, package_of
from tvlint.frameworks.transformers import field_option
from tvlint.ir.values import replace
from tvlint.readers.megatron.parser_source import ParserSource


def packaged_parser(command: str, program: str = "") -> ParserSource | None:
    """Return what a command of a package takes, or one of its programs by its path; None where no package is known for it."""
    package = package_of(os.path.basename(command), program)
    return _parser(package) if package else None


@cache
def _parser(package: str) -> ParserSource:
    """Return the options of a package in all versions that are known; a newer one may have more."""
    made = [field_option(name, each.type, _arity(each.arity), each.choices) for name, each in options(package).items()]
    stated = {flag: option for option in made for flag in option.flags}
    parser = ParserSource(package, frozenset(stated), closed=False, takes_words=True, abbreviates=True, naming={}, checkout="")
    return replace(parser, is_own=False, declares=False, stated=stated, is_packaged=True)


def _arity(arity: int | str | None) -> str | None:
    return arity if isinstance(arity, str) else None
