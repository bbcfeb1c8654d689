"""What `tvlint check` does takes operations in proportion to its input.

Operations are counted (`operation_counts`), not timed: the input is doubled twice, and what the second doubling adds may be at
most 2.5 times what the first one added (twice is linear, four times quadratic). What C does without a call is not counted;
where it walks the whole input for each part of it, as a search for a pattern does, a test of its own says that it does so once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.operation_counts import operations
from tvlint.cli import main
from tvlint.readers.megatron.program import framework_of_tree
from tvlint.readers.read import read

MOST_GROWTH = 2.5
LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 --num-layers "
PLAN = "mesh dp=2\nweight w f32[8,8]\ninput x f32[4,8]\n"
YAML = "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --num-attention-heads: 32\n"

Text = Callable[[int], str]


def script(lines: Callable[[int], str]) -> Text:
    """Return a script that grows line by line, and launches at its end."""
    return lambda size: "#!/bin/bash\n" + "".join(map(lines, range(size))) + LAUNCH + "4\n"


def along(axis: str, other: str) -> Text:
    """Return a tensor-parallel model whose mesh grows along one axis."""
    return lambda size: (
        f"mesh {other}=2 {axis}={size}\nweight w f32[16,8] dp:S(0)\ninput x f32[4,8]\nloss l\nprogram\n"
        f"  wf = all-gather(w, dim=0) over dp\n  y = linear(x, wf)\n  l = sum(y)\n"
    )


def each(line: str) -> Callable[[int], str]:
    """Return the lines `0` to `size`, the number filled in."""
    return lambda size: "".join(line.replace("#N", str(number)) for number in range(size))


def plan(body: Text) -> Text:
    """Return a plan whose program grows."""
    return lambda size: f"{PLAN}program\n{body(size)}"


def launches(line: str) -> Text:
    """Return a script of nothing but launches."""
    return lambda size: "#!/bin/bash\n" + each(line)(size)


WRONG = LAUNCH.replace("size 4", "size 3")
RECIPE = "def f#N():\n    return dict(tensor_model_parallel_size=C#N)\n"

INPUTS: dict[str, tuple[str, int, Text]] = {
    "ranks along dp": ("a.plan", 100, along("dp", "tp")),
    "ranks along tp": ("a.plan", 100, along("tp", "dp")),
    "ranks along pp": ("a.plan", 100, along("pp", "dp")),
    "operators that take the same": ("a.plan", 40, plan(each("  y#N = linear(x, w)\n"))),
    "operators in a chain": ("a.plan", 40, plan(lambda n: "".join(f"  x{i + 1} = linear(x{i or ''}, w)\n" for i in range(n)))),
    "operators of one name": ("a.plan", 40, plan(each("  y = linear(x, w)\n"))),
    "words of a line": ("a.plan", 60, plan(lambda n: "  y = " + "linear(x, w) " * n)),
    "weights": ("a.plan", 40, lambda n: f"{PLAN}{each('weight w#N f32[8,8]' + chr(10))(n)}program\n  y = linear(x, w)\n"),
    "launches": ("a.sh", 10, launches(f"{LAUNCH}#N\n")),
    "launches that are wrong": ("a.sh", 10, launches(f"{WRONG}#N\n")),
    "launches on other machines": ("a.sh", 10, script(lambda i: f'ssh host{i} "{LAUNCH}4"\n')),
    "undecided branches": ("a.sh", 40, script(lambda i: f'if [ "$X{i}" = a ]; then V{i}=1; else V{i}=2; fi\n')),
    "branches of one variable": ("a.sh", 40, script(lambda i: f'if [ "$X{i}" = a ]; then V=1; else V=2; fi\n')),
    "nested branches": ("a.sh", 10, lambda n: 'if [ "$X" = a ]; then\n' * n + "V=1\n" + "fi\n" * n + f"{LAUNCH}4\n"),
    "loops": ("a.sh", 40, script(lambda i: f"for V{i} in 1 2; do W{i}=$V{i}; done\n")),
    "pipelines": ("a.sh", 40, script(lambda i: f"V{i}=1 | cat\n")),
    "functions": ("a.sh", 40, script(lambda i: f"f{i}() {{ V{i}=1; }}\n")),
    "variables": ("a.sh", 40, script(lambda i: f"V{i}=$V{max(i - 1, 0)}\n")),
    "comments about one rule": ("a.sh", 60, script(lambda i: "# tvlint: ignore[a]\n")),
    "comments about unknown rules": ("a.sh", 60, script(lambda i: f"# tvlint: ignore[unknown-rule-{i:06}]\n")),
    "comments about rules that speak": ("a.sh", 10, launches(f"{WRONG}4 # tvlint: ignore[heads-not-divisible-by-tp]\n")),
    "unknown rules": ("tvlint.toml", 40, lambda n: "select = [\n" + "".join(f'"no-rule-{i:06}",\n' for i in range(n)) + "]\n"),
    "unknown keys": ("tvlint.toml", 60, lambda n: "".join(f"key-{i:06} = 1\n" for i in range(n))),
    "parts of a key": ("tvlint.toml", 10, lambda n: f"[{'.'.join('a' * n)}]\n"),
    "keys of a plan": ("a.json", 60, lambda n: f'{{"tvlint_plan": 1, {each(chr(34) + "k#N" + chr(34) + ": 1, ")(n)}"k0": 2}}'),
    "options of a YAML": ("a.yaml", 40, lambda n: YAML + each("  --unknown-#N: 1\n")(n)),
    "constants of a recipe": (
        "a.py",
        40,
        lambda n: f"import megatron.bridge\n{each('C#N = #N' + chr(10))(n)}{each(RECIPE)(n)}",
    ),
    "steps of a schedule": (
        "a.csv",
        20,
        lambda n: f"{each('0F#N,')(n)}{each('0B#N,')(n)}\n{each('1F#N,')(n)}{each('1B#N,')(n)}\n",
    ),
}


def counted(folder: Path, name: str, text: str, arguments: tuple[str, ...]) -> int:
    """Return the operations of one command on a file."""
    (folder / name).write_text(text)
    return sum(operations(lambda: main([*arguments, name])).values())


@pytest.mark.usefixtures("capfdbinary")
@pytest.mark.parametrize("what", INPUTS)
def test_checking_twice_as_much_takes_twice_the_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    name, size, text = INPUTS[what]
    counts = [counted(tmp_path, name, text(size * factor), ("check", "--no-cache")) for factor in (1, 1, 2, 4)][1:]
    added = counts[1] - counts[0], counts[2] - counts[1]
    assert added[1] <= MOST_GROWTH * added[0] + 1000, counts


def test_the_count_sees_what_grows_with_the_square() -> None:
    def quadratic(size: int) -> int:
        return sum(operations(lambda: [list(range(size)).count(each) for each in range(size)]).values())

    one, two, four = (quadratic(size) for size in (50, 100, 200))
    assert four - two > MOST_GROWTH * (two - one)


def test_the_tree_around_a_script_is_searched_once_for_all_its_launches(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(launches(f"{LAUNCH}#N\n")(20))
    before = framework_of_tree.cache_info().misses
    document = read(str(path))
    assert document is not None
    assert len(document.configurations) == 20
    assert framework_of_tree.cache_info().misses == before + 1
