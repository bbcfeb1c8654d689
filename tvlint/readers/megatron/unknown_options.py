"""Options that the parser of a launch does not have."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.core_defaults import CANONICAL
from tvlint.frameworks.kin import parses_like_megatron
from tvlint.frameworks.megatron import (
    flags,
    fork_flags,
    hyphens,
    is_flag,
    is_of_fork,
    is_option,
    later_names,
    option,
    option_of,
)
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.near_names import distance
from tvlint.readers.megatron.parser_source import OF_MEGATRON as ARGUMENTS
from tvlint.readers.megatron.parser_source import ParserSource

LONGEST = 80
OF_MEGATRON = Pattern(r"pretrain_\w+\.py")
"""Names of Megatron's own programs and of those that are made after them."""
LONGER = {"fork": (22, 22), "like": (14, 22), "megatron": (5, 22), "source": (5, 12)}
"""Lengths from which one, and from which two letters may differ, by how much is known of the parser: that it is of a framework
which runs Megatron core, is like Megatron's, is Megatron's, or its source. Shorter names have neighbours that mean something
else."""
JOINED = Pattern(r"(--[a-z][a-z_-]*[a-z])\d[\d.e-]+")
"""An option and a number without a blank between them."""
DOUBLED = Pattern(r"([a-z])\1+")
REPEATED = Pattern(r"([a-z\d])\1+")
FEWEST = 8
"""From so many options of Megatron on, among few others, a program whose source is not there takes Megatron's."""
SIZES = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--micro-batch-size",
    "--global-batch-size",
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--num-query-groups",
    "--seq-length",
    "--max-position-embeddings",
)
"""Options that almost every launch gives, under this name; one that is short for it stands in its place."""
FILLER = frozenset({"model", "size", "degree", "use", "enable"})
"""Words that an option is often remembered with or without."""
SURELY_LONG = 8
"""A longer name that Megatron has with two hyphens is, with one, no short option of any program."""
SHORTEST = 8
"""No shorter option is taken for another one."""
STEM = 4
"""Letters by which a word is known: `embedding` and `embeddings`, `grad` and `gradient`."""
NOTHING_ALIKE = "remove it, or have the program take it"
ALIKE = 0.6
"""From this share of words in common on, one name is taken for another."""
BEGINNING = 4
"""So many first letters, and half of a word, make a word the beginning of another."""
MOST_FLAGS = 10_000
MOST_UNKNOWN = 500
"""No section of Megatron's settings has so many names that are none of it."""
SAME_WORD = {
    "n": "num",
    "sequence": "seq",
    "len": "length",
    "dim": "size",
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "attn": "attention",
    "mlp": "ffn",
    "steps": "iters",
    "frequency": "interval",
}
ELSEWHERE = {
    "activation-checkpointing": "recompute-activations",
    "adam-weight-decay": "weight-decay",
    "batch-size-per-device": "micro-batch-size",
    "batch-size-per-gpu": "micro-batch-size",
    "beta1": "adam-beta1",
    "beta2": "adam-beta2",
    "bfloat16": "bf16",
    "block-size": "seq-length",
    "checkpoint-interval": "save-interval",
    "context-length": "seq-length",
    "d-model": "hidden-size",
    "dataset-path": "data-path",
    "effective-batch-size": "global-batch-size",
    "embed-dim": "hidden-size",
    "eval-every": "eval-interval",
    "eval-steps": "eval-interval",
    "experts-per-token": "moe-router-topk",
    "ffn-dim": "ffn-hidden-size",
    "flash-attention": "use-flash-attn",
    "gbs": "global-batch-size",
    "grad-clip": "clip-grad",
    "gradient-checkpointing": "recompute-activations",
    "gradient-clip-val": "clip-grad",
    "gradient-clipping": "clip-grad",
    "intermediate-size": "ffn-hidden-size",
    "kv-heads": "num-query-groups",
    "layer-norm-eps": "norm-epsilon",
    "learning-rate": "lr",
    "load-dir": "load",
    "local-batch-size": "micro-batch-size",
    "log-every": "log-interval",
    "logging-steps": "log-interval",
    "lr-schedule": "lr-decay-style",
    "lr-scheduler": "lr-decay-style",
    "lr-scheduler-type": "lr-decay-style",
    "max-grad-norm": "clip-grad",
    "max-length": "seq-length",
    "max-lr": "lr",
    "max-model-len": "max-position-embeddings",
    "max-seq-len": "seq-length",
    "max-steps": "train-iters",
    "mbs": "micro-batch-size",
    "mlp-hidden-size": "ffn-hidden-size",
    "moe-top-k": "moe-router-topk",
    "moe-topk": "moe-router-topk",
    "n-embd": "hidden-size",
    "n-experts": "num-experts",
    "n-head": "num-attention-heads",
    "n-heads": "num-attention-heads",
    "n-kv-heads": "num-query-groups",
    "n-layer": "num-layers",
    "n-layers": "num-layers",
    "n-positions": "max-position-embeddings",
    "n-routed-experts": "num-experts",
    "nlayers": "num-layers",
    "num-decoder-layers": "num-layers",
    "num-experts-per-tok": "moe-router-topk",
    "num-hidden-layers": "num-layers",
    "num-key-value-heads": "num-query-groups",
    "num-kv-heads": "num-query-groups",
    "num-local-experts": "num-experts",
    "num-train-steps": "train-iters",
    "num-warmup-steps": "lr-warmup-iters",
    "output-dir": "save",
    "per-device-train-batch-size": "micro-batch-size",
    "pipeline-stages": "pipeline-model-parallel-size",
    "resume-from": "load",
    "resume-from-checkpoint": "load",
    "rms-norm-eps": "norm-epsilon",
    "rope-base": "rotary-base",
    "rope-theta": "rotary-base",
    "save-dir": "save",
    "save-every": "save-interval",
    "save-steps": "save-interval",
    "seqlen": "seq-length",
    "top-k": "moe-router-topk",
    "total-batch-size": "global-batch-size",
    "train-batch-size": "global-batch-size",
    "train-batch-size-per-gpu": "micro-batch-size",
    "train-micro-batch-size-per-gpu": "micro-batch-size",
    "train-steps": "train-iters",
    "training-steps": "train-iters",
    "ubatch-size": "micro-batch-size",
    "use-bf16": "bf16",
    "warmup-ratio": "lr-warmup-fraction",
    "warmup-steps": "lr-warmup-iters",
    "wd": "weight-decay",
    "zero-1": "use-distributed-optimizer",
    **{
        f"{axis}{of}": option
        for axis, option in (
            ("tp", "tensor-model-parallel-size"),
            ("pp", "pipeline-model-parallel-size"),
            ("cp", "context-parallel-size"),
            ("ep", "expert-model-parallel-size"),
            ("etp", "expert-tensor-parallel-size"),
        )
        for of in ("", "-size", "-degree")
    },
}
"""What DeepSpeed, Hugging Face, nanoGPT and vLLM call options of Megatron."""


