"""Published facts: how many tokens tokenizers have, and how much memory accelerators have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvlint.ir.configuration import Configuration, Setting

GIB = 2**30
_TOKENS: Mapping[str, int] = {
    "meta-llama/Llama-2-7b-hf": 32000,
    "meta-llama/Llama-2-13b-hf": 32000,
    "meta-llama/Llama-2-70b-hf": 32000,
    "meta-llama/Meta-Llama-3-8B": 128256,
    "meta-llama/Meta-Llama-3-70B": 128256,
    "meta-llama/Meta-Llama-3.1-8B": 128256,
    "meta-llama/Llama-3.1-8B": 128256,
    "meta-llama/Llama-3.1-70B": 128256,
    "meta-llama/Llama-3.1-405B": 128256,
    "meta-llama/Llama-3.2-1B": 128256,
    "meta-llama/Llama-3.2-3B": 128256,
    "meta-llama/Llama-3.3-70B": 128256,
    "mistralai/Mistral-7B-v0.1": 32000,
    "mistralai/Mistral-7B-v0.3": 32768,
    "mistralai/Mixtral-8x7B-v0.1": 32000,
    "Qwen/Qwen2-0.5B": 151646,
    "Qwen/Qwen2-1.5B": 151646,
    "Qwen/Qwen2-7B": 151646,
    "Qwen/Qwen2-72B": 151646,
    "Qwen/Qwen2.5-0.5B": 151665,
    "Qwen/Qwen2.5-1.5B": 151665,
    "Qwen/Qwen2.5-3B": 151665,
    "Qwen/Qwen2.5-7B": 151665,
    "Qwen/Qwen2.5-14B": 151665,
    "Qwen/Qwen2.5-32B": 151665,
    "Qwen/Qwen2.5-72B": 151665,
    "Qwen/Qwen3-0.6B": 151669,
    "Qwen/Qwen3-1.7B": 151669,
    "Qwen/Qwen3-4B": 151669,
    "Qwen/Qwen3-8B": 151669,
    "Qwen/Qwen3-14B": 151669,
    "Qwen/Qwen3-32B": 151669,
    "Qwen/Qwen3-30B-A3B": 151669,
    "Qwen/Qwen3-235B-A22B": 151669,
}
"""The length of the tokenizer that each repository publishes (`tokenizer.json`: the vocabulary and the tokens added to it),
which Megatron pads (megatron/core/tokenizers/text/libraries/huggingface_tokenizer.py:343)."""
VOCABULARIES = (32_000, 262_144)
"""Between these lie the vocabularies of published models, Llama 2 to Gemma 3; where none is known, it is taken to lie there."""
_GPT2 = 50257
"""The byte pairs of GPT-2: 256 bytes, 50,000 merges and the end of a text."""
_TIKTOKEN = 2**17
"""Megatron's default (megatron/core/tokenizers/text/libraries/tiktoken_tokenizer.py:24)."""
_MEMORY: Mapping[str, int] = {
    "H100": 80,
    "H200": 141,
    "H800": 80,
    "L40S": 48,
    "MI300X": 192,
    "MI325X": 256,
}
"""Gigabytes by the data sheets of the vendors. What is two devices for a program (MI250X) has to be named by its size."""
_SIZES: Mapping[str, tuple[int, ...]] = {
    "A100": (40, 80),
    "A800": (40, 80),
    "H20": (96, 141),
    "GH200": (96, 144),
    "B200": (180, 192),
}
"""What is sold with several sizes under one name."""
_VARIANT = re.compile(r"-(?:Instruct|chat)(?=-|$)")
_SIZE = re.compile(r"(\d{1,5}(?:\.\d{1,2})?)G(?:I?B)?")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator as it was named, and the bytes of its memory."""

    name: str
    memory: int


def accelerator(text: str) -> Accelerator | None:
    """Return the accelerator of a name (`H100`, `A100-80GB`) or size (`80GB`); None for what is neither.

    Gigabytes are taken as binary.
    """
    plain = re.sub(r"\s+", "", text.upper())
    size = _SIZE.fullmatch(plain)
    named = dict(_MEMORY) | {f"{name}{each}GB": each for name, sizes in _SIZES.items() for each in sizes}
    memory = float(size[1]) if size is not None else named.get(re.sub("[-_]", "", plain))
    return Accelerator(text, int(memory * GIB)) if memory else None


def sizes_of(text: str) -> tuple[str, ...]:
    """Return the names of the accelerators that are sold under one name, such as `A100-40GB`; none of any other name."""
    return tuple(f"{text}-{size}GB" for size in _SIZES.get(text.upper(), ()))


def with_tokens(configuration: Configuration) -> tuple[Configuration, tuple[str, ...]]:
    """Return the configuration with the vocabulary of its published tokenizer where it gives none, and a note that says so."""
    settings = configuration.settings
    kind = settings.get("tokenizer_type")
    if configuration.framework != "megatron-lm" or kind is None or settings.keys() & {"vocab_size", "padded_vocab_size"}:
        return configuration, ()
    tokens, what = None, ""
    named = settings.get("tokenizer_model")
    if kind.value == "HuggingFaceTokenizer" and named is not None:
        tokens, what = _TOKENS.get(_VARIANT.sub("", str(named.value))), str(named.value)
    elif kind.value == "GPT2BPETokenizer":
        tokens, what = _GPT2, "the published vocabulary of GPT-2"
    elif kind.value == "TikTokenizer":
        tokens, what = _TIKTOKEN, "Megatron's default for `TikTokenizer`"
    if tokens is None:
        return configuration, ()
    given = Setting("vocab_size", tokens, "vocab_size", kind.location, kind.location)
    note = f"the vocabulary is taken to have {tokens:,} tokens: {what[:80]}"
    return replace(configuration, settings={**settings, "vocab_size": given}), (note,)
