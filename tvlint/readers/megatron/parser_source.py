"""The options that the program of a launch takes, read from its source: its own and those of every module that it imports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from tvlint.checkout.opening import is_file, is_folder, kept
from tvlint.checkout.top import folder_around
from tvlint.frameworks.megatron import Option
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field, replace
from tvlint.readers.languages import names
from tvlint.readers.megatron.program import around, from_here
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
MOST_MODULES = 1_500
IMPORT = Pattern(rb"\n[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]+))")
"""What follows a newline, to look for which takes a third of the time of what stands at the start of a line."""
WORD = Pattern(rb"[A-Za-z_]\w*")
FLAG = Pattern(rb"(-(?<=[\"']-)(?:-[A-Za-z][\w.-]*|[A-Za-z]\w*(?=[\"'],)))[\"']")
"""A flag in quotes; to look for the hyphen first takes a third of the time."""
COMPUTED = Pattern(rb"add_argument\(\s*(?:f[\"']|[\"'][^\"'\n]*[\"']\s*[+%]|\*)")
FIELD = Pattern(rb"\n    ([A-Za-z_]\w*)[ \t]*:[ \t]*[^\n]")
CHANGED_CHOICES = Pattern(rb"\.choices\s*(?:\+?=(?!=)|\.(?:append|extend)\()")
"""How a module changes what an option takes that stands in a parser already."""
CLASS = Pattern(rb"\nclass[ \t]+([A-Za-z_]\w*)[ \t]*(?:\(([^)]*)\))?[ \t]*:")
MADE_OF_FIELDS = Pattern(rb"ArgumentGroupFactory\(\s*([\w.]*)")
NEGATED = b"BooleanOptionalAction"
FACTORY = b"class ArgumentGroupFactory"
EXACT = Pattern(rb"allow_abbrev\s*=\s*False")
PARSES = b"ArgumentParser("
SOURCES = "src"
"""Where a repository keeps its packages, if not at its top."""
TELLING = frozenset({"--micro-batch-size", "--micro_batch_size"})
"""An option that every parser of Megatron has."""
IGNORES = Pattern(rb"ignore_unknown_args\s*=\s*True")
LOOKS_AHEAD = b"parse_known_args("
SEARCHES = b"sys.path."
REFUSES = Pattern(rb"parse_args\(\s*extra_args_provider\s*=\s*[\w.]+\s*,?\s*\)")
"""A call of Megatron's parser that refuses what it does not know, whatever looked at the same words before."""
PROGRAM = Pattern(rb"[\"']([\w./-]*\w\.py)[\"']")
"""How source names a file that it starts."""
IN_PROGRAM = (b'.py"', b".py'")
POSITIONAL = Pattern(rb"add_argument\(\s*[\"'][A-Za-z]")
OF_MEGATRON = (os.path.join("megatron", "training", "arguments.py"), os.path.join("megatron", "arguments.py"))
"""Where the parser of Megatron-LM lies, in releases of Megatron core and before."""
MEGATRON = f"{os.sep}megatron{os.sep}"
"""The folder of Megatron's own package, which passes over options only where it looks at them ahead of its parser."""
OTHERS = Pattern(rb"HfArgumentParser|^[ \t]*(?:import|from)[ \t]+(?:mindspeed|simple_parsing|tyro|hydra)\b", re.MULTILINE)
"""Packages that add options which stand in no source here."""
PACKAGES = (b"HfArgumentParser", b"mindspeed", b"simple_parsing", b"tyro", b"hydra")
"""One of which is in whatever the patterns match."""
OF_DEEPSPEED = frozenset({"--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config", "--deepspeed_mpi"})
"""What the call below adds."""
ADDS_OF_DEEPSPEED = b"add_config_arguments("
OF_LAUNCHERS = frozenset({"--local_rank", "--local-rank"})


