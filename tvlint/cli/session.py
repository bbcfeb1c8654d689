"""Set-up that commands share: the project file, the rules that apply, the outputs, messages on stderr."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from tvlint import __version__
from tvlint.cache.remember import Cache
from tvlint.cli.arguments import fail
from tvlint.findings import Problem, Report, Severity
from tvlint.ir.values import replace
from tvlint.near_names import did_you_mean
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.text.paths import place
from tvlint.rule import Rule
from tvlint.rulebook.pages import explanation_of, load_rules
from tvlint.run.output.exit_code import INPUT
from tvlint.run.output.outputs import Output, OutputError, parse_outputs, say, write_all
from tvlint.run.output.report import rendered
from tvlint.run.process.budget import Budget
from tvlint.run.process.session import Progress, Session
from tvlint.run.project.discovery import Candidates, shown
from tvlint.run.project.nested import At, judging, on_disk, with_nested
from tvlint.run.project.project_file import Project, ProjectError, find, load

_MOST_PROBLEMS = 1000
"""Of a report that the budget has no room for, so many problems are reported."""
_ADVISED = 100
"""Of unknown names of rules in a project file, so many are compared with the known ones."""


def note(message: str) -> None:
    """A word to the person on stderr, all on one line."""
    say(f"tvlint: {message}")


def unreadable(*problems: Problem) -> int:
    """Say on stderr what is wrong with the input, where no report was asked for; the exit code for it."""
    for problem in problems:
        help = (f"  help: {problem.help}",) if problem.help else ()
        say(f"{place(problem.location, Path.cwd())}: error: {problem.message}", *help)
    return INPUT


def refused(options: argparse.Namespace, wanted: tuple[Output, ...], *problems: Problem) -> int:
    """Say what is wrong with the input: on stderr, and as a report in what is no text for the screen. Return the exit code."""
    elsewhere = tuple(output for output in wanted if output.format != "text" or output.path)
    if elsewhere:
        deliver(Report(problems=problems), elsewhere, options, load_rules())
    return unreadable(*problems)


def outputs(options: argparse.Namespace) -> tuple[Output, ...]:
    """Return the outputs that were asked for; the command's first format on the standard output where none was."""
    try:
        return parse_outputs(options.output, options.formats) or (Output(options.formats[0]),)
    except OutputError as error:
        fail(str(error), error.help)


def write(written: Mapping[Output, Escaped]) -> None:
    """Write each output; ends the process where one cannot be written."""
    try:
        write_all(written)
    except OutputError as error:
        fail(str(error), error.help)


def project_path(options: argparse.Namespace) -> Path | None:
    """Return the project file that applies: the one that is named, else the nearest one at or above the current folder."""
    if options.config and not os.path.isfile(options.config):
        fail(f"no project file `{options.config}`")
    return Path(options.config).absolute() if options.config else find(Path.cwd())


def project(options: argparse.Namespace, rules: Mapping[str, Rule]) -> Project:
    """Return the project file that applies, its rule names known; raises `ProjectError` where it is wrong.

    From here on the run has the budget that the file gives it.
    """
    return _within_budget(options, lambda found: _known(found, rules))


def bare_project(options: argparse.Namespace) -> Project:
    """Return the project file that applies, whatever rules it names; raises `ProjectError` where it is wrong."""
    return _within_budget(options, lambda found: found)


def _within_budget(options: argparse.Namespace, verified: Callable[[Project], Project]) -> Project:
    if options.policy and options.config:
        fail("`--policy` and `--config` both name the project file", "give one of them")
    found: Project | Problem
    if options.policy:
        from tvlint.run.project.policy import load_policy

        found = options.steps.do(os.curdir, lambda: verified(load_policy(options.policy)), "the policy")
    else:
        path = options.steps.do(os.curdir, lambda: project_path(options), "the search for the project file")
        if path is None:
            return Project(Path.cwd(), heeds_comments=_heeds_comments(options))
        found = path if isinstance(path, Problem) else options.steps.do(shown(path), lambda: verified(load(path, shown(path))))
    if isinstance(found, Problem):
        raise ProjectError((found,))
    options.steps.set_budget(Budget().with_limits({**found.budget, **options.budget}))
    return replace(found, heeds_comments=_heeds_comments(options))


