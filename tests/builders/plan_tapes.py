"""Plan text with its backward pass: tests give the forward pass, and this writes down what automatic differentiation would.

A line may say after `||` what its backward is where that does not follow: `none` (no gradient), `same` (the gradient of the
result is that of the operand), `chunk` (of an all-gather, which is `reduce-scatter` otherwise), or lines with `{y}` and `{x}`
for the two gradients. The backward of `all-reduce` is `same`; `copy(x) over GROUP` is `x`, whose gradients the group sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CALL = re.compile(r"(?P<outs>.+?) = (?P<op>[\w.\-]+)(?: (?:sum|max|avg))?\((?P<args>.*)\)(?P<tail>[^)]*)$")
_NAME = re.compile(r"[A-Za-z_][\w.\-]*$")
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "chunk", "copy")


def with_backward(text: str) -> str:
    """The plan with the backward pass of every program; lines that start with `end` come after it."""
    out: list[str] = []
    weights: set[str] = set()
    tape: Tape | None = None
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("program"):
            out += tape.lines() if tape is not None else []
            tape = Tape(set(weights), [line])
        elif tape is not None:
            tape.add(line)
        else:
            out.append(line)
            if line.startswith("weight") and " frozen" not in line:
                weights.add(line.split()[1])
    return "\n".join([*out, *(tape.lines() if tape is not None else [])]) + "\n"


@dataclass
class Tape:
    """One program: what it runs forwards, what it then runs backwards, and what comes after that."""

    wanted: set[str]
    forward: list[str]
    calls: list[tuple[re.Match[str], str]] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def add(self, line: str) -> None:
        line, _, note = (part.strip() for part in line.partition("||"))
        if line.startswith("end "):
            self.last.append(line.removeprefix("end "))
            return
        found = _CALL.match(line)
        if found is None:
            self.forward.append(line)
            return
        outs, inputs = _results(found), _tensors(found["args"])
        self.read.update(inputs)
        self.forward.append(f"{found['outs']} = identity({found['args']})" if found["op"] == "copy" else line)
        if note == "none" or not self.wanted.intersection(inputs):
            return
        self.wanted.update(outs)
        self.calls.append((found, note))
        if note == "same" or (found["op"] == "all-reduce" and not note):
            self.renamed[inputs[0]] = outs[0]

    def gradient(self, name: str) -> str:
        while name in self.renamed:
            name = self.renamed[name]
        return f"grad({name})"

    def lines(self) -> list[str]:
        backward = [line for call, note in reversed(self.calls) for line in self._back(call, note)]
        return [*self.forward, *backward, *self.last]

    def _back(self, call: re.Match[str], note: str) -> list[str]:
        inputs, outs = _tensors(call["args"]), _results(call)
        to, of = self.gradient(inputs[0]), self.gradient(outs[0])
        rest = call["args"].partition(",")[2].strip()
        if "{" in note:
            return [part.strip().format(y=of, x=to) for part in note.split(";")]
        if call["op"] in _COLLECTIVES:
            return _collective(call["op"], note, to, of, rest, call["tail"])
        asked = ", ".join(self.gradient(name) if name in self.wanted else "_" for name in inputs)
        given = ", ".join(self.gradient(name) if name in self.read or name in ("l", *self.renamed) else "_" for name in outs)
        return [f"{asked} = backward {outs[0]} ({given})"]


def _collective(op: str, note: str, to: str, of: str, rest: str, tail: str) -> list[str]:
    if op == "all-reduce":
        return []
    if op == "copy":
        return [f"{to} = all-reduce({of}){tail}"]
    if op == "all-gather":
        return [f"{to} = {'chunk' if note == 'chunk' else 'reduce-scatter'}({of}, {rest}){tail}"]
    if op == "all-to-all":
        split, joined = (re.search(rf"(?<!-){name}=(\d+)", rest) for name in ("dim", "concat-dim"))
        assert split is not None
        assert joined is not None
        return [f"{to} = all-to-all({of}, dim={joined[1]}, concat-dim={split[1]}){tail}"]
    return [f"{to} = all-gather({of}, {rest}){tail}"]


def _results(call: re.Match[str]) -> list[str]:
    return [out.split(":")[0].strip() for out in _parts(call["outs"])]


def _tensors(args: str) -> list[str]:
    found: list[str] = []
    for part in _parts(args):
        listed = _parts(part[1:-1]) if part.startswith("[") else [part]
        found += [name for name in listed if _NAME.match(name) and name not in ("None", "True", "False", "inf")]
    return found


def _parts(text: str) -> list[str]:
    """What commas separate outside of brackets."""
    found, depth = [""], 0
    for mark in text:
        depth += (mark in "([") - (mark in ")]")
        if mark == "," and not depth:
            found.append("")
        else:
            found[-1] += mark
    return [part.strip() for part in found if part.strip()]
