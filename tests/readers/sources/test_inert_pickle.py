"""The inert unpickler runs nothing, changes nothing and stays within its bounds, whatever the opcodes are."""

from __future__ import annotations

import copyreg
import gc
import gzip
import lzma
import pickle
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nnscaler_pickles import Called, Global, Object, dumps
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.readers.sources import inert_pickle
from tvlint.readers.sources.decompress import decompress
from tvlint.readers.sources.inert_objects import Record, global_name
from tvlint.readers.sources.inert_pickle import Call, load
from tvlint.readers.sources.unsafe_pickle import unsafe_calls

HEAD = b"\x80\x04"
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited by the system on Linux only")


def marker(path: Path) -> bytes:
    """A shell command that leaves a trace."""
    return f"touch {path}".encode()


CALLING = {
    "GLOBAL REDUCE": lambda command: b"cos\nsystem\n(S'" + command + b"'\ntR.",
    "STACK_GLOBAL REDUCE": lambda command: (
        HEAD + b"\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(command)]) + command + b"\x85R."
    ),
    "INST": lambda command: b"(S'" + command + b"'\nios\nsystem\n.",
    "OBJ": lambda command: b"(cos\nsystem\nS'" + command + b"'\no.",
    "NEWOBJ": lambda command: HEAD + b"csubprocess\nPopen\n\x8c" + bytes([len(command)]) + command + b"\x85\x81.",
    "NEWOBJ_EX": lambda command: HEAD + b"csubprocess\nPopen\n\x8c" + bytes([len(command)]) + command + b"\x85}\x92.",
    "BUILD": lambda command: HEAD + b"cbuiltins\neval\n)R}\x8c\x01x\x8c" + bytes([len(command)]) + command + b"sb.",
}


@pytest.mark.parametrize("opcodes", CALLING)
def test_no_opcode_calls_what_the_file_names(opcodes: str, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    loaded = load(CALLING[opcodes](marker(trace)), "plan.pkl")
    assert not trace.exists()
    found = list(unsafe_calls(loaded, "plan.pkl"))
    assert [finding.rule for finding in found] == ["unsafe-pickle"]
    assert any(name in found[0].message for name in ("os.system", "subprocess.Popen", "builtins.eval"))


def test_old_protocols_are_known_by_all_of_their_opcodes() -> None:
    command = b"(S'x'\nios\nsystem\n."
    found = read("a.pkl", command)
    assert found is not None
    assert ["os.system" in finding.message for finding in found.findings] == [True]
    for text in (b"cd launch\npython train.py.", b"(a list).", b"}.", b"(S'x'\nios\nsystem\n"):
        assert read("a.txt", text) is None


@pytest.mark.parametrize(
    "name",
    ["regex._regex.compile", "numpy.core.multiarray._reconstruct", "datetime.datetime", "collections.Counter", "uuid.UUID"],
)
def test_a_pickle_that_is_no_plan_may_hold_data_of_any_kind(name: str) -> None:
    assert read("tokenizer.pkl", dumps({"a": Called(name, ("x",))})) is None


@pytest.mark.parametrize(
    "name",
    [
        "posix.system", "builtins.exec", "builtins.breakpoint", "runpy.run_path", "torch.hub.load", "torch.load",
        "numpy.os.system", "io.open", "pickle.loads", "_pickle.loads", "_posixsubprocess.fork_exec", "pydoc.pipepager",
        "requests.get", "cProfile.run",
    ],
)  # fmt: skip
def test_a_pickle_that_is_no_plan_may_not_reach_more_than_its_data(name: str) -> None:
    for value in (Called(name, ("x",)), Global(name)):
        found = read("tokenizer.pkl", dumps({"a": value}))
        assert found is not None
        assert [name in finding.message for finding in found.findings] == [True]


def test_nothing_is_imported() -> None:
    name = "antigravity"
    assert name not in sys.modules
    load(dumps(Called(f"{name}.fly")), "plan.pkl")
    assert name not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["posix.system", "nt.system", "builtins.exec", "__builtin__.eval", "importlib.import_module", "runpy.run_path",
     "subprocess.check_output", "operator.methodcaller", "functools.partial", "torch.hub.load", "numpy.testing.runstring"],
)  # fmt: skip
def test_a_call_that_no_plan_needs_is_reported(name: str) -> None:
    found = list(unsafe_calls(load(dumps({"a": [Called(name, ("x",))]}), "plan.pkl"), "plan.pkl"))
    assert [name.replace("__builtin__", "builtins") in finding.message for finding in found] == [True]