def nested_at(options: argparse.Namespace, rules: Mapping[str, Rule] | None) -> At | None:
    """Return how project files of folders below are found; None where the command line says which file counts.

    Without `rules` they may name any.
    """
    if options.config or ":" in options.policy:
        return None
    at = on_disk
    if options.policy:
        from tvlint.run.project.policy import policy_at

        at = partial(policy_at, options.policy)

    def found(folder: Path) -> Project | None:
        project = at(folder)
        if project is not None and rules is not None:
            _known(project, rules)
        return None if project is None else replace(project, heeds_comments=_heeds_comments(options))

    return found


def with_files(
    options: argparse.Namespace, settings: Project, rules: Mapping[str, Rule] | None, search: Callable[[], Candidates]
) -> tuple[Project, Candidates]:
    """Return the files of a run, and the project with those below it that judge some of them."""
    found = options.steps.do(
        os.curdir, lambda: with_nested(settings, search(), nested_at(options, rules)), "the search for files"
    )
    return (settings, Candidates((), problems=(found,))) if isinstance(found, Problem) else found


def judging_one(options: argparse.Namespace, settings: Project, rules: Mapping[str, Rule] | None, path: str) -> Project:
    """Return the project with the settings that judge the one file; raises `ProjectError` where its project file is wrong."""
    whole, candidates = with_files(options, settings, rules, lambda: Candidates((path,), frozenset({path})))
    if candidates.problems:
        raise ProjectError(candidates.problems)
    return judging(path, whole)


def _heeds_comments(options: argparse.Namespace) -> bool:
    return not getattr(options, "no_ignore_comments", False)


def _known(found: Project, rules: Mapping[str, Rule]) -> Project:
    """Return the project, or raise `ProjectError` where it names what does not exist."""
    from tvlint.frameworks.kin import KNOWN

    unknown = [(name, location) for name, location in found.names if name not in rules]
    if unknown:
        helps = [did_you_mean(name, rules) for name, _ in unknown[:_ADVISED]] + [""] * (len(unknown) - _ADVISED)
        advised = zip(unknown, helps, strict=True)
        raise ProjectError(tuple(Problem(f"unknown rule `{name}`", at, help) for (name, at), help in advised))
    if found.framework_location is not None and found.framework not in KNOWN:
        help = did_you_mean(found.framework, KNOWN)
        raise ProjectError((Problem(f"no rule knows the framework `{found.framework}`", found.framework_location, help),))
    for pair in found.proofs:
        if (name := _unknown_assumption(pair.assume)) is not None:
            message = f"`assume` names no check that can be weakened: `{name}`"
            raise ProjectError((Problem(message, pair.location, _assumable(name)),))
    return found


def session(options: argparse.Namespace, project: Project, progress: Progress) -> Session:
    """Return what the parts of the run share."""
    return Session(options.steps, progress, cache(options, project), options.jobs)


def cache(options: argparse.Namespace, project: Project) -> Cache | None:
    """Return what earlier runs have found, which is kept beside the project file; None where it is not to be used."""
    return None if options.no_cache else Cache(project.folder)


def assumptions(options: argparse.Namespace) -> frozenset[str]:
    """Return the checks that the command line weakens."""
    named = frozenset(name.strip() for text in options.assume for name in text.split(",") if name.strip())
    if (name := _unknown_assumption(named)) is not None:
        fail(f"`--assume` names no check that can be weakened: `{name}`", _assumable(name))
    return named


