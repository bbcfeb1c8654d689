"""The one entrance to the readers: its content says what a file is."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.opening import content, is_folder
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, replace
from tvlint.readers.document import NOTHING, Document, ReadError
from tvlint.readers.languages import SHELL_NAMES, YAML_NAMES, condensed, named, names

if TYPE_CHECKING:
    from types import ModuleType

    from tvlint.ir.plan import Plan
    from tvlint.ops.annotations.declared import Declared

LARGEST = 4 << 30
COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
GENERATED_FILE = Pattern(r"gencode\d+\.py", re.ASCII)
NAMES_GENERATED = b"nnscaler.runtime.module.ParallelModule"
OPENS_OLD_PICKLE = (b"(", b"]", b"}", b"c")


NAMES_MEGATRON = (
    b"MODEL_ARGS",
    b"model_parallel_size",
    b"context_parallel_size",
    b"sequence_parallel",
    b"num_attention_heads",
    b"micro_batch_size",
    b"global_batch_size",
    b"tensor_parallelism",
    b"pipeline_parallelism",
)
"""What settings of Megatron are called, in a `condensed` text."""
NAMES_LAUNCH = (*NAMES_MEGATRON, b"bash", b"sbatch", b"srun", b"export")
"""What launch scripts name, or those that start them."""
NAMES_DEEPSPEED = (b"pipe_parallel_size", b'"train_micro_batch_size_per_gpu', b'"zero_')
NAMES_TRAINING = (b"per_device_train_batch_size", b"gradient_accumulation_steps", b"lr_scheduler_type", b"distributed_type")
OTHER_NEWLINES = Pattern(rb"\r(?!\n)|\xc2\x85|\xe2\x80[\xa8\xa9]")
"""What ends a line in YAML, and nowhere else."""
COMPOSED = Pattern(rb"^(?:defaults|extends|modules):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of texts, by its name in `docs/formats.md`.

    The module below `tvlint.readers` has `recognise(path, data) -> bool` and `read(path, data) -> Document | None`, that of a
    format of plans `recognise(text) -> bool` and `read(path, text) -> Document`. It is not asked where none of the `marks` is
    found, one of which is in every such file as it is `condensed` (no marks: a format of plans is always asked), or `also` is
    not, which is in all. A reader that imports much has its `recognise` in a module of its own, `recognised_by`.
    """

    name: str
    module: str
    marks: tuple[bytes, ...] = ()
    also: bytes = b""
    recognised_by: str = ""

    @property
    def recogniser(self) -> ModuleType:
        """Return the module that recognises a file of this format."""
        return import_module(f"tvlint.readers.{self.recognised_by or self.module}")

    @property
    def reader(self) -> ModuleType:
        """Return the module that reads a file of this format."""
        return import_module(f"tvlint.readers.{self.module}")


CONFIGURATIONS = (
    Format("nnScaler YAML", "nnscaler.trainer.reader", (b"plan_ngpus",)),
    Format("nnScaler partition constraints", "nnscaler.trainer.constraints", (b"allowed_partition_dims",)),
    Format("nnScaler saved plans", "nnscaler.trainer.autodist_plan", (b'"spmd_descs"',)),
    Format("GPT-NeoX YAML or JSON", "megatron.neox", NAMES_DEEPSPEED),
    Format("DeepSpeed JSON", "deepspeed.config_json", NAMES_DEEPSPEED),
    Format("torchtitan TOML or JSON", "torchtitan", (b"_parallel_degree", b"data_parallel_shard_degree")),
    Format("launch scripts", "megatron.launch_script", NAMES_LAUNCH, recognised_by="megatron.recognise_launch"),
    Format("Python recipes", "recipe.reader", NAMES_MEGATRON, also=b"import"),
    Format("Python launchers", "megatron.python_launcher", NAMES_MEGATRON, also=b"import "),
    Format("AReaL YAML", "megatron.areal", (b"megatron", b"allocation_mode")),
    Format("snake_case YAML or JSON", "megatron.model_args_yaml", NAMES_MEGATRON),
    Format("training arguments YAML", "training_arguments", NAMES_TRAINING),
)
"""Every format of configurations, in the order in which they are tried."""
MARKS = tuple(dict.fromkeys(mark for each in CONFIGURATIONS for mark in each.marks))

