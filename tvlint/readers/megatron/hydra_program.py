"""The configuration that a program of Hydra composes, and the overrides of a command line that Hydra refuses for it."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence

from tvlint.checkout.opening import is_file, is_folder, kept, names_ending, real_path
from tvlint.checkout.top import folder_around, is_within
from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Setting, Unknown
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.near_names import distance, is_a_slip
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.hydra_defaults import composed_wholly, groups_of
from tvlint.readers.megatron.launcher import Launch, split_launch
from tvlint.readers.megatron.parser_source import LARGEST, file_around, source_of_program
from tvlint.readers.shell.values import Gap, Item, Word, after, before, known_text, leading_text, location_of, span_of
from tvlint.readers.sources.interpolation import Interpolation
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.sibling_files import content_within
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, merged

RULE = "unknown-override"
THERE = "addition-to-existing-setting"
NOTHING = ("null", "~", "", "Null", "NULL")
OPEN = Pattern(r"\$\{|^\?\?\?$")
"""Values that stand for one which is not in the files."""
LISTED = Pattern(r"\s*[\[{]")
MAIN = Pattern(rb"@(?:hydra\.main|hydra_runner)\(([^()]*)\)")
"""How a program states its configuration to Hydra, and to NeMo's way of calling it."""
SCHEMA = b"schema"
"""What names a class beside it that has settings too."""
GIVEN = Pattern(rb"\b(config_path|config_name)\s*=\s*[\"']((?:pkg://)?[\w./-]*)[\"']")
OVERRIDE = Pattern(r"(?P<how>\+{0,2}|~)(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_][\w-]*)*)(?P<set>=?)")
GROUP = Pattern(r"\+{0,2}[A-Za-z_][\w.-]*[@/][\w./@-]*=|\+{0,2}[A-Za-z_]\w*=")
"""What may choose a part of the configuration: a name with a package or a folder, or one without a dot."""
CHOOSES = {"--config-path": "config_path", "-cp": "config_path", "--config-name": "config_name", "-cn": "config_name"}
ELSEWHERE = frozenset({"--config-dir", "-cd"})
SOMEWHERE = "\0"
"""What stands for the beginning of a path which the script does not say; the rest is looked for in the folders around it."""
PACKAGED = "pkg://"
"""How a program names a folder by the package that it is."""
OWN = "hydra"
NEAR = 2
"""So many letters may differ between a key and the one that was meant."""
MOST_ENTRIES = 100_000
LONGEST = 40


@dataclass(frozen=True, slots=True)
class Composed:
    """What a command composes: the file that it starts from, and its content joined with all of its parts."""

    path: str
    root: YamlMapping


def composed_for(words: Sequence[Item], script: str) -> Composed | None:
    """Return the configuration that a command of the script composes before its overrides; None where that is not known."""
    launch = split_launch(words)
    path = _start_of(launch, script)
    root = _composed(path, launch.arguments) if path and is_file(path) else None
    return Composed(path, root) if root is not None else None


def misspelled_configuration(words: Sequence[Item], script: str) -> Iterator[Finding]:
    """Yield a finding where there is no configuration of the name that a command chooses, and another differs by a letter."""
    launch = split_launch(words)
    path = _start_of(launch, script)
    if not path or is_file(path):
        return
    folder, name = os.path.split(path)
    flags = ("--config-name", "-cn") if is_folder(folder) else ("--config-path", "-cp")
    above, wrong = (folder, name) if is_folder(folder) else os.path.split(folder)
    inside = names_ending(above, "") if is_within(real_path(above), folder_around(script)) else ()
    near = [each for each in inside if is_a_slip(wrong, each)]
    here = _place_of(launch.arguments, flags)
    if len(near) == 1 and here is not None:
        shown = os.path.join(os.path.basename(folder), name)
        help = f"did you mean `{near[0].removesuffix('.yaml')}`?"
        yield Finding("misspelled-configuration", Severity.ERROR, f"there is no configuration `{shown[-LONGEST:]}`", here, help)