def _unknown_assumption(names: frozenset[str]) -> str | None:
    """Return a name that no proof knows."""
    if not names:
        return None
    from tvlint.analyses.relations.assumable import ASSUMPTIONS

    return min(names - set(ASSUMPTIONS), default=None)


def _assumable(name: str) -> str:
    from tvlint.analyses.relations.assumable import ASSUMPTIONS

    return did_you_mean(name, ASSUMPTIONS)


def applying(options: argparse.Namespace, project: Project, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules that apply, with the severities of the project: `--select` replaces the project's, `--ignore` adds to
    it.
    """
    select = _names(options.select, rules) or project.select or rules
    ignore = {*_names(options.ignore, rules), *project.ignore}
    chosen = {name: rule for name, rule in rules.items() if name in select and name not in ignore}
    changed = {name: replace(chosen[name], severity=severity) for name, severity in project.severity.items() if name in chosen}
    return {**chosen, **changed}


def looked_for(options: argparse.Namespace, project: Project, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules that the command line asks for, also those that the project file ignores: what they find is counted."""
    return applying(options, replace(project, select=(), ignore=()), rules)


def _names(texts: Iterable[str], rules: Mapping[str, Rule]) -> tuple[str, ...]:
    names = tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
    for name in names:
        if name not in rules:
            fail(f"unknown rule `{name}`", did_you_mean(name, rules) or "`tvlint rules` lists them")
    return names


def deliver(
    report: Report,
    wanted: tuple[Output, ...],
    options: argparse.Namespace,
    rules: Mapping[str, Rule],
    fail_on: Severity = Severity.ERROR,
) -> Report:
    """Write the report everywhere, and return what was written: only problems where the budget has no room for all of it.

    Ends the process where a file cannot be written.
    """
    context = Context(
        rules=rules,
        explanation=explanation_of,
        root=Path.cwd(),
        version=__version__,
        color=colored(options.color),
        links=links_are_followed(),
        width=width(40, 140),
        environment=dict(os.environ),
        show_unknown=getattr(options, "show_unknown", False),
        fail_on=fail_on,
        statistics=getattr(options, "statistics", False),
        quiet=getattr(options, "quiet", False),
    )

    def text_of(report: Report) -> dict[Output, Escaped] | Problem:
        named = frozenset(Path(os.path.realpath(path)) for path in _named(options))
        found: dict[Output, Escaped] | Problem = options.steps.conclude(
            os.curdir, lambda: rendered(report, wanted, replace(context, named=named))
        )
        return found

    text = text_of(report)
    if isinstance(text, Problem):
        report = Report(problems=(text, *report.problems[:_MOST_PROBLEMS]))
        text = text_of(report)
    if isinstance(text, Problem):
        raise SystemExit(unreadable(text))
    write(text)
    return report


def _named(options: argparse.Namespace) -> list[str]:
    """Return the files that a person named, with the project file; what `--changed` lists was named by a commit."""
    given = vars(options)
    found = project_path(options)
    names = [str(found)] if found is not None else []
    if not given.get("changed"):
        names += [path for key in ("paths", "parallel", "what") for path in given.get(key, ())]
        names += filter(None, [given.get("reference")])
        names += [os.curdir] if given.get("paths") == [] else []
    return names


def width(least: int, most: int, elsewhere: int = 100) -> int:
    """The columns that text may take: those of the terminal, within bounds, or those for anything else."""
    if not sys.stdout.isatty():
        return elsewhere
    import shutil

    return max(least, min(shutil.get_terminal_size().columns, most))


def colored(choice: str) -> bool:
    """Return whether text is coloured: as asked, else by `NO_COLOR` and `FORCE_COLOR`, else on a terminal that can."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def links_are_followed() -> bool:
    """Return whether text may hold links: on a terminal but those that print them, or as `FORCE_HYPERLINK` says."""
    forced = os.environ.get("FORCE_HYPERLINK")
    return forced != "0" if forced else sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "linux")