@pytest.mark.parametrize(
    "value",
    [
        Global("my.model.Attention"),
        Object("my.model.Attention", {"training": True}),
        Object("torch.nn.modules.linear.Linear", {"bias": None}),
        Called("my.config.Mode", (1,)),
        Global("my.model.__dict__"),
        Called("collections.OrderedDict"),
        Called("dill._dill._create_function", (None,)),
        Called("dill._dill._create_namedtuple", ("Metadata", ("shape", "dtype"), "nnscaler.graph.tracer.metadata")),
        Called(
            "dill._dill._create_type",
            (Called("dill._dill._load_type", ("type",)), "Model", (Global("torch.nn.modules.module.Module"),), {"a": 1}),
        ),
    ],
)
def test_what_plans_hold_is_no_false_alarm(value: object) -> None:
    assert list(unsafe_calls(load(dumps(value), "plan.pkl"), "plan.pkl")) == []


@pytest.mark.parametrize(
    "value",
    [
        Called("dill._dill._create_namedtuple", ("system", ("a",), "os")),
        Called("dill._dill._create_namedtuple", (Global("os.system"), ("a",), "nnscaler.x")),
        Called("dill._dill._create_type", (Global("os.system"), "true", (), {})),
        Called("dill._dill._create_type", (Called("dill._dill._load_type", ("FunctionType",)), "f", (), {})),
        Called("collections.namedtuple", ("a", "b")),
    ],
)
def test_dill_is_trusted_with_making_classes_only(value: object) -> None:
    assert len(list(unsafe_calls(load(dumps(value), "plan.pkl"), "plan.pkl"))) == 1


def test_calling_what_a_lookup_returned_is_told_from_calling_anything_else() -> None:
    data = HEAD + b"cbuiltins\ngetattr\n)R)R."
    assert Call("builtins.getattr", "result called") in load(data, "plan.pkl").calls
    data = HEAD + b"cbuiltins\ngetattr\n(cdill\n_dill\nX\x08\0\0\0_setattrcbuiltins\nsetattr\ntR)R."
    assert list(unsafe_calls(load(data, "plan.pkl"), "plan.pkl")) == []
    data = HEAD + b"cbuiltins\ngetattr\n(ctorch\nos\nX\x06\0\0\0systemtR)R."
    assert Call("torch.os.system", "called") in load(data, "plan.pkl").calls
    data = HEAD + b"cbuiltins\ngetattr\n(cdill\n_dill\nX\x08\0\0\0_setattrcos\nsystem\ntR)R."
    assert ["os.system" in found.message for found in unsafe_calls(load(data, "plan.pkl"), "plan.pkl")] == [True]
    found = list(unsafe_calls(load(HEAD + b"cnumpy\ndtype\n)R)R.", "plan.pkl"), "plan.pkl"))
    assert ["returns" in finding.message for finding in found] == [True]


def test_records_keep_their_attributes_and_scalars_become_numbers() -> None:
    state = (3, "<", None, None, None, -1, -1, 0)
    eight = Called("numpy._core.multiarray.scalar", (Called("numpy.dtype", ("i8", False, True), state), struct.pack("<q", -8)))
    half = Called("numpy.core.multiarray.scalar", (Called("numpy.dtype", ("f8", False, True), state), struct.pack("<d", 0.5)))
    root: Any = load(dumps(Object("nnscaler.x.Thing", {"a": eight, "b": half})), "plan.pkl", ("nnscaler.",)).root
    assert isinstance(root, Record)
    assert root.__dict__ == {"a": -8, "b": 0.5}
    assert global_name(root) == "nnscaler.x.Thing"


def test_a_record_built_twice_shares_no_attributes_with_another() -> None:
    one, other = b"cnnscaler.x\nThing\n)\x81q\x01", b"cnnscaler.x\nThing\n)\x81q\x02"
    shared = HEAD + one + b"}q\x03U\x01aK\x01sb" + other + b"h\x03b}U\x01bK\x02sbh\x01\x86."
    second, first = (loaded := load(shared, "plan.pkl", ("nnscaler.",)).root)
    assert isinstance(loaded, tuple)
    assert (first.__dict__, second.__dict__) == ({"a": 1}, {"a": 1, "b": 2})


