"""Launchers in Python: the commands that a function starts, and the lists and texts of Megatron's options that it builds.

Parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.languages import is_prose, is_test
from tvlint.readers.megatron.invalid_options import listed_option_mistakes, option_mistakes
from tvlint.readers.megatron.launch_script import distinct_cases, launched, of_lists
from tvlint.readers.megatron.python.assignments import changed_in, of_module
from tvlint.readers.megatron.python.commands import RUNNERS, is_write
from tvlint.readers.megatron.python.names import Names, read_names
from tvlint.readers.megatron.python.scope import FUNCTIONS, LEAVES, LOOPS, MOST_REPEATED, Function, Program
from tvlint.readers.megatron.python.statements import MEANING, follow_function, follow_module
from tvlint.readers.not_followed import PASSED
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import Source, source_of

FORMAT = "python-launcher"
LARGEST = 1 << 20
MOST_NODES = 100_000
IMPORTS = re.compile(rb"^(?:import \w|from [\w.]+ import )", re.MULTILINE)
LISTED = re.compile(rb"[\"']--(?:tensor|pipeline)-model-parallel-size[\"'],\s*(?:str\(|f?[\"'][^-\"'])")
"""An option that only Megatron has, in a list, with a value that is computed."""
IN_LISTED = b"-model-parallel-size"
STARTS = re.compile(
    rb"\b(?:(?:create_)?subprocess|asyncio\.create_subprocess_\w+|os\.(?:system|popen|exec\w+))\b|\.write(?:_text)?\("
)
STARTED = re.compile(rb"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b|\bpretrain_\w+\.py\b")
IN_STARTED = (b"torchrun", b"torch.distributed.run", b"torch.distributed.launch", b"pretrain_")
MOST_BRANCHES = 16
LONGEST = 60


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is Python that passes an option of Megatron with a value, and no test."""
    if is_prose(path) or IMPORTS.search(data) is None or is_test(path, data):
        return False
    is_started = any(word in data for word in IN_STARTED) and all(each.search(data) for each in (STARTED, STARTS))
    return is_started or PASSED.search(data) is not None or (IN_LISTED in data and LISTED.search(data) is not None)


def read(path: str, data: bytes) -> Document | None:
    """Return the options that each function lists; None where none lists options that only Megatron has."""
    refuse_larger(path, data, LARGEST, "program")
    source = source_of(path, data)
    try:
        module = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    try:
        return _followed(source, module)
    except RecursionError:
        message = "the program nests expressions too deeply to be followed statically"
        raise ReadError(message, Location(path, 1)) from None


def _followed(source: Source, module: ast.Module) -> Document | None:
    nodes = [node for node, _ in zip(ast.walk(module), range(MOST_NODES), strict=False)]
    names = read_names(nodes)
    of_module_body = set(map(id, module.body))
    names.functions = {name: function for name, function in names.functions.items() if id(function) in of_module_body}
    names.bodies = {name: function for name, function in names.bodies.items() if id(function) in of_module_body}
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    changed = frozenset(name for function in functions for name in changed_in(function, names))
    program = Program(source, names, MEANING, _launching(names), changed)
    configurations, findings = _configurations(program, _evaluations(program, module, functions))
    if not configurations:
        return None
    configurations = _with_rounds(configurations)
    cases: dict[Location | None, list[Configuration]] = {configuration.location: [] for configuration in configurations}
    suppositions: list[tuple[list[ast.stmt], dict[str, str], str]] = [
        (branch, {}, condition) for branch, condition in _branches(nodes)
    ]
    suppositions += [([], {name: key}, f" with `{name}={key}`") for name, keys in program.keys.items() for key in keys]
    for branch, chosen, condition in suppositions[:MOST_BRANCHES]:
        program.supposed, program.chosen = branch, chosen
        reached = _reaching(branch[0].lineno, functions, names) if branch else functions
        try:
            evaluations = _evaluations(program, module, reached)
        except ReadError:
            break
        for launch in _launches(program, evaluations) or _lists(evaluations):
            cases.get(launch.location, []).append(replace(launch, condition=launch.condition + condition))
    judged = tuple(replace(each, cases=(*each.cases, *distinct_cases(each, cases[each.location]))) for each in configurations)
    return Document(source.path, FORMAT, configurations=judged, findings=tuple(findings))


def _launching(names: Names) -> frozenset[str]:
    """Return the functions that start a command, write a script, or call one that does."""
    called: dict[str, set[str]] = {}
    found = set[str]()
    for name, function in names.bodies.items():
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        called[name] = {each.id for each in calls if isinstance(each, ast.Name)}
        found |= {name} if any(names.dotted(each) in RUNNERS or is_write(each) for each in calls) else set()
    while more := {name for name, calls in called.items() if name not in found and calls & found}:
        found |= more
    return frozenset(found)


