"""Feeds broken inputs to every command, and keeps what crashes, takes for ever or writes what nobody can read.

python -m benchmarks.fuzz [--seconds 600] [--seed 1] [--keep finds] [--only WORD]

Inputs are the repository's own fixtures, examples of rule pages and small pickles, changed by one to six edits that know lines,
words, numbers and nesting. Each runs in a process of its own with a clock and a memory limit. A find is exit code 3 or any code
that no document names, a traceback, a budget that a small input needs more than, a control character in text, or JSON and XML
that do not parse. Finds are written to the folder, each with the command that shows it; make it a test, small, before it is
mended.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import xml.etree.ElementTree as tree
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 64 << 10
"""Bytes of the largest input that is changed."""
LIMITS = ("--budget", "file-cpu=6", "--budget", "file-wall=60", "--budget", "run-cpu=12", "--budget", "memory=2048")
LOADED = (
    *("cli.check", "cli.convert", "cli.prove", "cli.topology", "run.proof.prove"),
    *("equivalence.verdict.prove", "readers.read"),
)
"""What forked processes need not import each."""
EXPECTED = frozenset({0, 1, 2, 4, 5})
FORMATS = ("text", "concise", "json", "sarif", "junit", "github", "markdown", "html")
NUMBERS = ("0", "1", "-1", "2", "3", "7", "64", "1000", "4096", "65535", "1000000", "2147483648", "1e9", "9" * 30, "9" * 5000)
TEXTS = ("\x1b[2J", "\r", "\0", "\u202e", "::error::x", "<b>", "]]>", "\\", '"', "'", "$(", "`", "{", "[", "%s", "é", "\ud800")
BRACKETS = ((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b"if x; then\n", b"\nfi\n"), (b'{"a":', b"}"))
NEEDS = re.compile(r"needs more than [\d.,]+ (?:seconds|MiB)|needs more (?:memory|time|stack)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TOKEN = re.compile(rb"\w+|[^\w\s]+|\s+")
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDINGS = {"bash": ".sh", "python": ".py"}
"""Of languages that are not their own ending."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A file that is right, or wrong as somebody would have it."""

    name: str
    data: bytes


def seeds(only: str) -> list[Seed]:
    """Return the small files of the fixtures and the examples of rule pages."""
    found = [
        Seed(path.name, path.read_bytes())
        for folder in ("fixtures", "tests/data")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.stat().st_size <= LARGEST
    ]
    for page in sorted((ROOT / "rules").rglob("*.md")):
        for kind, text in FENCE.findall(page.read_text(encoding="utf-8")):
            found.append(Seed(f"{page.stem}{ENDINGS.get(kind, '.' + kind)}", text.encode()))
    return [seed for seed in found if only in seed.name]


