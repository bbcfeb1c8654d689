"""Rule pages (`rules/<topic>/<rule-name>.md`) to `Rule` values.

The front matter is the small subset of YAML that `docs/writing-rules.md` describes. A wrong page is our mistake and raises
`PageError`. A wheel holds all front matter in one file as well (`hatch_build.py`), which is read in a tenth of the time; what
explains a rule is read from its page when somebody asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from tvlint.data import data_path
from tvlint.findings import Severity
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import fields
from tvlint.rule import Rule, RuleKind

COMPILED = "rules.json"
_FIELDS = [field.name for field in fields(Rule) if field.name != "path"]
_ENTRY = Pattern(r"^([a-z]+):(?: (.*))?$")
_BARE_ITEM = Pattern(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHY = "\n## Why is this bad\n\n"
UNDECIDED = (
    "The proof stops here: without this it cannot say whether both plans train the same model, and unknown is not a pass."
)
"""Why what keeps a proof from a decision is bad, whatever it is."""


class PageError(ValueError):
    """A rule page that does not follow the format; says which and where."""


@cache
def load_rules() -> Mapping[str, Rule]:
    """Return every rule that tvlint ships, by name."""
    folder = data_path("rules")
    compiled = folder / COMPILED
    return from_data(compiled.read_text(encoding="utf-8"), folder) if compiled.is_file() else read_rules(folder)


def read_rules(folder: Path) -> Mapping[str, Rule]:
    """Return the rules whose pages lie in `folder` and the folders below it, by name, in alphabetical order."""
    rules: dict[str, Rule] = {}
    for path in sorted(folder.rglob("*.md"), key=lambda path: path.stem):
        if path.stem in rules:
            raise PageError(f"{path}: `{path.stem}` is the name of {rules[path.stem].path} already")
        topic = path.parent.relative_to(folder).as_posix()
        rules[path.stem] = read_page(path.stem, path.read_text(encoding="utf-8"), str(path), topic)
    return rules


def to_data(rules: Mapping[str, Rule]) -> str:
    """Return all rules as one text, without the folder in which their pages lie."""
    rows = [[_plain(getattr(rule, field)) for field in _FIELDS] for rule in rules.values()]
    return json.dumps(rows, ensure_ascii=True, separators=(",", ":"))


def from_data(text: str, folder: Path) -> Mapping[str, Rule]:
    """Return the rules that `to_data` was given, whose pages lie in `folder`."""
    kinds = {kind.value: kind for kind in RuleKind}
    severities = {severity.value: severity for severity in Severity}
    rules, top = {}, str(folder)
    for name, kind, severity, *texts, supersedes, location, once, frameworks, sources, topic in json.loads(text):
        path = f"{top}/{topic}/{name}.md"
        whence = (tuple(supersedes), tuple(location), once, frameworks, tuple(sources), path, topic)
        rules[name] = Rule(*(name, kinds[kind], severities[severity], *texts, *whence))
    return rules


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def read_page(name: str, text: str, path: str = "", topic: str = "") -> Rule:
    """Return the rule of one page."""
    if not text.startswith("---\n"):
        raise PageError(f"{path or name}:1: the page does not start with front matter")
    head, separator, rest = text[4:].partition("\n---\n")
    if not separator:
        raise PageError(f"{path or name}:1: the front matter does not end")
    if not rest.startswith(_title(name)):
        raise PageError(f"{path or name}: the title is not `# {name}`")
    entries = read_front_matter(head, path or name)
    try:
        return _rule(name, {**entries, "topic": topic}, path)
    except (KeyError, TypeError, ValueError) as error:
        raise PageError(f"{path or name}: {error!r}") from error


def body_of(rule: Rule) -> str:
    """Return the Markdown of the rule's page after its title."""
    return Path(rule.path).read_text(encoding="utf-8").partition(_title(rule.name))[2]


def explanation_of(rule: Rule) -> str:
    """Return the body of the rule's page, with what is bad about everything that keeps a proof from a decision."""
    body = body_of(rule)
    if rule.kind is not RuleKind.PROOF or rule.severity is not Severity.WARNING:
        return body
    before, heading, after = body.partition(_WHY)
    if heading:
        return f"{before}{heading}{UNDECIDED}\n\n{after}"
    before, heading, after = body.partition("\n## Example\n")
    return f"{before}{_WHY}{UNDECIDED}\n{heading}{after}"


def _title(name: str) -> str:
    return f"\n# {name}\n"


def read_front_matter(text: str, where: str) -> dict[str, Any]:
    """Return the entries of a front matter (without its `---` lines)."""
    found: dict[str, str] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), start=2):
        if line.startswith("  ") and key:
            found[key] += " " + line.strip()
            continue
        entry = _ENTRY.match(line)
        if entry is None or entry[1] in found:
            raise PageError(f"{where}:{number}: not an entry of its own: `{line}`")
        key = entry[1]
        found[key] = (entry[2] or "").strip()
    return {key: _value(value.strip(), where) for key, value in found.items()}


def _value(text: str, where: str) -> Any:
    if not text or text[0].isalpha() or text[0] == "(":
        if ": " in text or " #" in text:
            raise PageError(f"{where}: `{text}` needs double quotes")
        return text
    if text[0] == "[" and '"' not in text:
        items = [item.strip() for item in text[1:-1].split(",")] if text[1:-1].strip() else []
        if text[-1] != "]" or not all(_BARE_ITEM.fullmatch(item) for item in items):
            raise PageError(f"{where}: `{text}` is not a list of words")
        return items
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise PageError(f"{where}: `{text}`: {error}") from error


def _rule(name: str, entries: dict[str, Any], path: str) -> Rule:
    kind = RuleKind(entries.pop("kind"))
    severity = Severity(entries.pop("severity"))
    location = tuple(entries.pop("location", ()))
    supersedes = tuple(entries.pop("supersedes", ()))
    sources = tuple(entries.pop("sources", ()))
    return Rule(name, kind, severity, path=path, supersedes=supersedes, location=location, sources=sources, **entries)