@dataclass(frozen=True, slots=True)
class Module:
    """What one file of Python says of options, the modules that it imports by their whole names, and the files of those that it
    imports from its own package."""

    flags: frozenset[str]
    classes: tuple[tuple[str, frozenset[str], frozenset[str]], ...]
    """Each by its name, with those that it is derived from and its fields."""
    fields: frozenset[str]
    imports: tuple[str, ...]
    tops: tuple[str, ...]
    """The topmost packages and modules of those."""
    siblings: tuple[str, ...]
    parses: bool
    made_of: frozenset[str]
    """The classes whose fields are made options."""
    computes: bool
    takes_words: bool
    """Whether it adds arguments that are no options."""
    ignores: bool
    """Whether it has a parser leave words that are not known."""
    looks_ahead: bool
    refuses: bool
    is_extended: bool
    """Whether it imports a package that adds options, and may change others, which stand in no source here."""
    is_open: bool
    is_exact: bool
    programs: frozenset[str] = frozenset()
    """The files of Python that it names."""
    searches: bool = False
    """Whether it adds folders to those in which modules are looked for."""


@dataclass(frozen=True, slots=True)
class ParserSource:
    """The flags that the source of a program names; `closed` where no other can be taken.

    It is open where an option is computed, where a package adds options whose source is not there, or where options that are
    not known are passed over.
    """

    program: str
    flags: frozenset[str]
    closed: bool
    takes_words: bool
    """Whether words that belong to no option may be arguments of the program, or passed over."""
    abbreviates: bool
    """Whether the parser takes the beginning of a name for the name."""
    naming: Mapping[str, tuple[str, ...]]
    """The modules that name each flag."""
    checkout: str
    is_own: bool = True
    """Whether this is the source of the program itself, not that of Megatron's parser around the script."""
    declares: bool = True
    """Whether what options take is how the source declares them: it is the program's own, and no package changes them."""
    stated: Mapping[str, Option] = field(default_factory=dict)
    """Options that no call declares: fields that a parser makes options."""
    is_elsewhere: bool = False
    """Whether a module looks for others outside of the packages around it, and the parser is not among those found."""
    is_packaged: bool = False
    """Whether the options are those of all versions of a package."""


def parser_of(program: str, script: str) -> ParserSource | None:
    """Return what the program that the file at `script` starts takes; None where no source of it is around the script.

    Where the program's own source is not there, that of Megatron's parser around the script counts, which is open to more.
    """
    checkout = folder_around(script)
    started = source_of_program(program, script)
    if started:
        return _parser_at(started, checkout)
    parser = file_around(script, *OF_MEGATRON)
    return replace(_parser_at(parser, checkout), closed=False, is_own=False, declares=False) if parser else None


def source_of_program(program: str, script: str) -> str:
    """Return the file of a program, a path or the name of a module, around the script; empty where there is none."""
    path = program.lstrip("/") if program.endswith(".py") else program.replace(".", os.sep) + ".py"
    return file_around(script, path) or from_here(program, script) if program else ""


def file_around(script: str, *names: str) -> str:
    """Return the first of the files that there is in the folders around the script; empty where there is none."""
    folders = around(os.path.abspath(os.path.dirname(script)))
    paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders for name in names)
    return next(filter(is_file, paths), "")


def may_take(parser: ParserSource, flag: str, value: str, *, is_slip: bool) -> bool:
    """Return whether a module that names the flag quotes the value too, or changes options that another parser has; the latter
    excuses no slip.
    """
    quoted = Pattern(rb"[\"']" + re.escape(value.encode()) + rb"[\"']")
    return any(quoted.search(each) for each in _naming(parser, flag)) or (not is_slip and changes_choices(parser, flag))


def changes_choices(parser: ParserSource, flag: str) -> bool:
    """Return whether a module that names the flag changes options that another parser has."""
    return any(CHANGED_CHOICES.search(each) for each in _naming(parser, flag))


def _naming(parser: ParserSource, flag: str) -> Iterator[bytes]:
    """Yield the source of each module that names the flag."""
    for path in parser.naming.get(flag, ()):
        found = content_within(parser.checkout, path, path, LARGEST)
        if found is not None:
            yield found[1]


@kept
def programs_of(launcher: str, flags: frozenset[str]) -> tuple[str, ...]:
    """Return the programs that may take options which a launcher written in Python lists.

    They are those that it names, or else those that modules name which it imports, whose own source names most of the flags.
    """
    modules, _ = _modules_from(launcher, folder_around(launcher))
    names, imported = modules[launcher].programs, frozenset[str]().union(*(module.programs for module in modules.values()))
    for named in (names, imported):
        parsers = ((name, parser_of(name, launcher)) for name in sorted(named))
        found = [name for name, each in parsers if each and each.is_own and 2 * len(flags & each.naming.keys()) > len(flags)]
        if found:
            return tuple(found)
    return ()


