"""What every command does takes operations in proportion to its input.

Operations are counted (`operation_counts`), not timed: the input is doubled twice, and what the second doubling adds may be at
most 2.5 times what the first one added (twice is linear, four times quadratic). What C does without a call is not counted;
where it walks the whole input for each part of it, as a search for a pattern does, a test of its own says that it does so once.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from shared import ROOT

from tests.builders.nnscaler_pickles import dumps, small
from tests.builders.operation_counts import operations
from tests.builders.residual_layers import residual_layers
from tvlint.cli import main
from tvlint.readers.read import read
from tvlint.readers.sources.decompress import decompress

MOST_GROWTH = 2.5
WARM = 2
"""Runs before the counted ones: the first configurations of a kind fill what is remembered of rules."""
LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 --num-layers "
PLAN = "mesh dp=2\nweight w f32[8,8]\ninput x f32[4,8]\n"
YAML = "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --num-attention-heads: 32\n"

Text = Callable[[int], str]


def script(lines: Callable[[int], str]) -> Text:
    """Return a script that grows line by line, and launches at its end."""
    return lambda size: "#!/bin/bash\n" + "".join(map(lines, range(size))) + LAUNCH + "4\n"


def along(axis: str, other: str) -> Text:
    """Return a tensor-parallel model whose mesh grows along one axis."""
    return lambda size: (
        f"mesh {other}=2 {axis}={size}\nweight w f32[16,8] dp:S(0)\ninput x f32[4,8]\nloss l\nprogram\n"
        f"  wf = all-gather(w, dim=0) over dp\n  y = linear(x, wf)\n  l = sum(y)\n"
    )


def each(line: str) -> Callable[[int], str]:
    """Return the lines `0` to `size`, the number filled in."""
    return lambda size: "".join(line.replace("#N", str(number)) for number in range(size))


def plan(body: Text) -> Text:
    """Return a plan whose program grows."""
    return lambda size: f"{PLAN}program\n{body(size)}"


def launches(line: str) -> Text:
    """Return a script of nothing but launches."""
    return lambda size: "#!/bin/bash\n" + each(line)(size)


def branches(body: str) -> Text:
    """Return a script with one `if` of many branches, none of which is decided."""
    return lambda size: f"if false; then :\n{each(f'elif [ $X = #N ]; then {body}' + chr(10))(size)}fi\n{LAUNCH}$V ${{A[@]}}\n"


WRONG = LAUNCH.replace("size 4", "size 3")
BRIDGE = "from megatron.bridge.training.config import ConfigContainer\n"
RECIPE = (
    "def f#N():\n    cfg = base()\n    cfg.model.tensor_model_parallel_size = C#N\n    cfg.model.num_attention_heads = 6\n"
    "    cfg.train.micro_batch_size = 2\n    return cfg\n"
)


def used_again(size: int) -> str:
    """Return a plan whose ranks add up parts of the gradients of all uses of one weight."""
    forth = "".join(f"  x{i + 1} = linear(x{i or ''}, w)\n" for i in range(size))
    back = "".join(f"  d{i}, grad(w) = backward x{i + 1} (d{i + 1})\n" for i in reversed(range(size)))
    given = f"weight w f32[8,8]\ninput x f32[8,8] dp:S(0)\ninput d{size} f32[8,8] dp:S(0)\n"
    return f"mesh dp=2\n{given}program\n{forth}{back}  reduce-gradients w over dp\n  update w\n"


def unreduced(size: int) -> str:
    """Return a plan whose ranks have programs of their own and step a weight with parts of its gradient."""
    step = "  l#N: f32[] = sum(h#N)\n  l = all-reduce(l#N) over dp\n  d#N = backward l#N (grad(l))\n"
    step = f"program dp=#N\n  h#N = linear(x, w)\n{step}  _, grad(w) = backward h#N (d#N)\n  update w\n"
    return f"mesh dp={size}\nweight w f32[4,4]\ninput x f32[{2 * size},4] dp:S(0)\nloss l\n{each(step)(size)}"


INPUTS: dict[str, tuple[str, int, Text]] = {
    "ranks along dp": ("a.plan", 100, along("dp", "tp")),
    "ranks along tp": ("a.plan", 100, along("tp", "dp")),
    "ranks along pp": ("a.plan", 100, along("pp", "dp")),
    "ranks of a group that lists them": (
        "a.plan",
        64,
        lambda n: f"{PLAN.replace('dp=2', f'dp={n}')}program\n  y = all-reduce(x) over ranks 0-{n // 2}\n",
    ),
    "operators that take the same": ("a.plan", 40, plan(each("  y#N = linear(x, w)\n"))),
    "operators in a chain": ("a.plan", 40, plan(lambda n: "".join(f"  x{i + 1} = linear(x{i or ''}, w)\n" for i in range(n)))),
    "operators of one name": ("a.plan", 40, plan(each("  y = linear(x, w)\n"))),
    "collectives of one handle": ("a.plan", 40, plan(each("  y#N = all-reduce(x) over dp async h\n"))),
    "collectives that read one tensor": (
        "a.plan",
        40,
        plan(lambda n: each("  y#N = all-gather(x, dim=0) over dp async h#N\n")(n) + each("  wait h#N\n")(n)),
    ),
    "programs of one rank each": (
        "a.plan",
        100,
        lambda n: f"mesh pp={n}\ninput x f32[4,8]\n" + each("program pp=#N\n  a = gelu(x)\n  b = relu(a)\n")(n),
    ),
    "views that are overwritten": (
        "a.plan",
        20,
        plan(lambda n: "  b = gelu(x)\n" + each("  v#N = view(b, size=[32])\n  add(v#N!, 1.0)\n  r#N = gelu(b)\n")(n)),
    ),
    "collectives over what is overwritten": (
        "a.plan",
        20,
        plan(lambda n: "  b = gelu(x)\n" + each("  y#N = all-reduce(b) over dp async h#N\n")(n) + "  add(b!, 1.0)\n" * n),
    ),
    "messages of another type than is waited for": (
        "a.plan",
        40,
        lambda n: (
            "mesh pp=3\ninput x f32[4,8]\nprogram pp=0\n"
            + "  send x to 2 tag 1\n" * n
            + "program pp=1\n"
            + each("  recv y#N: f32[8,8] from 0 tag 2\n")(n)
            + "program pp=2\n  z = gelu(x)\n"
        ),
    ),
    "calls of unknown effect": ("a.plan", 20, plan(each("  call#N(x, w)\n"))),
    "gradients of one name": (
        "a.plan",
        16,
        plan(lambda n: each("  y#N = linear(x, w)\n")(n) + each("  _, g = backward y#N (d#N)\n")(n)),
    ),
    "programs of ranks": (
        "a.plan",
        16,
        lambda n: f"mesh dp={n}\ninput x f32[4]\n" + each("program dp=#N\n  y = gelu(x)\n  z = all-reduce(y) over dp\n")(n),
    ),
    "programs of ranks that step parts of a gradient": ("a.plan", 40, unreduced),
    "uses of one weight": ("a.plan", 80, used_again),
    "messages out of order": (
        "a.plan",
        20,
        lambda n: (
            "mesh pp=2\ninput x f32[4]\nprogram pp=0\n"
            + each("  send x to 1 tag #N\n")(n)
            + "program pp=1\n"
            + "".join(f"  recv y{i}: f32[4] from 0 tag {n - i}\n" for i in range(n))
        ),
    ),
    "groups by name": ("a.plan", 20, plan(each("  y#N = all-reduce(x) over dp named g#N\n"))),
    "words of a line": ("a.plan", 60, plan(lambda n: "  y = " + "linear(x, w) " * n)),
    "weights": ("a.plan", 40, lambda n: f"{PLAN}{each('weight w#N f32[8,8]' + chr(10))(n)}program\n  y = linear(x, w)\n"),
    "launches": ("a.sh", 10, launches(f"{LAUNCH}#N\n")),
    "launches that are wrong": ("a.sh", 10, launches(f"{WRONG}#N\n")),
    "launches on other machines": ("a.sh", 10, script(lambda i: f'ssh host{i} "{LAUNCH}4"\n')),
    "undecided branches": ("a.sh", 20, script(lambda i: f'if [ "$X{i}" = a ]; then V{i}=1; else V{i}=2; fi\n')),
    "branches of one variable": ("a.sh", 20, script(lambda i: f'if [ "$X{i}" = a ]; then V=1; else V=2; fi\n')),
    "branches that set one variable": ("a.sh", 80, branches("V=#N")),
    "branches that set variables of their own": ("a.sh", 40, branches("V#N=1")),
    "branches that add to one array": ("a.sh", 80, branches("A+=(--seed #N)")),
    "patterns that set one variable": (
        "a.sh",
        80,
        lambda n: 'case "$X" in\n' + each("#N) V=#N ;;\n")(n) + f"esac\n{LAUNCH}$V\n",
    ),
    "variables with swapped letters": ("a.sh", 60, script(lambda i: f"V{i:04}AB=1\nW=$V{i:04}BA\n")),
    "lines that are cut off a command": ("a.sh", 20, script(lambda i: f"--seed {i}\nV{i} = {i}\n")),
    "variables before a command": ("a.sh", 60, lambda n: each("V#N=#N ")(n) + f"{LAUNCH}4\n"),
    "nested branches": ("a.sh", 10, lambda n: 'if [ "$X" = a ]; then\n' * n + "V=1\n" + "fi\n" * n + f"{LAUNCH}4\n"),
    "loops": ("a.sh", 20, script(lambda i: f"for V{i} in 1 2; do W{i}=$V{i}; done\n")),
    "pipelines": ("a.sh", 40, script(lambda i: f"V{i}=1 | cat\n")),
    "functions": ("a.sh", 40, script(lambda i: f"f{i}() {{ V{i}=1; }}\n")),
    "variables": ("a.sh", 40, script(lambda i: f"V{i}=$V{max(i - 1, 0)}\n")),
    "comments about one rule": ("a.sh", 60, script(lambda i: "# tvlint: ignore[a]\n")),
    "comments about unknown rules": ("a.sh", 60, script(lambda i: f"# tvlint: ignore[unknown-rule-{i:06}]\n")),
    "comments about rules that speak": ("a.sh", 10, launches(f"{WRONG}4 # tvlint: ignore[heads-not-divisible-by-tp]\n")),
    "unknown rules": ("tvlint.toml", 40, lambda n: "select = [\n" + "".join(f'"no-rule-{i:06}",\n' for i in range(n)) + "]\n"),
    "unknown keys": ("tvlint.toml", 60, lambda n: "".join(f"key-{i:06} = 1\n" for i in range(n))),
    "parts of a key": ("tvlint.toml", 10, lambda n: f"[{'.'.join('a' * n)}]\n"),
    "keys of a plan": ("a.json", 60, lambda n: f'{{"tvlint_plan": 1, {each(chr(34) + "k#N" + chr(34) + ": 1, ")(n)}"k0": 2}}'),
    "options of a YAML": ("a.yaml", 40, lambda n: YAML + each("  --unknown-#N: 1\n")(n)),
    "constants of a recipe": (
        "a.py",
        2,
        lambda n: f"{BRIDGE}{each('C#N = 5' + chr(10))(n)}{each(RECIPE)(n)}",
    ),
    "steps of a schedule": (
        "a.csv",
        20,
        lambda n: f"{each('0F#N,')(n)}{each('0B#N,')(n)}\n{each('1F#N,')(n)}{each('1B#N,')(n)}\n",
    ),
}


Files = Callable[[int], dict[str, str | bytes]]
Count = Callable[[Callable[[], object]], Counter[str]]


class Case(NamedTuple):
    """A command, its input by size, and the exit code that it gives where that is told."""

    arguments: tuple[str, ...]
    size: int
    files: Files
    code: int | None = None


def pair(model: Callable[[int, bool], str]) -> Files:
    """Return a parallel plan and its reference, which grow together."""
    return lambda size: {"a.plan": model(size, True), "b.plan": model(size, False)}


def sharded(size: int, parallel: bool, axis: str = "tp", last: str = "y = all-reduce(p) over tp") -> str:
    """Return two matrices, cut along an axis."""
    one, two = (f"{axis}:S(0)", f"{axis}:S(1)") if parallel else ("", "")
    return (
        f"mesh {axis}={size if parallel else 1}\nweight u f32[{2 * size},4] {one}\nweight d f32[4,{2 * size}] {two}\n"
        f"input x f32[4,4]\nloss l\nprogram\n  h = linear(x, u)\n  a = gelu(h)\n  p = linear(a, d)\n"
        f"  {last if parallel else 'y = identity(p)'}\n  e = gelu(y)\n  l = sum(e)\n  de = backward l (grad(l))\n"
        "  dy = backward e (de)\n  da, grad(d) = backward p (dy)\n  dh = backward a (da)\n  _, grad(u) = backward h (dh)\n"
        "  update u, d\n"
    )


def gathered(size: int, parallel: bool) -> str:
    """Return a weight that is gathered, and whose gradient is scattered."""
    make, scatter = (
        ("all-gather(w, dim=0) over dp", "reduce-scatter(v, dim=0) over dp") if parallel else ("identity(w)", "identity(v)")
    )
    own, part = ("dp:S(0)", "dp:P") if parallel else ("", "")
    return (
        f"mesh dp={size if parallel else 1}\nweight w f32[{2 * size},4] {own}\ninput x f32[{4 * size},4] {own}\n"
        f"loss l f32[] {part}\nprogram\n  f = {make}\n  h = linear(x, f)\n  e = gelu(h)\n  l = sum(e)\n"
        f"  de = backward l (grad(l))\n  dh = backward e (de)\n  _, v = backward h (dh)\n  grad(w) = {scatter}\n  update w\n"
    )


def exchanged(size: int, parallel: bool) -> str:
    """Return experts on the ranks of an axis, to which slices of tokens go and from which they come back."""
    cut, own = ("ep:S(0)", 1) if parallel else ("", size)

    def exchange(name: str, split: int) -> str:
        return f"all-to-all({name}, dim={split}, concat-dim={1 - split}) over ep" if parallel else f"identity({name})"

    return (
        f"mesh ep={size if parallel else 1}\nweight w f32[{size},4,4] {cut}\ninput x f32[{size},{size},4] {cut}\nloss l\n"
        f"program\n  d: f32[{size},{own},4] = {exchange('x', 1)}\n"
        f'  y: f32[{size},{own},4] = einsum(d, w, equation="geh,eho->geo")\n'
        f"  b: f32[{own},{size},4] = {exchange('y', 0)}\n  s = sum(b)\n"
        f"  l = {'all-reduce(s) over ep' if parallel else 'identity(s)'}\n  db = backward s (grad(l))\n"
        f"  dy: f32[{size},{own},4] = {exchange('db', 1)}\n  _, grad(w) = backward y (dy)\n"
    )


def stages(size: int, parallel: bool) -> str:
    """Return a layer on each pipeline stage, forward and backward."""
    weights = "".join(f"weight w{i} f32[4,4]\n" for i in range(size)) + "input x f32[4,4]\nloss l\n"
    names = ["x", *(f"h{i}" for i in range(size))]
    last = size - 1
    if not parallel:
        forward = "".join(f"  h{i} = linear({names[i]}, w{i})\n" for i in range(size))
        backward = "".join(f"  {f'd{i - 1}' if i else '_'}, grad(w{i}) = backward h{i} (d{i})\n" for i in reversed(range(size)))
        return f"mesh pp=1\n{weights}program\n{forward}  l = sum(h{last})\n  d{last} = backward l (grad(l))\n{backward}"
    segments = []
    for i in range(size):
        ends = i == last
        given, kept = ("x", "x") if i == 0 else ("", names[i])
        left = ", ".join([*([names[i]] if i else []), f"h{i}", *(["l"] if ends else [])])
        segments += [
            f"segment f{i} forward stage {i} ({given}) -> ({left})",
            *([f"  recv {names[i]}: f32[4,4] from pp-1"] if i else []),
            f"  h{i} = linear({names[i]}, w{i})",
            f"  l = sum(h{i})" if ends else f"  send h{i} to pp+1",
            f"segment b{i} backward stage {i} mirror f{i} ({kept}, h{i}{', l' if ends else ''}) -> ()",
            f"  d{i} = backward l (grad(l))" if ends else f"  recv d{i}: gradient f32[4,4] grad-of h{i} from pp+1",
            f"  {f'd{i - 1}' if i else '_'}, grad(w{i}) = backward h{i} (d{i})",
            *([f"  send d{i - 1} to pp-1"] if i else []),
        ]
    programs = [f"program pp={i}\n  run f{i} micro-batch 0\n  run b{i} micro-batch 0\n" for i in range(size)]
    return f"mesh pp={size}\nmicro-batches 1\n{weights}" + "\n".join(segments) + "\n" + "".join(programs)


def chain(size: int, parallel: bool) -> str:
    """Return layers one after another on two replicas."""
    forward = "".join(f"  x{i + 1} = linear(x{i}, w{i})\n" for i in range(size))
    backward = "".join(f"  d{i}, grad(w{i}) = backward x{i + 1} (d{i + 1})\n" for i in reversed(range(size)))
    cut, part = ("dp:S(0)", "dp:P") if parallel else ("", "")
    weights = "".join(f"weight w{i} f32[4,4]\n" for i in range(size))
    names = ", ".join(f"w{i}" for i in range(size))
    return (
        f"mesh dp={2 if parallel else 1}\n{weights}input x0 f32[4,4] {cut}\nloss l f32[] {part}\nprogram\n{forward}"
        f"  l = sum(x{size})\n  d{size} = backward l (grad(l))\n{backward}"
        + (f"  reduce-gradients {names} over dp\n" if parallel else "")
    )


def micro_batches(size: int, parallel: bool) -> str:
    """Return one layer that is run for each micro-batch."""
    rows = 2 if parallel else 2 * size
    body = f"weight w f32[4,4]\ninput x f32[{rows},4]\nloss l\n"
    forward = "  y = linear(x, w)\n  l = sum(y)\n"
    backward = "  dy = backward l (grad(l))\n  _, grad(w) = backward y (dy)\n"
    if not parallel:
        return f"mesh dp=1\n{body}program\n{forward}{backward}"
    return (
        f"mesh dp=1\nmicro-batches {size}\n{body}segment f forward (x) -> (y, l)\n{forward}"
        f"segment b backward mirror f (x, y, l) -> ()\n{backward}"
        f"program\n  run f micro-batch 0-{size - 1}\n  run b micro-batch 0-{size - 1}\n"
    )


def handles(size: int, parallel: bool) -> str:
    """Return layers whose gradients are all on their way over the replicas before the first one is waited for."""
    layers = chain(size, parallel).partition("  reduce-gradients")[0]
    if not parallel:
        return layers
    for i in range(size):
        layers = layers.replace(f", grad(w{i})", f", g{i}")
    sums = (f"  grad(w{i}) = all-reduce(g{i}) over dp async h{i}\n" for i in range(size))
    return layers + "".join(sums) + "".join(f"  wait h{i}\n" for i in range(size))


def updated(size: int, parallel: bool) -> str:
    """Return layers whose updates are written out."""
    return chain(size, parallel) + "".join(f"  s{i} = mul(grad(w{i}), 0.1)\n  w{i} = sub(w{i}, s{i})\n" for i in range(size))


def viewed(size: int, parallel: bool) -> str:
    """Return a layer beside a buffer whose views are overwritten and read in turn."""
    views = (f"  v{i} = view(b, size=[16])\n  add(v{i}!, 1.0)\n  r{i} = gelu(b)\n" for i in range(size))
    return chain(1, parallel).replace("  l = sum", "  b = gelu(w0)\n" + "".join(views) + "  l = sum")


def called(size: int, parallel: bool) -> str:
    """Return a layer beside calls of unknown effect."""
    return chain(1, parallel).replace("  l = sum", each("  call#N(x0)\n")(size) + "  l = sum")


def pickled(size: int) -> dict[str, str | bytes]:
    """Return a pickle of a plan that computes one thing again and again."""
    own = small()
    own.sequence[1:1] = [own.linear] * size
    return {"a.pkl": dumps(own.root)}


def generated(size: int) -> dict[str, str | bytes]:
    """Return the file of one rank of generated code, with a segment that grows."""
    text = (ROOT / "fixtures" / "clean" / "generated-code" / "gencode0.py").read_text()
    line = "        del data_20\n"
    more = "".join(
        f"        linear_{9000 + i} = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)\n" for i in range(size)
    )
    return {"gencode0.py": text.replace(line, more + line, 1)}


def captured(size: int) -> dict[str, str | bytes]:
    """Return a capture of one rank that multiplies again and again."""

    def tensor(number: int) -> str:
        held = {"tensor": number, "storage": number, "offset": 0, "shape": [2, 2], "stride": [2, 1], "dtype": "float32"}
        return json.dumps(held)

    head = {"tvlint_capture": 1, "launch": ["a.py"], "ranks": 1, "torch": "2.13.0", "replaced": [], "sized_down": []}
    lines = [json.dumps(head), '{"rank": 0}', tensor(0)]
    for number in range(size):
        lines += [
            tensor(number + 1),
            json.dumps(
                {"op": "aten.mul.Tensor", "arguments": {"self": {"t": number}, "other": {"t": number}}, "outputs": [number + 1]}
            ),
        ]
    return {"a.capture.jsonl": "\n".join(lines) + "\n"}


def loaded(size: int, parallel: bool) -> str:
    """Return a plan that loads what nothing reads, again and again; without its loads and segments as a reference."""
    given = "weight w f32[4,4]\ninput x f32[4,4]\nloss l\n"
    forth = "  h: f32[4,4] = linear(x, w)\n  y: f32[4,4] = gelu(h)\n  l: f32[] = sum(y)\n"
    back = "  dy: f32[4,4] = backward l (grad(l))\n  dh: f32[4,4] = backward y (dy)\n  _, grad(w) = backward h (dh)\n"
    if not parallel:
        return f"{given}program\n{forth}{back}"
    loads = "input z f32[4,4]\nsegment load data () -> (z)\n  z: f32[4,4] = dataloader()\n"
    segments = f"{loads}segment forth forward (x) -> (l)\n{forth}segment back backward () -> ()\n{back}"
    runs = "  run load micro-batch 0\n" * size + "  run forth micro-batch 0\n  run back micro-batch 0\n"
    return f"{given}{segments}program\n{runs}"


def only(name: str, text: Text) -> Files:
    """Return one file."""
    return lambda size: {name: text(size)}


def both(name: str, text: Text) -> Files:
    """Return two versions of a file, of which one says otherwise what the other says."""
    return lambda size: {f"one/{name}": text(size), f"two/{name}": text(size).replace("size 4", "size 2").replace(": 2", ": 4")}


PROVE = ("prove", "a.plan", "--reference", "b.plan", "--no-cache")
CONVERT = ("convert", "a.plan", "-o", "text:c.plan", "-o", "json:c.json")
TOPOLOGY = ("topology", "a.sh", "-o", "text", "-o", "json:c.json", "-o", "html:c.html")
CHECK = ("check", "--no-cache")
CONCISE = (*CHECK, "-o", "concise")
"""Shows no help, which is tried for a fixed number of findings, each by a check of the whole plan."""
LINEAR = plan(lambda n: "".join(f"  x{i + 1} = linear(x{i or ''}, w)\n" for i in range(n)))
LAYERS = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 32 --num-layers #N\n"

COMMANDS: dict[str, Case] = {
    **{what: Case((*CONCISE, name), size, only(name, text)) for what, (name, size, text) in INPUTS.items()},
    "ranks along pp, a segment each": Case((*CHECK, "a.plan"), 16, only("a.plan", lambda n: stages(n, True)), 0),
    "prove: ranks along tp": Case(PROVE, 16, pair(sharded), 0),
    "prove: ranks along tp, refuted": Case(PROVE, 16, pair(lambda n, p: sharded(n, p, last="y = identity(p)")), 1),
    "prove: ranks along dp, refuted": Case(
        PROVE, 16, pair(lambda n, p: gathered(n, p).replace("reduce-scatter(v", "chunk(v")), 1
    ),
    "prove: ranks along dp": Case(PROVE, 16, pair(gathered), 0),
    "prove: ranks along ep": Case(PROVE, 16, pair(exchanged), 0),
    "prove: ranks along pp": Case(PROVE, 32, pair(stages), 0),
    "prove: layers below a part of a sum": Case(PROVE, 4, pair(lambda n, p: residual_layers(n, p, n - 1)), 1),
    "layers below a part of a sum": Case((*CONCISE, "a.plan"), 4, only("a.plan", lambda n: residual_layers(n, True, n - 1)), 1),
    "prove: operators in a chain": Case(PROVE, 10, pair(chain), 0),
    "handles open at once": Case((*CHECK, "a.plan"), 40, only("a.plan", lambda n: handles(n, True)), 0),
    "prove: weights updated by operators": Case(PROVE, 40, pair(updated), 0),
    "prove: views that are overwritten": Case(PROVE, 10, pair(viewed), 5),
    "prove: calls of unknown effect": Case(PROVE, 10, pair(called), 5),
    "prove: loads of what nothing reads": Case(PROVE, 100, pair(loaded), 5),
    "prove: micro-batches": Case(PROVE, 16, pair(micro_batches), 0),
    "convert: ranks": Case(CONVERT, 100, only("a.plan", along("tp", "dp")), 0),
    "convert: operators": Case(CONVERT, 40, only("a.plan", LINEAR), 0),
    "topology: launches": Case(TOPOLOGY, 10, only("a.sh", launches(f"{LAUNCH}#N\n")), 0),
    "topology: ranks": Case(
        TOPOLOGY[:-2], 32, only("a.sh", lambda n: f"#!/bin/bash\n{LAUNCH.replace('8 p', f'8 --nnodes {n} p')}4\n"), 0
    ),
    "topology: ranks of a plan along dp": Case(
        ("topology", "a.plan", *TOPOLOGY[2:]), 200, only("a.plan", along("dp", "tp")), 0
    ),
    "topology: layers": Case(TOPOLOGY, 64, only("a.sh", lambda n: f"#!/bin/bash\n{LAYERS.replace('#N', str(n))}"), 0),
    "diff: launches": Case(("diff", "one", "two"), 8, both("a.sh", launches(f"{LAUNCH}#N\n")), 0),
    "diff: options of a YAML": Case(
        ("diff", "one", "two"), 20, both("a.yaml", lambda n: YAML + each("  --unknown-#N: 1\n")(n)), 0
    ),
    "explain: an unknown rule": Case(("explain", "#N"), 20, lambda n: {}, 2),
    "pickles: operators": Case((*CHECK, "--no-prove", "a.pkl"), 40, pickled, 1),
    "generated code: operators": Case((*CHECK, "--no-prove", "gencode0.py"), 20, generated, 1),
    "captures: operators": Case((*CHECK, "--no-prove", "a.capture.jsonl"), 40, captured, 0),
    "findings in one line": Case(
        (*CHECK, "ds.json"),
        40,
        only(
            "ds.json",
            lambda n: '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2' + ', "steps_per_print": 1' * n + "}",
        ),
        1,
    ),
    "fixes: misspelt options": Case(
        (*CHECK, "--fix", "a.sh"), 5, only("a.sh", launches(f"{LAUNCH.replace('parallel', 'paralel')}4\n")), 0
    ),
    "fixes: launches that are wrong": Case(
        (*CHECK, "--fix", "--unsafe-fixes", "a.sh"), 3, only("a.sh", launches(f"{WRONG}4\n")), 0
    ),
    "nested braces of a script": Case(
        (*CHECK, "a.sh"), 20, only("a.sh", lambda n: "#!/bin/bash\n" + "{ " * n + "true" + "; }" * n + f"\n{LAUNCH}4\n"), 0
    ),
    "nested substitutions of a script": Case(
        (*CHECK, "a.sh"), 8, only("a.sh", lambda n: "#!/bin/bash\nV=" + "$(echo " * n + "1" + ")" * n + f"\n{LAUNCH}4\n"), 0
    ),
    "nested lists of a JSON": Case(
        (*CHECK, "a.json"), 40, only("a.json", lambda n: '{"tvlint_plan": 1, "mesh": ' + "[" * n + "]" * n + "}"), 2
    ),
    "nested mappings of a YAML": Case(
        (*CHECK, "a.yaml"),
        10,
        only("a.yaml", lambda n: YAML + "".join("  " * i + f"k{i}:\n" for i in range(n)) + "  " * n + "a: 1\n"),
        0,
    ),
    "nested lists of a recipe": Case(
        (*CHECK, "a.py"),
        10,
        only("a.py", lambda n: f"{BRIDGE}C = 2\nX = " + "[" * n + "]" * n + f"\n{RECIPE.replace('#N', '')}"),
        0,
    ),
    "nested lists of a project file": Case(
        (*CHECK, "tvlint.toml"), 20, only("tvlint.toml", lambda n: "select = " + "[" * n + "]" * n + "\n"), 2
    ),
    "nested constants of a plan": Case(
        (*CHECK, "a.plan"), 10, only("a.plan", plan(lambda n: "  y = view(x, size=" + "[" * n + "1" + "]" * n + ")\n")), 0
    ),
    "files": Case((*CHECK, "."), 10, lambda n: {f"{i}.sh": f"#!/bin/bash\n{LAUNCH}4\n" for i in range(n)}, 0),
    "files that name each other": Case(
        (*CHECK, "."),
        10,
        lambda n: {f"{i}.sh": f"#!/bin/bash\nsource {i + 1}.sh\n" for i in range(n)} | {f"{n}.sh": LAUNCH + "4\n"},
        0,
    ),
}


LINES = {
    "blanks at its end": f"  y = gelu(x){' ' * 1_000_000}",
    "escaped quotes without an end": '  y = "' + '\\"' * 100_000,
    "blanks of two kinds": f"{' ' * 2000}\v" * 500,
}


@pytest.mark.parametrize("what", LINES)
def test_no_pattern_takes_the_square_of_a_line(tmp_path: Path, what: str) -> None:
    # Operations within a pattern are not counted: what took minutes takes no second.
    (tmp_path / "a.plan").write_text(f"{PLAN}program\n{LINES[what]}\n")
    command = [sys.executable, "-m", "tvlint", *CHECK, "a.plan"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1, 2), done.stderr


def counted(
    folder: Path, files: dict[str, str | bytes], arguments: tuple[str, ...], code: int | None, count: Count = operations
) -> int:
    """Return the operations of one command on files in a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(main(arguments))
        except SystemExit as exit:
            ended.append(exit.code)

    taken = sum(count(run).values())
    assert code is None or ended == [code]
    return taken


