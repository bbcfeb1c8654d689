"""Names that a pickled plan has no use for, and that a normal load would call."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.readers.sources.inert_pickle import Loaded

RULE = "unsafe-pickle"

_EXPECTED = frozenset(
    {
        "builtins.bytearray",
        "builtins.complex",
        "builtins.dict",
        "builtins.frozenset",
        "builtins.getattr",
        "builtins.list",
        "builtins.object",
        "builtins.range",
        "builtins.set",
        "builtins.setattr",
        "builtins.slice",
        "builtins.tuple",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "copyreg._reconstructor",
        "dill._dill._create_cell",
        "dill._dill._create_code",
        "dill._dill._create_function",
        "dill._dill._load_type",
        "dill._dill._setattr",
        "numpy.dtype",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray.scalar",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_tensor_v2",
        "torch.storage._load_from_bytes",
    }
)
"""What nnScaler, dill, numpy and torch write themselves."""

_RESULTS = frozenset({"dill._dill._load_type"})
"""Calls whose result is called in ordinary plans."""

_REACHES = frozenset({
    "_posixsubprocess", "asyncio", "bdb", "cProfile", "code", "codeop", "commands", "ctypes", "ftplib", "http", "hub", "imp",
    "importlib", "marshal", "multiprocessing", "nt", "os", "pdb", "pip", "pkgutil", "posix", "pty", "pydoc", "requests",
    "runpy", "shutil", "smtplib", "socket", "subprocess", "sys", "timeit", "urllib", "webbrowser", "zipimport",
    "_io.FileIO", "_io.open", "_pickle.load", "_pickle.loads", "builtins.__import__", "builtins.breakpoint", "builtins.compile",
    "builtins.eval", "builtins.exec", "builtins.open", "codecs.open", "io.FileIO", "io.open", "operator.attrgetter",
    "operator.methodcaller", "pickle.load", "pickle.loads", "profile.run", "torch.load", "torch.serialization.load",
    "types.CodeType", "types.FunctionType",
})  # fmt: skip
"""Modules and functions by which Python runs code, and reaches other programs, files and machines."""


def unsafe_calls(loaded: Loaded, path: str) -> Iterator[Finding]:
    """Yield one finding for every name that a normal load of the pickle would call and that no plan needs."""
    for call in loaded.calls:
        if call.how == "built":
            harmful = _standard_library(call.name) and call.name not in _EXPECTED
        elif call.how == "called":
            harmful = call.name not in _EXPECTED and not _class_of_a_model(call.name)
        else:
            harmful = call.how == "read otherwise" or call.name not in _RESULTS
        if harmful:
            said = f"{_SAID.get(call.how, 'calls')} `{call.name}`{' returns' * (call.how == 'result called')}"
            yield Finding(
                RULE,
                Severity.ERROR,
                f"loading this pickle {said}, which no plan needs",
                Location(path),
                _HELP,
            )


def names_of_the_system(loaded: Loaded, path: str) -> Iterator[Finding]:
    """Yield one finding for every name of a pickle that is no plan by which it would reach more than its own data."""
    for name in dict.fromkeys((*loaded.names, *(call.name for call in loaded.calls))):
        if name in _REACHES or not _REACHES.isdisjoint(name.split(".")[:-1]):
            message = f"loading this pickle may call `{name}`, which no data need"
            yield Finding(RULE, Severity.ERROR, message, Location(path), _HELP)


_HELP = "do not load this file with pickle, dill or torch; find out who wrote it"
_SAID = {"result called": "calls what", "read otherwise": "makes another plan than it reads as by"}


def _standard_library(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _class_of_a_model(name: str) -> bool:
    """Return whether a name reads as a class that is not Python's own: enumerations are pickled by calling them."""
    return not _standard_library(name) and name.rpartition(".")[2].lstrip("_")[:1].isupper()
