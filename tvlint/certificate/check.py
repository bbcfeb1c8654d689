"""`check`: does a certificate prove that the parallel plan trains the same model as the reference plan?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvlint.certificate.batch import check_batch, micro_batches_of
from tvlint.certificate.exchange import DECLARED_PIECE_ORDER
from tvlint.certificate.final import check_gradients, check_returned, check_updates, expected
from tvlint.certificate.form import Certificate
from tvlint.certificate.operators import World
from tvlint.certificate.order import check_order
from tvlint.certificate.placed import check_pair, inputs_of
from tvlint.certificate.programs import run_programs
from tvlint.certificate.running import Running
from tvlint.certificate.tables import Rejected, Tables
from tvlint.ir.operators import ReduceGradients
from tvlint.ir.plan import UNDIVIDED, Plan

ASSUMED = (
    "real arithmetic, not floating point",
    "backward operators are the true gradients of their forward operators",
    "the data loader gives replica r, micro-batch m its own slice of the global batch, the same to all ranks of a replica",
    "weights with equal full names start equal, and so do constants",
)
"""What every verified certificate rests on."""

_WEAKENED = "`declared-piece-order`: pieces are cut and joined in the order that the plan declares, not in rank order"


@dataclass(frozen=True, slots=True)
class Checked:
    """What was verified, and on which assumptions."""

    assumptions: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def check(
    certificate: Certificate, parallel: Plan, reference: Plan, progress: Callable[[str, float], None] | None = None
) -> Checked:
    """What the certificate proves of the pair.

    Raises Rejected where a step does not follow from those before it, or is of a kind that is not known here. Nothing that
    the certificate says is taken for granted: it only tells what to look for.
    """
    tell = progress or (lambda text, share: None)
    if set(certificate.assume) - {DECLARED_PIECE_ORDER}:
        raise Rejected("the certificate assumes what the checker does not know")
    check_pair(parallel, reference)
    micro_batches = micro_batches_of(parallel)
    if micro_batches_of(reference) != 1 or parallel.micro_batches != micro_batches:
        raise Rejected("the plans do not run as many micro-batches as they say")
    inputs = inputs_of(parallel, reference)
    if inputs.count != micro_batches * parallel.replication.count:
        raise Rejected(f"the reference's batch is {inputs.count} local batches, and the plan runs another number")
    tables = Tables(certificate)
    dtypes: dict[int, str] = {}
    assume = frozenset(certificate.assume)
    tell("checking the reference", 0.1)
    world = World(tables, inputs.count, inputs.count, False, False)
    trails = certificate.trails
    outer = Running(world, reference, certificate.reference, trails, inputs, inputs.reference, None, dtypes, frozenset())
    run_programs(outer)
    wanted = expected(outer)
    tell("checking the order", 0.3)
    check_batch(parallel, micro_batches)
    check_order(parallel)
    tell("checking the parallel plan", 0.4)
    world = World(tables, 1, inputs.count, parallel.replication.count > 1, micro_batches > 1)
    losses = frozenset(outer.seeded)
    inner = Running(world, parallel, certificate.parallel, trails, inputs, inputs.parallel, losses, dtypes, assume)
    run_programs(inner)
    compared = check_gradients(inner, wanted, micro_batches)
    check_returned(inner, wanted)
    check_updates(inner, wanted, reference)
    unused = tables.unused()
    if unused or outer.trails_used | inner.trails_used != set(range(len(trails))):
        raise Rejected(f"the certificate has {unused or 'a trail that no step follows'}")
    left = (UNDIVIDED.format(reference.undivided),) if reference.undivided > 1 else ()
    left = (*left, *inputs.assumed(), *_assumed(parallel, assume))
    assumptions = (*left, *sorted(inner.assumptions | tables.assumptions), *ASSUMED)
    if certificate.assumptions != assumptions:
        raise Rejected("the certificate names other assumptions than its proof rests on")
    return Checked(assumptions, _facts(certificate, parallel, micro_batches, compared, len(wanted.gradients)))


def _assumed(plan: Plan, assume: frozenset[str]) -> tuple[str, ...]:
    """What the plan leaves open, or was weakened on request."""
    reducers = [own for segment in plan.segments.values() for own in segment.operators if isinstance(own, ReduceGradients)]
    found = [_WEAKENED] if DECLARED_PIECE_ORDER in assume else []
    if any(own.divisor == 0 for own in reducers):
        found.append("gradient reducers whose divisor the plan does not say sum and do not divide")
    if any(own.scatter for own in reducers):
        found.append("weights that are updated in shards are gathered again before they are used")
    found += plan.assumed
    return tuple(found)


def _facts(own: Certificate, plan: Plan, micro_batches: int, compared: int, gradients: int) -> tuple[tuple[str, str], ...]:
    checked = sum(len(own.trails[at]) for one in (own.reference, own.parallel) for at in one.runs.values())
    return (
        ("mesh", " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes) or "of one rank"),
        ("ranks", str(plan.mesh.size)),
        ("micro-batches", str(micro_batches)),
        ("gradients", str(gradients)),
        ("gradients compared on ranks", str(compared)),
        ("terms", str(len(own.terms))),
        ("relations checked", str(checked)),
    )
