"""Values of Megatron options, typed as Megatron's parser types them."""

from __future__ import annotations

from tvlint.ir.configuration import SettingValue
from tvlint.megatron_options import Option

LONGEST_NUMBER = 400


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
    """The value of an environment variable: a number where the text is exactly one, else the text."""
    if text.isascii() and text.isdigit() and len(text) < 19 and str(int(text)) == text:
        return int(text)
    return text