def _with_rounds(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Return the launch of each place, with what other rounds of a loop and other calls launch there as its cases."""
    found: dict[Location | None, list[Configuration]] = {}
    for configuration in configurations:
        found.setdefault(configuration.location, []).append(configuration)
    return [replace(first, cases=tuple(distinct_cases(first, others))) for first, *others in found.values()]


def _evaluations(program: Program, module: ast.Module, followed: Sequence[Function]) -> list[Evaluation]:
    """Return what the module and each of the functions that are followed start and leave in variables.

    A function that was followed from its calls is not followed apart from them.
    """
    program.called.clear()
    program.repeated = MOST_REPEATED
    top = follow_module(program, module)
    scopes = [top]
    for function in followed:
        if function.name not in program.called:
            scopes.append(follow_function(of_module(program), function))
    return [
        Evaluation(program.source, commands, scope.variables, (), False, 0)
        for scope in scopes
        for commands in _by_condition(program, scope.commands)
    ]


def _by_condition(program: Program, commands: Iterable[Command]) -> list[tuple[Command, ...]]:
    """Return the commands of each round and call, which may start another command at the same place."""
    found: dict[str, list[Command]] = {}
    for command in commands:
        found.setdefault(program.conditions[id(command)], []).append(command)
    return [tuple(each) for each in found.values()] or [()]


def _configurations(program: Program, evaluations: Sequence[Evaluation]) -> tuple[list[Configuration], dict[Finding, None]]:
    """Return the launches, or else the lists of options, with the mistakes in each."""
    findings: dict[Finding, None] = {}
    for configuration, _, launch, arguments in (each for evaluation in evaluations for each in launched(evaluation, "")):
        findings.update(dict.fromkeys(option_mistakes(configuration, arguments.surplus, launch.path or launch.program)))
    configurations = _launches(program, evaluations)
    if not configurations:
        configurations = _lists(evaluations)
        findings.update(dict.fromkeys(mistake for each in configurations for mistake in listed_option_mistakes(each)))
    return configurations, findings


def _launches(program: Program, evaluations: Sequence[Evaluation]) -> list[Configuration]:
    return [
        replace(configuration, format=FORMAT, condition=program.conditions[id(command)])
        for evaluation in evaluations
        for configuration, command, *_ in launched(evaluation, "")
    ]


def _lists(evaluations: Sequence[Evaluation]) -> list[Configuration]:
    found = [of_list for evaluation in evaluations for of_list in of_lists(evaluation, "")[0]]
    return [replace(each, format=FORMAT, section=f"line {each.location.line}") for each in found if each.location is not None]


def _reaching(line: int, functions: Sequence[Function], names: Names) -> Sequence[Function]:
    """Return the functions that hold the line, and those that call them; all where it is the module's."""
    within = [function for function in functions if function.lineno <= line <= (function.end_lineno or 0)]
    lines = [line, *(call.lineno for node in within for call in names.calls.get(node.name, ()))]
    nodes = [
        function for function in functions if any(function.lineno <= place <= (function.end_lineno or 0) for place in lines)
    ]
    return nodes if within else functions


def _branches(nodes: Iterable[ast.AST]) -> Iterable[tuple[list[ast.stmt], str]]:
    """Return the first branches that add to a list of options, or set numbers, and go on after that, and the condition of each
    in words.

    One of a loop runs in some rounds and not in others.
    """
    found = []
    all_nodes = list(nodes)
    looped = {id(node) for loop in all_nodes if isinstance(loop, LOOPS) for node in ast.walk(loop) if isinstance(node, ast.If)}
    for node in (node for node in all_nodes if isinstance(node, ast.If) and id(node) not in looped):
        for branch, word in ((node.body, "where"), (node.orelse, "where not")):
            inner = [node for statement in branch for node in ast.walk(statement)]
            if any(map(_is_number_or_flag, inner)) and not any(isinstance(node, LEAVES) for node in inner):
                found.append((branch, f" {word} `{ast.unparse(node.test)[:LONGEST]}`"))
    found.sort(key=lambda each: not any(_is_flag(node) for statement in each[0] for node in ast.walk(statement)))
    return found[:MOST_BRANCHES]


def _is_number_or_flag(node: ast.AST) -> bool:
    """Return whether a node names an option, or sets names to numbers that an option may get."""
    values = node.value.elts if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) else ()
    values = [node.value] if isinstance(node, ast.Assign) and not values else values
    return _is_flag(node) or any(isinstance(each, ast.Constant) and type(each.value) is int for each in values)


def _is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--")