def _start_of(launch: Launch, script: str) -> str:
    """Return the path of the file that a launch starts from, whether there is one or not; empty where it is not known."""
    source = source_of_program(launch.path or launch.program, script)
    stated = _stated(source, folder_around(script)) if source else None
    chosen = _chosen(launch.arguments)
    if stated is None or chosen is None:
        return ""
    folder, name = ({**stated, **chosen}.get(each, "") for each in ("config_path", "config_name"))
    file = f"{name.removesuffix('.yaml')}.yaml"
    if folder.startswith(PACKAGED):
        return file_around(script, os.path.join(*folder.removeprefix(PACKAGED).split("."), file))
    if folder.startswith(SOMEWHERE):
        return file_around(script, os.path.join(folder.removeprefix(SOMEWHERE), file))
    return os.path.normpath(os.path.join(os.path.dirname(source), folder, file)) if name else ""


def _place_of(arguments: Sequence[Item], flags: Container[str]) -> Location | None:
    """Return where a command gives one of the options."""
    given = (item for item in arguments if isinstance(item, Word) and leading_text(item.pieces).partition("=")[0] in flags)
    return next((location_of(span_of(item.pieces)) for item in given), None)


def is_read_by_hydra(launch: Launch, script: str) -> bool:
    """Return whether nothing in the source of the program looks at the command line but Hydra."""
    source = source_of_program(launch.path or launch.program, script)
    return bool(source) and not _reads_arguments(source, folder_around(script))


@kept
def _reads_arguments(source: str, checkout: str) -> bool:
    found = content_within(checkout, source, source, LARGEST)
    return found is None or b"argparse" in found[1] or b"sys.argv" in found[1]


def starts_from_package(words: Sequence[Item], script: str) -> bool:
    """Return whether a command takes the configuration that its program is packaged with, which is not in the checkout."""
    launch = split_launch(words)
    chosen = _chosen(launch.arguments)
    is_packaged = not source_of_program(launch.path or launch.program, script)
    return is_packaged and chosen is not None and "config_path" not in chosen


def mistakes(words: Sequence[Item], composed: Composed) -> Iterator[Finding]:
    """Yield a finding for each override that Hydra refuses: of a setting that is not there, or added to one that is."""
    visits = Visits(composed.path, MOST_ENTRIES)
    given: list[str] = []
    name, unless = os.path.basename(composed.path), _unless(words)
    for item in words:
        match = OVERRIDE.match(leading_text(item.pieces)) if isinstance(item, Word) else None
        if match is None or not isinstance(item, Word) or not (match["set"] or match["how"] == "~"):
            continue
        how, path = match["how"], match["path"]
        here = location_of(span_of(before(item.pieces, match.end("path"))))
        steps = path.split(".")
        if len(steps) == 1:
            given.append(path)
        if steps[0] == OWN or any(f"{path}.".startswith(f"{other}.") for other in given):
            continue
        depth, around = _depth(composed.root, steps, visits)
        if how == "+" and depth == len(steps) and around is None and not LISTED.match(_value_of(item, match.end())):
            help = f"leave out the `+`: `{path}=`"
            yield Finding(THERE, Severity.ERROR, f"`{name}` has `{path}` already{unless}", here, help)
        if how in ("", "~") and around is not None:
            near = [key for key in around if distance(key, steps[depth], NEAR) <= NEAR < len(steps[depth]) - 1]
            meant = ".".join((*steps[:depth], near[0], *steps[depth + 1 :])) if len(near) == 1 else ""
            help = f"did you mean `{meant}`?" if meant else f"`+{path}=` adds it, if the program reads it"
            yield Finding(RULE, Severity.ERROR, f"`{name}` has no `{'.'.join(steps[: depth + 1])}`{unless}", here, help)
        else:
            given.append(path)


def _value_of(item: Word, start: int) -> str:
    """Return how the value of an override begins; one that is not known counts as a mapping."""
    return leading_text(after(item.pieces, start)) if known_text(item.pieces) is not None else "{"


def _unless(words: Sequence[Item]) -> str:
    """Return the condition that the words which are not known are to a finding; empty where all are known."""
    spans = [item.span for item in words if not isinstance(item, Word)]
    written = dict.fromkeys(span.source.text[span.start : span.end][:LONGEST] for span in spans)
    return f", unless {', '.join(f'`{each}`' for each in written)} chooses another configuration" if written else ""


