"""Files that are named as JSON, TOML or YAML and are not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.languages import condensed, names

TELLING = re.compile(
    rb"[\"'](?:train_(?:micro_)?batch_size(?:_per_gpu)?|zero_optimization|spmd_descs|tvlint_plan|(?:tensor|pipeline)_model_parallel_size)"
    rb"[\"']\s*:|\b(?:data_parallel_(?:shard|replicate)|(?:tensor|pipeline|context)_parallel)_degree\"?\s*[=:]"
)
"""Keys of what tvlint reads."""
IN_TELLING = (b"batch_size", b"zero_optimization", b"spmd_descs", b"tvlint_plan", b"model_parallel_size", b"_degree")
"""One of which is in every such key."""
NAMED = (".json", ".toml", ".yaml", ".yml")
TEMPLATED = re.compile(rb"\{\{|\{%|\$\{|[:=]\s*[A-Z][A-Z0-9_]+\s*[,}\n]")
"""What is filled in before the text is read, a word in capital letters (`"train_batch_size": CONFIG_BATCH_SIZE`) among it."""
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)')
"""A comment of JSON as editors write it, and outside of the group a string, in which nothing is one."""
TRAILING = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|,(?=\s*[}\]])')
"""A comma behind the last element, and a string."""
LARGEST_UTF16 = 1 << 20
"""Bytes of the largest text that is looked at as UTF-16."""
AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def refuse_malformed(path: str, data: bytes) -> None:
    """Raise ReadError at the first place where the text is not what its name says.

    A template is filled in before anything reads it, and JSON Lines hold a document a line; neither is judged.
    """
    if path.lower().endswith(".json"):
        _refuse_json(path, data)
    elif path.lower().endswith(".toml"):
        _refuse_toml(path, data)
    elif path.lower().endswith((".yaml", ".yml")):
        _refuse_yaml(path, data)


def refuse_named(path: str, data: bytes) -> None:
    """Do so for a file that somebody named, whatever its keys are, but for templates."""
    try:
        refuse_malformed(path, data)
    except ReadError:
        if TEMPLATED.search(data) is None:
            raise


def refuse_found(path: str, data: bytes) -> None:
    """Do so for a file of a folder. The JSON of editors may have comments, and a comma behind the last element; large JSON
    that is mostly numbers holds measurements, and is not judged.
    """
    if 3 * len(condensed(path, data)) < len(data):
        return
    try:
        refuse_named(path, data)
    except ReadError:
        if not path.lower().endswith(".json"):
            raise
        text = COMMENT.sub(r"\1", data.decode(errors="replace").removeprefix("\ufeff"))
        if not _is_json(TRAILING.sub(r"\1", text)):
            raise


def refuse_utf16(path: str, data: bytes, is_known: Callable[[bytes], bool]) -> None:
    """Raise ReadError where the text is UTF-16, which no framework reads, and would be of a kind that is known."""
    if not data.startswith((b"\xff\xfe", b"\xfe\xff")) or len(data) > LARGEST_UTF16 or b"\0" not in data[2:4]:
        return
    if is_known(data.decode("utf-16", "replace").encode("utf-8", "replace")):
        raise ReadError("the text is UTF-16", Location(path), "save the file as UTF-8")


def is_telling(data: bytes) -> bool:
    """Return whether the text names a key of a configuration or plan that tvlint reads."""
    return names(data, IN_TELLING) and TELLING.search(data) is not None and TEMPLATED.search(data) is None


def _refuse_json(path: str, data: bytes) -> None:
    text = _decoded(path, data)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or "\n" not in text[: error.pos]:
            raise ReadError(f"not JSON: {_lower(error.msg)}", Location(path, error.lineno, error.colno)) from None
    except (RecursionError, ValueError):
        raise ReadError("the JSON nests too deeply, or holds a number with too many digits", Location(path)) from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


def _refuse_toml(path: str, data: bytes) -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    text = _decoded(path, data)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = AT.search(message)
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (text.count("\n") + 1, None)
        raise ReadError(f"not TOML: {_lower(AT.sub('', message))}", Location(path, line, column)) from None
    except (RecursionError, ValueError):
        raise ReadError("the TOML nests too deeply, or holds a number with too many digits", Location(path)) from None


def _refuse_yaml(path: str, data: bytes) -> None:
    from tvlint.readers.sources.yaml_nodes import documents

    for _ in documents(path, _decoded(path, data)):
        pass


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise ReadError(message, Location(path, line), "save the file as UTF-8") from None


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
