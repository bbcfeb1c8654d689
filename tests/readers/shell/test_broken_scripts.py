"""Scripts that no shell runs to their end, and those that only a grammar does not understand."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import pytest

from tvlint.readers.read import read
from tvlint.readers.shell.broken import LARGEST, broken

LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1"
BROKEN = {
    "a quote": f'{LAUNCH} "--lr 1\n',
    "a quote in an array": f"A=('--lr 1\n)\n{LAUNCH}\n",
    "a condition": f"if true; then\n{LAUNCH}\n",
    "a loop in a condition": f"if true; then\nfor i in 1 2; do\n{LAUNCH}\n",
    "a choice": f"case $1 in\na)\n{LAUNCH} ;;\n",
    "a function": f"f() {{\n{LAUNCH}\n",
    "a substitution": f"X=$(ls\n{LAUNCH}\n",
    "an expansion": f"{LAUNCH} ${{X:-3\n",
    "an array": f"A=(1 2\n{LAUNCH}\n",
    "an and": f"{LAUNCH} &&\n",
    "a pipe": f"{LAUNCH} |\n",
    "no launch": "echo 'a\n",
}
WHOLE = {
    "an empty file": "",
    "a command that goes on": f"{LAUNCH} \\\n",
    "a command that goes on without an end of the line": f"{LAUNCH} \\",
    "a bare dollar": f"{LAUNCH}\nX=$",
    "a here-document without an end": f"{LAUNCH}\ncat <<END\nit's\n",
    "a here-document with a quote": f"cat <<END\nit's\nEND\n{LAUNCH}\n",
    "a comment with a quote": f"# it's\n{LAUNCH} # don't\n",
    "an expression with brackets": f"[[ $X =~ ^(a|b)$ ]] && {LAUNCH}\n",
    "a line of equals signs": f"echo '\n=======\n'\n{LAUNCH}\n",
}
MERGED = f"NL=4\n<<<<<<< HEAD\nTP=2\n=======\nTP=4\n>>>>>>> other\n{LAUNCH}\n"


@pytest.mark.parametrize("what", BROKEN)
def test_a_script_that_ends_inside_of_what_it_opened_is_an_error(what: str) -> None:
    findings = list(broken("a.sh", BROKEN[what].encode()))
    assert [finding.rule for finding in findings] == ["broken-script"]
    document = read("a.sh", BROKEN[what].encode())
    assert document is not None
    assert findings[0] in document.findings


def test_two_open_expansions_are_named_once_and_at_the_end_where_the_grammar_takes_nothing_of_the_script() -> None:
    text = "#!/bin/bash\nA=${B}/x\npython ${HOME/jz/run.py \\\n  --config ${HOME/jz/tiny.json \\\n  --data ${A} --steps 1\n"
    (finding,) = broken("a.sh", text.encode())
    assert finding.message == "the script ends where `}` must follow"
    assert (finding.location.line, finding.location.column) != (1, 1)


@pytest.mark.parametrize("what", WHOLE)
def test_what_a_shell_runs_is_none(what: str) -> None:
    assert not list(broken("a.sh", WHOLE[what].encode()))


@pytest.mark.skipif(which("bash") is None, reason="no bash")
@pytest.mark.parametrize("what", [*BROKEN, *WHOLE])
def test_a_shell_says_the_same(what: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text((BROKEN | WHOLE)[what])
    refused = subprocess.run(["bash", "-n", "a.sh"], cwd=tmp_path, capture_output=True, check=False).returncode != 0
    assert refused is (what in BROKEN)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_two_versions_that_a_merge_left_are_an_error_at_their_first_mark(ends: str) -> None:
    finding = next(broken("a.sh", MERGED.replace("\n", ends).encode()))
    assert (finding.rule, finding.location.line) == ("broken-script", 2)
    assert not list(broken("a.sh", MERGED.replace(">>>>>>>", "#").replace("<<<<<<<", "#").replace("=======", "#").encode()))


def test_a_script_that_is_too_large_to_be_tried_is_left() -> None:
    assert not list(broken("a.sh", b"# x\n" * (LARGEST // 4) + b"echo '\n"))
