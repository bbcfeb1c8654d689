"""Values of Megatron options, typed as Megatron's parser types them."""

from __future__ import annotations

from tvlint.frameworks.megatron import Option
from tvlint.ir.configuration import SettingValue
from tvlint.ir.patterns import Pattern

LONGEST_NUMBER = 400
INTEGER = Pattern(r"[-+]?(?:0|[1-9][0-9_]*)")
OCTAL = Pattern(r"0[0-7]+")
SEXAGESIMAL = Pattern(r"[1-9][0-9]{0,8}(?::[0-5]?[0-9]){1,4}")
NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {
    spelling: value
    for word, value in (("true", True), ("yes", True), ("on", True), ("false", False), ("no", False), ("off", False))
    for spelling in (word, word.capitalize(), word.upper())
}


def typed(option: Option | None, text: str) -> SettingValue:
    """`text` as the option's type; text that the type does not take stays text."""
    kind = option.type if option is not None else "other"
    if kind == "str":
        return text
    if kind == "bool":
        return bool(text)
    if len(text) > LONGEST_NUMBER:
        return text
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError:
        return text


def environment_value(text: str) -> SettingValue:
    """Return the value of an environment variable: a number where the text is exactly one, else the text."""
    if text.isascii() and text.isdigit() and len(text) < 19 and str(int(text)) == text:
        return int(text)
    return text


def yaml_typed(option: Option | None, text: str, plain: bool) -> SettingValue:
    """Return a YAML scalar as the settings' loaders give it: plain words have YAML's types, and `1e-5` is a number."""
    if not plain:
        return text
    if text in NOTHING:
        return None
    if text in BOOLEANS and (option is None or option.kind != "store" or option.type in ("other", "int", "float", "bool")):
        return BOOLEANS[text]
    if option is not None and option.kind == "store" and option.type == "str":
        return text
    if len(text) > LONGEST_NUMBER:
        return text
    if OCTAL.fullmatch(text):
        return int(text, 8)
    if SEXAGESIMAL.fullmatch(text):
        return _sexagesimal(text)
    try:
        number = int(text.replace("_", "")) if INTEGER.fullmatch(text) else float(text)
    except ValueError:
        return text
    return float(number) if option is not None and option.type == "float" else number


def _sexagesimal(text: str) -> int:
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total
