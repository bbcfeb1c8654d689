"""Launchers in Python: what they pass is parsed, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.document import ReadError
from tvlint.readers.read import read

SIZES = "--tensor-model-parallel-size 2 --num-layers 4"


def read_program(folder: Path, body: str, name: str = "launch.py") -> tuple[Configuration, ...]:
    path = folder / name
    path.write_text("import os\n" + body)
    document = read(str(path))
    return document.configurations if document is not None else ()


def values(folder: Path, body: str) -> dict[str, object]:
    (own,) = read_program(folder, body)
    assert own.elsewhere
    assert not own.complete
    return {name: "?" if isinstance(each.value, Unknown) else each.value for name, each in own.settings.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("sizes = '--tensor-model-parallel-size 2 --num-layers 4'", {}),
        ("TP = 2\nsizes = f'--tensor-model-parallel-size {TP} ' + '--num-layers 4'", {}),
        ("TP = 2\ndef f():\n    s = ['--tensor-model-parallel-size', str(TP), '--num-layers', '4']\n    os.execv('a', s)", {}),
        ("def f():\n    s = ['--tensor-model-parallel-size', '2']\n    all = ['python', *s, '--num-layers', '4']", {}),
        ("def f(tp):\n    s = f'--tensor-model-parallel-size {tp} --num-layers 4'", {"tensor_model_parallel_size": "?"}),
        (
            "TP = 2\nif os.name:\n    TP = 4\ns = f'--tensor-model-parallel-size {TP} --num-layers 4'",
            {"tensor_model_parallel_size": "?"},
        ),
        ("for TP in (1, 2):\n    s = f'--tensor-model-parallel-size {TP} --num-layers 4'", {}),
        (
            "for TP in os.name:\n    s = f'--tensor-model-parallel-size {TP} --num-layers 4'",
            {"tensor_model_parallel_size": "?"},
        ),
        (
            "TP = 2\ndef f(TP):\n    s = f'--tensor-model-parallel-size {TP} --num-layers 4'",
            {"tensor_model_parallel_size": "?"},
        ),
        (f"s = '{SIZES} '\ns += '--micro-batch-size 8'", {"micro_batch_size": 8}),
        (f"s = '{SIZES} '\nif os.name:\n    s += '--micro-batch-size 8'", {"micro_batch_size": "?"}),
        (f"s = '{SIZES} --micro-batch-size ' + ('8' if os.name else '4')", {"micro_batch_size": "?"}),
        (
            f"n = 1\nwhile os.name:\n    s = f'{SIZES} --micro-batch-size {{n}}'\n    n = n + 1",
            {"micro_batch_size": "?"},
        ),
        (f"s = '{SIZES} --micro-batch-size $N'", {"micro_batch_size": "?"}),
    ],
)
def test_lists_and_texts_of_options_are_read(body: str, expected: dict[str, object], tmp_path: Path) -> None:
    assert values(tmp_path, body + "\n") == {"tensor_model_parallel_size": 2, "num_layers": 4, **expected}


def test_a_value_stands_where_it_is_written(tmp_path: Path) -> None:
    (own,) = read_program(tmp_path, "s = (\n    f'--load {os.name} '\n    f'--tensor-model-parallel-size 3 '\n)\n")
    place = own.settings["tensor_model_parallel_size"].location
    assert (place.line, place.column) == (4, 36)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (f"import pytest\ndef test_it():\n    s = '{SIZES}'\n", "test_launch.py"),
        (f"def f(: '{SIZES}'\n", "launch.py"),
        (f"s = '{SIZES}'\n", "launch.md"),
        ("print('--tensor-model-parallel-size 2 is wrong')\n", "launch.py"),
    ],
)
def test_what_passes_nothing_is_no_launcher(body: str, name: str, tmp_path: Path) -> None:
    assert read_program(tmp_path, body, name) == ()


def test_a_function_has_its_own_lists(tmp_path: Path) -> None:
    text = f"def a():\n    s = '{SIZES}'\ndef b():\n    s = '{SIZES.replace('2', '3')}'\n"
    both = read_program(tmp_path, text)
    assert [each.settings["tensor_model_parallel_size"].value for each in both] == [2, 3]


@pytest.mark.parametrize(
    "functions",
    [
        "def command():\n    if os.name:\n        return []\n    return @\n",
        "def command():\n    return command()\n",
        "def command():\n    return @\ndef command():\n    return []\n",
        "from launchers import command\nclass A:\n    def command():\n        return @\n",
        "@cache\ndef command():\n    return @\n",
        "CMD = @\ndef command():\n    return CMD\n",
        "def command():\n    yield from @\n",
        "command = None\ndef f():\n    def command():\n        return @\n",
        "def command():\n    return f0()\n"
        + "".join(f"def f{at}():\n    return f{at + 1}()\n" for at in range(400))
        + "def f400():\n    return @\n",
    ],
)
def test_what_a_function_gives_is_open_where_it_may_be_another_thing(functions: str, tmp_path: Path) -> None:
    text = functions.replace("@cache", "#cache").replace("@", STARTED).replace("#cache", "@cache")
    found = read_program(tmp_path, text + "os.execv('a', command())\n")
    assert not any("world_size" in own.settings for own in found)


@pytest.mark.parametrize("change", ["other.append(os.name)", "other += [os.name]", "other[4:] = os.listdir()"])
def test_a_list_of_two_names_is_not_known_when_it_has_changed_under_one(change: str, tmp_path: Path) -> None:
    body = f"cmd = {STARTED}\nother = cmd\n{change}\nos.execv('a', cmd)\n"
    assert not any("world_size" in own.settings for own in read_program(tmp_path, body))


def test_expressions_that_nest_too_deeply_are_a_located_problem(tmp_path: Path) -> None:
    body = f"a = {{'x': 'x'}}\nv = {'a.get(' * 195}'x'{')' * 195}\nos.execv('a', [*{STARTED}, v])\n"
    with pytest.raises(ReadError, match="nests expressions too deeply") as raised:
        read_program(tmp_path, body)
    assert raised.value.problem.location.line == 1


@pytest.mark.parametrize("line", ["os.system(' '.join(words))", "words.append('a')", "start([*words])"])
def test_long_lists_in_long_programs_are_a_located_problem(line: str, tmp_path: Path) -> None:
    body = f"s = '{SIZES}'\nwords = [{','.join(['1'] * 1000)}]\n" + f"{line}\n" * 1000
    with pytest.raises(ReadError, match="too complex") as raised:
        read_program(tmp_path, body)
    assert raised.value.problem.location.line


SIZED = "'--tensor-model-parallel-size', '2', '--num-attention-heads', '8'"
STARTED = f"['torchrun', '--nproc-per-node', '8', 'pretrain_gpt.py', {SIZED}]"
TEXT = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 8"


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (f"import subprocess\nsubprocess.run({STARTED}, check=True)\n", (8, 2)),
        (f"from subprocess import check_call as c\ncmd = {STARTED}\nc(args=cmd)\n", (8, 2)),
        (f"import subprocess\ncmd = {STARTED}\nsubprocess.run(' '.join(cmd), shell=True)\n", (8, 2)),
        (f"import shlex\ncmd = {STARTED}\nos.system(shlex.join(cmd))\n", (8, 2)),
        (f"import shlex, subprocess\nsubprocess.run(shlex.split('{TEXT}'))\n", (8, 2)),
        (f"os.system('{TEXT}')\n", (8, 2)),
        (f"os.execvp('bash', ['bash', '-c', '{TEXT}'])\n", (8, 2)),
        (f"N = 4\nos.system(f'{TEXT.replace('8 p', '{N} p')}')\n", (4, 2)),
        (f"cmd = {STARTED}\nprint(cmd, len(cmd))\nos.execv(cmd[0], cmd)\n", (8, 2)),
        (f"cmd = {STARTED}\ncmd.append('--bf16')\ncmd.extend(['--lr', '1'])\nos.execv('a', cmd)\n", (8, 2)),
        (f"cmd = {STARTED}\ncmd += ['--seed', '1']\nos.execv('a', cmd)\n", (8, 2)),
        (f"N, TP = 4, 2\nos.system(f'{TEXT.replace('8 p', '{N} p').replace('size 2', 'size {TP}')}')\n", (4, 2)),
        (f"def command():\n    return {STARTED}\nos.execv('a', command())\n", (8, 2)),
        (
            "def more(tp, n='8'):\n    return f'--tensor-model-parallel-size {tp} --num-attention-heads {n}'\n"
            "os.system('torchrun --nproc-per-node 8 pretrain_gpt.py ' + more(2))\n",
            (8, 2),
        ),
    ],
)
def test_what_starts_a_command_launches_all_of_its_options(body: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    (own,) = read_program(tmp_path, body)
    assert (own.settings["world_size"].value, own.settings["tensor_model_parallel_size"].value) == sizes
    assert own.complete
    assert not own.elsewhere


@pytest.mark.parametrize(
    "body",
    [
        f"from launchers import start\nstart({STARTED})\n",
        f"import launchers\ncmd = {STARTED}\nlaunchers.add(cmd)\nos.execv('a', cmd)\n",
        f"def add(cmd): cmd.append('--bf16')\ncmd = {STARTED}\nadd(cmd)\nos.execv('a', cmd)\n",
        f"cmd = {STARTED}\ncmd.insert(4, os.name)\nos.execv('a', cmd)\n",
        f"cmd = {STARTED}\ncmd[4:5] = os.listdir()\nos.execv('a', cmd)\n",
        f"cmd = {STARTED}\nfor each in os.listdir():\n    cmd.append(each)\nos.execv('a', cmd)\n",
        f"cmd = {STARTED}\n[cmd.append(each) for each in os.listdir()]\nos.execv('a', cmd)\n",
        f"CMD = {STARTED}\ndef a():\n    CMD.append(os.name)\ndef b():\n    os.execv('a', CMD)\n",
        f"import sys\nos.execv('a', [*{STARTED}, *sys.argv[1:]])\n",
    ],
)
def test_a_command_to_which_words_may_be_added_is_not_all_that_is_launched(body: str, tmp_path: Path) -> None:
    found = [own for own in read_program(tmp_path, body) if "world_size" in own.settings]
    assert found
    assert not any(own.complete for own in found)
    assert all(own.elsewhere for own in found)


@pytest.mark.parametrize(
    "body",
    [
        "def f(tp=3):\n    os.system(f'@')\nf()\n",
        "def f(*, tp: int = 3):\n    os.system(f'@')\nf()\n",
        "tp = os.environ.get('TP', 3)\nos.system(f'@')\n",
        "tp = int(os.getenv('TP', '3'))\nos.system(f'@')\n",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--tp', type=int, default=3)\n"
        "args = parser.parse_args()\nos.system(f'@'.replace('', ''))\nos.system(f'@args')\n",
        "class Run:\n    tp: int = 3\ndef f(args: Run):\n    os.system(f'@args')\n",
    ],
)
def test_a_default_is_what_is_launched_where_nothing_else_is_given(body: str, tmp_path: Path) -> None:
    command = TEXT.replace("size 2", "size {tp}")
    body = body.replace("@args", command.replace("{tp}", "{args.tp}")).replace("os.system(f'@'.replace('', ''))\n", "")
    (own,) = read_program(tmp_path, body.replace("@", command))
    assert own.settings["tensor_model_parallel_size"].value == 3


COMMAND = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size "


@pytest.mark.parametrize(
    "body",
    [
        "os.system('@2')\n".replace("@", COMMAND.replace("py ", r"py \\\n  ")),
        "tp = 2\nos.system(rf'''@{tp}''')\n".replace("@", COMMAND.replace("4 ", "4 \\\n  ")),
        "tp = 2\nf.write(f'#!/bin/bash\\n@{tp}\\n')\n",
        "path.write_text('@{tp}\\n'.format(tp=2))\n",
        "def job(path, tp):\n    path.write_text(f'@{tp}\\n')\njob(here, 2)\n",
        "text = '@%d\\n' % 2\nwith open('job.sh', 'w') as f:\n    f.write(text)\n",
    ],
)
def test_commands_of_several_lines_and_of_written_scripts_are_followed(body: str, tmp_path: Path) -> None:
    (own,) = read_program(tmp_path, body.replace("@", COMMAND))
    names = ("tensor_model_parallel_size", "world_size", "num_layers")
    assert [own.settings[name].value for name in names] == [2, 8, 4]


@pytest.mark.parametrize("text", ["'@2 '", r"'@2 \\\n'", r"'@2 $MORE\n'", r"'@2 %s\n' % more"])
def test_what_a_written_script_may_go_on_with_leaves_it_open(text: str, tmp_path: Path) -> None:
    body = f"def f(more):\n    with open('job.sh', 'w') as f:\n        f.write({text.replace('@', COMMAND)})\n"
    assert not any("world_size" in own.settings for own in read_program(tmp_path, body))


PARSED = """
import argparse
def options():
    parser = argparse.ArgumentParser()
    parser.add_argument('--tp', type=int, default=3)
    return parser.parse_args()