def unknown_options(
    configuration: Configuration, written: Sequence[Setting], program: str, parser: ParserSource | None
) -> Iterator[Finding]:
    """Yield a finding for each option that the program of the launch does not take.

    Where all of the source of `program` is there, that decides. Elsewhere options are left alone that may be those of a fork;
    errors are those that differ by a letter or two from one of Megatron's, by how its words are joined or put, and those that
    stand in the place of another.
    """
    if parser is not None and parser.closed:
        for setting in written:
            if setting.written not in parser.flags and not _abbreviates(setting.written, parser):
                yield _finding(setting, f"`{os.path.basename(parser.program)}`", nearest(setting.written, parser.flags))
        return
    if parser is not None and parser.is_packaged and not parser.is_own:
        yield from slips_of_options(written, parser)
        return
    given = frozenset(setting.written for setting in written)
    taken = parser.flags if parser is not None else frozenset()
    known = _known_of(configuration, given, program, parser)
    name = os.path.basename(program)
    families = _families_of_fork(given)
    is_around = is_listed_for(parser, given, program)
    is_of_parser = parser is not None and (parser.is_own or is_around) and not parser.abbreviates
    is_exact = OF_MEGATRON.fullmatch(name) or is_of_parser
    for setting in written:
        flag = setting.written
        if flag in taken:
            continue
        word = _renamed(flag, parser.naming) if parser is not None and parser.is_own else ""
        if not word and (is_flag(flag) or is_of_fork(flag)):
            continue
        if not word and parser is not None:
            word = _slip(flag, parser.naming) if parser.is_own else _joined(flag, taken) if is_around else ""
        if word:
            yield _finding(setting, f"`{name}`" if name else "Megatron", word)
            continue
        meant = _meant(flag) if known in ("megatron", "source") else ""
        if not meant and known in ("megatron", "source"):
            other = _elsewhere(flag) or _longer_by_a_word(flag)
            is_sure = known == "source" or other in SIZES or (other == _elsewhere(flag) and OF_MEGATRON.fullmatch(name))
            meant = other if is_sure else ""
        if meant not in SIZES and _family(flag) in families:
            continue
        near = "" if is_option(flag) else _spelled_like(flag, _option_near(hyphens(flag), known))
        near = near or _spelled_like(flag, _slip_of_any(hyphens(flag), taken))
        if near.startswith(flag) and not is_exact:
            continue
        if near:
            message = f"Megatron has no option `{flag[:LONGEST]}`"
            severity = Severity.NOTE if known == "fork" else Severity.ERROR
            help = f"did you mean `{near}`?"
            yield Finding("misspelled-option", severity, message, setting.name_location, help, fixes=(_fix(setting, near),))
        elif meant and meant not in given:
            yield _finding(setting, "Megatron", meant)


