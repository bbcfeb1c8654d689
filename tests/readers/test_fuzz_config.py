"""Whatever stands in a file, reading it gives a document, nothing, or a located error."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tvlint.ir.configuration import Configuration
from tvlint.readers.document import Document, ReadError
from tvlint.readers.megatron.launch_script import read as read_shell
from tvlint.readers.megatron.model_args_yaml import read as read_yaml
from tvlint.readers.read import read

SHELL = """
--tensor-model-parallel-size --num-layers --bf16 --cp-comm-type 8 $TP ${TP:-4} ${A[@]} "${A[@]}" $((TP*2)) $((1/0)) $1 $@ $(x)
TP=2 TP+=2 A=( A+=( ) ( { } ; ;; & && || | > < << EOF if then else elif fi for in do done while case esac * function f() eval -n
source . export torchrun python p.py ' " \\ # $ ${ $(( )) ` = == [ ] [[ ]] é 𝔸 \t \r \0 ! -z unset shift set -- ${!x} ${#x} exit
"""
YAML = """
MODEL_ARGS MODEL_ARGS_2 ENV_VARS --tensor-model-parallel-size --bf16 tensor_model_parallel_size sequence_parallel : - [ ] { } ,
&a *a << ! !!int | > ' " # --- ... ? 1e-5 010 1:30 yes ${x} $x true ~ é 𝔸 \t \r \0 % @ ` \x85 \u2028
"""
MANY = settings(max_examples=150)


def text_of(words: str) -> st.SearchStrategy[str]:
    separators = st.sampled_from([" ", "\n", "\n  ", "", " \\\n"])
    return st.lists(st.tuples(st.sampled_from(re.split("[ \n]+", words)), separators), max_size=40).map(
        lambda parts: "".join(word + separator for word, separator in parts)
    )


def sound(data: bytes, document: Document | None) -> None:
    """Every place of a document lies in the file."""
    if document is None:
        return
    lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    for configuration in document.configurations:
        in_file(configuration, lines)


def in_file(configuration: Configuration, lines: list[str]) -> None:
    for setting in (*configuration.settings.values(), *configuration.environment.values(), *configuration.overridden):
        for place in (setting.location, setting.name_location):
            assert place.line is not None
            assert place.column is not None
            assert 1 <= place.line <= len(lines)
            assert 1 <= place.column <= len(lines[place.line - 1]) + 2


def outcome(reader: Callable[[str, bytes], Document | None], data: bytes) -> Document | None:
    """What reading gives; nothing where it ends in a located error."""
    try:
        return reader("f", data)
    except ReadError as error:
        problem = error.problem
    assert problem.location.path == "f"
    return None


@MANY
@given(text_of(SHELL))
def test_shell_text(text: str) -> None:
    data = (text + "\npython p.py --tensor-model-parallel-size $TP\n").encode()
    sound(data, outcome(read_shell, data))


@MANY
@given(text_of(YAML))
def test_yaml_text(text: str) -> None:
    outcome(read_yaml, ("MODEL_ARGS:\n  --num-layers: 2\n" + text).encode())


@MANY
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"#!/bin/sh\n--num-layers --micro-batch-size ", b"MODEL_ARGS: ", b"\x80\x04", b"{", b"plan "]),
)
def test_any_bytes(data: bytes, start: bytes) -> None:
    document = outcome(read, start + data)
    assert document is None or document.path == "f"
