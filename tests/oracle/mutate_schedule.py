"""The mistakes outside of operators: their order, the wiring of segments and steps, tensors, and the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oracle.mutant import Mutant, alike, with_operators, with_segment
from tvlint.ir.plan import (
    Plan,
    Role,
    Segment,
    Step,
    Tensor,
)


def of_order(plan: Plan, segment: Segment) -> Iterator[Mutant]:
    operators = list(segment.operators)
    for at in range(len(operators) - 1):
        swapped = [*operators[:at], operators[at + 1], operators[at], *operators[at + 2 :]]
        yield Mutant("reorder", f"{segment.name}/operators {at} and {at + 1}", with_operators(plan, segment, swapped))


def of_interface(plan: Plan, segment: Segment) -> Iterator[Mutant]:
    for i, name in enumerate(segment.outputs):
        for other in alike(plan, name, 1):
            outputs = (*segment.outputs[:i], other, *segment.outputs[i + 1 :])
            yield Mutant(
                "interface", f"{segment.name}: {name} -> {other}", with_segment(plan, replace(segment, outputs=outputs))
            )
    for i, name in enumerate(segment.inputs):
        for other in alike(plan, name, 1):
            inputs = (*segment.inputs[:i], other, *segment.inputs[i + 1 :])
            yield Mutant("interface", f"{segment.name}: {name} -> {other}", with_segment(plan, replace(segment, inputs=inputs)))


def of_steps(plan: Plan) -> Iterator[Mutant]:
    for number, program in enumerate(plan.programs):
        steps = list(program.steps)

        def made(kind: str, what: str, new: list[Step], number: int = number) -> Mutant:
            programs = list(plan.programs)
            programs[number] = replace(programs[number], steps=tuple(new))
            return Mutant(kind, f"ranks {programs[number].ranks}: {what}", replace(plan, programs=tuple(programs)))

        for at, step in enumerate(steps):
            what = f"step {at} {step.segment} micro-batch {step.micro_batch}"
            yield made("step-drop", what, steps[:at] + steps[at + 1 :])
            yield made("step-duplicate", what, [*steps[: at + 1], *steps[at:]])
            rest = steps[:at] + steps[at + 1 :]
            for to in sorted({0, at + 1, at + 3, len(rest)} - {at}):
                if to <= len(rest):
                    yield made("step-move", f"{what} to {to}", [*rest[:to], step, *rest[to:]])
            for other in steps:
                if other.segment != step.segment or other.micro_batch == step.micro_batch:
                    continue
                for field in ("inputs", "outputs", "micro_batch"):
                    if getattr(other, field):
                        wired = replace(step, **{field: getattr(other, field)})
                        kind = "claim" if field == "micro_batch" else "micro-batch-wiring"
                        yield made(kind, f"{what}: {field} of {other.micro_batch}", [*steps[:at], wired, *steps[at + 1 :]])
                yield made("micro-batch-wiring", f"{what}: is {other.micro_batch}", [*steps[:at], other, *steps[at + 1 :]])


def of_tensors(plan: Plan) -> Iterator[Mutant]:
    logicals = [t.logical for t in plan.tensors.values() if t.role is Role.WEIGHT]

    def made(kind: str, what: str, new: Tensor) -> Mutant:
        return Mutant(kind, f"{new.name}: {what}", replace(plan, tensors={**plan.tensors, new.name: new}))

    for tensor in plan.tensors.values():
        if tensor.role in (Role.WEIGHT, Role.BUFFER, Role.INPUT):
            yield made("dtype", "bfloat16", replace(tensor, dtype="bfloat16"))
        if tensor.role in (Role.ACTIVATION, Role.GRADIENT) and tensor.shape and "@" not in tensor.name:
            yield made("claim", "shape", replace(tensor, shape=(tensor.shape[0] + 1, *tensor.shape[1:])))
        if tensor.role is not Role.WEIGHT or tensor.region is None or tensor.whole is None:
            continue
        for dim, ((low, high), size) in enumerate(zip(tensor.region, tensor.whole, strict=True)):
            for shift in (low - high, high - low, 1, -1):
                if low + shift >= 0 and high + shift <= size:
                    region = (*tensor.region[:dim], (low + shift, high + shift), *tensor.region[dim + 1 :])
                    yield made("region", f"dim {dim} by {shift}", replace(tensor, region=region))
        yield made("region", "half of a sum", replace(tensor, part=(0, 2)))
        for other in logicals:
            target = next(t for t in plan.tensors.values() if t.logical == other)
            if other != tensor.logical and target.whole == tensor.whole:
                yield made("weight", f"is {other}", replace(tensor, logical=other))
                break


def of_plan(plan: Plan) -> Iterator[Mutant]:
    replication = plan.replication
    if replication.count > 1:
        yield Mutant("plan", "one replica less", replace(plan, replication=replace(replication, count=replication.count - 1)))
    yield Mutant(
        "plan", "one replica more", replace(plan, replication=replace(replication, count=replication.count + 1, stride=16))
    )
    yield Mutant("plan", "one micro-batch more", replace(plan, micro_batches=plan.micro_batches + 1))
    if len(plan.outputs) > 1:
        yield Mutant("plan", "one output less", replace(plan, outputs=plan.outputs[:-1]))
    for at in range(len(plan.programs)):
        yield Mutant("plan", f"without program {at}", replace(plan, programs=plan.programs[:at] + plan.programs[at + 1 :]))
    for at in range(len(plan.programs) - 1):
        one, two = plan.programs[at], plan.programs[at + 1]
        swapped = (replace(one, ranks=two.ranks), replace(two, ranks=one.ranks))
        yield Mutant(
            "plan",
            f"programs {at} and {at + 1} swapped",
            replace(plan, programs=plan.programs[:at] + swapped + plan.programs[at + 2 :]),
        )
