"""What to do about errors that programs for GPUs meet where they run on a CPU."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

_LOCAL = "which needs a GPU: start Megatron with `--transformer-impl local`"
_PACKAGES: Mapping[str, str] = {
    "transformer_engine": f"this runs TransformerEngine, {_LOCAL}, and other programs with layers of torch",
    "transformer_engine_torch": f"this runs TransformerEngine, {_LOCAL}, and other programs with layers of torch",
    "apex": f"this runs Apex, {_LOCAL} and `--no-gradient-accumulation-fusion`, and other programs with what torch has for it",
    "triton": "this starts a kernel of Triton, which needs a GPU: let the program compute it with operators of torch on a CPU",
}
"""What to do where an error comes from a package that only runs on GPUs."""


class KernelError(RuntimeError):
    """A kernel of Triton is launched."""


def advice(error: BaseException, environment: Mapping[str, str], replaced: Sequence[str]) -> str:
    """Return what to do about an error, from its packages, the variables that it names and what capture replaced."""
    known = next((_PACKAGES[name] for name in _packages(error) if name in _PACKAGES), "")
    if known:
        return known
    if isinstance(error, ImportError) and _is_of_python(error):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"Python {version} does not have it: capture with the Python that the program asks for"
    if isinstance(error, ImportError):
        return "install it beside tvlint, or choose an implementation that does without it"
    words = set(re.findall(r"\w+", str(error)))
    for name in sorted(words):
        if "_" in name and name in environment:
            return f"`{name}` is `{environment[name]}` here: give it another value in front of the launch"
    cause = next((each for each in replaced if words & _named(each)), "")
    if cause:
        return f"it is captured with {cause}: leave out of the launch what needs that"
    if re.search(r"cuda|nvcc|nccl|triton", str(error), re.IGNORECASE):
        return "this needs a GPU: choose an implementation that runs on the CPU"
    layers = next((each for each in replaced if each.startswith("`--transformer-impl ")), "")
    is_refused = isinstance(error, AssertionError | ValueError | NotImplementedError)
    if layers and is_refused and re.search(r"support|\bTE([A-Z]|\b)|[Tt]ransformer.?[Ee]ngine", str(error)):
        return f"it is captured with {layers}: if it is about that, leave out of the launch what only TransformerEngine has"
    return "run the program by itself on the CPU to see more"


def is_left_waiting(error: BaseException) -> bool:
    """Return whether a rank has waited in vain for what another one sends or joins: gloo says so in words alone."""
    return re.search(r"gloo.*Timed out waiting \d+ms for (recv|send) operation", str(error), re.DOTALL) is not None


def ending(code: int) -> str:
    """Return how a process ended that left no error; a negative code is a signal."""
    if code >= 0:
        return f"ended without a word, with code {code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else str(-code)
    return f"was ended by the signal {name}" + (", as by a system that runs out of memory" if -code == signal.SIGKILL else "")


def _is_of_python(error: ImportError) -> bool:
    """Return whether a name is missing in a module of Python itself."""
    return (error.name or "").partition(".")[0] in sys.stdlib_module_names


def _packages(error: BaseException) -> Iterator[str]:
    """Yield the packages that an error comes from: the one that is not there, and those whose code it went through."""
    if isinstance(error, ImportError) and error.name:
        yield error.name.partition(".")[0]
    if isinstance(error, KernelError):
        yield "triton"
    trace = error.__traceback__
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        trace = trace.tb_next


def _named(replaced: str) -> set[str]:
    """Return the argument that was replaced, as the parser and as the command line call it, from how that is listed."""
    name = replaced.split("`")[1].split()[0].lstrip("-") if replaced.startswith("`") else ""
    return {name, name.replace("-", "_")} - {""}