def _modules_from(program: str, checkout: str) -> tuple[Mapping[str, Module], bool]:
    """Return the program and the modules of its own that it imports, by their paths, and whether these are all."""
    roots = tuple(around(os.path.dirname(program)))
    root_of: dict[str, str | None] = {}
    modules: dict[str, Module] = {}
    waiting = [program]
    while waiting and len(modules) < MOST_MODULES:
        path = waiting.pop()
        if path in modules:
            continue
        module = modules[path] = _module(path, checkout)
        root_of.update((top, _root_of(top, roots)) for top in module.tops if top not in root_of)
        waiting += _files_imported(path, checkout, tuple((top, root) for top in module.tops if (root := root_of[top])))
    return modules, not waiting


@kept
def _files_imported(path: str, checkout: str, roots: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the files that a module imports, of its own package and of the topmost ones in these roots."""
    module, root_of = _module(path, checkout), dict(roots)
    named = ((root_of.get(name.partition(".")[0]), name) for name in module.imports)
    return tuple(dict.fromkeys(chain(module.siblings, *(_files_of(root, name) for root, name in named if root))))


@kept
def _parser_at(program: str, checkout: str) -> ParserSource:
    modules, are_all = _modules_from(program, checkout)
    named = OF_LAUNCHERS.union(*(each_module.flags for each_module in modules.values()))
    fields = _made_options(modules.values())
    flags = named | {f"--{prefix}{name.replace('_', '-')}" for name in fields for prefix in ("", "no-", "disable-")}
    if any(each_module.computes for each_module in modules.values()):
        flags |= {f"--{name}" for name in fields if f"--{name.replace('_', '-')}" not in named}
    whole = are_all and not any(each_module.is_open for each_module in modules.values())
    has_parser = any(each_module.parses for each_module in modules.values()) and bool(TELLING & flags)
    abbreviates = not any(each_module.is_exact for each_module in modules.values())
    ignores = any(each_module.ignores for each_module in modules.values())
    looks_ahead = [each_module for each_module in modules.values() if each_module.looks_ahead]
    passes_over = ignores or (bool(looks_ahead) and not any(each_module.refuses for each_module in modules.values()))
    takes_words = passes_over or any(each_module.takes_words for each_module in (modules[program], *looks_ahead))
    naming: dict[str, tuple[str, ...]] = {}
    for path, module in modules.items():
        for flag in module.flags:
            naming[flag] = (*naming.get(flag, ()), path)
    declares = not any(each_module.is_extended for each_module in modules.values())
    closed = whole and has_parser
    is_elsewhere = not has_parser and any(each_module.searches for each_module in modules.values())
    found = ParserSource(program, flags, closed, takes_words, abbreviates, naming, checkout, declares=declares)
    return replace(found, is_elsewhere=is_elsewhere)


def _made_options(modules: Iterable[Module]) -> frozenset[str]:
    """Return the fields that are made options: all where options are computed, or made of what is no class of the modules."""
    every = tuple(modules)
    known = {name for module in every for name, _, _ in module.classes}
    wanted = {name for module in every for name in module.made_of}
    if wanted - known or any(module.computes for module in every):
        return frozenset(field for module in every for field in module.fields)
    written: dict[str, list[tuple[frozenset[str], frozenset[str]]]] = {}
    for each_module in every:
        for name, bases, fields in each_module.classes:
            written.setdefault(name, []).append((bases, fields))
    found, waiting = set[str](), list(wanted)
    while waiting:
        for bases, fields in written.pop(waiting.pop(), ()):
            found |= fields
            waiting += bases
    return frozenset(found)


def _negated(data: bytes) -> Iterator[str]:
    """Yield the flags that switch off what an option with both switches on."""
    for call in data.split(b"add_argument(")[1:] if NEGATED in data else ():
        yield from (f"--no-{flag.decode()[2:]}" for flag in FLAG.findall(call) if NEGATED in call and flag.startswith(b"--"))


def _classes(data: bytes) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    found = [*CLASS.finditer(data)]
    ends = [*(each.start() for each in found), len(data)][1:]
    for match, end in zip(found, ends, strict=True):
        bases = frozenset(name.decode() for name in WORD.findall(match[2] or b""))
        yield match[1].decode(), bases, frozenset(name.decode() for name in FIELD.findall(data, match.end(), end))


@kept
def _module(path: str, checkout: str) -> Module:
    found = content_within(checkout, path, path, LARGEST)
    if found is None:
        nothing: frozenset[str] = frozenset()
        unknown = (False, True, True, False, False, True)
        return Module(nothing, (), nothing, (), (), (), False, nothing, *unknown, is_open=True, is_exact=False)
    data = b"\n" + found[1]
    imported = dict.fromkeys(_imported(data))
    ignores = MEGATRON not in path and IGNORES.search(data) is not None
    looks_ahead = MEGATRON not in path and LOOKS_AHEAD in data
    of_deepspeed = OF_DEEPSPEED if ADDS_OF_DEEPSPEED in data else ()
    computed = COMPUTED.search(data) is not None and FACTORY not in data
    extended = names(data, PACKAGES) and OTHERS.search(data) is not None
    return Module(
        frozenset((*(flag.decode() for flag in FLAG.findall(data)), *_negated(data), *of_deepspeed)),
        tuple(_classes(data)),
        frozenset(field.decode() for field in FIELD.findall(data)),
        tuple(name for name in imported if not name.startswith(".")),
        tuple(dict.fromkeys(name.partition(".")[0] for name in imported if not name.startswith("."))),
        tuple(dict.fromkeys(file for name in imported if name.startswith(".") for file in _siblings(name, path))),
        PARSES in data,
        frozenset(name.decode().rpartition(".")[2] for name in MADE_OF_FIELDS.findall(data)),
        computed,
        POSITIONAL.search(data) is not None,
        ignores,
        looks_ahead,
        REFUSES.search(data) is not None,
        extended,
        ignores or looks_ahead or computed or extended,
        EXACT.search(data) is not None,
        frozenset(name.decode() for name in PROGRAM.findall(data)) if names(data, IN_PROGRAM) else frozenset(),
        SEARCHES in data,
    )


def _imported(data: bytes) -> Iterator[str]:
    """Yield the modules that the source imports, and what it imports from them, which may be modules too."""
    for origin, taken, plain in IMPORT.findall(data):
        if plain:
            yield from (part.split()[0].decode(errors="replace") for part in plain.split(b",") if part.strip())
            continue
        module = origin.decode(errors="replace")
        yield module
        joined = module if module.endswith(".") else module + "."
        yield from (joined + name.decode() for name in WORD.findall(taken))


def files_of_module(module: str, importer: str) -> tuple[str, ...]:
    """Return the files of a module, as the importer names it, and of the packages around it, as far as they are there."""
    if module.startswith("."):
        return _siblings(module, importer)
    folders = tuple(around(os.path.dirname(importer)))
    return _found(module, (*folders, *(os.path.join(folder, SOURCES) for folder in folders)))


def _siblings(module: str, importer: str) -> tuple[str, ...]:
    """Return the files of a module that is named from the package of the importer, one dot for that, two for the one above."""
    name = module.lstrip(".")
    folder = os.path.dirname(importer)
    for _ in range(len(module) - len(name) - 1):
        folder = os.path.dirname(folder)
    return _found(name, (folder,))


def _found(module: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of a module and of the packages around it, in the first root that has the topmost."""
    root = _root_of(module.partition(".")[0], roots)
    return () if root is None else _files_of(root, module)


@kept
def _root_of(top: str, roots: tuple[str, ...]) -> str | None:
    """Return the first root that has the topmost package or module."""
    paths = ((root, os.path.join(root, top)) for root in roots if top)
    return next((root for root, path in paths if is_folder(path) or is_file(path + ".py")), None)


@kept
def _files_of(root: str, module: str) -> tuple[str, ...]:
    """Return the files of the packages around the module that are in the root, and its own."""
    package, _, name = module.rpartition(".")
    if not name:
        return ()
    around = _files_of(root, package) if package else ()
    if around and not around[-1].endswith(f"{os.sep}__init__.py"):
        return around
    path = os.path.join(root, *package.split("."), name)
    word = next(filter(is_file, (os.path.join(path, "__init__.py"), path + ".py")), None)
    return around if word is None else (*around, word)
