"""Find defects of generated code that the code alone shows."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.operators import NOT_UNDERSTOOD, Collective, Communicate, Compute
from tvlint.plurals import counted
from tvlint.readers.nnscaler.gencode.lint.parameter_slices import of_the_graph, slices
from tvlint.readers.nnscaler.gencode.lint.reductions import error, flags, reducer_groups, reducers, unreduced, waits
from tvlint.readers.nnscaler.gencode.lint.replicated_operators import replicated
from tvlint.readers.nnscaler.gencode.lower.folder import Folder
from tvlint.readers.nnscaler.gencode.lower.replica import Built
from tvlint.readers.nnscaler.gencode.syntax.records import ClearGradients, Execute, Load, RankFile, RunBackward

_BUILT_IN = frozenset({"self", "model", "slice", "float", "inf", "nan", "next", "NotImplementedError"})


def findings(folder: Folder) -> Iterator[Finding]:
    """Yield the findings about a folder; those that hold on several ranks in the same line are reported once."""
    yield from _replicas_differ(folder)
    yield from _group_order(folder.files)
    yield from _returned(folder)
    yield from _loads(folder.files)
    builds = (folder.built, *(built for _, _, built in folder.variants))
    for file in folder.files:
        yield from _imports(file)
        yield from _cleared(file)
        yield from reducers(file)
        yield from flags(file)
    if folder.traced is not None:
        yield from folder.traced.unsafe
        yield from of_the_graph(folder.files, folder.traced.parameters)
    yield from replicated(folder.built)
    for built in builds:
        yield from _not_understood(built)
        yield from _undefined(built)
        yield from _peers(built)
        yield from _groups(built)
        yield from _shapes(built)
        yield from reducer_groups(built)
        yield from unreduced(built)
        yield from waits(built)
        yield from slices(built)


def _replicas_differ(folder: Folder) -> Iterator[Finding]:
    by_rank = {file.rank: file for file in folder.files}
    reported = [(found.rank, found.other, found.line) for found in folder.differences]
    if folder.undecided:
        reported += [(found.other, found.rank, found.line) for found in folder.differences]
    for rank, against, line in reported:
        rank_file, other = by_rank[rank], by_rank[against]
        yield error(
            "replicas-differ",
            f"rank {rank} does not run what rank {against} runs, which is the same rank of another replica",
            _line(rank_file, line),
            "generate the code again; data-parallel replicas train the same model only when they run the same code",
            (Related(f"rank {against} has this in its place", _line(other, line)),),
            (rank,),
        )


def _line(file: RankFile, number: int) -> Location:
    lines = file.source.lines
    text = lines[number - 1] if number <= len(lines) else ""
    start = len(text) - len(text.lstrip()) + 1
    return Location(file.path, number, start, number, max(start + 1, len(text) + 1), text=text)


def _group_order(files: Sequence[RankFile]) -> Iterator[Finding]:
    """Every rank creates all groups, in one order."""
    lists = {file.rank: tuple(ranks for ranks, _ in file.groups) for file in files}
    usual = Counter(lists.values()).most_common(1)[0][0]
    model = next(file for file in files if lists[file.rank] == usual)
    for file in files:
        groups = lists[file.rank]
        if groups == usual:
            continue
        first = next((i for i, (a, b) in enumerate(zip(groups, usual, strict=False)) if a != b), min(len(groups), len(usual)))
        place = file.groups[first][1] if first < len(groups) else (file.groups[-1][1] if groups else _start(file))
        has = f"`{list(groups[first])}`" if first < len(groups) else "no further group"
        wants = f"`{list(usual[first])}`" if first < len(usual) else "no further group"
        there = model.groups[first][1] if first < len(usual) else _start(model)
        yield error(
            "group-order-differs",
            f"rank {file.rank} creates {has} as group {first + 1} where rank {model.rank} creates {wants}",
            place,
            "all ranks must create the same groups in the same order, members or not; else creation hangs or mixes up groups",
            (Related(f"what rank {model.rank} creates", there),),
            (file.rank,),
        )


def _start(file: RankFile) -> Location:
    return file.rank_source or Location(file.path)


def _returned(folder: Folder) -> Iterator[Finding]:
    """All ranks of a replica return the values of all micro-batches, in one order."""
    for built in (folder.built, *(built for _, _, built in folder.variants)):
        files = built.replica.files
        orders = {file.rank: (len(file.returned), built.returned_batches.get(file.rank, ())) for file in files}
        usual = max(Counter(orders.values()).items(), key=lambda item: (item[1], item[0][0], [-b for b in item[0][1]]))[0]
        for file in files:
            order, help = orders[file.rank], "every rank returns the loss of every micro-batch in order"
            if order != usual:
                said = f"rank {file.rank} returns {_batches(order)} where other ranks return {_batches(usual)}"
            elif built.micro_batches > 1 and list(order[1]) != sorted(order[1]):
                said = f"rank {file.rank} returns {_batches(order)}, out of order"
            elif not file.returned:
                said = f"the training step of rank {file.rank} returns nothing"
                help = "the step returns the loss of every micro-batch"
            else:
                continue
            place = file.returned_at or file.train_source or Location(file.path)
            yield error("returned-values-differ", said, place, help, ranks=(file.rank,))


def _batches(order: tuple[int, tuple[int, ...]]) -> str:
    count, batches = order
    listed = ", ".join(map(str, batches[:8])) + (", ..." if len(batches) > 8 else "")
    return f"{counted(count, 'value')}" + (f" (of the micro-batches {listed})" if batches else "")


def _loads(files: Sequence[RankFile]) -> Iterator[Finding]:
    """Every rank draws as many batches, used there or not: the loaders of all ranks stay in step."""
    counts = {file.rank: sum(isinstance(action, Load) for action in file.actions) for file in files}
    usual = max(Counter(counts.values()).items(), key=lambda item: (item[1], item[0]))[0]
    for file in files:
        drawn = counts[file.rank]
        if file.micro_batches not in (None, drawn) and drawn:
            yield error(
                "uneven-data-loading",
                f"rank {file.rank} says that a step takes {counted(file.micro_batches, 'micro-batch')} and draws {drawn}",
                file.micro_batches_source or Location(file.path),
                "`nmicros_per_scheduler_step` is how many batches the runtime gives the step",
                ranks=(file.rank,),
            )
        if (file.scheduled is None) != (file.micro_batches is None) or (file.scheduled is False and drawn > 1):
            yield error(
                "uneven-data-loading",
                f"the runtime gives rank {file.rank} one micro-batch a step, and the step draws {drawn}"
                if file.scheduled is False
                else f"the class of rank {file.rank} says only one of `use_scheduler` and `nmicros_per_scheduler_step`",
                file.scheduled_source or file.micro_batches_source or Location(file.path),
                "a step that draws several micro-batches has `use_scheduler = True` and their number",
                ranks=(file.rank,),
            )
        loads = [action for action in file.actions if isinstance(action, Load)]
        if len(loads) != usual:
            yield error(
                "uneven-data-loading",
                f"rank {file.rank} draws {counted(len(loads), 'micro-batch')} a step where other ranks draw {usual}",
                loads[-1].source if loads else file.train_source or Location(file.path),
                "a rank that draws fewer batches falls behind, and pairs data of one step with work of another",
                ranks=(file.rank,),
            )


def _imports(file: RankFile) -> Iterator[Finding]:
    """Yield names of modules that are used and never imported."""
    known = _BUILT_IN | file.modules
    reported: dict[str, ast.Name] = {}
    for node in file.source.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        root = node.value.id
        if root in known or root in file.names:
            continue
        if root not in reported or (node.lineno, node.col_offset) < (reported[root].lineno, reported[root].col_offset):
            reported[root] = node.value
    for root, node in reported.items():
        numpy = root in ("np", "numpy") and not file.version
        yield Finding(
            "missing-import",
            Severity.WARNING if numpy else Severity.ERROR,
            f"`{root}` is used and never imported",
            file.source.at(node),
            f"add `import {'numpy as np' if root == 'np' else root}`",
            ranks=(file.rank,),
        )
    if file.base_module not in file.modules_before_class and file.base_module not in reported:
        yield error(
            "missing-import",
            f"`{file.base_module}` is imported only after the class that is built on it",
            file.class_source or Location(file.path),
            f"add `import {file.base_module}` above the class",
            ranks=(file.rank,),
        )


def _cleared(file: RankFile) -> Iterator[Finding]:
    """Gradients of the step before are cleared before the first backward, and none of this step after it."""
    first = next((at for at, action in enumerate(file.actions) if isinstance(action, RunBackward)), len(file.actions))
    for action in file.actions[first:]:
        if isinstance(action, ClearGradients) and not action.skipped and file.parameters:
            yield error(
                "gradients-cleared-within-step",
                f"rank {file.rank} clears the gradients that `backward` made before",
                action.source,
                "`model.zero_grad()` stands at the start of the step alone",
                ranks=(file.rank,),
            )
    for action in file.actions if first < len(file.actions) else ():
        if isinstance(action, ClearGradients) and not action.skipped:
            return
        if isinstance(action, (RunBackward, Execute)):
            yield error(
                "gradients-not-cleared",
                f"the gradients of the step before are still there when rank {file.rank} runs this",
                action.source,
                "`model.zero_grad()` stands at the start of the step, with `skip_zero_grad` off",
                ranks=(file.rank,),
            )
            return


def _not_understood(built: Built) -> Iterator[Finding]:
    for name, segment in built.segments.items():
        rank = int(name.split("/", 1)[0].removeprefix("device "))
        said = {
            operator.source: operator
            for operator in segment.operators
            if isinstance(operator, Compute) and NOT_UNDERSTOOD in operator.attributes
        }
        for source, operator in said.items():
            if source is not None:
                yield Finding(
                    "statement-not-understood",
                    Severity.WARNING,
                    f"{operator.attributes[NOT_UNDERSTOOD]}: what it does on rank {rank} is unknown",
                    source,
                    "generate the code again if it was edited; whatever depends on this line is not checked",
                    ranks=(rank,),
                )


def _undefined(built: Built) -> Iterator[Finding]:
    """Yield names without a value; what never runs, and code that may define names in ways that are not read, may not fail."""
    run = {(file.rank, action.method) for file in built.replica.files for action in file.actions if isinstance(action, Execute)}
    unclear = {file.rank for file in built.replica.files if file.opaque}
    unbound = [
        (rank, method, found.name, "after it was deleted" if found.deleted else "and nothing defines it before", found.source)
        for (rank, method), body in built.bodies.items()
        for found in body.undefined
    ]
    unbound += [(rank, "", name, "and nothing gives it a value before", place) for name, place, rank in built.unbound]
    for rank, method, name, what, place in unbound:
        where = f"in `{method}` on rank {rank}" if method else f"in the schedule of rank {rank}"
        fails = rank not in unclear and (not method or (rank, method) in run)
        found = error("undefined-tensor", f"`{name}` is used {where} {what}", place, ranks=(rank,))
        yield found if fails else replace(found, severity=Severity.WARNING)
    for (rank, _, _), (name, given, action) in built.ungiven.items():
        said = f"`{name}` gets no value on rank {rank}: what `{action.segment}` gives does not depend on `{given}`"
        help = "the runtime stops in `backward` where an input requires a gradient and autograd has none for it"
        yield error("undefined-tensor", said, action.source, help, ranks=(rank,))
    for (rank, _, _), (name, given, action) in built.asked.items():
        yield Finding(
            "undefined-tensor",
            Severity.WARNING,
            f"`{name}` gets a value on rank {rank} only if the data loader gives `{given}` with `requires_grad`",
            action.source,
            f"`backward` gives gradients of what requires one, and `{action.segment}` takes {len(action.results)} apart",
            ranks=(rank,),
        )


def _peers(built: Built) -> Iterator[Finding]:
    for (rank, method), body in built.bodies.items():
        for source, target, place in body.bystander:
            yield error(
                "move-without-part",
                f"rank {rank} runs a move from rank {source} to rank {target} in `{method}`, in which it has no part",
                place,
                "the rank of the file is the source or the destination of every move in it",
                ranks=(rank,),
            )


def _groups(built: Built) -> Iterator[Finding]:
    declared = {file.rank: {frozenset(ranks) for ranks, _ in file.groups} for file in built.replica.files}
    for (rank, method), body in built.bodies.items():
        for entry in body.operators:
            operator = entry.operator if isinstance(entry.operator, Communicate) else entry.reverse
            if not isinstance(operator, Communicate) or operator.source is None:
                continue
            ranks = operator.group.ranks
            if rank not in ranks and operator.kind is not Collective.BROADCAST:
                said = f"rank {rank} takes part in a collective of the ranks {list(ranks)} in `{method}`, without being one"
                yield error("undeclared-group", said, operator.source, ranks=(rank,))
            elif frozenset(ranks) not in declared[rank]:
                said = f"`{method}` on rank {rank} uses the group {list(ranks)}, which no `init_group` creates"
                help = "groups are created by all ranks in `__init__`; one that is created on first use hangs"
                yield error("undeclared-group", said, operator.source, help, ranks=(rank,))
    for file in built.replica.files:
        for reducer in file.reducers.values():
            before = {frozenset(ranks) for ranks, at in file.groups if (at.line or 0) <= (reducer.source.line or 0)}
            if len(reducer.ranks) > 1 and frozenset(reducer.ranks) not in before:
                said = f"`{reducer.name}` on rank {file.rank} is over {list(reducer.ranks)}, which no `init_group` created"
                yield error("undeclared-group", said, reducer.source, ranks=(file.rank,))


def _shapes(built: Built) -> Iterator[Finding]:
    for message, place, rank, makers in built.contradictions:
        related = tuple(Related(f"makes `{name}`", source) for name, source in makers)
        yield error("shapes-do-not-fit", f"on rank {rank}, this does not fit: {message}", place, "", related, (rank,))