def test_a_state_that_the_file_changes_later_does_not_change_the_record() -> None:
    data = HEAD + b"cnnscaler.x\nThing\n)\x81q\x01}q\x02U\x01aK\x01sbh\x02U\x01aK\x02s0h\x01."
    root: Any = load(data, "plan.pkl", ("nnscaler.",)).root
    assert root.__dict__ == {"a": 1}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Called("builtins.setattr", (Object("nnscaler.x.Thing", {"a": 1}), "a", 2)), "builtins.setattr"),
        (Called("dill._dill._setattr", (Object("nnscaler.x.Thing", {"a": 1}), "a", 2)), "dill._dill._setattr"),
        (Called("builtins.setattr", (Called("collections.OrderedDict", ()), "a", 2)), "builtins.setattr"),
        (Called("builtins.getattr", (Object("nnscaler.x.Thing", {"a": 1}), "a")), "builtins.getattr"),
        (Called("collections.OrderedDict", ([("a", 1)],)), "collections.OrderedDict"),
        (Called("nnscaler.x.Thing", (Object("nnscaler.x.Thing", {"a": 1}), "a")), "nnscaler.x.Thing"),
    ],
)
def test_what_a_normal_load_would_make_otherwise_is_told(value: object, told: str) -> None:
    (found,) = unsafe_calls(load(dumps(value), "plan.pkl", ("nnscaler.",)), "plan.pkl")
    assert found.message == f"loading this pickle makes another plan than it reads as by `{told}`, which no plan needs"


@pytest.mark.parametrize(
    "value",
    [
        Called("nnscaler.graph.function.dimops.DimAnno.ReduceType", ("+",)),
        Called("builtins.setattr", (Called("dill._dill._create_cell", (None,)), "cell_contents", 2)),
        Called("collections.OrderedDict", ()),
        Called("builtins.getattr", (Global("nnscaler.x.Thing"), "y", Global("nnscaler.x.Thing"))),
    ],
)
def test_what_a_normal_load_makes_alike_is_not_told(value: object) -> None:
    assert list(unsafe_calls(load(dumps(value), "plan.pkl", ("nnscaler.",)), "plan.pkl")) == []


def test_the_slots_of_a_record_are_attributes_too() -> None:
    root: Any = load(dumps(Object("nnscaler.x.Thing", ({"a": 1}, {"b": 2}))), "plan.pkl", ("nnscaler.",)).root
    assert root.__dict__ == {"a": 1, "b": 2}
    with pytest.raises(ReadError, match="not a dictionary"):
        load(dumps(Object("nnscaler.x.Thing", 3)), "plan.pkl", ("nnscaler.",))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (1, 2),
        (Called("numpy.dtype", ("O8",)), b"x"),
        (Called("numpy.dtype", ("i8",)), b"x"),
        (Called("numpy.dtype"), b"12345678"),
    ],
)
def test_a_numpy_scalar_that_is_none_is_an_error(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ReadError):
        load(dumps(Called("numpy.core.multiarray.scalar", arguments)), "plan.pkl")


BROKEN = {
    "empty": b"",
    "not a pickle": b"hello world, this is text",
    "no STOP": HEAD + b"N",
    "truncated": dumps({"a": list(range(50))})[:-9],
    "trailing": HEAD + b"N.N.",
    "empty stack": HEAD + b".",
    "memo": HEAD + b"h\x05.",
    "persistent id": HEAD + b"Pid\n.",
    "binary persistent id": HEAD + b"NQ.",
    "buffer": b"\x80\x05\x97.",
    "protocol": b"\x80\x63N.",
    "unhashable key": HEAD + b"}]Ns.",
    "frame": HEAD + b"\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "class attribute": HEAD + b"cnnscaler\nX\nN}X\x01\x00\x00\x00aNs\x86b.",
    "class state": HEAD + b"cnnscaler\nX\n}X\x01\x00\x00\x00aNsb.",
    "opaque class state": HEAD + b"cfoo\nX\n}X\x01\x00\x00\x00aNsb.",
    "class items": HEAD + b"cfoo\nX\n]a.",
    "call of a record": HEAD + b"cnnscaler\nX\n)R)R.",
    "digits": HEAD + b"L" + b"9" * 100_000 + b"L\n.",
    "long name": dumps(Global("a." + "b" * 5000)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_one_whole_pickle_is_a_located_error(case: str) -> None:
    with pytest.raises(ReadError) as caught:
        load(BROKEN[case], "plan.pkl", ("nnscaler.",))
    assert caught.value.problem.location.path == "plan.pkl"
    assert "\n" not in caught.value.problem.message


@linux_only
@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Nr\xff\xff\xff\xff.",
        HEAD + b"\x96" + struct.pack("<Q", 64 << 30) + b"x.",
        HEAD + b"\x8e" + struct.pack("<Q", 64 << 30) + b"x.",
    ],
    ids=["LONG_BINPUT", "BYTEARRAY8", "BINBYTES8"],
)
def test_sizes_that_the_file_only_claims_are_not_allocated(data: bytes) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(ReadError) as caught:
        load(data, "plan.pkl")
    assert "memory" in caught.value.problem.message
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_memo_index_is_checked_where_memory_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "limits_memory", lambda: False)
    with pytest.raises(ReadError):
        load(HEAD + b"Nr\xff\xff\xff\x7f.", "plan.pkl")
    assert load(dumps([1, 2]), "plan.pkl").root == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b")" + b"\x85" * 300_000 + b".",
        HEAD + b"})" + b"\x85" * 300_000 + b"Ns.",
        HEAD + b"]" * 300_000 + b"a" * 299_999 + b".",
        HEAD + b"}" + b"N}" * 300_000 + b"s" * 300_000 + b".",
        HEAD + b"cnnscaler\nX\n)\x81" * 100_000 + b"0" * 99_999 + b".",
    ],
    ids=["tuples", "tuples as a key", "lists", "dictionaries", "records"],
)
def test_deep_nesting_is_loaded_and_freed(data: bytes) -> None:
    loaded = load(data, "plan.pkl", ("nnscaler.",))
    assert loaded.calls == ()
    del loaded
    gc.collect()