def uncounted(work: Callable[[], object]) -> Counter[str]:
    """Do the work, which takes a tenth of the time where nobody counts."""
    work()
    return Counter()


@pytest.mark.heavy
@pytest.mark.usefixtures("capfdbinary")
@pytest.mark.parametrize("what", COMMANDS)
def test_twice_as_much_takes_twice_the_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    case, counts = COMMANDS[what], []
    for at, factor in enumerate((*[1] * WARM, 1, 2, 4)):
        given = tuple(word.replace("#N", "n" * case.size * factor) for word in case.arguments)
        count = operations if at >= WARM else uncounted
        counts.append(counted(tmp_path, case.files(case.size * factor), given, case.code, count))
    added = counts[WARM + 1] - counts[WARM], counts[WARM + 2] - counts[WARM + 1]
    assert added[1] <= MOST_GROWTH * added[0] + 1000, counts


def test_the_count_sees_what_grows_with_the_square() -> None:
    def quadratic(size: int) -> int:
        return sum(operations(lambda: [list(range(size)).count(each) for each in range(size)]).values())

    one, two, four = (quadratic(size) for size in (50, 100, 200))
    assert four - two > MOST_GROWTH * (two - one)


def test_the_tree_around_a_script_is_searched_once_for_all_its_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sh"
    path.write_text(launches(f"{LAUNCH}#N\n")(20))
    searched: list[str] = []
    monkeypatch.setattr("tvlint.readers.megatron.program.names_ending", lambda folder, ending: searched.append(folder) or ())
    document = read(str(path))
    assert document is not None
    assert len(document.configurations) == 20
    assert searched
    assert len(searched) == len(set(searched))