def slips_of_options(written: Sequence[Setting], parser: ParserSource) -> Iterator[Finding]:
    """Yield a finding for each option that one of the parser was meant by, which may take others that are not known."""
    given = {setting.written for setting in written}
    for setting in written:
        flag = setting.written
        if flag not in parser.flags and not _abbreviates(flag, parser):
            near = option_meant(flag, parser.flags, of_all_versions=parser.is_packaged)
            if near and near not in given:
                shown = f"`{os.path.basename(parser.program)}`" if parser.is_own else parser.program
                yield _finding(setting, shown, near, "unknown-option" if parser.is_own else "misspelled-option")


def option_meant(flag: str, known: frozenset[str], *, of_all_versions: bool = False) -> str:
    """Return the option that the flag is but for a slip, and of those of all versions of a program but for a word left out."""
    near = _slip(flag, known) or _plural(flag, known) or _inflected(flag, known)
    near = near or min(
        (name for name in known if _single(name) == _single(flag) or _letters(name) == _letters(flag)), default=""
    )
    near = near or (_longer(flag, known) if of_all_versions else "")
    joint, other = "-_" if "-" in flag[2:] else "_-"
    spelled = near[:2] + near[2:].replace(other, joint)
    return spelled if spelled in known else near


def _single(flag: str) -> str:
    """Return the flag without what is doubled in it."""
    return REPEATED.sub(r"\1", flag)


def _plural(flag: str, known: Container[str]) -> str:
    """Return the option that has a word of the flag in the plural, or in the singular; empty where there is none."""
    joint = "-" if "-" in flag[2:] else "_"
    words = flag[2:].split(joint)
    others = [word[:-1] if word.endswith("s") else f"{word}s" for word in words]
    changed = (joint.join((*words[:at], other, *words[at + 1 :])) for at, other in enumerate(others))
    return next((f"--{name}" for name in changed if f"--{name}" in known), "")


def _inflected(flag: str, known: Iterable[str]) -> str:
    """Return the option of the same words but for their ends (`--training_type` for `--train_type`); empty for several."""
    words = _split(flag)
    alike = (name for name in known if len(others := _split(name)) == len(words) and all(map(_is_inflected, words, others)))
    found = {name.replace("-", "_"): name for name in alike if len(words) > 1}
    return next(iter(found.values())) if len(found) == 1 else ""


def _is_inflected(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= STEM and short.isalpha() and long.isalpha() and long.startswith(short))


