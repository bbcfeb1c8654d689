"""Certificates as files: written with a proof, read and checked against the plans."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tvlint.findings import Problem, Severity
from tvlint.ir.location import Location
from tvlint.readers.bounds import without_collection
from tvlint.run.outputs import write_file
from tvlint.run.pair import Pair, Plans, Progress, read_pair

if TYPE_CHECKING:
    from tvlint.certificate.form import Certificate
    from tvlint.proof.prove import Proof

Files: TypeAlias = "tuple[tuple[str, str, str], ...]"
"""Which plan, file name and digest."""

_LARGEST = 1 << 26


@dataclass(frozen=True, slots=True)
class Verified:
    """What a certificate proves of the pair."""

    assumptions: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NotVerified:
    """Why a certificate proves nothing of the pair."""

    reason: str


def files_of(parallel: str, reference: str) -> Files:
    """The digests of all files that a pair is read from; files that cannot be read are left out."""
    pairs = (("parallel", parallel), ("reference", reference or parallel))
    return tuple((plan, name, digest) for plan, path in pairs for name, digest in _digests(path))


def _digests(path: str) -> list[tuple[str, str]]:
    """File name, empty where there is only one, and digest of what the plan is read from."""
    from tvlint.readers.inputs import files_of as inputs_of

    found = []
    try:
        names = inputs_of(path)
    except OSError:
        return []
    for name in names:
        digest = hashlib.sha256()
        try:
            with open(name, "rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        except OSError:
            continue
        found.append((os.path.basename(name) if len(names) > 1 else "", digest.hexdigest()))
    return found


def write_certificate(
    path: str,
    plans: Plans,
    proofs: Sequence[Proof],
    files: Files,
    assume: frozenset[str],
    assumptions: Sequence[tuple[str, ...]],
) -> str:
    """Write the proofs of a pair, one for each kind of replica, if the checker accepts them; otherwise say why it does not.

    Raises `OutputError` where the file cannot be written.
    """
    from tvlint.certificate.form import CertificateError, from_bytes, to_bytes
    from tvlint.certificate.write import certificate

    made = [
        certificate(proof, files=files, variant=i, assume=assume, assumptions=assumptions[i]) for i, proof in enumerate(proofs)
    ]
    data = to_bytes(made)
    try:
        found = _checked(from_bytes(data), plans, None)
    except CertificateError as error:
        return str(error)
    if isinstance(found, NotVerified):
        return found.reason
    write_file(path, data)
    return ""


@without_collection()
def verify(path: str, pair: Pair, progress: Progress | None = None) -> Verified | NotVerified | Problem:
    """What the certificate in the file proves of the pair; a problem where a file cannot be read."""
    from tvlint.certificate.form import CertificateError, from_bytes

    data = _read(path)
    if isinstance(data, Problem):
        return data
    try:
        certificates = from_bytes(data)
    except CertificateError as error:
        return NotVerified(str(error)) if data.startswith(b"tvlint certificate ") else Problem(str(error), Location(path))
    files = files_of(pair.parallel, pair.reference)
    plans = read_pair(pair, progress)
    if not isinstance(plans, Plans):
        return plans[0]
    if any(own.files != files for own in certificates):
        return NotVerified("the certificate is of other files than these")
    if [own.variant for own in certificates] != list(range(len(plans.kinds))):
        return NotVerified(f"the plan has {len(plans.kinds)} kinds of replicas, and the certificate proves {len(certificates)}")
    return _checked(certificates, plans, progress)


def _read(path: str) -> bytes | Problem:
    try:
        if os.path.getsize(path) > _LARGEST:
            return Problem(f"has more than {_LARGEST >> 20} MiB", Location(path))
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        return Problem(f"cannot be read: {(error.strerror or 'unknown reason').lower()}", Location(path))
    return data if len(data) <= _LARGEST else Problem(f"has more than {_LARGEST >> 20} MiB", Location(path))


def _checked(certificates: tuple[Certificate, ...], plans: Plans, progress: Progress | None) -> Verified | NotVerified:
    from tvlint.certificate.check import check
    from tvlint.certificate.tables import Rejected

    wrong = next((finding for finding in plans.findings if finding.severity is Severity.ERROR), None)
    if wrong is not None:
        return NotVerified(f"the plan has a mistake: {wrong.message} [{wrong.rule}]")
    found = []
    for own, plan in zip(certificates, plans.kinds, strict=True):
        try:
            found.append(check(own, plan, plans.reference, progress))
        except Rejected as error:
            return NotVerified(str(error))
    assumptions = tuple(dict.fromkeys(name for each in found for name in each.assumptions))
    return Verified(assumptions, found[0].facts)