def test_more_nesting_than_any_stack_holds_is_refused() -> None:
    with pytest.raises(ReadError, match="tuples"):
        load(HEAD + b"})" + b"\x85" * 20_000_000 + b"Ns.", "plan.pkl")


def test_extension_codes_are_errors_even_when_registered() -> None:
    copyreg.add_extension("os", "getcwd", 0x7001)
    try:
        with pytest.raises(ReadError):
            load(HEAD + b"\x83\x01\x70)R.", "plan.pkl")
        assert pickle.loads(HEAD + b"\x83\x01\x70.").__name__ == "getcwd"
        with pytest.raises(ReadError):
            load(HEAD + b"\x83\x01\x70)R.", "plan.pkl")
    finally:
        copyreg.remove_extension("os", "getcwd", 0x7001)


def test_a_file_cannot_change_how_later_files_load() -> None:
    slots = HEAD + b"cfoo\nX\n)\x81N}X\x07\x00\x00\x00tv_nameX\x01\x00\x00\x00zs\x86b."
    load(slots, "plan.pkl")
    assert global_name(load(dumps(Object("foo.X")), "plan.pkl").root) == "foo.X"


def test_the_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    for data in (dumps([1]), b""):
        with suppress(ReadError):
            load(data, "plan.pkl")
        assert gc.isenabled()


def _zstd(data: bytes) -> bytes:
    import zstandard

    return bytes(zstandard.ZstdCompressor().compress(data))


PACKERS = {"xz": lzma.compress, "gzip": gzip.compress, "zstd": _zstd}


@pytest.mark.parametrize("kind", PACKERS)
def test_packed_data_are_known_by_content(kind: str) -> None:
    data = bytes(range(256)) * 4000
    packed = PACKERS[kind](data)
    assert decompress(packed, "a.txt") == data
    assert decompress(packed + packed, "a.txt") == data * 2
    assert decompress(data, "a.xz") == data


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("cut", [7, 40, -30, -1])
def test_truncated_packed_data_are_an_error(kind: str, cut: int) -> None:
    packed = PACKERS[kind](bytes(range(256)) * 40)
    with pytest.raises(ReadError, match=kind):
        decompress(packed[:cut], "a.xz")


@pytest.mark.parametrize("kind", PACKERS)
def test_corrupt_packed_data_are_an_error_or_other_data(kind: str) -> None:
    packed = bytearray(PACKERS[kind](b"abc" * 1000))
    packed[len(packed) // 2] ^= 0xFF
    packed[0:4] = PACKERS[kind](b"")[0:4]
    try:
        unpacked = decompress(bytes(packed), "a.xz")
    except ReadError as error:
        unpacked = error.problem.message.encode()
    assert unpacked != b"abc" * 1000


@pytest.mark.heavy
@pytest.mark.parametrize("kind", PACKERS)
def test_a_decompression_bomb_is_refused(kind: str) -> None:
    packed = PACKERS[kind](bytes(80 << 20))
    with pytest.raises(ReadError, match="unpacks to more than"):
        decompress(packed, "a.xz")
