"""Running all programs of one plan through the checker."""

from __future__ import annotations

from tvlint.certificate.communicating import communicate, receive, send, settle
from tvlint.certificate.computing import backward, compute
from tvlint.certificate.flight import check_flight
from tvlint.certificate.meetings import weights_of_gradients
from tvlint.certificate.running import Rank, Running, accumulated, load
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Phase, Segment, Step
from tvlint.ops.spec import UnsupportedError


def run_programs(run: Running) -> None:
    """Check every step of the first micro-batch, and of none, on every rank; then what ranks gave to each other."""
    _index(run)
    check_flight(run.plan)
    expected = set()
    for program in run.plan.programs:
        for number in program.ranks:
            rank = Rank(number)
            for index, step in enumerate(program.steps):
                if step.micro_batch > 0:
                    continue
                trail = run.derivation.runs.get((number, index), -1)
                if not 0 <= trail < len(run.trails):
                    raise Rejected(f"the certificate does not say what step {index} of rank {number} makes")
                expected.add((number, index))
                run.trails_used.add(trail)
                rank.trail = iter(run.trails[trail])
                _step(run, rank, step)
                if next(rank.trail, None) is not None:
                    raise Rejected(f"the certificate has more results than `{step.segment}` makes on rank {number}")
            run.environments[number], run.gradients[number] = rank.environment, rank.gradients
    if expected != set(run.derivation.runs):
        raise Rejected("the certificate speaks of steps that the plan does not run")
    settle(run)


def _index(run: Running) -> None:
    """Find out which name is the gradient of what."""
    tensors, made, loaded = run.plan.tensors, set[str](), set[str]()
    results = {run.plan.loss} if run.plan.loss else set(run.plan.outputs)
    for step in (step for program in run.plan.programs for step in program.steps):
        segment = run.plan.segments[step.segment]
        outside = step.outside(segment)[1]
        loaded.update(outside if segment.phase is Phase.DATA else ())
        named = zip(segment.outputs, outside, strict=True) if step.micro_batch <= 0 else ()
        run.shown.update((inner, name) for inner, name in named if name in results and name != inner)
    for tensor in tensors.values():
        for name, of in ((tensor.gradient, tensor.name), (tensor.name, tensor.gradient_of)):
            if name and of and of not in run.of.get(name, ()):
                run.of.setdefault(name, []).append(of)
    for segment in run.plan.segments.values():
        loaded.update(segment.outputs if segment.phase is Phase.DATA else ())
        for own in segment.operators:
            if isinstance(own, Backward):
                made.update(own.outputs)
                for name, of in zip(own.inputs, own.forward.outputs, strict=False):
                    if name not in tensors or tensors[name].gradient_of in results:
                        run.of.setdefault(name, []).append(of)
    run.gradient_names, run.loaded = frozenset(made), frozenset(loaded)
    run.weight_of = weights_of_gradients(run.plan)


def _step(run: Running, rank: Rank, step: Step) -> None:
    segment = run.plan.segments[step.segment]
    inputs, outputs = step.outside(segment)
    if segment.phase is Phase.DATA and any(name in rank.environment for name in outputs):
        raise Rejected(f"`{segment.name}` loads what it has loaded for the same micro-batch")
    taken, given = (tuple(zip(*own, strict=True)) for own in ((segment.inputs, inputs), (segment.outputs, outputs)))
    rank.local = {inner: rank.environment[name] for inner, name in taken if name in rank.environment}
    rank.undefined = {inner for inner, name in taken if name in rank.lost}
    rank.missed = set()
    for own in segment.operators:
        try:
            _operate(run, rank, segment, own)
        except UnsupportedError as error:
            raise Rejected(f"an operator of `{segment.name}` is not understood: {error}") from None
    for name in (name for inner, name in (*taken, *given) if inner in rank.undefined):
        rank.lost.add(name)
        rank.environment.pop(name, None)
    for inner, name in given:
        if inner in rank.local and name in rank.lacking:
            raise Rejected(f"`{name}` is read on rank {rank.number} before it is made")
        if inner in rank.local:
            rank.lost.discard(name)
            value = rank.local[inner]
            before = None if name in inputs else rank.environment.get(name)
            rank.environment[name] = accumulated(run, rank, name, value, before)
        elif inner not in run.weight_of and inner not in rank.undefined:
            raise Rejected(f"`{segment.name}` gives `{inner}`, which nothing in it makes")
    rank.lacking.update(name for inner, name in taken if inner in rank.missed)
    rank.lacking.update(rank.missed & run.weight_of.keys())


def _operate(run: Running, rank: Rank, segment: Segment, own: Operator) -> None:
    if isinstance(own, Compute) and segment.phase is Phase.DATA:
        load(run, rank, segment, own)
    elif isinstance(own, Compute):
        compute(run, rank, own)
    elif isinstance(own, Backward):
        backward(run, rank, own)
    elif isinstance(own, Communicate):
        communicate(run, rank, own)
    elif isinstance(own, Send):
        send(run, rank, own)
    elif isinstance(own, Receive):
        receive(run, rank, own)