def _longer(flag: str, known: Iterable[str]) -> str:
    """Return the option that the flag is with one word left out; empty where there is none, or several."""
    words = _split(flag)
    found = {name.replace("-", "_"): name for name in known if _is_left_out(words, _split(name))}
    return next(iter(found.values())) if len(words) > 1 and len(found) == 1 else ""


def _is_left_out(words: Sequence[str], others: Sequence[str]) -> bool:
    return len(others) == len(words) + 1 and any([*others[:at], *others[at + 1 :]] == words for at in range(len(others)))


@lru_cache(MOST_FLAGS)
def _split(flag: str) -> list[str]:
    return flag[2:].replace("-", "_").split("_")


def unknown_short_options(
    configuration: Configuration, short: Iterable[Setting], program: str, parser: ParserSource | None
) -> Iterator[Finding]:
    """Yield a finding for each option with one hyphen that the program of the launch does not take.

    Where its source does not decide, those count that other frameworks call an option of Megatron by, of a program that surely
    has Megatron's parser.
    """
    given = frozenset(setting.written for setting in configuration.settings.values())
    known = _known_of(configuration, given, program, parser)
    is_sure = known == "source" or (known == "megatron" and OF_MEGATRON.fullmatch(os.path.basename(program)) is not None)
    for setting in short:
        flag = setting.written
        if parser is not None and _begins_with_a_short_option(flag, parser):
            continue
        near = f"-{flag}" if is_option(f"-{flag}") else _elsewhere(f"-{flag}")
        if parser is not None and parser.closed:
            yield _finding(setting, f"`{os.path.basename(parser.program)}`", near if near in parser.flags else "")
        elif near and near not in given and (is_sure or (is_option(f"-{flag}") and len(flag) > SURELY_LONG)):
            yield _finding(setting, "Megatron", near)


def _begins_with_a_short_option(flag: str, parser: ParserSource) -> bool:
    """Return whether the parser takes the flag for one of its options with one hyphen, and what follows for its value."""
    from tvlint.readers.megatron.declared_options import is_declared

    begins = [name for name in parser.flags if not name.startswith("--") and flag.startswith(name)]
    return any(not parser.naming.get(name) or is_declared(parser, name) for name in begins)


def misspelled_names(names: Sequence[tuple[str, Location]]) -> Iterator[Finding]:
    """Yield a warning for each name of a section that is a letter or two away from a setting that the section does not give.

    What a fork has as an option is left alone, and so are hyphens, which FlagScale takes for underscores. A section of very
    many other names is one that some program makes of its own.
    """
    given = {name for name, _ in names}
    flagged = ((name, place, hyphens(f"--{name}")) for name, place in names)
    unknown = [
        (name, place, flag)
        for name, place, flag in flagged
        if not (option_of(name) is not None or name in CANONICAL or is_option(flag) or is_of_fork(flag))
    ]
    for name, place, flag in unknown if len(unknown) <= MOST_UNKNOWN else ():
        near = _option_near(flag, "like") or _size_meant(flag)
        meant = known.dest if (known := option(near)) is not None else ""
        if meant and meant not in given:
            message = f"Megatron has no setting `{name[:LONGEST]}`"
            fix = Fix(f"write `{meant}`", (Edit(place, meant),))
            help = f"did you mean `{meant}`?"
            yield Finding("misspelled-option", Severity.WARNING, message, place, help, fixes=(fix,))


def is_listed_for(parser: ParserSource | None, given: frozenset[str], program: str) -> bool:
    """Return whether options that no program of the script takes are surely for the parser around it: it has almost all."""
    return parser is not None and not program and FEWEST * len(given - parser.flags) <= len(given)


def _known_of(configuration: Configuration, given: frozenset[str], program: str, parser: ParserSource | None) -> str:
    """Return how much is known of the parser, in the words of `LONGER`."""
    name = os.path.basename(program)
    if parser is not None and parser.is_own and parser.is_elsewhere:
        return "like"
    if not parses_like_megatron(configuration.framework):
        return "fork"
    if parser is not None and (parser.is_own or not name or OF_MEGATRON.match(name)):
        return "source"
    if program and not program.endswith(".py") and not program.startswith("megatron."):
        return "like"
    return "megatron" if parser is not None or _are_of_megatron(given) else "like"


