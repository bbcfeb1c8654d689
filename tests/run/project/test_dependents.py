"""Which files change with another one: those that tvlint opens it for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.cli import main
from tvlint.run.project.dependents import dependents
from tvlint.run.project.discovery import changed
from tvlint.run.project.project_file import Project

LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 --num-layers $LAYERS\n"
)
YAML = "defaults:\n  - model: small\n  - _self_\ntensor_model_parallel_size: 2\nnum_attention_heads: 32\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def written(tree: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return sorted(files)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"run.sh": f"source a/env.sh\n{LAUNCH}"}, ["run.sh"]),
        ({"run.sh": f". a/env.sh\n{LAUNCH}"}, ["run.sh"]),
        ({"a/run.sh": f'source "$(dirname "$0")/env.sh"\n{LAUNCH}'}, ["a/run.sh"]),
        ({"run.sh": f"E=en; V=v.sh\nsource a/$E$V\n{LAUNCH}"}, ["run.sh"]),
        ({"run.sh": f"source mid.sh\n{LAUNCH}", "mid.sh": "source a/env.sh\n"}, ["run.sh"]),
        ({"run.sh": f"source mid.sh\n{LAUNCH}", "mid.sh": "E=en; V=v.sh\nsource a/$E$V\n"}, ["run.sh"]),
        ({"run.sh": f"source first.sh\n{LAUNCH}", "first.sh": "source 'a@1.sh'\n", "a@1.sh": "source a/env.sh\n"}, ["run.sh"]),
        ({"b/run.sh": f'source "$(dirname "$0")/env.sh"\n{LAUNCH}', "b/env.sh": "LAYERS=2\n"}, []),
        ({"run.sh": f"# as in a/env.sh\nLAYERS=2\n{LAUNCH}"}, []),
        ({"run.sh": f"echo a/env.sh\nLAYERS=2\n{LAUNCH}"}, []),
        ({"run.sh": f"source a/env.sh.old\nLAYERS=2\n{LAUNCH}", "a/env.sh.old": "LAYERS=2\n"}, []),
        ({"notes.txt": "see a/env.sh\n"}, []),
    ],
)
def test_a_script_depends_on_what_it_sources(tree: Path, files: dict[str, str], expected: list[str]) -> None:
    written(tree, {"a/env.sh": "export LAYERS=4\n"})
    assert dependents(written(tree, files), ("a/env.sh",)) == expected


def test_a_launch_depends_on_its_program(tree: Path) -> None:
    launch = LAUNCH.replace("pretrain_gpt.py", "a/train.py")
    files = written(tree, {"run.sh": launch, "other.sh": launch.replace("a/", "b/"), "b/train.py": "import megatron.core\n"})
    written(tree, {"a/train.py": "import megatron.core\n"})
    assert dependents(files, ("a/train.py",)) == ["run.sh"]


def test_a_configuration_depends_on_its_defaults(tree: Path) -> None:
    files = written(tree, {"conf/config.yaml": YAML, "other/config.yaml": YAML, "other/model/small.yaml": "a: 1\n"})
    written(tree, {"conf/model/small.yaml": "num_layers: 4\n"})
    assert dependents(files, ("conf/model/small.yaml",)) == ["conf/config.yaml"]


def test_only_what_depends_on_a_changed_file_is_checked(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = LAUNCH.replace("--num-attention-heads 32", "--num-attention-heads 30")
    written(tree, {"a/env.sh": "LAYERS=4\n", "run.sh": f"source a/env.sh\n{wrong}", "other.sh": f"# a/env.sh\n{wrong}"})
    assert changed(("a/env.sh",), Project(tree)).files == ("a/env.sh", "run.sh")
    assert changed((), Project(tree)).files == ()
    assert main(["check", "--changed", "--no-cache", "-o", "concise", "a/env.sh"]) == 1
    out = capsys.readouterr().out
    assert "run.sh:2:" in out
    assert "other.sh" not in out


def test_each_launch_depends_on_the_parser_of_its_tree(tree: Path) -> None:
    """What is read once for all launches of a tree counts for each of them, and so does what was looked for in vain."""
    parser = "def add_args(parser):\n    parser.add_argument('--num-layers')\n"
    launch = f"# the options stand in options.py\n{LAUNCH.replace('pretrain_gpt.py', 'train.py')}"
    files = written(tree, {"one.sh": launch, "two.sh": launch})
    written(tree, {"train.py": "import options\n", "options.py": parser})
    assert dependents(files, ("options.py",)) == files
    (tree / "options.py").unlink()
    assert dependents(files, ("options.py",)) == files
