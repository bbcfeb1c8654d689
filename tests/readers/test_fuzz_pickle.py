"""Whatever bytes a file holds, reading it gives a plan or a located error."""

from __future__ import annotations

import gzip
import resource
import sys

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.builders.nnscaler_pickles import dumps, small
from tvlint.findings import Problem
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.pickle.reader import FORMAT, read
from tvlint.readers.sources.decompress import decompress
from tvlint.readers.sources.inert_pickle import load
from tvlint.readers.sources.unsafe_pickle import unsafe_calls

SMALL = dumps(small().root)
NAMES = [
    b"os\nsystem\n",
    b"builtins\neval\n",
    b"nnscaler.ir.tensor\nIRSubTensor\n",
    b"collections\nOrderedDict\n",
    b"numpy\ndtype\n",
]
OPCODES = [bytes([code]) for code in b"(.012FINQRbaceghjldoitpqrsu}GKMJLUVX]\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94"]
PIECES = st.one_of(
    st.sampled_from(OPCODES),
    st.sampled_from(NAMES).map(lambda name: b"c" + name),
    st.binary(max_size=8).map(lambda raw: b"\x8c" + bytes([len(raw)]) + raw),
    st.integers(0, 20).map(lambda number: b"K" + bytes([number])),
    st.integers(0, 9).map(lambda number: b"h" + bytes([number])),
)
FEW = settings(max_examples=150, suppress_health_check=list(HealthCheck))


def problem_of(data: bytes) -> Problem | None:
    """What is wrong with a file; None when it is a plan."""
    try:
        document = read("plan.pkl", data)
    except ReadError as error:
        return error.problem
    assert document.format == FORMAT
    assert document.plan is not None
    return None


def survives(data: bytes) -> None:
    """Reading `data` ends in a plan or in a located error, and leaves the process as it was."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    modules = set(sys.modules)
    problem = problem_of(data)
    if problem is not None:
        assert problem.location.path
        assert problem.message.encode()
        assert "\n" not in problem.message
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert {
        name for name in set(sys.modules) - modules if name.partition(".")[0] not in ("tvlint", "zstandard", "cffi")
    } == set()


@FEW
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    survives(data)
    survives(b"\x80\x04" + data)


@FEW
@given(st.lists(PIECES, max_size=40))
@example([b"cos\nsystem\n", b")", b"R"])
def test_any_opcodes(pieces: list[bytes]) -> None:
    data = b"\x80\x04" + b"".join(pieces) + b"."
    survives(data)
    try:
        loaded = load(data, "plan.pkl")
    except ReadError:
        return
    assert all(finding.rule == "unsafe-pickle" for finding in unsafe_calls(loaded, "plan.pkl"))


@FEW
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_plan_with_bytes_changed(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for position, value in changes:
        data[position] = value
    survives(bytes(data))


@FEW
@given(st.integers(0, len(SMALL)), st.integers(0, len(SMALL)), st.integers(0, len(SMALL)))
def test_a_plan_with_a_part_moved(start: int, end: int, place: int) -> None:
    start, end = sorted((start, end))
    rest = SMALL[:start] + SMALL[end:]
    place = min(place, len(rest))
    survives(rest[:place] + SMALL[start:end] + rest[place:])


@FEW
@given(st.sampled_from([b"\xfd7zXZ\x00", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"]), st.binary(max_size=100))
def test_any_bytes_that_begin_like_packed_data(magic: bytes, rest: bytes) -> None:
    survives(magic + rest)


@FEW
@given(st.integers(10, 400), st.integers(1, 255))
def test_packed_data_with_a_byte_changed(position: int, flip: int) -> None:
    packed = bytearray(gzip.compress(SMALL, mtime=0))
    packed[position] ^= flip
    try:
        unpacked = decompress(bytes(packed), "plan.pkl")
    except ReadError as error:
        unpacked = SMALL if "gzip" in error.problem.message else b""
    assert unpacked == SMALL