PLANS = (
    Format("plan JSON", "plan_json.reader", (b'"tvlint_plan"',)),
    Format("plan text", "plan_text.reader"),
    Format("pipeline schedules", "schedule_csv", recognised_by="recognise_schedule"),
)
"""Every format of plans and schedules that is UTF-8 text, in the order in which they are tried, before configurations."""


def read(path: str, data: bytes | None = None, operators: tuple[Declared, ...] = ()) -> Document | None:
    """Return the content of the file at `path`; None where it is nothing that tvlint reads, and no launch that it should.

    `data` is the file's content where the caller already has it; `operators` are those that the project declares. Raises
    ReadError for a file that is of a kind that tvlint reads and cannot be read as such, and for one that cannot be opened.
    """
    if data is None:
        _follow(path)
    if data is None and is_folder(path):
        return _generated_folder(path, operators)
    data = _content(path) if data is None else data
    if NAMES_GENERATED in data and GENERATED_FILE.fullmatch(os.path.basename(path)):
        return _generated_folder(os.path.dirname(path) or os.curdir, operators)
    found = _file(path, data)
    if found is None:
        found = _not_followed(path, data)
    if path.lower().endswith(SHELL_NAMES):
        return _with_broken(path, data, found)
    return found if found is None or found.plan is None else _with_operators(found, found.plan, operators)


def _with_broken(path: str, data: bytes, document: Document | None) -> Document | None:
    """Return the document of a script with what keeps a shell, or a program that is no launch, from running to its end."""
    from tvlint.readers.shell.broken import broken

    findings = tuple(broken(path, data))
    if document is None and not findings:
        from tvlint.readers.megatron.program_options import option_mistakes_of_programs

        findings = tuple(dict.fromkeys(option_mistakes_of_programs(path, data)))
    if not findings:
        return document
    document = document or Document(path, NOTHING)
    return replace(document, findings=(*document.findings, *findings))


def _not_followed(path: str, data: bytes) -> Document | None:
    """Return the text that passes options of Megatron although no reader follows it; None for any other.

    Raises ReadError for one that would be a configuration were it not broken.
    """
    from tvlint.readers.malformed import IN_TELLING, NAMED, is_telling, refuse_malformed, refuse_utf16

    refuse_utf16(path, data, lambda text: (_file(path, text) or _not_followed(path, text)) is not None)
    words = condensed(path, data)
    if path.lower().endswith(NAMED) and names(words, IN_TELLING) and is_telling(data):
        refuse_malformed(path, data)
    if not names(words, NAMES_MEGATRON):
        return None
    from tvlint.readers.not_followed import launch_in

    finding = launch_in(path, data)
    return None if finding is None else Document(path, NOTHING, findings=(finding,))


def unpacked(path: str) -> bytes:
    """Return the content of the file at `path`, unpacked where it is compressed. Raises ReadError."""
    from tvlint.readers.sources.decompress import decompress

    _follow(path)
    return decompress(_content(path), path)


def _with_operators(document: Document, plan: Plan, operators: tuple[Declared, ...]) -> Document:
    """Return the document with its plan as the project means it. Raises ReadError where the file itself declares operators."""
    from tvlint.ops.declaring import claims_declarations, with_declared

    claim = claims_declarations(plan)
    if claim is not None:
        raise ReadError(f"an operator is named `{claim.op[:60]}`", claim.source or Location(document.path))
    return replace(document, plan=with_declared(plan, operators)) if operators else document


def _file(path: str, data: bytes) -> Document | None:
    if data.startswith(COMPRESSED):
        from tvlint.readers.sources.decompress import decompress

        data = decompress(data, path)
    if data.startswith(b'{"tvlint_capture"'):
        from tvlint.readers.capture import reader as capture

        return capture.read(path, data)
    if data.startswith(b"\x80") or (data.startswith(OPENS_OLD_PICKLE) and data.endswith(b".")):
        found = _pickle(path, data)
        if found is not None or data.startswith(b"\x80"):
            return found
    return _plan(path, data) or _of_its_tree(_configuration(path, data))