class Mutator:
    """Edits of an input, drawn from one source of randomness."""

    def __init__(self, chance: random.Random, others: list[Seed]) -> None:
        self.chance, self.others = chance, others

    def changed(self, data: bytes) -> bytes:
        """Return the input after a few edits."""
        edits = (self._lines, self._token, self._token, self._token, self._nest, self._repeat, self._join, self._bytes)
        for _ in range(self.chance.randint(1, 6)):
            data = self.chance.choice(edits)(data)[: 4 * LARGEST]
        return data

    def _lines(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        place, other = self.chance.randrange(len(lines)), self.chance.randrange(len(lines))
        kind = self.chance.randrange(3)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(other, lines[place])
        else:
            lines[place], lines[other] = lines[other], lines[place]
        return b"\n".join(lines)

    def _token(self, data: bytes) -> bytes:
        tokens = TOKEN.findall(data)
        if not tokens:
            return data
        place = self.chance.randrange(len(tokens))
        numbers = [at for at, token in enumerate(tokens) if token.isdigit()]
        if numbers and self.chance.random() < 0.5:
            tokens[self.chance.choice(numbers)] = self.chance.choice(NUMBERS).encode()
        elif self.chance.random() < 0.3:
            tokens[place] += self.chance.choice(TEXTS).encode("utf-8", "surrogatepass")
        else:
            tokens[place] = self.chance.choice(tokens)
        return b"".join(tokens)

    def _nest(self, data: bytes) -> bytes:
        opening, closing = self.chance.choice(BRACKETS)
        times, place = self.chance.choice((3, 50, 2000)), self.chance.randint(0, len(data))
        return data[:place] + opening * times + data[place : place + 8] + closing * times + data[place + 8 :]

    def _repeat(self, data: bytes) -> bytes:
        place, length = self.chance.randint(0, len(data)), self.chance.choice((1, 8, 60, 400))
        piece = data[place : place + length]
        return data[:place] + piece * min(self.chance.choice((2, 20, 1000)), LARGEST // max(len(piece), 1)) + data[place:]

    def _join(self, data: bytes) -> bytes:
        other = self.chance.choice(self.others).data
        return data[: self.chance.randint(0, len(data))] + other[self.chance.randint(0, len(other)) :]

    def _bytes(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.chance.randint(1, 4) if changed else 0):
            changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
        return bytes(changed)


def commands(chance: random.Random, name: str) -> Iterator[tuple[str, ...]]:
    """Yield what is tried on one input, without the limits."""
    yield ("check", "--no-cache", "-o", chance.choice(FORMATS), name)
    if chance.random() < 0.4:
        yield ("convert", "-o", chance.choice(("json", "text")), name)
    if chance.random() < 0.4:
        yield ("prove", "--no-cache", "-o", chance.choice(FORMATS), name, "--reference", name)
    if chance.random() < 0.3:
        yield ("topology", "-o", chance.choice(("text", "json", "html")), name)


def run(arguments: tuple[str, ...], folder: Path) -> tuple[int, str, str]:
    """Return the exit code and the outputs of one command, run in a process forked from this one."""
    from tvlint.cli.command import run as run_command
    from tvlint.run.process.child import Child

    out, err = folder / "stdout", folder / "stderr"

    def command() -> int:
        import os

        os.chdir(folder / "input")
        for path, stream in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        return run_command(arguments, in_worker=True)

    ended = Child(command).wait()
    return ended.code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace")


def wrong(arguments: tuple[str, ...], code: int, out: str, err: str) -> str:
    """Return what is wrong with the end of a command; empty where nothing is."""
    if code not in EXPECTED:
        return f"exit {code}: {err.strip()[:200]}"
    if "Traceback (most recent call last)" in out + err:
        return "a traceback"
    if NEEDS.search(out + err):
        return "needs more than its budget"
    form = arguments[arguments.index("-o") + 1]
    if form not in ("json", "sarif", "html") and (found := CONTROL.search(out + err)):
        return f"a control character: {found[0]!r}"
    try:
        if out and form in ("json", "sarif"):
            json.loads(out)
        elif out and form == "junit":
            tree.fromstring(out)
    except (ValueError, tree.ParseError) as error:
        return f"{form} does not parse: {error}"
    return ""


def main() -> int:
    """1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("finds"))
    parser.add_argument("--only", default="", help="inputs whose name holds this")
    options = parser.parse_args()
    for module in LOADED:
        import_module(f"tvlint.{module}")
    chance = random.Random(options.seed)
    known = seeds(options.only)
    mutator = Mutator(chance, known)
    started, tried, finds = time.monotonic(), 0, dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "input" / ".git").mkdir(parents=True)
        while time.monotonic() - started < options.seconds:
            seed = chance.choice(known)
            data = mutator.changed(seed.data)
            (place / "input" / seed.name).write_bytes(data)
            for arguments in commands(chance, seed.name):
                tried += 1
                end = wrong(arguments, *run((*arguments, *LIMITS), place))
                if not end:
                    continue
                kind = re.sub(r"\d+", "N", f"{arguments[0]}: {end}")[:80]
                finds[kind] = finds.get(kind, 0) + 1
                if finds[kind] <= 3:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{tried}-{seed.name}").write_bytes(data)
                    print(f"{tried}-{seed.name}: tvlint {' '.join(arguments)}: {end}", flush=True)
            (place / "input" / seed.name).unlink()
    print(f"{tried} runs, {len(finds)} kinds of finds")
    for kind, count in sorted(finds.items()):
        print(f"  {count:5}  {kind}")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
