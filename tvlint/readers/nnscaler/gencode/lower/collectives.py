"""Generated calls of nnScaler's communication."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.operators import Collective, Communicate, Compute, Peer, Receive, Send, Value
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY
from tvlint.readers.nnscaler.gencode.lower.scope import Naming
from tvlint.readers.nnscaler.gencode.syntax.nodes import Fails
from tvlint.readers.nnscaler.gencode.syntax.records import Statement
from tvlint.readers.sources.python_syntax import dotted

ADAPTER = "nnscaler.runtime.adapter."
_PLAIN: Mapping[str, Collective] = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "all_to_all": Collective.ALL_TO_ALL,
    "chunk": Collective.CHUNK,
}
FUSED: Mapping[str, tuple[Collective | None, Collective | None]] = {
    "allreduce_identity": (Collective.ALL_REDUCE, None),
    "identity_allreduce": (None, Collective.ALL_REDUCE),
    "allreduce_allreduce": (Collective.ALL_REDUCE, Collective.ALL_REDUCE),
    "allgather_split": (Collective.ALL_GATHER, Collective.CHUNK),
    "split_allgather": (Collective.CHUNK, Collective.ALL_GATHER),
    "allgather_reducescatter": (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    "reducescatter_allgather": (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
    "alltoall_alltoall": (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
}
"""What a differentiable collective does forward and backward."""
_SUMMED = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


class Communications(Naming):
    """Lowers the calls of `nnscaler.runtime.adapter`."""

    def _communicate(
        self, kind: Collective | None, before: str, after: str, words: Mapping[str, Value], statement: Statement, forward: bool
    ) -> Compute | Communicate:
        if kind is None:
            return Compute(IDENTITY, (before,), (after,), source=statement.source)
        dim = concat = None
        if kind is Collective.ALL_TO_ALL:
            concat, dim = self.integer(words, "idim", statement), self.integer(words, "odim", statement)
            if not forward:
                concat, dim = dim, concat
        elif kind is not Collective.ALL_REDUCE:
            dim = self.integer(words, "dim", statement)
        reduce = "sum" if kind in _SUMMED else ""
        group = self.group(words, statement)
        return Communicate(kind, (before,), (after,), group, reduce, dim, concat, source=statement.source)

    def fused(self, name: str, statement: Statement) -> None:
        tensors, words = self.given(statement)
        meaning = FUSED.get(name)
        unknown = set(words) - {"ranks", "dim", "idim", "odim"}
        if meaning is None or unknown:
            what = f"the keyword `{min(unknown)}`" if meaning is not None else "that"
            raise ReadError(f"`{ADAPTER}nn.{name}`: tvlint does not know {what}", statement.source)
        before, after = self.one(tensors, statement)
        made = self.write(after, statement.source)
        forward = self._communicate(meaning[0], before, made, words, statement, True)
        self.append(forward, self._communicate(meaning[1], "", "", words, statement, False))

    def communication(self, name: str, statement: Statement) -> None:
        tensors, words = self.given(statement)
        if name in _PLAIN:
            unknown = set(words) - {"ranks", "dim", "idim", "odim"}
            self._reject(ADAPTER + name, unknown, words, statement)
            before, after = self.one(tensors, statement)
            made = self.write(after, statement.source)
            self.append(self._communicate(_PLAIN[name], before, made, words, statement, True), differentiable=False)
        elif name == "move":
            self._move(tensors, words, statement)
        elif name == "broadcast":
            self._broadcast(tensors, words, statement)
        else:
            raise ReadError(f"`{ADAPTER}{name}`: tvlint does not know that", statement.source)

    def _complete(self, words: Mapping[str, Value], statement: Statement, *others: str) -> None:
        """A message is given its tensor, and `shape`, `dtype` and the ranks by keyword. Raises ReadError else."""
        name = dotted(statement.call.func)
        missing = next((word for word in ("shape", "dtype", *others) if word not in words), "")
        if missing or len(statement.call.args) != 1:
            raise ReadError(f"`{name}` lacks its argument `{missing or 'tensor'}`", statement.source)
        unknown = set(words) - {"shape", "dtype", *others}
        self._reject(name, unknown, words, statement)

    def _reject(self, name: str, unknown: set[str], words: Mapping[str, Value], statement: Statement) -> None:
        if unknown == {"async_op"} and words["async_op"] is False:
            return
        if unknown == {"async_op"}:
            help = "generate the code with synchronous communication (`ASYNC_COMM=0`) to have it judged"
            said = f"`{name}` is asynchronous, and tvlint does not follow when its result is waited for"
            raise ReadError(said, statement.source, help)
        if unknown:
            raise ReadError(f"`{name}`: tvlint does not know the keyword `{min(unknown)}`", statement.source)

    def _stated(self, words: Mapping[str, Value], statement: Statement) -> tuple[tuple[int, ...], str]:
        return self.shape(words, "shape", statement), str(words["dtype"]).removeprefix("torch.")

    def _move(self, tensors: tuple[str, ...], words: Mapping[str, Value], statement: Statement) -> None:
        self._complete(words, statement, "src", "dst")
        source, target = self.integer(words, "src", statement), self.integer(words, "dst", statement)
        outputs = [name for name in statement.outputs if name != "_"]
        if len(outputs) > 1:
            raise ReadError("a move of more than one tensor", statement.source)
        if source == self.rank and target != source:
            if not tensors:
                raise Fails("the sender of a move gives no tensor", statement.source, "give `move` the tensor that it sends")
            self.body.sent[tensors[0]] = self._stated(words, statement)
            self.append(Send(tensors[0], Peer(rank=target), source=statement.source), differentiable=False)
            self.current.update(dict.fromkeys(outputs, tensors[0]))
        elif target == self.rank and source != target:
            if len(outputs) == 1:
                made = self.write(outputs[0], statement.source)
                self.body.stated[made] = self._stated(words, statement)
                self.append(Receive(made, Peer(rank=source), source=statement.source), differentiable=False)
            else:
                raise ReadError("what a move receives is thrown away", statement.source)
        else:
            self.body.bystander.append((source, target, statement.source))

    def _broadcast(self, tensors: tuple[str, ...], words: Mapping[str, Value], statement: Statement) -> None:
        self._complete(words, statement, "src", "ranks")
        root = self.integer(words, "src", statement)
        outputs = [name for name in statement.outputs if name != "_"]
        if len(tensors) > 1 or len(outputs) > 1 or (root == self.rank and not tensors):
            raise ReadError("a broadcast of more or less than one tensor", statement.source)
        taken = tensors if root == self.rank else ()
        made: tuple[str, ...] = ()
        if outputs and root == self.rank:
            self.current[outputs[0]] = tensors[0]
        elif outputs:
            made = (self.write(outputs[0], statement.source),)
            self.body.stated[made[0]] = self._stated(words, statement)
        group = self.group(words, statement)
        self.append(
            Communicate(Collective.BROADCAST, taken, made, group, root=root, source=statement.source), differentiable=False
        )