def composed_setting(composed: Composed, name: str, path: str) -> Setting | None:
    """Return what the composed configuration gives at the path, as the setting `name`; None where it gives nothing."""
    visits = Visits(composed.path, MOST_ENTRIES)
    *where, last = path.split(".")
    node: YamlNode = composed.root
    key: YamlScalar | None = None
    for step in (*where, last):
        entries = {each.text: (each, value) for each, value in merged(node, visits)} if isinstance(node, YamlMapping) else {}
        if step not in entries:
            return None
        key, node = entries[step]
    found = Interpolation(composed.root, visits).resolve(node, tuple(where))
    if not isinstance(found, YamlScalar) or key is None:
        return None
    is_open = found.plain and OPEN.search(found.text) is not None
    value = Unknown("depends on an interpolation") if is_open else yaml_typed(None, found.text, found.plain)
    return Setting(name, value, path, found.location, key.location)


@kept
def _stated(source: str, checkout: str) -> Mapping[str, str] | None:
    """Return the folder and the name of the configuration that a program states; None where it states none, or several."""
    found = content_within(checkout, source, source, LARGEST)
    calls = [call for call in MAIN.findall(found[1]) if SCHEMA not in call] if found is not None else []
    return {name.decode(): value.decode() for name, value in GIVEN.findall(calls[0])} if len(calls) == 1 else None


def _composed(path: str, arguments: Sequence[Item]) -> YamlMapping | None:
    """Return what the file at `path` is composed of with the parts that the arguments choose; None where that is not known."""
    root = _root_of(path, ())
    if root is None or any(not isinstance(item, (Word, Gap)) for item in arguments):
        return None
    keys = {key.text for key, _ in root.entries if isinstance(key, YamlScalar)}
    groups = _groups_of(path)
    chosen: dict[str, str] = {}
    for item in arguments:
        match = GROUP.match(leading_text(item.pieces)) if isinstance(item, Word) else None
        if match is None or not isinstance(item, Word):
            continue
        name = match[0].removesuffix("=")
        option = known_text(after(item.pieces, match.end()))
        if name in groups and option is not None:
            chosen[name] = option
        elif name.lstrip("+") in groups or name.lstrip("+") not in keys:
            return None
    return _root_of(path, tuple(chosen.items())) if chosen else root


@kept
def _groups_of(path: str) -> frozenset[str]:
    return groups_of(path)


@kept
def _root_of(path: str, chosen: tuple[tuple[str, str], ...]) -> YamlMapping | None:
    try:
        return composed_wholly(path, dict(chosen))
    except ReadError:
        return None


def _chosen(arguments: Sequence[Item]) -> dict[str, str] | None:
    """Return what a command line chooses for the folder and the name of the configuration; None where that is not known."""
    found: dict[str, str] = {}
    waiting = ""
    for item in arguments:
        pieces = item.pieces if isinstance(item, Word) else ()
        text = known_text(pieces)
        below = known_text(pieces[-1:]) if text is None else None
        if below is not None and below.startswith("/"):
            text = f"{leading_text(pieces)}{SOMEWHERE}{below[1:]}"
        if waiting:
            if text is None:
                return None
            found[waiting], waiting = text, ""
            continue
        flag, equals, value = (text or leading_text(pieces)).partition("=")
        if flag in ELSEWHERE or (flag in CHOOSES and equals and text is None):
            return None
        if flag in CHOOSES and equals:
            found[CHOOSES[flag]] = value
        elif flag in CHOOSES:
            waiting = CHOOSES[flag]
    return found


def _depth(root: YamlMapping, names: Sequence[str], visits: Visits) -> tuple[int, tuple[str, ...] | None]:
    """Return how many of the names lead to a value, with what is there in place of the next; None where all may lead there.

    A value that the files do not give ends the way early.
    """
    node: YamlNode = root
    for place, name in enumerate(names):
        if isinstance(node, YamlScalar) and node.plain and node.text in NOTHING:
            return place, ()
        if not isinstance(node, YamlMapping):
            return place, None
        entries = {key.text: value for key, value in merged(node, visits)}
        if name not in entries:
            return place, tuple(entries)
        node = entries[name]
    is_open = isinstance(node, YamlScalar) and ((node.plain and node.text in NOTHING) or OPEN.search(node.text) is not None)
    return len(names) - is_open, None