def main(seen):
    os.system(f'@')
main(options())
"""


def option_of(program: str, tmp_path: Path) -> object:
    (own,) = read_program(tmp_path, program.replace("@", TEXT.replace("size 2", "size {seen.tp}")))
    return own.settings["tensor_model_parallel_size"].value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("return parser.parse_args()", "read = parser.parse_args()\n    return read"),
        ("return parser.parse_args()", "return parser.parse_known_args()[0]"),
        ("main(options())", "of = options()\nmain(of)"),
        ("main(options())", "of: argparse.Namespace = options()\nmain(seen=of)"),
        ("parser.parse_args()\ndef main(seen):\n", "parser.parse_known_args()\ndef main():\n    seen, rest = options()\n"),
    ],
)
def test_options_keep_their_defaults_on_their_way_to_a_command(old: str, new: str, tmp_path: Path) -> None:
    program = PARSED.replace(old, new)
    assert option_of(program.replace("main(options())", "main()") if "main():" in program else program, tmp_path) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("main(options())", "main(options())\nmain(load())"),
        ("main(options())", "main()"),
        ("main(options())", ""),
        ("parse_args()", "parse_args(['--tp', '4'])"),
        ("parse_args()", "parse_args(namespace=load())"),
        ("default=3", "default=3, required=True"),
        ("    return", "    if more:\n        return load()\n    return"),
        ("    return", "    parser.set_defaults(tp=4)\n    return"),
        ("    return", "    parser.set_defaults(**more)\n    return"),
        ("    os.system", "    setattr(seen, 'tp', 4)\n    os.system"),
        ("    os.system", "    setattr(seen, more, 4)\n    os.system"),
        ("    os.system", "    vars(seen).update(more)\n    os.system"),
        ("    os.system", "    seen.__dict__[more] = 4\n    os.system"),
    ],
)
def test_an_option_that_may_be_set_otherwise_is_not_its_default(old: str, new: str, tmp_path: Path) -> None:
    assert isinstance(option_of(PARSED.replace(old, new), tmp_path), Unknown)


@pytest.mark.parametrize("call", ["f(*all)", "f(**all)", ""])
def test_a_default_that_no_call_takes_is_not_what_is_launched(call: str, tmp_path: Path) -> None:
    command = TEXT.replace("size 2", "size {tp}")
    (own,) = read_program(tmp_path, f"def f(tp=3):\n    os.system(f'{command}')\n{call}\n")
    assert isinstance(own.settings["tensor_model_parallel_size"].value, Unknown)


@pytest.mark.parametrize(
    ("body", "tp"),
    [
        (f"import sys\nsys.argv = ['x', {SIZED}]\n", 2),
        (f"def f():\n    return [{SIZED}]\n", 2),
        (f"def f():\n    parse([{SIZED}])\n", 2),
        (f"def f():\n    if os.name:\n        return [{SIZED}]\n    return []\n", None),
    ],
)
def test_lists_that_no_variable_holds_are_read(body: str, tp: int | None, tmp_path: Path) -> None:
    found = read_program(tmp_path, body)
    assert [own.settings["tensor_model_parallel_size"].value for own in found] == ([tp] if tp else [])


@pytest.mark.parametrize("change", ["args += ['--fp16', '--lr', LR]", "args.append('--fp16')", "args = [*args, '--fp16']"])
def test_a_branch_that_adds_options_is_a_case_of_the_launch(change: str, tmp_path: Path) -> None:
    body = (
        "import subprocess\nLR = '1e-4'\ndef main(fp8):\n    args = 'torchrun --nproc-per-node 8 pretrain_gpt.py'.split()\n"
        f"    args += '{SIZES}'.split()\n    if fp8:\n        {change}\n    subprocess.run(args)\n"
    )
    (own,) = read_program(tmp_path, body)
    assert "fp16" not in own.settings or isinstance(own.settings["fp16"].value, Unknown)
    assert [(each.condition, each.settings["fp16"].value) for each in own.cases] == [(" where `fp8`", True)]


def test_branches_that_leave_the_function_or_lie_in_a_loop_are_no_cases(tmp_path: Path) -> None:
    start = f"import subprocess\ndef main(fp8):\n    args = ['torchrun', 'pretrain_gpt.py', *'{SIZES}'.split()]\n"
    (own,) = read_program(
        tmp_path, f"{start}    if fp8:\n        args += ['--fp16']\n        raise ValueError\n    subprocess.run(args)\n"
    )
    assert own.cases == ()
    loop = "    for fp8 in (0, 1):\n        if fp8:\n            args.append('--fp16')\n"
    (own,) = read_program(tmp_path, f"{start}{loop}    subprocess.run(args)\n")
    assert own.cases == ()


def test_one_of_two_branches_is_a_case_without_what_the_other_adds(tmp_path: Path) -> None:
    body = (
        f"import subprocess\ndef main(fp8):\n    args = ['torchrun', 'pretrain_gpt.py', *'{SIZES}'.split()]\n    if fp8:\n"
        "        args += ['--fp16']\n    else:\n        args += ['--bf16']\n    subprocess.run(args)\n"
    )
    (own,) = read_program(tmp_path, body)
    kinds = [(each.condition, [name for name in ("fp16", "bf16") if name in each.settings]) for each in own.cases]
    assert kinds == [(" where `fp8`", ["fp16"]), (" where not `fp8`", ["bf16"])]


def test_the_ranks_that_train_are_those_of_the_actors(tmp_path: Path) -> None:
    (tmp_path / "slime").mkdir()
    (tmp_path / "slime" / "__init__.py").write_text("")
    sizes = "import slime\nG = 4\ndef f():\n    a = '--tensor-model-parallel-size 2 --num-layers 4 '\n"
    actors = "    b = f'{a} --actor-num-nodes 2 --actor-num-gpus-per-node {G} {slime.more()}'\n    slime.train(b)\n"
    assert values(tmp_path, sizes + actors)["world_size"] == 8
    assert values(tmp_path, sizes + actors.replace("{G}", "{slime.gpus()}"))["world_size"] == "?"
    assert "world_size" not in values(tmp_path, sizes)


START = "import subprocess\nstart = ['torchrun', '--nproc-per-node', '8', 'pretrain_gpt.py', '--num-layers', '24']\n"
SIZE = "'--tensor-model-parallel-size'"


def launched(folder: Path, body: str) -> list[tuple[str, object, bool]]:
    """Return what each launch and each of its cases gives for the size: the condition, the size, and whether all is known."""
    found = [each for own in read_program(folder, START + body) for each in (own, *own.cases)]
    assert all("world_size" in each.settings for each in found)
    sizes = [
        each.settings["tensor_model_parallel_size"].value for each in found if "tensor_model_parallel_size" in each.settings
    ]
    assert len(sizes) == len(found)
    return [
        (each.condition, "?" if isinstance(size, Unknown) else size, each.complete)
        for each, size in zip(found, sizes, strict=True)
    ]


@pytest.mark.parametrize(
    "body",
    [
        "o = {'tensor-model-parallel-size': 4}\nfor k, v in o.items():\n    start += [f'--{k}', str(v)]\n"
        "subprocess.run(start)\n",
        f"o = dict(a=2)\no['a'] = 4\nsubprocess.run([*start, {SIZE}, str(o['a'])])\n",
        f"o = {{**dict(a=2), 'a': 4}}\nsubprocess.run(start + [{SIZE}, str(o.get('a', 8))])\n",
        "o = dict(tensor_model_parallel_size=4)\n"
        "w = ' '.join(f'--{k.replace(\"_\", \"-\")} {v}' for k, v in o.items())\n"
        "subprocess.run(' '.join(start) + ' ' + w, shell=True)\n",
        f"subprocess.run([*start, *[w for k in ['4'] for w in ({SIZE}, k)]])\n",
        f"a, b = 2, 2\nsubprocess.run([*start, {SIZE}, str(a * b)])\n",
        f"a = 3\na += 1\nsubprocess.run([*start, {SIZE}, f'{{a}}'])\n",
        "t = 'torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --tensor-model-parallel-size %d'\n"
        "subprocess.run(t % 4, shell=True)\n",
        "t = 'torchrun --nproc-per-node {g} pretrain_gpt.py --num-layers 24 --tensor-model-parallel-size {}'\n"
        "subprocess.run(t.format(4, g=8), shell=True)\n",
        f"class C:\n    def __init__(self):\n        self.tp = 4\n    def words(self):\n        return [{SIZE}, str(self.tp)]\n"
        "    def run(self):\n        subprocess.run([*start, *self.words()])\n",
        f"from dataclasses import dataclass\n@dataclass\nclass C:\n    tp: int = 2\nc = C(tp=4)\n"
        f"subprocess.run([*start, {SIZE}, str(c.tp)])\n",
        f"def f(tp, n=8):\n    subprocess.run([*start, {SIZE}, str(tp)])\nf(4)\n",
        f"class C:\n    name: str\n    tp: int\n    n: int = 8\nfor c in [C('a', 4)]:\n"
        f"    pass\nsubprocess.run([*start, {SIZE}, str(c.tp)])\n",
        "def words(**o):\n    w = []\n    for k, v in o.items():\n        if v is True:\n"
        "            w.append('--' + k)\n        else:\n"
        "            w += ['--' + k, str(v)]\n    return w\n"
        "subprocess.run(start + words(bf16=True, **{'tensor-model-parallel-size': 4}))\n",
        f"def run(command):\n    print(command)\n    subprocess.run(command, check=True)\nrun([*start, {SIZE}, '4'])\n",
    ],
)
def test_options_are_followed_through_tables_loops_methods_and_calls(body: str, tmp_path: Path) -> None:
    assert launched(tmp_path, body) == [("", 4, True)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            f"for tp in (2, 4):\n    subprocess.run([*start, {SIZE}, str(tp)])\n",
            [(" with `tp=2`", 2, True), (" with `tp=4`", 4, True)],
        ),
        (
            f"for name, o in {{'a': dict(tp=2), 'b': dict(tp=4)}}.items():\n"
            f"    subprocess.run([*start, {SIZE}, str(o['tp'])])\n",
            [(" with `name=a`", 2, True), (" with `name=b`", 4, True)],
        ),
        (
            f"for o in [dict(tp=2), dict(tp=4)]:\n    subprocess.run([*start, {SIZE}, str(o['tp'])])\n",
            [(" with `o.tp=2`", 2, True), (" with `o.tp=4`", 4, True)],
        ),
        (
            f"def f(tp):\n    subprocess.run([*start, {SIZE}, str(tp)])\nf(2)\nf(4)\n",
            [(" in the call at line 6", 2, True), (" in the call at line 7", 4, True)],
        ),
        (
            f"for a, tp in [(1, 2), (3, 4)]:\n    if tp == 4:\n        subprocess.run([*start, {SIZE}, str(tp)])\n",
            [(" with `a=3`", 4, True)],
        ),
    ],
)
def test_rounds_and_calls_that_launch_otherwise_are_cases_with_their_condition(
    body: str, expected: list[tuple[str, object, bool]], tmp_path: Path
) -> None:
    assert launched(tmp_path, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        f"o = dict(tp=4)\no.update(os.environ)\nsubprocess.run([*start, {SIZE}, str(o['tp'])])\n",
        f"o = dict(tp=4)\nos.change(o)\nsubprocess.run([*start, {SIZE}, str(o['tp'])])\n",
        f"o = dict(tp=4)\nif os.name:\n    o = dict(tp=2)\nsubprocess.run([*start, {SIZE}, str(o['tp'])])\n",
        f"o = dict(tp=4)\nfor k in os.environ:\n    o[k] = 2\nsubprocess.run([*start, {SIZE}, str(o['tp'])])\n",
        f"o = dict(tp=4)\ndef f():\n    o['tp'] = 2\ndef g():\n    subprocess.run([*start, {SIZE}, str(o['tp'])])\nf()\ng()\n",
        f"a = os.environ.get('A', '3')\nb = a + '1'\nsubprocess.run([*start, {SIZE}, b])\n",
        f"for tp in (2, 4):\n    if os.name:\n        break\nsubprocess.run([*start, {SIZE}, str(tp)])\n",
        f"t = '{{tp}}'\nsubprocess.run([*start, {SIZE}, t])\n",
        f"class C:\n    def __init__(self):\n        self.tp = 4\n    def set(self):\n        self.tp = 2\n    def run(self):\n"
        f"        subprocess.run([*start, {SIZE}, str(self.tp)])\n",
        f"a = 4\nsubprocess.run([*start, {SIZE}, str(a / 2)])\n",
        f"try:\n    from sizes import tp\nexcept ImportError:\n    tp = 4\nsubprocess.run([*start, {SIZE}, str(tp)])\n",
        f"class C:\n    def __init__(self):\n        self.tp = 4\n    def run(self):\n"
        f"        subprocess.run([*start, {SIZE}, str(self.tp)])\nclass D(C):\n    def __init__(self):\n        self.n = 2\n",
        f"class C:\n    def __init__(self):\n        self.tp = 4\n    def run(self):\n"
        f"        subprocess.run([*start, {SIZE}, str(self.tp)])\nc = C()\nc.tp = 2\nc.run()\n",
        f"class C:\n    tp: int = 4\n    def __post_init__(self):\n        self.tp = 2\ndef f(c: C):\n"
        f"    subprocess.run([*start, {SIZE}, str(c.tp)])\n",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--tp', default=4)\n"
        f"args = parser.parse_args()\nargs.tp = 2\nsubprocess.run([*start, {SIZE}, str(args.tp)])\n",
        f"subprocess.run([*start, {SIZE}, '%5d' % 4])\n",
        f"o = dict(os.environ, tp=2)\nsubprocess.run([*start, {SIZE}, str(o['b'])])\n",
    ],
)
def test_what_may_be_otherwise_stays_open(body: str, tmp_path: Path) -> None:
    assert [size for _, size, _ in launched(tmp_path, body)] == ["?"]


def test_a_branch_that_sets_a_number_is_a_case(tmp_path: Path) -> None:
    body = f"o = dict(tp=4)\nif os.name:\n    o['tp'] = 2\nsubprocess.run([*start, {SIZE}, str(o['tp'])])\n"
    assert [size for _, size, _ in launched(tmp_path, body)] == ["?", 2]


def test_an_entry_that_a_parameter_names_is_any_of_its_table(tmp_path: Path) -> None:
    body = f"T = {{'a': {{'tp': 2}}, 'b': {{'tp': 4}}}}\ndef go(m):\n    subprocess.run([*start, {SIZE}, str(T[m]['tp'])])\n"
    found = [(condition, size) for condition, size, _ in launched(tmp_path, body)]
    assert found == [("", "?"), (" with `m=a`", 2), (" with `m=b`", 4)]


@pytest.mark.parametrize(
    "body",
    [
        "T = '--tensor-model-parallel-size %(tp)d'\nsubprocess.run(['torchrun pretrain_gpt.py ' + T % {'tp': 4}])\n",
        f"h = ['a', 'b', 'c', 'd']\nsubprocess.run([*start, {SIZE}, str(len(h))])\n",
        "O = {'tensor-model-parallel-size': 4}\ndef flags(d):\n    out = []\n    for k, v in d.items():\n"
        "        out += [f'--{k}', str(v)]\n    return out\ndef go():\n    subprocess.run([*start, *flags(O)])\ngo()\n",
        f"class C:\n    def __init__(self, tp=4):\n        self.tp = tp\n    def run(self):\n"
        f"        subprocess.run([*start, {SIZE}, str(self.tp)])\nC().run()\n",
        f"import click\n@click.command()\n@click.option('--tp', default=4)\ndef main(tp):\n"
        f"    subprocess.run([*start, {SIZE}, str(tp)])\n",
        f"import asyncio\nasync def main():\n    await asyncio.create_subprocess_exec(*start, {SIZE}, '4')\n",
    ],
)
def test_what_is_filled_in_or_read_is_known(body: str, tmp_path: Path) -> None:
    assert [size for _, size, _ in launched(tmp_path, body)] == [4]


@pytest.mark.parametrize("template", ["%(tp)d", "%d", "%s"])
def test_a_placeholder_is_no_value(template: str, tmp_path: Path) -> None:
    text = f"torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers {template} --tensor-model-parallel-size {template}"
    (tmp_path / "launch.py").write_text(f"import subprocess\nC = '{text}'\ndef go(p):\n    subprocess.run(C % p, shell=True)\n")
    document = read(str(tmp_path / "launch.py"))
    assert document is not None
    assert document.findings == ()


def test_a_program_is_no_script_of_a_shell(tmp_path: Path) -> None:
    listed = f"import os, sys\nCOMMANDS = {{'a': ['torchrun', 'pretrain_gpt.py', {SIZE[:-1]}=8', '--num-attention-heads=4']}}\n"
    (tmp_path / "launch.py").write_text(listed)
    document = read(str(tmp_path / "launch.py"))
    assert document is None or not any(finding.severity.value == "error" for finding in document.findings)


def test_loops_in_loops_and_calls_in_calls_end(tmp_path: Path) -> None:
    loops = "".join(f"{'    ' * at}for v{at} in range(20):\n" for at in range(8))
    calls = (
        "".join(f"def f{at}(a):\n" + f"    f{at + 1}(a)\n" * 8 for at in range(12)) + "def f12(a):\n    subprocess.run(start)\n"
    )
    for text in (f"{loops}{'    ' * 8}start.append('--bf16')\n", f"{calls}f0(1)\n"):
        assert len(launched(tmp_path, f"{text}subprocess.run([*start, {SIZE}, '4'])\n")) >= 1


@pytest.mark.parametrize(
    "made",
    [
        f"'{{{'1' * 5000}}}'.format('a')",
        f"0x{'f' * 5000}",
        "'a'" + ".replace('a', 'aaaaaaaaaa')" * 12,
        "[1]" + "[0]" * 38,
    ],
    ids=["a place of many digits", "a number of many digits", "a text that grows", "subscripts of subscripts"],
)
def test_a_value_that_is_too_large_to_follow_is_not_followed(tmp_path: Path, made: str) -> None:
    known = values(tmp_path, f"X = {made}\ns = ['{SIZES.replace(' ', chr(39) + ', ' + chr(39))}', '--hidden-size', str(X)]")
    assert (known["tensor_model_parallel_size"], known["hidden_size"]) == (2, "?")
