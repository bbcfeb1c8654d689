"""Defects of gradients, updates and single operators, as the pages of their rules name them."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import Early, early, tied
from tvlint.analyses.inference.misfits import first_misfits, in_words, names_of
from tvlint.analyses.inference.uneven_shards import remainders
from tvlint.analyses.relations.scales import multiples
from tvlint.findings import Related
from tvlint.ir.plan import Role
from tvlint.ops.spec import DtypeError
from tvlint.rule import Sighting


def early_updates(facts: Facts) -> Iterator[Sighting]:
    """Yield optimizer steps before the last backward or the reduction of a gradient; once per step."""
    return _early(facts, ("update", "update-reduce"), "the gradient is changed here")


def early_reducers(facts: Facts) -> Iterator[Sighting]:
    """Yield reducers that a later backward of the same step adds to; once per reducer."""
    return _early(facts, ("reduce",), "it is still produced here")


def _early(facts: Facts, kinds: tuple[str, ...], later: str) -> Iterator[Sighting]:
    found: dict[tuple[str, int], list[Early]] = {}
    for each_early in early(facts):
        if each_early.kind in kinds:
            found.setdefault((each_early.segment, each_early.index), []).append(each_early)
    for (segment, index), weights in found.items():
        first = weights[0]
        words = {
            "weight": first.weight, "ranks": facts.who(first.ranks),
            "more": f" (and {len(weights) - 1} more)" if len(weights) > 1 else "",
            "done": "reduced" if first.kind == "update-reduce" else "complete",
            "run": f" of micro-batch {first.micro_batch}" if first.micro_batch >= 0 and facts.plan.micro_batches > 1 else "",
        }  # fmt: skip
        place, ranks = facts.place(segment, index), facts.fold.everywhere(first.ranks)
        yield Sighting(place, ranks, words, (Related(later, facts.place(*first.later)),), (first.weight,))


def tied_apart(facts: Facts) -> Iterator[Sighting]:
    """Yield weights that several pipeline stages update, each with its own gradient."""
    for found in tied(facts):
        words = {"weight": found.weight, "first": facts.who(found.first), "second": facts.who(found.second)}
        related = (Related("one of the gradients is produced here", facts.place(*found.produced)),)
        ranks = facts.fold.everywhere(tuple(sorted({*found.first, *found.second})))
        yield Sighting(facts.place(*found.update), ranks, words, related, (found.weight,))


def scaled_losses(facts: Facts) -> Iterator[Sighting]:
    """Yield losses that are complete on every rank and a multiple of the mean by sizes of axes."""
    for found in multiples(facts):
        if not found.weight:
            yield Sighting(found.place, found.ranks, {"name": found.name, "times": found.times}, about=(found.name,))


def dtype_misfits(facts: Facts) -> Iterator[Sighting]:
    """Yield operators that no framework runs on operands of these types."""
    return _misfits(facts, of_types=True)


def shape_misfits(facts: Facts) -> Iterator[Sighting]:
    """Yield operators that no framework runs on operands of these shapes; generated code is judged where it is read."""
    return _misfits(facts, of_types=False) if facts.plan.format != "nnscaler-gencode" else iter(())


def _misfits(facts: Facts, of_types: bool) -> Iterator[Sighting]:
    for misfit in first_misfits(facts):
        if isinstance(misfit.why, DtypeError) == of_types:
            ranks = facts.fold.everywhere(facts.ranks_running(misfit.segment))
            words, place = {"said": in_words(facts, misfit)}, facts.place(misfit.segment, misfit.index)
            yield Sighting(place, ranks, words, about=names_of(facts, misfit))


def undivided_shards(facts: Facts) -> Iterator[Sighting]:
    """Yield values whose placement leaves elements over that no rank holds; computed ones only where nothing given does."""
    for found in remainders(facts.plan):
        tensor, what = found.tensor, found.what
        nearest = max(what.length // what.pieces, 1) * what.pieces
        words = {
            "part": "a packed part of " if what.packed else "", "dim": what.dim, "length": what.length,
            "role": "" if tensor.role is Role.ACTIVATION else f"{tensor.role.value} ", "name": tensor.name,
            "pieces": what.pieces, "axis": what.axis, "less": nearest, "longer": nearest + what.pieces,
        }  # fmt: skip
        ranks = facts.fold.everywhere(facts.ranks_running(found.segment))
        yield Sighting(facts.place(found.segment, found.index), ranks, words, about=(tensor.name, what.axis))
