"""Find defects of gradient reduction in generated code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.reductions import ADDING, reduction_named
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.replica import Built
from tvlint.readers.nnscaler.gencode.syntax.records import Execute, RankFile, Reducer, RunBackward

REGENERATE = "generate the code of all ranks again"
"""What to do about code that no edit of the model explains."""


def error(
    rule: str, message: str, place: Location, help: str = "", related: tuple[Related, ...] = (), ranks: Iterable[int] = ()
) -> Finding:
    """Return a finding at a place of generated code, with the model's line that it was generated from."""
    if place.origin is not None:
        related = (*related, Related("generated from this line of the model", place.origin))
    return Finding(rule, Severity.ERROR, message, place, help or REGENERATE, related, tuple(ranks))


def reducers(file: RankFile) -> Iterator[Finding]:
    """A weight is in one reducer at most; reducers are added to the module and run."""
    skipped: dict[str, list[tuple[Location, Location]]] = {}
    runs: dict[str, list[Location]] = {}
    off = False
    for action in file.actions:
        if isinstance(action, RunBackward):
            off = action.skips_reducer
        if not isinstance(action, Execute) or not file.methods[action.method].reduces:
            continue
        runs.setdefault(file.methods[action.method].reduces, []).append(action.source)
        if action.skipped_at is not None:
            skipped.setdefault(file.methods[action.method].reduces, []).append((action.skipped_at, action.source))
    reduced: dict[str, str] = {}
    for reducer in file.reducers.values():
        for weight in reducer.weights:
            if weight in reduced:
                yield error(
                    "parameter-missing-in-reducer",
                    f"`{weight}` is in two reducers, `{reduced[weight]}` and `{reducer.name}`",
                    reducer.source,
                    "its gradient would be summed twice",
                    ranks=(file.rank,),
                )
            reduced[weight] = reducer.name
        if not reducer.registered:
            said = f"`{reducer.name}` is made on rank {file.rank} and never added to the module, so it reduces nothing"
            yield error("reducer-never-called", said, reducer.source, "add `self.add_reducer(...)`", ranks=(file.rank,))
        elif len(runs.get(reducer.name, ())) > 1:
            first, again, *_ = runs[reducer.name]
            said = f"`{reducer.name}` is run twice in the training step of rank {file.rank}"
            help = "it sums over the ranks what it has summed already: run it once, after the last backward"
            yield error("doubled-gradient-reduction", said, again, help, (Related("run here before", first),), (file.rank,))
        elif reducer.name not in runs:
            said = f"`{reducer.name}` is never run in the training step of rank {file.rank}"
            help = "run its method after the last backward, else gradients stay those of one replica"
            yield error("reducer-never-called", said, reducer.source, help, ranks=(file.rank,))
        for place, source in () if reducer.asynchronous and off else skipped.get(reducer.name, ()):
            said = f"`{reducer.name}` is run on rank {file.rank} while `RuntimeFlag.skip_reducer` is on, and reduces nothing"
            help = "set it to False for the last backward, else gradients stay those of one replica"
            yield error("reducer-never-called", said, place, help, (Related("run here", source),), (file.rank,))
        if reduction_named(reducer.reduce) not in ADDING:
            said = f"`{reducer.name}` reduces gradients with `{reducer.reduce}`"
            yield error("wrong-reducer-group", said, reducer.source, "gradients of replicas are summed", ranks=(file.rank,))


def same_order(replicas: Iterable[tuple[RankFile, ...]]) -> None:
    """Raise ReadError where ranks lay out the buffer that they reduce together in another order, at the rank at odds.

    That is the one with what fewer ranks of all replicas say, else the last.
    """
    reducers = [one for files in replicas for file in files for one in file.reducers.values()]
    said = Counter(one.weights for one in reducers)
    known: dict[tuple[frozenset[int], frozenset[str]], Reducer] = {}
    for reducer in (one for one in reducers if len(one.ranks) > 1):
        other = known.setdefault((frozenset(reducer.ranks), frozenset(reducer.weights)), reducer)
        if len(other.weights) != len(reducer.weights) or other.weights == reducer.weights:
            continue
        odd, usual = sorted((reducer, other), key=lambda one: said[one.weights])
        index = next(i for i, (name, its) in enumerate(zip(odd.weights, usual.weights, strict=True)) if name != its)
        raise ReadError(
            f"`{odd.name}` has `{odd.weights[index]}` as parameter {index + 1} where another rank has"
            f" `{usual.weights[index]}`, so gradients of different parameters are summed",
            odd.added_at[index],
            "ranks reduce one buffer of all gradients together: add parameters in one order",
        )


