"""YAML of the training arguments of Hugging Face's transformers, as LLaMA-Factory and trl read it, and of accelerate: what they
refuse of it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping

from tvlint.checkout.opening import kept, names_ending
from tvlint.checkout.top import folder_around
from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.megatron import Option
from tvlint.frameworks.packaged import options as options_of
from tvlint.frameworks.transformers import CHOICES, FIELDS, options
from tvlint.ir.configuration import Setting
from tvlint.ir.values import replace
from tvlint.near_names import by_slips, has_same_words, is_a_slip, near
from tvlint.readers.accelerate import TELLING as OF_ACCELERATE
from tvlint.readers.accelerate import mistakes
from tvlint.readers.contradictions import contradictions
from tvlint.readers.document import NOTHING, Document, ReadError, refuse_larger
from tvlint.readers.languages import is_yaml
from tvlint.readers.megatron.dataclass_options import options_of_class
from tvlint.readers.megatron.definitions import source_at
from tvlint.readers.megatron.option_ranges import out_of_range
from tvlint.readers.megatron.parser_source import file_around
from tvlint.readers.megatron.section_values import TRUTHS
from tvlint.readers.megatron.unknown_options import option_meant
from tvlint.readers.sources.python_syntax import parsing_once
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlScalar, only_document

LARGEST = 1 << 18
LONGEST = 80
FEWEST = 6
"""So many fields of the training arguments no other file has at its top."""
TELLING = re.compile(
    rb"^(?:per_device_train_batch_size|gradient_accumulation_steps|lr_scheduler_type|distributed_type)[ \t]*:", re.MULTILINE
)
WITH_UNIT = re.compile(r"[-+]?\d[\d.]*(?:e-?\d+)?[A-Za-z]|[-+]?\d+\.\d+\.\d+")
OF_FACTORY = "finetuning_type"
"""A key that each file of LLaMA-Factory has, and no other one."""
OF_LLAMA_FACTORY = os.path.join("src", "llamafactory", "hparams", "parser.py")
"""What lies beside the data classes of LLaMA-Factory, which refuses keys that are none of theirs."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` has fields of the training arguments at its top, and may be YAML."""
    return TELLING.search(data) is not None and is_yaml(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return what is refused of the file; None where nothing is, or where it is no file of training arguments."""
    refuse_larger(path, data, LARGEST)
    try:
        root = only_document(path, data)
    except ReadError:
        return None
    keys = {key.text for key, _ in root.entries if isinstance(key, YamlScalar)} if isinstance(root, YamlMapping) else set()
    if isinstance(root, YamlMapping) and keys >= OF_ACCELERATE:
        refused = tuple(mistakes(root))
        return Document(path, NOTHING, findings=refused) if refused else None
    if not isinstance(root, YamlMapping) or len(keys & FIELDS.keys()) < FEWEST:
        return None
    known = _options(path, keys)
    findings = (*_slips(root, keys, known), *_values(root, known), *contradictions(_settings(root)))
    return Document(path, NOTHING, findings=findings) if findings else None


def _slips(root: YamlMapping, keys: set[str], known: Mapping[str, Option]) -> Iterator[Finding]:
    """Yield an error for each key that is a slip away from a field."""
    index, flags = by_slips(known), frozenset(f"--{name}" for name in known)
    for key, _ in root.entries:
        text = key.text.replace("-", "_") if isinstance(key, YamlScalar) else ""
        if not isinstance(key, YamlScalar) or key.text in known or len(text) > LONGEST:
            continue
        alike = [text] if text in known else [name for name in near(text, index) if _is_meant(text, name)]
        if not alike and OF_FACTORY in keys:
            alike = [option_meant(f"--{text}", flags, of_all_versions=True)[2:]]
        meant = [name for name in alike if name and name not in keys]
        if len(meant) == 1:
            fix = Fix(f"write `{meant[0]}`", (Edit(key.location, meant[0]),), is_safe=True)
            message = f"no training arguments have `{key.text}`"
            help = f"did you mean `{meant[0]}`?"
            yield Finding("misspelled-option", Severity.ERROR, message, key.location, help, fixes=(fix,))


def _is_meant(text: str, name: str) -> bool:
    return is_a_slip(text, name) or has_same_words(text, name)


def _options(path: str, keys: Collection[str]) -> Mapping[str, Option]:
    """Return the fields, of LLaMA-Factory too where a key is one of its own or the file lies in its repository."""
    parser = file_around(path, OF_LLAMA_FACTORY)
    packaged = options_of("llamafactory") if OF_FACTORY in keys else {}
    return {**options(), **packaged, **(_of_tree(parser, folder_around(path)) if parser else {})}


@kept
def _of_tree(parser: str, checkout: str) -> Mapping[str, Option]:
    folder = os.path.dirname(parser)
    found: dict[str, Option] = {}
    with parsing_once():
        for path in (os.path.join(folder, name) for name in names_ending(folder, ".py")):
            source = source_at(path, checkout)
            for node in source.tree.body if source is not None else ():
                options = options_of_class(node.name, path, checkout) if isinstance(node, ast.ClassDef) else ()
                found.update((each.dest, each) for each in options if each is not None and each.dest)
    return found


def _values(root: YamlMapping, known: Mapping[str, Option]) -> Iterator[Finding]:
    """Yield a finding for each value that the field of its key does not take, whatever converts it."""
    for name, setting in _settings(root).items():
        yield from _refused(setting, known.get(name) or Option(name, ()))


def _settings(root: YamlMapping) -> dict[str, Setting]:
    """Return what stands at the top, but for what a template fills in."""
    found: dict[str, Setting] = {}
    for key, node in root.entries:
        if isinstance(node, YamlScalar) and isinstance(key, YamlScalar) and "$" not in node.text:
            value = yaml_typed(None, node.text, node.plain)
            found[key.text] = Setting(key.text, value, key.text, node.location, key.location)
    return found


def _refused(setting: Setting, option: Option) -> Iterator[Finding]:
    value, name, at = setting.value, setting.name, setting.location
    if option.type in ("int", "float") and isinstance(value, str) and WITH_UNIT.fullmatch(value):
        message = f"`{name}` takes a number, not `{value[:LONGEST]}`"
        yield Finding("option-value-not-a-number", Severity.ERROR, message, at, "write a number")
    elif option.type == "truth" and isinstance(value, str) and value.lower() in TRUTHS:
        meant = TRUTHS[value.lower()]
        message = f"`{name}` is the text `{value}`, which is no truth value"
        fix = Fix(f"write `{meant}`", (Edit(at, meant),))
        yield Finding("option-value-not-a-choice", Severity.WARNING, message, at, f"did you mean `{meant}`?", fixes=(fix,))
    elif isinstance(value, str) and option.choices and value not in option.choices:
        slips = [each for each in option.choices if isinstance(each, str) and is_a_slip(value, each)]
        if slips or name in CHOICES:
            fixes = tuple(Fix(f"write `{each}`", (Edit(at, each),)) for each in slips[:1])
            help = f"one of {', '.join(f'`{each}`' for each in option.choices)}"
            message = f"`{name}` does not take `{value[:LONGEST]}`"
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, at, help, fixes=fixes)
    else:
        beyond = out_of_range(setting, option if option.default is not None else replace(option, default=1))
        yield from () if beyond is None else (beyond,)
