"""Scripts that no shell runs to their end, and those that only a grammar does not understand."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from time import process_time

import pytest

from tests.sampling import sampled
from tvlint.readers.read import read
from tvlint.readers.shell.broken import broken
from tvlint.readers.shell.refusal import refusal

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
    "no then": f"if [ $1 = a ]\n{LAUNCH}\nfi\n",
    "a stray fi": f"{LAUNCH}\nfi\n",
    "a stray done": f"if true; then\n  done\nfi\n{LAUNCH}\n",
    "a fi in a loop": f"for i in 1 2; do\n  if true; then\n    :\n  done\nfi\n{LAUNCH}\n",
    "else if": f"if a; then\n  :\nelse if b; then\n  :\nfi\n{LAUNCH}\n",
    "nothing after then": f"if true; then\n  # {LAUNCH}\nfi\n",
    "then on the line of then": f"if true; then; {LAUNCH}\nfi\n",
    "words before do": f"for i in 1 2 do\n{LAUNCH}\ndone\n",
    "a quote in the middle": f'A="x\nB="y z"\n{LAUNCH}\n',
    "a bracket in words": f"{LAUNCH} --note a (b)\n",
    "an empty loop": "for i in 1; do\ndone\n",
    "brackets of a test": f"if [[ $1 == a ]; then\n{LAUNCH}\nfi\n",
    "two semicolons": f"{LAUNCH};;\n",
    "a pipe before a line": f"| tee log\n{LAUNCH}\n",
    "words behind a block": f"if true; then {LAUNCH}; fi 2>&1 tee\n",
    "a redirection to nothing": f"{LAUNCH} >\necho done\n",
    "a choice without in": f"case $1\na) {LAUNCH} ;;\nesac\n",
    "a choice without brackets": f"case $1 in\na {LAUNCH} ;;\nesac\n",
    "a function of words": f"run() {LAUNCH}\n",
    "an array in an array": f"A=(1 (2) 3)\n{LAUNCH}\n",
    "a count that is not closed": f"A=$((1 + (2 * 3))\n{LAUNCH}\n",
    "a condition in a substitution": f'A="$(if true; then echo 1)"\n{LAUNCH}\n',
    "an and before a line": f"true\n&& {LAUNCH}\n",
    "in alone": f"in 1 2\n{LAUNCH}\n",
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
    "words of the grammar as arguments": f"echo if then fi do done esac in }} ]]\n{LAUNCH}\n",
    "blocks without a sign between them": f"if (( 1 )) then if [[ a ]] then {LAUNCH}; fi fi\n",
    "a for without words": f"for i; do {LAUNCH}; done\nfor i\ndo :; done\nfor ((i=0; i<2; i++)) {{ :; }}\n",
    "choices": f"case $1 in\n  (a|'b c') {LAUNCH};;\n  *) ;;&\n  c) echo ;&\n  d)\nesac\n",
    "functions": f"function f {{ :; }}\nfunction g() {{ :; }}\nh () (\n  :\n)\nk() if a; then :; fi\n{LAUNCH}\n",
    "brackets in brackets": f"A=$( (echo 1; echo 2) | wc -l )\nB=$((echo 1); (echo 2))\n((A > 1)) && {LAUNCH}\n",
    "two documents": f"cat <<A <<-'B'\nfi\nA\n\tdone\n\tB\n{LAUNCH}\n",
    "redirections": f"{LAUNCH} >a 2>&1 </dev/null &>>b <<<'c' 3>&- {{fd}}>d > >(tee e) < <(echo f)\n",
    "a comment in an array": f"A=(1 # it's ( a ) comment\n  2)\n{LAUNCH}\n",
    "elements": f"A[1]=2 A[$i]+=3\ndeclare -A M=([a]=1 [b c]=2)\n{LAUNCH}\n",
    "expansions": f'{LAUNCH} ${{A:-$(echo "${{B%%\\}}}}")}} ${{#A[@]}} ${{!A}} $# $$ $! $\'it\\\'s\' $"a" "${{A:+"b"}}"\n',
    "an until, a time and a not": f"until ! time -p true; do :; done\n! {LAUNCH} &\nwait\n",
    "a template": f"{{% if a %}}\nfi\n{{% endif %}}\n{LAUNCH}\n",
    "a value to be filled in, with an example": f"DATA=<path of the data> \\\n    (e.g., /data/a.txt)\n{LAUNCH}\n",
    "a value to be filled in": f"DATA=<path of the data>\nMODEL=<a path (of a model)>\n{LAUNCH}\n",
    "another shell": f"#!/bin/tcsh\nif (1) then\nendif\n{LAUNCH}\n",
}
UNKNOWN_TO_A_SHELL = ("a template", "a value to be filled in", "a value to be filled in, with an example", "another shell")
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
@pytest.mark.parametrize("what", [*BROKEN, *(what for what in WHOLE if what not in UNKNOWN_TO_A_SHELL)])
def test_a_shell_says_the_same(what: str) -> None:
    assert refuses((BROKEN | WHOLE)[what]) is (what in BROKEN)


PLACES = {
    "no then": (3, "`fi` stands where `if` of line 1 needs `then`"),
    "a stray fi": (2, "`fi` stands where no `if` is open"),
    "a fi in a loop": (4, "`done` stands where `if` of line 2 needs `elif` or `else` or `fi`"),
    "nothing after then": (3, "no command stands before `fi`"),
    "words before do": (2, "`for` of line 1 needs `do` here"),
    "a quote in the middle": (2, 'the script ends where `"` must follow'),
    "else if": (1, "the script ends where `fi` must follow"),
    "brackets of a test": (1, "`[[` of line 1 needs `]]` before this"),
    "a bracket in words": (1, "the shell takes no `(` here"),
    "an empty loop": (2, "no command stands before `done`"),
    "a redirection to nothing": (1, "a file must follow `>`"),
}


@pytest.mark.parametrize("what", PLACES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_mistake_is_named_at_its_place(what: str, ends: str) -> None:
    text = "# Größe\n" + BROKEN[what]
    (finding,) = broken("a.sh", text.replace("\n", ends).encode())
    line, message = PLACES[what]
    for number in range(9, 0, -1):
        message = message.replace(f"line {number}", f"line {number + 1}")
    assert (finding.location.line, finding.message) == (line + 1, message)


def refuses(text: str) -> bool:
    """Return whether a shell refuses a script; of some mistakes it only says so."""
    run = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    return run.returncode != 0 or b"conditional" in run.stderr


FIXTURES = sorted((Path(__file__).resolve().parents[3] / "fixtures").rglob("*.sh"))
SIGNS = (
    *("then", "fi", "do", "done", "esac", "in", "if", "for", "while", "case", ";;", "{", "}", "(", ")", "|", "&&", ";"),
    *("`", "$(", "$((", "[[", "]]", "<", "#", '"', "'"),
)
BLOCKS = '\nif true; then\n  for i in 1 2; do\n    echo "$i"\n  done\nfi\n'
TOKEN = re.compile("|".join(map(re.escape, SIGNS)))


def mutants(text: str, count: int, seed: int) -> Iterator[str]:
    """Yield the script with a sign or a word of the grammar left out, exchanged for another, or added."""
    chance = random.Random(seed)
    found = list(TOKEN.finditer(text))
    for _ in range(count):
        sign = chance.choice(["", *SIGNS])
        if found and chance.random() < 0.7:
            old = chance.choice(found)
            yield text[: old.start()] + sign + text[old.end() :]
            continue
        place = text.find("\n", chance.randrange(len(text))) + 1
        yield f"{text[:place]}{sign}\n{text[place:]}"


@pytest.mark.parametrize(
    ("script", "is_cut_off"),
    [
        ("torchrun a.py \n  | tee log\n", True),
        ("torchrun a.py\n&& echo done\n", True),
        ("| tee log\n", False),
        ("a; | b\n", False),
    ],
)
def test_what_joins_a_command_to_the_line_before_needs_a_backslash_there(script: str, is_cut_off: bool) -> None:
    (found,) = broken("a.sh", script.encode())
    assert (found.help == "end the line before in a backslash") == is_cut_off


@pytest.mark.skipif(which("bash") is None, reason="no bash")
@pytest.mark.parametrize("path", sampled(FIXTURES, 25), ids=lambda path: path.name)
def test_no_script_that_a_shell_reads_is_refused(path: Path) -> None:
    """Nor is a changed one; most of those that a shell refuses are found."""
    text = path.read_text().replace("\r", "")
    missed = 0
    for script in (text, *mutants(text + BLOCKS, 12, len(text))):
        is_refused = refuses(script)
        if not is_refused:
            assert refusal(script) is None, script
        missed += is_refused and refusal(script) is None
    assert missed <= 3


UNITS = ("((", "$((", '"$(', "${a:-", "{ ", "if a; then\n", "a[\n", "<<E ", "f() ", "`", "'\n", "A=(", "[[ ", "case a in b) ")


@pytest.mark.parametrize("unit", sampled(UNITS, 3))
def test_what_is_never_closed_is_read_once(unit: str) -> None:
    """Twice the text takes twice the time at most, and some of it for the machine."""
    spent = []
    for size in (50_000, 100_000):
        started = process_time()
        refusal(unit * (size // len(unit)))
        spent.append(process_time() - started)
    assert spent[1] < 3 * spent[0] + 1


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_two_versions_that_a_merge_left_are_an_error_at_their_first_mark(ends: str) -> None:
    finding = next(broken("a.sh", MERGED.replace("\n", ends).encode()))
    assert (finding.rule, finding.location.line) == ("broken-script", 2)
    assert not list(broken("a.sh", MERGED.replace(">>>>>>>", "#").replace("<<<<<<<", "#").replace("=======", "#").encode()))


def test_a_word_that_is_refused_is_shown_as_it_is_written_and_not_at_any_length() -> None:
    (finding,) = broken("a.sh", f"if true; then :; fi {'é' + 'x' * 20000}\n".encode())
    assert "`éxxx" in finding.message
    assert len(finding.message) < 120