def _of_its_tree(document: Document | None) -> Document | None:
    """Return the document with the version of the source tree that it lies in, where its configurations do not say theirs."""
    if document is None or not document.configurations:
        return document
    from tvlint.readers.megatron.source_tree_version import with_version_of_tree

    return replace(document, configurations=with_version_of_tree(document.configurations))


def _generated_folder(path: str, operators: tuple[Declared, ...]) -> Document:
    """Return the plan that the generated code in a folder is."""
    from tvlint.readers.nnscaler.gencode import folder as gencode

    if not gencode.is_folder(path):
        raise ReadError("not a regular file, and no folder of generated code", Location(path))
    return gencode.read_folder(path, operators)


def _follow(path: str) -> None:
    """Raise ReadError where a link of a checkout would lead to what does not belong to it."""
    if "\0" in path:
        raise ReadError("the path holds a NUL character", Location(path.replace("\0", "?")))
    if reason := why_not_followed(path):
        raise ReadError(f"not read: {reason}", Location(path), "name the file that the link leads to")


def _content(path: str) -> bytes:
    try:
        return content(path, LARGEST)
    except OSError as error:
        raise ReadError(f"the file cannot be opened: {(error.strerror or 'unknown error').lower()}", Location(path)) from error


def _pickle(path: str, data: bytes) -> Document | None:
    """Return the plan in a pickle, or what is unsafe about a pickle that is none."""
    from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle
    from tvlint.readers.sources.inert_pickle import looks_like_pickle

    if not looks_like_pickle(data):
        return None
    if nnscaler_pickle.is_nnscaler_plan(data):
        return nnscaler_pickle.read(path, data)
    if b"IRGraph" in data:
        from tvlint.readers.nnscaler.gencode import traced_graph

        if traced_graph.is_traced_graph(data):
            return traced_graph.read(path, data)
    findings = nnscaler_pickle.findings_only(path, data)
    return Document(path, "pickle", findings=findings) if findings else None


def _plan(path: str, data: bytes) -> Document | None:
    """Return what the first format of plans gives that the text is of; None where it is of none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    for each in PLANS:
        if (not each.marks or names(data, each.marks)) and each.also in data and each.recogniser.recognise(text):
            found: Document = each.reader.read(path, text)
            return found
    return None


def _configuration(path: str, data: bytes) -> Document | None:
    """Return what the first format gives that the file is of; None where it is of none."""
    shown = named(condensed(path, data), MARKS)
    lines = _as_lines(path, data)
    for each in CONFIGURATIONS:
        if not shown.isdisjoint(each.marks) and each.also in data:
            if not each.recogniser.recognise(path, lines):
                continue
            try:
                found: Document | None = each.reader.read(path, data)
            except ReadError:
                if _is_of_other_language(path):
                    continue
                raise
            if found is not None:
                return found
    return None if not shown.isdisjoint(NAMES_MEGATRON) else _composed(path, data, lines)


def _is_of_other_language(path: str) -> bool:
    """Return whether the ending of the name is that of no language which configurations are written in: what cannot be read as
    one of those is none.
    """
    ending = os.path.splitext(path.lower())[1]
    return ending not in ("", *SHELL_NAMES, *YAML_NAMES, ".py", ".toml")


def _as_lines(path: str, data: bytes) -> bytes:
    """Return the content with one kind of newline, to look for what stands at the start of a line."""
    if not path.lower().endswith(YAML_NAMES) or (data.isascii() and b"\r" not in data):
        return data
    return OTHER_NEWLINES.sub(b"\n", data)


def _composed(path: str, data: bytes, lines: bytes) -> Document | None:
    """Return the configuration that other files give, all that this one does is to name them."""
    if not path.endswith((".yaml", ".yml")) or not COMPOSED.search(lines):
        return None
    from tvlint.readers.megatron import model_args_yaml

    try:
        return model_args_yaml.read(path, data) if model_args_yaml.recognise(path, lines) else None
    except ReadError:
        return None