def _families_of_fork(given: Iterable[str]) -> frozenset[str]:
    """Return the first words of options that are like none of Megatron's: other options of such a word are a fork's too, as
    `--wandb_entity` beside `--wandb_logger`.
    """
    others = (flag for flag in given if not (is_flag(flag) or _meant(flag) or _elsewhere(flag)))
    return frozenset(_family(flag) for flag in others if not _option_near(hyphens(flag), "like")) - {""}


def _family(flag: str) -> str:
    """Return the first word of a flag of several words that underscores join; empty for every other one."""
    return flag.partition("_")[0] if "_" in flag and "-" not in flag[2:] else ""


def _are_of_megatron(given: frozenset[str]) -> bool:
    """Return whether a program with these options surely has Megatron's parser."""
    known = sum(is_flag(flag) or is_of_fork(flag) for flag in given)
    return sum(map(is_flag, given)) >= FEWEST and known * 5 >= len(given) * 4


def _meant(flag: str) -> str:
    """Return the option of Megatron that the flag is another spelling of; empty where there is none, or several."""
    if is_option(flag):
        return hyphens(flag)
    for key in (flag[2:].replace("-", "").replace("_", ""), _stems(flag) if len(_words(flag)) > 1 else ""):
        meant = _spellings().get(key, ())
        if len(meant) == 1:
            return meant[0]
    joined = JOINED.fullmatch(flag)
    return joined[1] if joined is not None and _takes_value(joined[1]) else _size_meant(flag)


def _takes_value(flag: str) -> bool:
    known = option(flag)
    return known is not None and known.kind == "store"


def _elsewhere(flag: str) -> str:
    """Return the option of Megatron that other frameworks call like the flag; empty where there is none."""
    name = ELSEWHERE.get(hyphens(flag)[2:].lower(), "")
    return name and f"--{name}"


@cache
def _spellings() -> Mapping[str | frozenset[str], tuple[str, ...]]:
    """Return the options of Megatron by their letters, and by the stems of their words."""
    found: dict[str | frozenset[str], tuple[str, ...]] = {}
    for flag in flags():
        for key in (flag[2:].replace("-", ""), _stems(flag)):
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), flag)))
    return found


def _longer_by_a_word(flag: str) -> str:
    """Return the option that has one word more than the flag; empty where there is none, or several."""
    names = frozenset(flag[2:].split("-"))
    longer = [name for name in flags() if names < (words := frozenset(name[2:].split("-"))) and len(words) == len(names) + 1]
    return longer[0] if len(names) > 1 and len(longer) == 1 else ""


def _stems(flag: str) -> frozenset[str]:
    words = _words(flag) - FILLER
    return words if len(words) < 2 else frozenset(word if word[-1:].isdigit() else word[:STEM] for word in words)


def _finding(setting: Setting, parser: str, near: str, rule: str = "unknown-option") -> Finding:
    message = f"{parser} has no option `{setting.written[:LONGEST]}`"
    if not near:
        return Finding(rule, Severity.ERROR, message, setting.name_location, NOTHING_ALIKE)
    help = f"did you mean `{near}`?"
    return Finding(rule, Severity.ERROR, message, setting.name_location, help, fixes=(_fix(setting, near),))


def _fix(setting: Setting, near: str) -> Fix:
    """Return the name that was meant, which is surely that where only a letter or how the words are joined differs."""
    is_safe = distance(hyphens(setting.written), hyphens(near), 2) <= 2
    return Fix(f"write `{near}`", (Edit(setting.name_location, near),), is_safe=is_safe)


def _size_meant(flag: str) -> str:
    """Return the size that the words of the flag are short for; empty where there is none, or several."""
    names = _words(flag) - FILLER
    meant = [
        (len(words), name)
        for name in SIZES
        if (words := _words(name) - FILLER) and all(any(_same(word, of) for of in words) for word in names)
    ]
    meant.sort()
    return meant[0][1] if len(names) > 1 and meant and (len(meant) == 1 or meant[0][0] < meant[1][0]) else ""


