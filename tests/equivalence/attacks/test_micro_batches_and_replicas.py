"""Wrong plans of micro-batches and folded replicas: none is proved."""

from __future__ import annotations

from dataclasses import replace

from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import Leaf, Values
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import ReduceGradients
from tvlint.ir.plan import Plan, Replication
from tvlint.readers.plan_text.reader import read

HEAD = """
weight w f32[8,8]
loss l f32[]
"""

BODY = """
  h = linear(x, w)
  z = gelu(h)
  l = sum(z)
  dz = backward l (grad(l))
  dh = backward z (dz)
  _, grad(w) = backward h (dh)
"""

REFERENCE = f"{HEAD}input x f32[8,8]\nprogram{BODY}"


def plan(text: str) -> Plan:
    found = read("here", text).plan
    assert found is not None
    return found


def folded(text: str, divisor: int) -> Plan:
    """Two replicas along dp, folded into one, whose gradients are divided by `divisor`."""
    found = plan(text)
    segments = {}
    for name, own in found.segments.items():
        operators = (replace(each, divisor=divisor) if isinstance(each, ReduceGradients) else each for each in own.operators)
        segments[name] = replace(own, operators=tuple(operators))
    programs = tuple(replace(program, ranks=(0,)) for program in found.programs)
    return replace(found, segments=segments, programs=programs, replication=Replication("dp", 2, 1))


def refused(parallel: Plan, reference: Plan) -> None:
    assert prove(parallel, reference).outcome is not Outcome.PROVED


def test_replicas_may_not_add_what_they_have_of_a_batch() -> None:
    body = "\n  m = all-reduce(x) over dp\n  hm = linear(m, w)" + BODY.replace("backward h (dh)", "backward hm (dh)")
    refused(folded(f"mesh dp=2\n{HEAD}input x f32[4,8]\nprogram{body}  reduce-gradients w over dp", 2), plan(REFERENCE))


def test_a_gradient_may_not_be_changed_before_it_is_complete() -> None:
    segment = f"\nsegment s forward (x) -> (l){BODY}  grad(w) = mul(grad(w), 2)\nprogram\n  run s micro-batch 0-1\n"
    refused(plan(f"micro-batches 2\n{HEAD}input x f32[4,8]{segment}"), plan(f"{REFERENCE}  grad(w) = mul(grad(w), 2)\n"))


def test_a_loading_segment_may_not_compute() -> None:
    steps = "program\n  run d micro-batch 0\n  run s micro-batch 0\n"
    body = f"\nsegment d data () -> (x)\n  x = load()\nsegment s forward (x) -> (l){BODY}{steps}"
    assert prove(plan(f"{HEAD}input x f32[8,8]{body}"), plan(REFERENCE)).outcome is Outcome.PROVED
    refused(plan(f"{HEAD}input x f32[8,8]{body.replace('load()', 'mul(x, 2)')}"), plan(REFERENCE))


def test_micro_batches_may_not_share_what_was_loaded() -> None:
    """Both micro-batches are loaded under one name, one over the other, before either is used."""
    body = f"\nsegment d data () -> (x)\n  x = load()\nsegment s forward (x) -> (l){BODY}"
    steps = "program\n  run d micro-batch 0-1\n  run s micro-batch 0-1\n"
    found = plan(f"micro-batches 2\n{HEAD}input x f32[4,8]{body}{steps}")
    loads, runs = found.programs[0].steps[:2], found.programs[0].steps[2:]
    losses = [replace(found.tensors["l"], name=f"l{i}") for i in (0, 1)]
    tensors = {**found.tensors, **{own.name: own for own in losses}}

    def named(names: tuple[str, str]) -> Plan:
        ran = [
            *(replace(step, inputs=(), outputs=(name,)) for step, name in zip(loads, names, strict=True)),
            *(replace(step, inputs=(names[i],), outputs=(f"l{i}",)) for i, step in enumerate(runs)),
        ]
        others = {name: replace(found.tensors["x"], name=name) for name in names}
        programs = (replace(found.programs[0], steps=tuple(ran)),)
        return replace(found, tensors={**tensors, **others}, programs=programs, outputs=("l0", "l1"), losses=())

    right, wrong = named(("x0", "x1")), named(("x", "x"))
    assert prove(right, plan(REFERENCE)).outcome is Outcome.PROVED
    refused(wrong, plan(REFERENCE))


def test_what_is_told_as_one_does_not_overlap() -> None:
    terms = Terms()
    values = Values(terms)
    origin, t, u = (terms.term((name,), (), (4,), -1) for name in ("c", "t", "u"))
    p, q = terms.token("p"), terms.token("q")

    def part(*ranges: tuple[int, tuple[int, int]]) -> list[Leaf]:
        return [Leaf(token, 1, frozenset({Pending(origin, 0, low, high, 12, False, False)})) for token, (low, high) in ranges]

    one = values.of_leaves(t, ((0, 4),), part((p, (0, 4)), (p, (6, 8)), (q, (0, 4)), (q, (8, 10))))
    other = part((p, (4, 12)), (p, (0, 6)), (p, (8, 12)), (q, (4, 12)), (q, (0, 8)), (q, (10, 12)))
    moved_on = [values.through(own, u, 0, ((0, 4),), 1, frozenset()) for own in (one, values.of_leaves(t, ((0, 4),), other))]
    added = values.of_leaves(u, ((0, 4),), [leaf for own in moved_on for leaf in own.leaves])
    assert not added.clean


def test_ranks_that_wait_for_each_other_prove_nothing() -> None:
    """What each rank says it receives follows from what the other says it receives, and nobody ever sends."""
    assert prove(plan(PIPELINE), plan(REFERENCE)).outcome is Outcome.PROVED
    first = "  send h to pp+1\n  recv dh: gradient f32[8,8] grad-of h from pp+1"
    assert first in PIPELINE
    late = PIPELINE.replace(first, "  recv dh: gradient f32[8,8] grad-of h from pp+1\n  send h to pp+1")
    refused(plan(late), plan(REFERENCE))


PIPELINE = f"""
mesh pp=2
{HEAD}input x f32[8,8]
program pp=0
  h = linear(x, w)
  send h to pp+1
  recv dh: gradient f32[8,8] grad-of h from pp+1
  _, grad(w) = backward h (dh)
program pp=1
  recv h: f32[8,8] from pp-1
  z = gelu(h)
  l = sum(z)
  dz = backward l (grad(l))
  dh = backward z (dz)
  send dh to pp-1
"""
