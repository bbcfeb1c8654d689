"""What a failed capture tells to do: by the package that an error comes from, variables that it names, what was replaced."""

from __future__ import annotations

import types

import pytest

from tvlint.capture.failures import KernelError, advice, ending, is_left_waiting

LOCAL = "`--transformer-impl transformer_engine` replaced by `local`"


def raised_in(module: str, error: Exception) -> Exception:
    """Return the error as code of the module raises it."""
    made = types.ModuleType(module)
    made.__dict__["error"] = error
    exec("def fail():\n    raise error\n", made.__dict__)
    try:
        made.__dict__["fail"]()
    except Exception as caught:
        return caught
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named", name="transformer_engine.pytorch"), "`--transformer-impl local`"),
        (ModuleNotFoundError("No module named", name="apex"), "`--no-gradient-accumulation-fusion`"),
        (ModuleNotFoundError("No module named", name="einops"), "install it beside tvlint"),
        (ImportError("cannot import name 'override' from 'typing'", name="typing"), "the Python that the program asks for"),
        (raised_in("transformer_engine.pytorch.module", RuntimeError("no device")), "`--transformer-impl local`"),
        (raised_in("triton.runtime", RuntimeError("0 active drivers ([])")), "operators of torch"),
        (KernelError("the kernel `double` of Triton"), "operators of torch"),
        (raised_in("train", RuntimeError("0 active drivers ([])")), "run the program by itself"),
        (AssertionError("Torch not compiled with CUDA enabled"), "needs a GPU"),
        (OSError("CUDA_HOME environment variable is not set"), "needs a GPU"),
    ],
)
def test_an_error_of_a_package_for_gpus_tells_what_does_without_it(error: Exception, words: str) -> None:
    assert words in advice(error, {}, ())


def test_a_variable_that_an_error_names_is_no_gpu() -> None:
    error = AssertionError("tensor parallelism requires CUDA_DEVICE_MAX_CONNECTIONS to be 1")
    text = advice(error, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, ())
    assert text == "`CUDA_DEVICE_MAX_CONNECTIONS` is `32` here: give it another value in front of the launch"
    assert "needs a GPU" in advice(error, {}, ())


def test_an_error_about_what_was_replaced_names_it() -> None:
    replaced = (LOCAL, "`bf16` switched off", "`--optimizer muon` replaced by `adam`")
    text = advice(AssertionError("only supported with bf16 or fp16 model"), {}, replaced)
    assert text == "it is captured with `bf16` switched off: leave out of the launch what needs that"
    assert "captured with `--optimizer muon`" in advice(ValueError("--optimizer has to be set"), {}, replaced)
    text = advice(AssertionError("zero_centered_gamma not supported by torch LayerNorm"), {}, replaced)
    assert text.startswith(f"it is captured with {LOCAL}: if it is about that")
    assert text.endswith("what only TransformerEngine has")
    text = advice(AssertionError("this block needs the transformer engine implementation"), {}, replaced)
    assert text.startswith(f"it is captured with {LOCAL}: if it is about that")


def test_a_process_that_leaves_no_error_says_how_it_ended() -> None:
    assert ending(-11) == "was ended by the signal SIGSEGV"
    assert ending(-9) == "was ended by the signal SIGKILL, as by a system that runs out of memory"
    assert ending(-99) == "was ended by the signal 99"
    assert ending(3) == "ended without a word, with code 3"


@pytest.mark.parametrize(
    "error",
    [
        TypeError("'<' not supported between instances of 'int' and 'NoneType'"),
        AssertionError("Invalid choices for recompute_modules"),
        RuntimeError("world_size (8) is not divisible by 16"),
    ],
)
def test_an_error_of_something_else_does_not_name_the_layers(error: Exception) -> None:
    assert advice(error, {}, (LOCAL,)) == "run the program by itself on the CPU to see more"


def test_a_rank_that_waits_in_vain_is_known_by_the_words_of_gloo() -> None:
    place = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78]"
    assert is_left_waiting(RuntimeError(f"{place} Timed out waiting 600000ms for recv operation to complete"))
    assert not is_left_waiting(RuntimeError(f"{place} Connection closed by peer [127.0.0.1]:1234"))
    assert not is_left_waiting(RuntimeError("Timed out waiting for data"))