def _abbreviates(flag: str, parser: ParserSource) -> bool:
    """Return whether the parser takes the flag for the beginning of one of its own, and not of several of Megatron's."""
    longer = [name for name in parser.flags if parser.abbreviates and name.startswith(flag)]
    of_megatron = [name for name in longer if any(path.endswith(ARGUMENTS) for path in parser.naming.get(name, ()))]
    return bool(longer) and len({known.dest for name in of_megatron if (known := option(name)) is not None}) < 2


def nearest(flag: str, known: Iterable[str]) -> str:
    """Return the flag among `known` that was probably meant: of the same letters, a letter or two away, or of similar words.

    Empty where none is near, and where several are as near by their words: a word such as `data` is part of many names.
    """
    flags_known = frozenset(known)
    if joined := _joined(flag, flags_known):
        return joined
    if len(flag) > LONGEST:
        return ""
    if renamed := _renamed(flag, flags_known):
        return renamed
    letters = _letters(flag)
    if joined := min((each_name for each_name in flags_known if _letters(each_name) == letters), default=""):
        return joined
    names = set(flag)
    alike = (each for each in flags_known if abs(len(each) - len(flag)) <= 2 and len(names.symmetric_difference(each)) <= 4)
    found = [(distance(flag, each_name, 2), each_name) for each_name in alike]
    close = min(found, default=(3, ""))
    if close[0] <= (2 if len(flag) >= LONGER["source"][1] else 1):
        return close[1]
    if _elsewhere(flag) in flags_known:
        return _elsewhere(flag)
    words, begin = _words(flag), _beginnings(flag)
    own_words = words - FILLER
    near: dict[tuple[float, bool], list[str]] = {(ALIKE, False): []}
    for name in flags_known:
        if begin & _beginnings(name) and (share := _alike(words, _words(name))) >= ALIKE:
            is_filled = len(own_words) > 1 and own_words == _words(name) - FILLER
            near.setdefault((share, is_filled), []).append(name)
    best = near[max(near)]
    return best[0] if len(best) == 1 else ""


def _letters(flag: str) -> str:
    """Return the flag without what joins its words."""
    return flag.replace("-", "").replace("_", "").lower()


@lru_cache(MOST_FLAGS)
def _words(flag: str) -> frozenset[str]:
    return frozenset(SAME_WORD.get(word, word) for word in flag[2:].replace("_", "-").lower().split("-"))