def test_a_script_is_searched_once_for_the_version_that_its_launches_run(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr("tvlint.readers.megatron.launch_script.version_of_script", lambda text: searched.append(text) or "0.12")
    document = read("a.sh", launches(f"{LAUNCH}#N\n")(20).encode())
    assert document is not None
    assert {configuration.version for configuration in document.configurations} == {"0.12"}
    assert len(document.configurations) == 20
    assert len(searched) == 1


class _Counted:
    """A stream of a compression library, which counts the bytes that it gets and gives back."""

    def __init__(self, stream: Any, bytes_moved: list[int]) -> None:
        self._stream, self._bytes_moved = stream, bytes_moved

    def decompress(self, data: bytes, most: int) -> bytes:
        self._bytes_moved[0] += len(data)
        return self._stream.decompress(data, most)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        self._bytes_moved[0] += len(found) if isinstance(found, bytes) else 0
        return found


@pytest.mark.parametrize(
    ("library", "maker", "compress"),
    [(zlib, "decompressobj", gzip.compress), (lzma, "LZMADecompressor", lzma.compress)],
    ids=["gzip", "xz"],
)
def test_streams_one_after_another_are_not_copied_for_each(
    monkeypatch: pytest.MonkeyPatch, library: Any, maker: str, compress: Callable[[bytes], bytes]
) -> None:
    moved = [0]
    make = getattr(library, maker)
    monkeypatch.setattr(library, maker, lambda *given, **named: _Counted(make(*given, **named), moved))
    counts = []
    for streams in (1000, 2000, 4000):
        moved[0] = 0
        data = compress(b"first") + compress(b"") * streams + b"\0" * 300 + compress(b"last")
        assert decompress(data, "a") == b"firstlast"
        counts.append(moved[0])
    assert counts[2] - counts[1] <= MOST_GROWTH * (counts[1] - counts[0]), counts
