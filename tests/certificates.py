"""Certificates for tests: written from proofs, and judged by the checker alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tvlint.certificate.check import check
from tvlint.certificate.form import Certificate, CertificateError, from_bytes
from tvlint.certificate.tables import Rejected
from tvlint.certificate.write import certificate
from tvlint.ir.plan import Plan
from tvlint.proof import prove as proving

_JUDGES = ("judge_gradients", "judge_returned", "judge_updates", "check_wiring", "check_order")


def certified(parallel: Plan, reference: Plan, assume: frozenset[str] = frozenset()) -> Certificate | None:
    """The certificate of the proof; None where there is none."""
    keep: list[proving.Proof] = []
    verdict = proving.prove(parallel, reference, keep=keep, assume=assume)
    if not keep:
        return None
    assumptions = verdict.assumptions
    return certificate(keep[0], files=(), variant=0, assume=assume, assumptions=assumptions)


def forged(parallel: Plan, reference: Plan) -> Certificate | None:
    """What a prover would certify that judges neither names, gradients, results nor order; None where a value is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tvlint.proof.lookup.tell", _nothing)
        patch.setattr(proving, "stops", lambda trouble: False)
        for name in _JUDGES:
            patch.setattr(proving, name, _nothing)
        return certified(parallel, reference)


def _nothing(*arguments: object, **named: object) -> Iterator[None]:
    return iter(())


def objection(own: Certificate, parallel: Plan, reference: Plan) -> str:
    """Why the checker rejects the certificate; empty where it does not."""
    try:
        check(own, parallel, reference)
    except Rejected as error:
        return str(error)
    return ""


def objection_to_bytes(data: bytes, parallel: Plan, reference: Plan) -> str:
    """Why a file is rejected; empty where it is not."""
    try:
        found = from_bytes(data)
    except CertificateError as error:
        return str(error)
    return "several" if len(found) != 1 else objection(found[0], parallel, reference)
