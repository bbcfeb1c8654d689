"""Changes of settings as edits of the text that gives them.

What is made here is a proposal: whoever applies it reads the file again and sees whether the settings are what they should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tvlint.edits.apply import Text
from tvlint.findings import Edit
from tvlint.frameworks.megatron import Option, option_of
from tvlint.ir.configuration import Change, Configuration, Setting
from tvlint.ir.patterns import Pattern

_BETWEEN = Pattern(r"(?:=|[ \t]+|[ \t]*\\\n[ \t]*)([\"']?)")
"""What stands between an option and its value."""
_BEFORE = Pattern(r"(?:[ \t\n]|\\\n)+\Z")
_BEHIND = Pattern(r"[ \t]+(?=[^\s\\#)])")


def edits_of(change: Change, configuration: Configuration, text: Text, path: str, beside: Setting | None) -> tuple[Edit, ...]:
    """Return the edits of the file at `path` that make the change; a new setting stands `beside` another; none: unknown."""
    setting = configuration.settings.get(change.name)
    if setting is not None and setting.location.path != path:
        return ()
    if configuration.format == "megatron-shell":
        return _of_options(change, setting, text, path, beside)
    if configuration.format == "hydra-overrides" and setting is not None and change.value is None:
        return _override_removed(setting, text, path)
    if setting is None:
        return _line_added(change, text, path, beside)
    is_switch = isinstance(change.value, bool) and setting.written.startswith("--")
    if change.value is None or is_switch:
        return _line_removed(setting, text, path)
    return _replaced(setting, change, text, path)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_options(change: Change, setting: Setting | None, text: Text, path: str, beside: Setting | None) -> tuple[Edit, ...]:
    """Return the edits of a command line; a switch is changed by leaving out what sets it."""
    if setting is not None and (change.value is None or isinstance(change.value, bool)):
        return _option_removed(setting, text, path)
    if setting is not None:
        return _replaced(setting, change, text, path)
    known = option_of(change.name)
    span = text.span(beside.name_location) if beside is not None and beside.name_location.path == path else None
    if known is None or span is None or not text.text.startswith("--", span[0]):
        return ()
    spelled = _spelled_option(known, change.value)
    return (text.edit(path, (span[0], span[0]), f"{spelled} "),) if spelled else ()


def _spelled_option(known: Option, value: int | float | str | bool | None) -> str:
    """Return the option that gives the value; empty where it cannot."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return known.flags[0] if known.kind == str(value).lower() or (known.kind == "boolean" and value) else ""
    return f"{known.flags[0]} {value}" if known.kind == "store" else ""


def _option_removed(setting: Setting, text: Text, path: str) -> tuple[Edit, ...]:
    name, value = text.span(setting.name_location), text.span(setting.location)
    if setting.name_location.path != path or name is None or value is None or not text.text.startswith("--", name[0]):
        return ()
    start, end = name
    if value != name:
        between = _BETWEEN.fullmatch(text.text, end, value[0])
        if between is None:
            return ()
        end = value[1] + (len(between[1]) if text.text.startswith(between[1], value[1]) else 0)
    return _word_removed(text, path, start, end)


def _override_removed(setting: Setting, text: Text, path: str) -> tuple[Edit, ...]:
    """Return the edit that takes out `NAME=VALUE`, which is a word of its own."""
    name, value = text.span(setting.name_location), text.span(setting.location)
    if setting.name_location.path != path or name is None or value is None or text.text[name[1] : value[0]] != "=":
        return ()
    around = text.text[: name[0]][-1:], text.text[value[1] : value[1] + 1]
    return _word_removed(text, path, name[0], value[1]) if all(each in ("", " ", "\t", "\n") for each in around) else ()


def _word_removed(text: Text, path: str, start: int, end: int) -> tuple[Edit, ...]:
    """Return the edit that takes out words of a command line, and the blanks on one side of them."""
    behind = _BEHIND.match(text.text, end)
    before = _BEFORE.search(text.text, 0, start)
    if behind is not None:
        return (text.edit(path, (start, behind.end()), ""),)
    return (text.edit(path, (before.start() if before is not None else start, end), ""),)


def _replaced(setting: Setting, change: Change, text: Text, path: str) -> tuple[Edit, ...]:
    """Return the edit of a value, in the quotes and with the capitals that it has."""
    span = text.span(setting.location)
    if span is None or span[0] == span[1] or isinstance(setting.value, tuple):
        return ()
    old = text.text[span[0] : span[1]]
    new = _shown(change.value)
    if isinstance(change.value, bool) and old in ("True", "False"):
        new = new.capitalize()
    quote = old[0] if old[0] in "\"'" and old[-1] == old[0] and len(old) > 1 else ""
    if not quote and isinstance(change.value, str) and path.endswith((".json", ".toml", ".py")):
        new = json.dumps(new)
    return (text.edit(path, span, f"{quote}{new}{quote}"),)


def _line_removed(setting: Setting, text: Text, path: str) -> tuple[Edit, ...]:
    """Return the edit that takes out a line which gives the setting and nothing else."""
    name, value = text.span(setting.name_location), text.span(setting.location)
    if name is None or value is None or setting.name_location.line != setting.location.end_line:
        return ()
    start = text.text.rfind("\n", 0, name[0]) + 1
    end = text.text.find("\n", value[1]) + 1 or len(text.text)
    before, between, behind = text.text[start : name[0]], text.text[name[1] : value[0]], text.text[value[1] : end]
    alone = not before.strip(" \t\"'") and re.fullmatch(r"[\"']?\s*[:=]\s*[\"']?", between)
    return (text.edit(path, (start, end), ""),) if alone and re.fullmatch(r"[\"']?\s*(#.*)?\s*", behind) else ()


def _line_added(change: Change, text: Text, path: str, beside: Setting | None) -> tuple[Edit, ...]:
    """Return the edit that puts a line for the setting before that of another one, spelled as that is."""
    if beside is None or beside.name_location.path != path or path.endswith((".json", ".py")) or change.value is None:
        return ()
    span = text.span(beside.name_location)
    if span is None:
        return ()
    start = text.text.rfind("\n", 0, span[0]) + 1
    indent = text.text[start : span[0]]
    if indent.strip():
        return ()
    key, value = change.name, change.value
    if beside.written.startswith("--"):
        known = option_of(change.name)
        spelled = _spelled_option(known, value) if known is not None else ""
        if not spelled:
            return ()
        key, value = spelled.split(" ")[0], True if isinstance(value, bool) else value
    separator = " = " if path.endswith(".toml") else ": "
    written = json.dumps(value) if path.endswith(".toml") else _shown(value)
    return (text.edit(path, (start, start), f"{indent}{key}{separator}{written}\n"),)


def together(edits: Iterable[tuple[Edit, ...]]) -> tuple[Edit, ...]:
    """Return the edits of several changes; none where one of them has none."""
    listed = list(edits)
    return tuple(dict.fromkeys(edit for edits in listed for edit in edits)) if all(listed) else ()
