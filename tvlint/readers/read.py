"""The one entrance to the readers: what a file is, is told by its content."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.opening import content
from tvlint.ir.location import Location
from tvlint.readers.document import NOTHING, Document, ReadError

if TYPE_CHECKING:
    from tvlint.ir.plan import Plan
    from tvlint.ops.declared import Declared

LARGEST = 4 << 30
COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
GENERATED_FILE = re.compile(r"gencode\d+\.py", re.ASCII)
NAMES_GENERATED = b"nnscaler.runtime.module.ParallelModule"
OPENS_OLD_PICKLE = (b"(", b"]", b"}", b"c")
OPENS_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
NAMES_MEGATRON = re.compile(
    rb"MODEL_ARGS|model[-_]parallel[-_]size|context[-_]parallel[-_]size|sequence[-_]parallel|"
    rb"num[-_]attention[-_]heads|(?:micro|global)[-_]batch[-_]size|(?:tensor|pipeline)_parallelism"
)

NAMES_DEEPSPEED = re.compile(rb"pipe[-_]parallel[-_]size|\"(?:train_micro_batch_size_per_gpu|zero_)")
NAMES_NNSCALER = b"plan_ngpus"
COMPOSED = re.compile(rb"^(?:defaults|extends|modules):", re.MULTILINE)


def read(path: str, data: bytes | None = None, operators: tuple[Declared, ...] = ()) -> Document | None:
    """The content of the file at `path`; None where it is nothing that tvlint reads, and no launch that it should.

    `data` is the file's content where the caller already has it; `operators` are those that the project declares. Raises
    ReadError for a file that is of a kind that tvlint reads and cannot be read as such, and for one that cannot be opened.
    """
    if data is None:
        _follow(path)
    if data is None and os.path.isdir(path):
        return _generated_folder(path, operators)
    data = _content(path) if data is None else data
    if NAMES_GENERATED in data and GENERATED_FILE.fullmatch(os.path.basename(path)):
        return _generated_folder(os.path.dirname(path) or os.curdir, operators)
    found = _file(path, data)
    if found is None:
        return _not_followed(path, data)
    return found if found.plan is None else _with_operators(found, found.plan, operators)


def _not_followed(path: str, data: bytes) -> Document | None:
    """The text that passes options of Megatron although no reader follows it; None for any other.

    Raises ReadError for one that would be a configuration were it not broken.
    """
    from tvlint.readers.malformed import is_telling, refuse_malformed

    if is_telling(data):
        refuse_malformed(path, data)
    if not NAMES_MEGATRON.search(data):
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
    """The document with its plan as the project means it. Raises ReadError where the file itself declares operators."""
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
    """The document with the version of the source tree that it lies in, where its configurations do not say theirs."""
    if document is None or not document.configurations:
        return document
    from tvlint.readers.megatron.source_tree_version import with_version_of_tree

    return replace(document, configurations=with_version_of_tree(document.configurations))


def _generated_folder(path: str, operators: tuple[Declared, ...]) -> Document:
    """The plan that the generated code in a folder is."""
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
    """The plan in a pickle, or what is unsafe about a pickle that is none."""
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
    json = OPENS_JSON.match(data) is not None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if json:
        from tvlint.readers.plan_json import reader as plan_json

        return plan_json.read(path, text) if plan_json.recognise(text) else None
    from tvlint.readers.plan_text import reader as plan_text

    if plan_text.recognise(text):
        return plan_text.read(path, text)
    from tvlint.readers import schedule_csv

    return schedule_csv.read(path, text) if schedule_csv.recognise(text) else None


def _configuration(path: str, data: bytes) -> Document | None:
    if NAMES_NNSCALER in data:
        from tvlint.readers.nnscaler.trainer import reader as nnscaler_yaml

        if nnscaler_yaml.recognise(path, data) and (found := nnscaler_yaml.read(path, data)) is not None:
            return found
    if b"allowed_partition_dims" in data:
        from tvlint.readers.nnscaler.trainer import constraints as nnscaler_constraints

        if nnscaler_constraints.recognise(data) and (found := nnscaler_constraints.read(path, data)) is not None:
            return found
    if b'"spmd_descs"' in data:
        from tvlint.readers.nnscaler.trainer import autodist_against_graph as autodist_graph
        from tvlint.readers.nnscaler.trainer import autodist_plan

        if autodist_plan.recognise(data) and (found := autodist_plan.read(path, data)) is not None:
            return replace(found, findings=(*found.findings, *autodist_graph.misfits(path, data)))
    if NAMES_DEEPSPEED.search(data):
        from tvlint.readers.deepspeed import config_json as deepspeed_json
        from tvlint.readers.megatron import neox as neox_yaml

        if neox_yaml.recognise(path, data) and (found := neox_yaml.read(path, data)) is not None:
            return found
        if deepspeed_json.recognise(data) and (found := deepspeed_json.read(path, data)) is not None:
            return found
    if b"_parallel_degree" in data or b"data_parallel_shard_degree" in data:
        from tvlint.readers import torchtitan as torchtitan_toml

        if torchtitan_toml.recognise(data) and (found := torchtitan_toml.read(path, data)) is not None:
            return found
    if not NAMES_MEGATRON.search(data):
        return _composed(path, data)
    from tvlint.readers.megatron import launch_script as megatron_shell

    if megatron_shell.recognise(path, data):
        return megatron_shell.read(path, data)
    from tvlint.readers.recipe import reader as python_recipe

    if python_recipe.recognise(path, data):
        return python_recipe.read(path, data)
    return _megatron_yaml(path, data)


def _composed(path: str, data: bytes) -> Document | None:
    """The configuration that other files give, all that this one does is to name them."""
    if not path.endswith((".yaml", ".yml")) or not COMPOSED.search(data):
        return None
    try:
        return _megatron_yaml(path, data)
    except ReadError:
        return None


def _megatron_yaml(path: str, data: bytes) -> Document | None:
    from tvlint.readers.megatron import model_args_yaml as megatron_yaml

    return megatron_yaml.read(path, data) if megatron_yaml.recognise(path, data) else None
