"""Keys of YAML that a program passes to Megatron as options of a command line."""

from __future__ import annotations

from tvlint.frameworks.megatron import Option, option
from tvlint.ir.configuration import Setting, SettingValue, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.readers.sources.scalar_values import typed
from tvlint.readers.sources.yaml_nodes import YamlNode, YamlScalar, YamlSequence

INTERPOLATED = Pattern(r"\$\{|\$[A-Za-z_]|\{\{")
OFF = frozenset({"false", "False"})
"""Values that leave a switch out, where the program does not pass them on as words."""


def argument(name: YamlScalar, value: YamlNode, off: frozenset[str]) -> Setting:
    known = option(name.text)
    setting = known.dest if known is not None else name.text[2:].replace("-", "_")
    if not isinstance(value, YamlScalar):
        return Setting(setting, _items(known, value), name.text, value.location, name.location)
    return Setting(setting, _value(known, name.text, value, off), name.text, value.location, name.location)


def _value(known: Option | None, flag: str, value: YamlScalar, off: frozenset[str]) -> SettingValue | Unknown:
    """Return the value as the command line gets it: the text between the quotes; brackets around it make a list of words.

    A layout may hold backslashes for the shell that the text goes through (`Et\\|(tt\\|)*3L`). `off` are values that leave
    a switch out: Megatron's test runner passes `true` as the option alone, and `false` as a word after it.
    """
    text = value.text.strip()
    if INTERPOLATED.search(text):
        return Unknown("depends on a variable that is substituted later", given=known is None or known.kind == "store")
    if known is not None and known.dest == "pipeline_model_parallel_layout":
        text = text.replace("\\", "")
    if known is not None and known.kind != "store":
        sets = not flag.startswith("--no-") if known.kind == "boolean" else known.kind == "true"
        return sets if text in ("true", "True", "") else not sets if text in off else text
    words = text[1:-1].split() if text.startswith("[") and text.endswith("]") and "]" not in text[1:-1] else None
    if known is None and words is not None:
        return tuple(typed(None, word) for word in words)
    if known is None:
        return {"true": True, "false": False}.get(text, typed(None, text))
    if known.arity is not None:
        return tuple(typed(known, word) for word in (words if words is not None else text.split()))
    if words is not None and len(words) == 1:
        return typed(known, words[0])
    return typed(known, text)


def _items(known: Option | None, value: YamlNode) -> SettingValue | Unknown:
    if not isinstance(value, YamlSequence):
        return Unknown("a mapping is no option value")
    texts = [item.text for item in value.items if isinstance(item, YamlScalar)]
    if len(texts) != len(value.items) or any(INTERPOLATED.search(text) for text in texts):
        return Unknown("the list holds more than plain values")
    return tuple(typed(known, text) for text in texts)
