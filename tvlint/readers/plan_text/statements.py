"""The statements of plan text, one after the other."""

from __future__ import annotations

from tvlint.ir.plan import Plan, Role
from tvlint.readers.plan_text.builder import Draft, Section
from tvlint.readers.plan_text.clauses import parse_group
from tvlint.readers.plan_text.lexer import Line
from tvlint.readers.plan_text.lower import assemble
from tvlint.readers.plan_text.operators import ROLES, parse_operators
from tvlint.readers.plan_text.sections import parse_program_header, parse_run, parse_segment_header

_MOST_STEPS = 2**21


def read_plan(path: str, text: str) -> Plan:
    """Return the plan that `text` states; raises ReadError at the first line that cannot be read."""
    draft = Draft(path)
    for number, row in enumerate(text.lstrip("\ufeff").split("\n"), 1):
        line = Line(path, number, row.removesuffix("\r"))
        if line.peek():
            _statement(line, draft)
            line.end()
    return assemble(draft)


def _statement(line: Line, draft: Draft) -> None:
    word = line.peek()
    section = draft.section
    if line.after() not in ("=", ",", ":", "(") and word in _STATEMENTS:
        _top(line, draft, word)
        return
    if section is None:
        if line.after() in ("=", ",", ":", "("):
            line.fail("an operator outside of a program or segment", "start with a line `program`")
        line.fail_unknown("a statement", word, sorted(_STATEMENTS))
    if word == "run" and line.after() not in ("=", ",", ":", "("):
        if section.header is not None:
            line.fail("`run` stands in a program, not in a segment")
        section.items.extend(parse_run(line))
        if len(section.items) > _MOST_STEPS:
            line.fail(f"a program of more than {_MOST_STEPS} steps", index=0)
        return
    if word == "micro-batch" and line.after() not in ("=", ",", ":", "("):
        line.index += 1
        section.items.append(line.integer("micro-batch", 0, 2**16 - 1))
        return
    section.items.extend(parse_operators(line, section.scope))


_STATEMENTS = frozenset(
    ["plan", "mesh", "replicate", "micro-batches", "communicator", "output", "loss", "segment", "program", *ROLES]
)


def _top(line: Line, draft: Draft, word: str) -> None:
    start = line.index
    line.index += 1
    match word:
        case "plan":
            draft.once(line, word)
            draft.name = line.string("the plan's name") if line.peek() else ""
        case "mesh":
            draft.once(line, word)
            draft.set_mesh(line)
        case "replicate":
            draft.once(line, word)
            draft.set_replication(line)
        case "micro-batches":
            draft.once(line, word)
            draft.micro_batches = line.integer("number of micro-batches", 1, 2**20)
        case "communicator":
            name = line.name("a communicator") if line.peek() != "over" or line.after() == "over" else ""
            if name in draft.communicators:
                line.fail(f"communicator `{name}` is declared twice", index=start + 1)
            line.expect("over")
            group = parse_group(line, draft.scope())
            draft.add_communicator(name, group)
        case "output" | "loss":
            draft.add_output(line, word == "loss")
        case "segment":
            header = parse_segment_header(line)
            if header.name in draft.segments:
                line.fail(f"segment `{header.name}` is declared twice", index=start + 1)
            draft.start(Section(draft.scope(), line, header=header))
        case "program":
            draft.start(Section(draft.scope(), line, ranks=parse_program_header(line, draft.mesh, draft.replicated_axis())))
        case _:
            draft.add_tensor(line, ROLES.get(word, Role.ACTIVATION))