def unreduced(built: Built) -> Iterator[Finding]:
    """Yield weights in no reducer of a rank, although replicas or other ranks that have them reduce them."""
    sharing: dict[str, str] = {}
    for file in built.replica.files:
        for reducer in file.reducers.values():
            sharing.update(dict.fromkeys(reducer.weights, f"`{reducer.name}` of rank {file.rank} reduces it"))
    for file in built.replica.files:
        reduced = {weight for reducer in file.reducers.values() for weight in reducer.weights}
        trains = any(isinstance(action, RunBackward) for action in file.actions)
        for parameter in file.parameters.values():
            if not trains or not parameter.is_weight or parameter.name in reduced:
                continue
            count = built.replica.count
            why = sharing.get(parameter.name, f"there are {count} replicas" if count > 1 else "")
            if why:
                yield error(
                    "parameter-missing-in-reducer",
                    f"`{parameter.full_name}` is in no reducer of rank {file.rank}, and {why}",
                    parameter.source,
                    "add it with `add_param`, else its gradient is that of one rank",
                    ranks=(file.rank,),
                )


def flags(file: RankFile) -> Iterator[Finding]:
    """Reduction is on in the last backward of each segment and off before; it matters when reducers start by themselves."""
    asynchronous = any(reducer.asynchronous for reducer in file.reducers.values())
    runs: dict[str, list[RunBackward]] = {}
    for action in file.actions:
        if isinstance(action, RunBackward):
            runs.setdefault(action.segment, []).append(action)
    if not file.switches_reducers and not asynchronous:
        return
    for segment, backwards in runs.items():
        for position, action in enumerate(backwards):
            last = position == len(backwards) - 1
            if action.skips_reducer != last:
                continue
            what = "is switched off in the last backward" if last else f"runs in backward {position + 1} of {len(backwards)}"
            yield Finding(
                "reducer-in-wrong-micro-batch",
                Severity.ERROR if asynchronous else Severity.WARNING,
                f"gradient reduction {what} of `{segment}` on rank {file.rank}",
                action.source,
                "set `RuntimeFlag.skip_reducer` to False for the last backward of each segment, to True for all before",
                ranks=(file.rank,),
            )


def waits(built: Built) -> Iterator[Finding]:
    """Asynchronous reducers are waited for after the backward that starts them."""
    for name, place, start, rank in built.early:
        said = f"`{name}` is waited for on rank {rank} before the backward that starts it"
        help = "run its method after the last backward: nothing waits for what starts later"
        yield error("reducer-before-last-backward", said, place, help, (Related("what starts it", start),), (rank,))


def reducer_groups(built: Built) -> Iterator[Finding]:
    """Reducers reach all replicas, and their members have the same weights."""
    files = {file.rank: file for file in built.replica.files}
    for file in files.values():
        for reducer in file.reducers.values():
            members, replicated, fits = built.replica.base(reducer.ranks)
            count = built.replica.count
            if file.rank not in reducer.ranks:
                said = f"`{reducer.name}` on rank {file.rank} reduces over the ranks {list(reducer.ranks)}, without its own"
                yield error("wrong-reducer-group", said, reducer.source, ranks=(file.rank,))
                continue
            if not fits and not replicated:
                said = f"`{reducer.name}` on rank {file.rank} reduces over {list(reducer.ranks)}, not over all {count} replicas"
                help = "gradients would differ between replicas, which then train different models"
                yield error("wrong-reducer-group", said, reducer.source, help, ranks=(file.rank,))
                continue
            for other in members:
                same = [one for one in files[other].reducers.values() if set(one.ranks) == set(reducer.ranks)]
                odd = _odd(reducer, same)
                if odd:
                    said = f"`{reducer.name}` of rank {file.rank} has no counterpart with the same {odd} on rank {other}"
                    help = "ranks reduce one buffer of all gradients together: generate the code again"
                    yield error("wrong-reducer-group", said, reducer.source, help, ranks=(file.rank, other))
                    break


def _odd(reducer: Reducer, others: list[Reducer]) -> str:
    """In what a reducer is unlike all those of another rank over the same ranks; empty where it is like one of them."""
    same = [one for one in others if set(one.weights) == set(reducer.weights)]
    if not same:
        return "parameters"
    return "" if any(one.settings == reducer.settings for one in same) else "settings"