@lru_cache(MOST_FLAGS)
def _beginnings(flag: str) -> frozenset[str]:
    """Return how the words of a flag begin: flags without a common beginning have no word in common."""
    return frozenset(word[:BEGINNING] for word in _words(flag))


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that both have; the beginning of a word counts as the word."""
    common = sum(any(_same(word, name) for name in other) for word in one)
    return 2 * common / (len(one) + len(other))


def _same(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= max(BEGINNING, len(long) / 2) and long.startswith(short))


def _spelled_like(flag: str, near: str) -> str:
    """Return the option with its words joined as those of the flag, where these are joined in one way."""
    return near[:2] + near[2:].replace("-", "_") if "_" in flag and "-" not in flag[2:] else near


def _slip(flag: str, known: Iterable[str]) -> str:
    """Return the option that a program names and that the flag is, but for how its words are joined, or for one letter of a
    word that is long enough to be no other one, or that no option has.
    """
    flags_known = frozenset(known)
    if reordered := _reordered(flag, flags_known):
        return reordered
    near = _joined(flag, flags_known) or _no_word_slip(flag, flags_known)
    near = near or _neighbour(flag, LONGER["source"][1], LONGEST + 1, flags_known)
    return (
        near if all(len(word) >= STEM and word.isalpha() for word in _words(flag) ^ _words(near)) or _is_new(flag, near) else ""
    )


def _reordered(flag: str, known: Iterable[str]) -> str:
    """Return the option that has the words of the flag in another order; empty where there is none."""
    words = sorted(flag[2:].replace("_", "-").split("-"))
    alike = (name for name in known if len(name) == len(flag) and name != flag)
    found = (name for name in alike if len(words) > 1 and sorted(name[2:].replace("_", "-").split("-")) == words)
    return min((name for name in found if _letters(name) != _letters(flag)), default="")


def _no_word_slip(flag: str, known: frozenset[str]) -> str:
    """Return the option that the flag is, but for one letter or for a blank, which makes a word that no option has."""
    letters = _letters(flag)
    near = min((name for name in known if _letters(name) == letters), default="") or _neighbour(
        flag, SHORTEST, LONGEST + 1, known
    )
    return near if _is_new(flag, near) else ""


def _is_new(flag: str, near: str) -> bool:
    """Return whether the flag differs from the option in words that no option of Megatron or of a fork has; not in a plural.

    Two joints in a row are such a word.
    """
    words, meant = _words(flag) - _words(near), _words(near) - _words(flag)
    if "" in words:
        return bool(near)
    is_other = words.isdisjoint(_vocabulary()) and words.isdisjoint(f"{word}s" for word in meant)
    return bool(near and words) and is_other and all(word.isalpha() for word in words | meant) and max(map(len, meant)) > 2


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset(word for name in (*flags(), *fork_flags()) for word in _words(name))


@lru_cache(maxsize=4096)
def _slip_of_any(flag: str, taken: frozenset[str]) -> str:
    """Return the option of Megatron, of a fork or of those taken that the flag is, but for a word that no option has."""
    if _words(flag) <= _vocabulary():
        return ""
    size, letters = len(flag), _letters(flag)
    near = (name for name in taken if abs(len(name) - size) <= 1 or _letters(name) == letters)
    return _no_word_slip(flag, frozenset((*_by_size().get(size, ()), *_by_letters().get(letters, ()), *near)))


@cache
def _by_size() -> Mapping[int, list[str]]:
    """Return the options of Megatron and of its forks that have as many letters as another one, or one more or less."""
    found: dict[int, list[str]] = {}
    for name in _of_all():
        for size in (len(name) - 1, len(name), len(name) + 1):
            found.setdefault(size, []).append(name)
    return found


@cache
def _by_letters() -> Mapping[str, list[str]]:
    """Return the options of Megatron and of its forks by their letters."""
    found: dict[str, list[str]] = {}
    for name in _of_all():
        found.setdefault(_letters(name), []).append(name)
    return found


@cache
def _of_all() -> frozenset[str]:
    """Return the options of Megatron and of its forks."""
    return frozenset(map(hyphens, (*flags(), *fork_flags())))


def _renamed(flag: str, known: Container[str]) -> str:
    """Return what Megatron calls the option now that it called like the flag, where that is known; empty where it is not."""
    return next((later_name for later_name in later_names(flag) if later_name in known), "")


def _joined(flag: str, known: Container[str]) -> str:
    """Return the flag with its words joined in the other way, where that is known."""
    return next((name for name in (hyphens(flag), flag[:2] + flag[2:].replace("-", "_")) if name in known), "")


@lru_cache(maxsize=4096)
def _option_near(flag: str, known: str) -> str:
    """Return the neighbour of `flag` among the options of Megatron, of whose parser so much is known; files repeat keys."""
    return _neighbour(flag, *LONGER[known], flags())


def _neighbour(flag: str, one: int, two: int, among: Iterable[str]) -> str:
    """Return the option that `flag` is one or, from the second length on, two letters away from; empty where several are as
    near. A letter that is doubled where another one should be is one letter.
    """
    most = 0 if len(flag) < one or len(flag) > LONGEST else 1 if len(flag) < two else 2
    near: list[tuple[int, str]] = []
    for known in among if most else ():
        if abs(len(known) - len(flag)) <= most and len(set(known) ^ set(flag)) <= 2 * most:
            apart = min(distance(flag, known, most), 1 if DOUBLED.sub(r"\1", flag) == DOUBLED.sub(r"\1", known) else LONGEST)
            if apart <= most:
                near.append((apart, known))
    near.sort()
    return near[0][1] if near and (len(near) == 1 or near[0][0] < near[1][0]) else ""
