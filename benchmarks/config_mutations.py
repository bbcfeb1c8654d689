"""Break one thing in configurations that were right, and count how often the right rule says so at the right place.

Every config rule has an invalid example with a valid twin. Both are laid over the valid examples of other rules: where the host
with the valid twin has no error, the host with the invalid one must have a finding of the rule, at one of the rule's settings.

    python benchmarks/config_mutations.py [hosts per rule]
"""

from __future__ import annotations

import random
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from tests.builders.page_examples import Example, read_examples
from tvlint.findings import Finding, Severity
from tvlint.frameworks.megatron import option
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.readers.read import read
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project

RULES = load_rules()
LAUNCH = "torchrun --nproc-per-node {ranks} pretrain_gpt.py"


def main() -> int:
    """Print what was found; 1 where a finding stood at the wrong place.

    Scripts of mutants without a finding are printed: some hosts make the broken setting right again.
    """
    hosts_per_rule = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    chance = random.Random(0)
    hosts = [settings for _, pair in twins() for settings in (flags(pair[1]),) if settings]
    counts: Counter[str] = Counter()
    for rule, (invalid, valid) in twins():
        broken, whole = flags(invalid), flags(valid)
        if not broken or not whole:
            continue
        for host in chance.sample(hosts, min(hosts_per_rule, len(hosts))):
            if any(finding.severity is Severity.ERROR or finding.rule == rule.name for finding in said({**host, **whole})):
                counts["hosts that do not fit"] += 1
                continue
            judge(rule, {key: value for key, value in host.items() if key not in whole} | broken, counts)
    for name, count in counts.most_common():
        print(f"{count:6} {name}")
    return 1 if any(name.startswith("misplaced") for name in counts) else 0


def judge(rule: Rule, settings: Mapping[str, str], counts: Counter[str]) -> None:
    """Count one mutant."""
    counts["mutants"] += 1
    findings = said(settings)
    own = [finding for finding in findings if finding.rule == rule.name]
    if not own:
        counts[f"no finding by {rule.name}"] += 1
        print(f"no finding by {rule.name}:\n{script(settings)}")
        return
    counts["found"] += 1
    if any(place(finding) in expected(rule, settings) for finding in own):
        counts["found at the place"] += 1
    else:
        counts[f"misplaced by {rule.name}"] += 1
        print(f"misplaced by {rule.name}: {own[0].location}\n{script(settings)}")
    counts["other errors beside"] += sum(
        finding.severity is Severity.ERROR and finding.rule != rule.name for finding in findings
    )


def place(finding: Finding) -> int:
    """The line of a finding."""
    return finding.location.line or 0


def expected(rule: Rule, settings: Mapping[str, str]) -> set[int]:
    """The lines of the rule's settings, the one at fault among them; that of the launch where none stands in the script."""
    launch = len([key for key in settings if key.startswith("env.")]) + 1
    return {line for name in rule.location for line in lines_of(name, settings)} or {launch}


def lines_of(name: str, settings: Mapping[str, str]) -> Iterator[int]:
    """Where a setting stands in the script that `script` makes."""
    exported = [key for key in settings if key.startswith("env.")]
    if name in exported:
        yield exported.index(name) + 1
    if name == "world_size":
        yield len(exported) + 1
    options = [key for key in settings if key.startswith("--")]
    for index, flag in enumerate(options):
        known = option(flag)
        if known is not None and known.dest == name:
            yield len(exported) + 2 + index


def twins() -> Iterator[tuple[Rule, tuple[Example, Example]]]:
    """Every config rule's invalid shell examples with the valid ones that follow them."""
    for rule in RULES.values():
        examples = read_examples(rule) if rule.kind is RuleKind.CONFIG else ()
        for invalid, valid in pairwise(examples):
            if not invalid.valid and valid.valid and invalid.language == valid.language == "sh":
                yield rule, (invalid, valid)


def flags(example: Example) -> dict[str, str]:
    """The options of an example as they are written, its exported variables as `env.NAME`, and `ranks`; empty where unclear."""
    document = read("example.sh", example.text.encode())
    if document is None or document.format != "megatron-shell" or len(document.configurations) != 1:
        return {}
    configuration: Configuration = document.configurations[0]
    found = {f"env.{name}": shlex.quote(text(each)) for name, each in configuration.environment.items()}
    ranks = configuration.settings["world_size"].value
    found["ranks"] = str(ranks) if isinstance(ranks, int) else "8"
    for name, setting in configuration.settings.items():
        if name != "world_size":
            known = option(setting.written)
            found[setting.written] = text(setting) if known is None or known.kind == "store" else ""
    return found


def text(setting: Setting) -> str:
    """A setting's value as a shell writes it."""
    value = setting.value
    if isinstance(value, Unknown):
        return '"$UNKNOWN"'
    return " ".join(shlex.quote(str(each)) for each in (value if isinstance(value, tuple) else (value,)))


def script(settings: Mapping[str, str]) -> str:
    """A launch script with one option a line."""
    lines = [f"export {key[4:]}={value}" for key, value in settings.items() if key.startswith("env.")]
    options = [f"{key} {value}".strip() for key, value in settings.items() if key.startswith("--")]
    return "\n".join([*lines, " \\\n  ".join([LAUNCH.format(ranks=settings["ranks"]), *options])]) + "\n"


def said(settings: Mapping[str, str]) -> tuple[Finding, ...]:
    """All findings about the script."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.sh"
        path.write_text(script(settings), encoding="utf-8")
        report, _ = check(Candidates((str(path),), frozenset({str(path)})), RULES, RULES, Project(Path(folder)))
    return report.findings


if __name__ == "__main__":
    sys.exit(main())
