"""`gitlab`: a Code Quality report, which GitLab shows in a merge request."""

from __future__ import annotations

from hashlib import sha256

from tvlint.findings import Report, Severity
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.forge.remarks import lines, prints_of_files, remarks, silenced

_SEVERITY = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}


def write(report: Report, context: Context) -> Escaped:
    """Return a list of remarks; the fingerprint of each is its own, and the same in every run that finds it in that file."""
    listed = [*remarks(report, context), *silenced(report, context)]
    return data(
        [
            {
                "description": "\n".join(lines(remark, context)),
                "check_name": remark.rule,
                "fingerprint": sha256(f"{remark.anchor.path}\0{name}".encode("utf-8", "backslashreplace")).hexdigest()[:32],
                "severity": _SEVERITY[remark.level],
                "location": {"path": remark.anchor.path, "lines": {"begin": remark.anchor.line}},
            }
            for remark, name in zip(listed, prints_of_files(listed), strict=True)
        ]
    )
