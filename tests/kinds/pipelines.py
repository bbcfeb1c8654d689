"""Pipelines: a stack of linear layers on stages, by schedule, by how messages go, and by what else is parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.builders.plan_tapes import with_backward
from tests.kinds.kind import Kind
from tests.kinds.schedules import Order, all_forwards_first, one_forward_one_backward, zero_bubble

_WAYS = {"GPipe": all_forwards_first, "1F1B": one_forward_one_backward, "zero bubble": zero_bubble}


@dataclass(frozen=True)
class Pipe:
    """A pipeline of `chunks` layers, each `linear gelu linear`; `tied` says how the ends share an embedding."""

    stages: int
    chunks: int
    micro: int
    way: str = "1F1B"
    waits: str = "at the end"
    dp: int = 1
    tp: int = 1
    tied: str = ""
    checkpointed: bool = False
    reducer: str = ""
    loss: str = "all-reduce avg(l1) over dp"

    def reference(self) -> str:
        lines = [*self._declared(whole=True), "loss l", "program"]
        before = "x"
        if self.tied:
            lines.append("x0 = embedding(x, e)")
            before = "x0"
        for c in range(self.chunks):
            lines += [f"h{c} = linear({before}, u{c})", f"a{c} = gelu(h{c})", f"y{c} = linear(a{c}, v{c})"]
            before = f"y{c}"
        if self.tied:
            lines.append(f"z = linear({before}, e)")
        lines += [f"l: f32[1] = mse_loss({'z' if self.tied else before}, t)", f"end update {', '.join(self._weights())}"]
        return with_backward("\n".join(lines))

    def plan(self) -> str:
        mesh = "".join(f" {name}={size}" for name, size in (("dp", self.dp), ("pp", self.stages), ("tp", self.tp)) if size > 1)
        lines = [f"mesh{mesh}", f"micro-batches {self.micro}", *self._declared(whole=False), "loss l"]
        for c in range(self.chunks):
            lines += [*self._forward(c), *self._backward(c)]
        if self.tied.startswith("run"):
            lines += ["segment E reduce (grad(e)) -> (grad(e))", "grad(e) = all-reduce(grad(e)) over " + self._ends]
        order = _WAYS[self.way](self.stages, self.chunks, self.micro)
        for stage in range(self.stages):
            lines += [f"program pp={stage}", *self._program(stage, order)]
        return "\n".join(lines) + "\n"

    def _weights(self, stage: int | None = None) -> list[str]:
        own = range(self.chunks) if stage is None else range(stage, self.chunks, self.stages)
        ends = self.tied and stage in (None, 0, self.stages - 1)
        return [name for c in own for name in (f"u{c}", f"v{c}")] + (["e"] if ends else [])

    def _declared(self, *, whole: bool) -> Iterator[str]:
        split = ("", "") if whole or self.tp == 1 else (" tp:S(0)", " tp:S(1)")
        for c in range(self.chunks):
            yield f"weight u{c} f32[8,4]{split[0]}"
            yield f"weight v{c} f32[4,8]{split[1]}"
        rows = 2 * self.dp * (self.micro if whole else 1)
        over = " dp:S(0)" if self.dp > 1 and not whole else ""
        if self.tied:
            yield "weight e f32[6,4]"
        yield f"input x i64[{rows},3]{over}" if self.tied else f"input x f32[{rows},4]{over}"
        yield f"input t f32[{rows},3,6]{over}" if self.tied else f"input t f32[{rows},4]{over}"

    @property
    def _ends(self) -> str:
        return f"ranks 0,{self.stages - 1}"

    @property
    def _type(self) -> str:
        return "f32[2,3,4]" if self.tied else "f32[2,4]"

    def _sent(self, name: str, step: int, handle: str) -> str:
        ring = " ring" if self.chunks > self.stages else ""
        return f"send {name} to pp{step:+}{ring}" + (f" async {handle}" if self.waits != "none" else "")

    def _received(self, name: str, step: int, handle: str, what: str) -> list[str]:
        line = f"recv {name}: {what} from pp{step:+}" + (" ring" if self.chunks > self.stages else "")
        return [line] if self.waits == "none" else [f"{line} async {handle}", f"wait {handle}"]

    def _names(self, c: int) -> tuple[str, str]:
        """What the chunk reads, and what its last product makes."""
        start = "x0" if self.tied else "x"
        return (f"y{c - 1}" if c else start), (f"p{c}" if self.tp > 1 else f"y{c}")

    def _layers(self, c: int) -> list[str]:
        return [f"h{c} = linear({self._names(c)[0]}, u{c})", f"a{c} = gelu(h{c})"]

    def _kept(self, c: int) -> list[str]:
        before, product = self._names(c)
        inner = [] if self.checkpointed else [f"h{c}", f"a{c}"]
        ends = ([*(["z"] if self.tied else []), "l0", "l1", "l"]) if c == self.chunks - 1 else []
        return list(dict.fromkeys([*([before] if before != "x" else []), *inner, product, f"y{c}", *ends]))

    def _forward(self, c: int) -> list[str]:
        before, product = self._names(c)
        last = c == self.chunks - 1
        lines = [f"segment F{c} forward stage {c}{' checkpointed' if self.checkpointed else ''} "
                 f"({', '.join(self._data(c))}) -> ({', '.join(self._kept(c))})"]  # fmt: skip
        lines += self._received(before, -1, f"rf{c}", self._type) if c else []
        lines += ["x0 = embedding(x, e)"] if self.tied and not c else []
        lines += [*self._layers(c), f"{product} = linear(a{c}, v{c})"]
        lines += [f"y{c} = all-reduce({product}) over tp"] if self.tp > 1 else []
        if not last:
            return [*lines, self._sent(f"y{c}", 1, f"sf{c}"), *self._done("DF", c, f"sf{c}", "forward")]
        lines += [f"z = linear(y{c}, e)"] if self.tied else []
        lines += [f"l0: f32[1] = mse_loss({'z' if self.tied else f'y{c}'}, t)", f"l1 = div(l0, {self.micro})"]
        return [*lines, f"l = {self.loss if self.dp > 1 else 'identity(l1)'}"]

    def _data(self, c: int) -> list[str]:
        return [*(["x"] if not c else []), *(["t"] if c == self.chunks - 1 else [])]

    def _done(self, kind: str, c: int, handle: str, phase: str) -> list[str]:
        return [f"segment {kind}{c} {phase} stage {c} () -> ()", f"wait {handle}"] if self.waits != "none" else []

    def _backward(self, c: int) -> list[str]:
        before, product = self._names(c)
        split = self.way == "zero bubble"
        read = ", ".join([*self._data(c), *self._kept(c)])
        grads = f"dy{c}, dh{c}" if split else ""
        lines = [f"segment B{c} backward stage {c} mirror F{c} ({read}) -> ({grads})"]
        if c < self.chunks - 1:
            lines += self._received(f"dy{c}", 1, f"rb{c}", f"gradient {self._type} grad-of y{c}")
        elif self.tied:
            lines += ["dl0 = backward l1 (grad(l))", "dz, _ = backward l0 (dl0)", f"dy{c}, grad(e) = backward z (dz)"]
        else:
            lines += ["dl0 = backward l1 (grad(l))", f"dy{c}, _ = backward l0 (dl0)"]
        lines += self._layers(c) if self.checkpointed else []
        lines += [f"da{c}, {'_' if split else f'grad(v{c})'} = backward {product} (dy{c})", f"dh{c} = backward a{c} (da{c})"]
        to = "_" if before == "x" else f"d{before}"
        partial = f"dx{c}" if self.tp > 1 and to != "_" else to
        if to != "_" or not split:
            lines.append(f"{partial}, {'_' if split else f'grad(u{c})'} = backward h{c} (dh{c})")
        lines += [f"{to} = all-reduce({partial}) over tp"] if partial != to else []
        lines += ["_, grad(e) = backward x0 (dx0)"] if self.tied and not c else []
        lines += [self._sent(to, -1, f"sb{c}"), *self._done("DB", c, f"sb{c}", "backward")] if c else []
        if split:
            lines += [f"segment W{c} backward stage {c} mirror F{c} ({read}, {grads}) -> ()"]
            lines += [f"_, grad(v{c}) = backward {product} (dy{c})", f"_, grad(u{c}) = backward h{c} (dh{c})"]
        return lines

    def _program(self, stage: int, order: Order) -> list[str]:
        runs = [f"run {kind}{c} micro-batch {batch}" for kind, c, batch in order[stage]]
        if self.waits != "none":
            runs += [f"run D{kind}{c} micro-batch {batch}" for kind, c, batch in order[stage]
                     if (kind == "F" and c < self.chunks - 1) or (kind == "B" and c)]  # fmt: skip
        names = ", ".join(self._weights(stage))
        if self.tied and stage in (0, self.stages - 1):
            runs.append(self.tied.format(ends=self._ends))
        if self.dp > 1:
            runs.append(f"reduce-gradients {names} over dp by avg{self.reducer}")
        return [*runs, f"update {names}"]


def _two_names(kind: Kind) -> Kind:
    """The last stage has the embedding under a name of its own."""
    before, last = kind.plan.split("program pp=1\n")
    before = before.replace("weight e f32[6,4]\n", "weight e f32[6,4]\nweight head f32[6,4] of e\n")
    before = before.replace("z = linear(y1, e)", "z = linear(y1, head)").replace("dy1, grad(e)", "dy1, grad(head)")
    for old, new in (("grad(e)", "grad(head)"), ("gradients e over", "gradients head over"), (", e\n", ", head\n")):
        last = last.replace(old, new)
    return replace(kind, name=f"{kind.name}, under two names", plan=f"{before}program pp=1\n{last}")


def _kind(name: str, pipe: Pipe, *mistakes: tuple[str, str]) -> Kind:
    shared = (("div(l0, ", "div(l0, 1"), ("grad(v1) = backward", "_ = backward"))
    return Kind(name, pipe.reference(), pipe.plan(), (*shared, *mistakes))


_TWICE = ("run B0 micro-batch 1\n", "run B0 micro-batch 0\n")
_SKIPPED = ("run B1 micro-batch 1\n", "")
_TIED = "grad(e) = all-reduce(grad(e)) over {ends}"
_ENDS = _TIED.format(ends="ranks 0,1")
_NOT_SUMMED = ("dy0 = all-reduce(dx1) over tp", "dy0 = identity(dx1)")

_REDUCED = _kind(
    "tied embedding, by a reducer",
    Pipe(2, 2, 4, tied="reduce-gradients e over {ends}"),
    ("over ranks 0,1\n", "over ranks 0,1 by avg\n"),
    ("over ranks 0,1\n", "over pp divide 2\n"),
)

KINDS = (
    _kind("GPipe with blocking messages", Pipe(3, 3, 4, "GPipe", "none"), _SKIPPED),
    _kind("GPipe with waits at the end", Pipe(2, 2, 4, "GPipe"), _TWICE),
    _kind("1F1B of two stages", Pipe(2, 2, 4), _TWICE, ("send y0 to", "send a0 to")),
    _kind("1F1B of four stages", Pipe(4, 4, 6), _SKIPPED, ("send y1 to pp+1", "send y1 to pp-1")),
    _kind("looped", Pipe(2, 4, 4, "GPipe"), _SKIPPED, ("send y1 to", "send y3 to")),
    _kind("interleaved 1F1B", Pipe(2, 4, 4), _SKIPPED, ("send dy0 to", "send dy2 to")),
    _kind("interleaved 1F1B of three stages", Pipe(3, 6, 6), _SKIPPED),
    _kind("zero bubble", Pipe(4, 4, 8, "zero bubble"), ("run W1 micro-batch 1\n", "run W1 micro-batch 0\n")),
    _kind("recomputed stages", Pipe(2, 2, 4, checkpointed=True), ("a1 = gelu(h1)\nda1", "a1 = relu(h1)\nda1")),
    _kind("pipeline and data parallel", Pipe(2, 2, 4, dp=2), (" by avg", ""), ("gradients u0, v0", "gradients u0")),
    _kind("pipeline and ZeRO", Pipe(2, 2, 4, dp=2, reducer=" scatter"), (" by avg", "")),
    _kind("pipeline, data and tensor parallel", Pipe(2, 2, 4, dp=2, tp=2), _NOT_SUMMED),
    _kind("tied embedding, by a line of the program", Pipe(2, 2, 4, tied=_TIED), (_ENDS, "")),
    _kind("tied embedding, of three stages", Pipe(3, 3, 4, "GPipe", tied=_TIED), ("ranks 0,2", "ranks 0,1,2")),
    _kind("tied embedding, by a segment", Pipe(2, 2, 4, tied="run E"), ("run E\n", "run E\nrun E\n")),
    _REDUCED,
    _two_names(_REDUCED),
    _kind(
        "tied embedding, of GPipe",
        Pipe(2, 2, 4, "GPipe", tied=_TIED),
        (f"{_ENDS}\n", ""),
        ("run B1 micro-batch 3\n", f"{_ENDS}\nrun B1 micro-batch 3\n"),
    ),
)
