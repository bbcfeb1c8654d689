"""What a file is, is told by its content: what tvlint reads, and what it leaves alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.test_formats import EXAMPLES
from tvlint.ir.configuration import Configuration
from tvlint.readers.document import NOTHING, ReadError
from tvlint.readers.languages import NUMERIC, condensed, names
from tvlint.readers.malformed import IN_TELLING
from tvlint.readers.read import CONFIGURATIONS, read

READ = {
    "megatron-shell": [
        "#!/bin/bash\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 2\n",
        "#! /usr/bin/env bash\nset -e\npython p.py --tensor-model-parallel-size 2\n",
        "torchrun --nproc-per-node 8 pretrain_gpt.py \\\n  --tensor-model-parallel-size 8 \\\n  --num-attention-heads 12\n",
        "# a comment\nARGS=(--num-layers 2 --num-attention-heads 2)\npython p.py ${ARGS[@]}\n",
        "\ufeffexport A=1\r\npython p.py --tensor-model-parallel-size 2\r\n",
    ],
    "megatron-yaml": [
        "MODEL_ARGS:\n  --num-layers: 2\n",
        "MODEL_ARGS: {--num-layers: 2}\n",
        "{MODEL_ARGS: {--tensor-model-parallel-size: 2}, tensor_model_parallel_size: 1}\n",
        "model:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 1\n",
    ],
}
LEFT_ALONE = [
    "# Expert parallelism\n\nTwo modes:\n\n* **`level: 1`**: all-gather\n\nexpert_model_parallel_size: ranks\n",
    "",
    "\n",
    "hello\n",
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - args: [--tensor-model-parallel-size, '2']\n",
    "on: push\njobs:\n  a:\n    steps:\n    - run: python p.py --tensor-model-parallel-size 2 --num-layers 3\n",
    "services:\n  a:\n    command: python p.py --tensor-model-parallel-size 2\n",
    "import argparse\nparser.add_argument('--tensor-model-parallel-size', type=int)\n",
    "from dataclasses import dataclass\n\n@dataclass\nclass A:\n"
    "    tensor_model_parallel_size: int = 1\n    sequence_parallel: bool = False\n",
    "# Readme\n\nRun this:\n\n```sh\npython p.py --tensor-model-parallel-size 2\n```\n",
    "Use --tensor-model-parallel-size 2 and --num-layers 4 to train\n",
    "#!/usr/bin/env python3\nprint('--tensor-model-parallel-size 2')\n",
    "#!/bin/bash\necho hello\n",
    '{"tensor_model_parallel_size": 2}\n',
    '{"name": "x"}\n',
    "[tool.x]\nmicro_batch_size = 2\n",
    "tensor_model_parallel_size: 2\n",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in READ.items() for text in texts])
def test_a_file_is_what_its_content_says_whatever_its_name(kind: str, text: str) -> None:
    for name in ("a.sh", "a.yaml", "a", "a.txt"):
        document = read(name, text.encode())
        assert document is not None
        assert document.format == kind
        assert document.path == name


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_other_files_are_left_alone(text: str) -> None:
    for name in ("a", "a.py", "a.md"):
        assert configurations(name, text.encode()) == ()


@pytest.mark.parametrize("before", ["[2026-04-19 17:38:03,428] [INFO] [launch.py:272:main] ", "node-1: ", "worker.2: [INFO] "])
def test_the_log_of_a_run_is_no_launch(before: str) -> None:
    log = f"RUN=a\nTP=2\n{before}cmd = ['python', 'pretrain_gpt.py', '--tensor-model-parallel-size', '2', '--lr', '1', ]\n"
    assert configurations("run.txt", log.encode()) == ()
    assert configurations("run.txt", b"RUN=a\npython pretrain_gpt.py --tensor-model-parallel-size 2 --lr 1\n") != ()


@pytest.mark.parametrize(
    ("text", "is_run"),
    [
        ("mkdir -p a\npython pretrain_gpt.py\n  --tensor-model-parallel-size 2\n  --lr 1\n", False),
        ("mkdir -p a\npython pretrain_gpt.py \\\n  --tensor-model-parallel-size 2 \\\n  --lr 1\n", True),
        ("A=(\n  --tensor-model-parallel-size 2\n  --lr 1\n)\npython pretrain_gpt.py ${A[@]}\n", True),
        ('A="\n  --tensor-model-parallel-size 2\n  --lr 1\n"\npython pretrain_gpt.py $A\n', True),
    ],
)
def test_text_that_shows_a_command_over_several_lines_is_no_script(text: str, is_run: bool) -> None:
    assert (read("shown.txt", text.encode()) is not None) == is_run
    assert read("run.sh", text.encode()) is not None


@pytest.mark.parametrize("newline", ["\r", "\r\n", "\x85", "\u2028"])
@pytest.mark.parametrize(
    "module", ["megatron.model_args_yaml", "megatron.neox", "nnscaler.trainer.reader", "nnscaler.trainer.constraints"]
)
def test_yaml_is_known_by_its_lines_whatever_ends_them(module: str, newline: str) -> None:
    text = "# a comment\n" + EXAMPLES[module]
    document, same = read("a.yaml", text.replace("\n", newline).encode()), read("a.yaml", text.encode())
    assert document is not None
    assert same is not None
    assert document.format == same.format
    assert [sorted(own.settings) for own in document.configurations] == [sorted(own.settings) for own in same.configurations]


def test_a_lone_carriage_return_ends_no_line_of_a_script() -> None:
    text = "#!/bin/bash\rtorchrun pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size 2\r"
    assert configurations("a.sh", text.encode()) == ()
    assert configurations("a.sh", text.replace("\r", "\n").encode()) != ()


def configurations(name: str, data: bytes) -> tuple[Configuration, ...]:
    """The configurations that the text of that name has."""
    document = read(name, data)
    return document.configurations if document is not None else ()


@pytest.mark.parametrize("start", ["true", "date +%F", "pkill -9 ray", "#!/opt/busybox", "#!/usr/bin/env -S bash -e"])
def test_a_script_is_followed_whatever_its_first_command(start: str) -> None:
    data = f"{start}\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 2\n".encode()
    for name in ("a.sh", "job.slurm", "a"):
        document = read(name, data)
        assert document is not None
        assert document.format == "megatron-shell"


@pytest.mark.parametrize("start", ["#!/usr/bin/env python3", "#!/usr/bin/perl -w", "import os", "kind: Job"])
def test_a_text_of_another_language_is_not_followed_as_a_script(start: str) -> None:
    data = f"{start}\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 2\n".encode()
    for name in ("a.sh", "a"):
        document = read(name, data)
        assert document is not None
        assert document.format == NOTHING
        assert [(finding.rule, finding.location.line, finding.location.column) for finding in document.findings] == [
            ("launch-not-followed", 2, 26)
        ]


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("'set --context-parallel-size 1, or use another'", False),
        ("'supports only --expert-model-parallel-size 12.'", False),
        ("'--context-parallel-size', 1, 'x'", True),
        ("'--context-parallel-size 1'", True),
        ("'--context-parallel-size 1 --bf16, or not'", True),
    ],
)
def test_an_option_in_a_sentence_is_passed_to_nothing(said: str, is_told: bool) -> None:
    document = read("a.py", f"import os\nfor a in b:\n    raise ValueError({said})\n".encode())
    found = document.findings if document is not None else ()
    assert [each.rule for each in found] == ["launch-not-followed"] * is_told


def test_an_option_that_stands_where_the_script_is_no_syntax_is_told() -> None:
    data = b'torchrun a.py --tensor-model-parallel-size 2\n: "\n```\n"\ntorchrun b.py --tensor-model-parallel-size 3\n'
    document = read("a.sh", data)
    assert document is not None
    assert [each.settings["tensor_model_parallel_size"].value for each in document.configurations] == [2]
    assert [(each.rule, each.location.line) for each in document.findings] == [("launch-not-followed", 5), ("broken-script", 3)]


@pytest.mark.parametrize(
    ("options", "is_launch"),
    [
        ("--num_attention_heads 30 --hidden_size 1920 --deepspeed ds.json --bf16 True", False),
        ("--micro_batch_size 4 --batch_size 128 --learning_rate 1e-4", False),
        ("--num_attention_heads 30 --hidden-size 1920", True),
        ("--num_attention_heads 30 --pipeline_model_parallel_size 2", True),
    ],
)
def test_sizes_that_other_programs_have_too_are_no_launch_where_all_are_spelled_with_underscores(
    options: str, is_launch: bool
) -> None:
    for script in (f"torchrun train.py {options}\n", f'OPTIONS="{options} --data_path a --seed 1"\ntrain $OPTIONS\n'):
        document = read("train.sh", script.encode())
        assert (document is not None and document.configurations != ()) == is_launch


@pytest.mark.parametrize(
    "text",
    [
        "# torchrun a.py --tensor-model-parallel-size 2\n",
        "parser.add_argument('--tensor-model-parallel-size', type=int)\n",
        "the flag --tensor-model-parallel-size says how many\n",
        "--micro-batch-size 2\n",
    ],
)
def test_an_option_that_is_only_named_is_no_launch(text: str) -> None:
    assert read("a", text.encode()) is None


def test_a_key_that_looks_like_a_class_hides_no_settings() -> None:
    text = "class X:\n  a: 1\nmodel:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 1\n"
    document = read("a.yaml", text.encode())
    assert document is not None
    assert document.format == "megatron-yaml"


@pytest.mark.parametrize("line", ["=======", "<<<<<<< ours", "tp: [1"])
def test_settings_in_a_file_that_is_no_yaml_any_more_are_a_problem(line: str) -> None:
    text = f"model:\n  tensor_model_parallel_size: 2\n{line}\n  context_parallel_size: 1\n"
    with pytest.raises(ReadError, match="not valid YAML"):
        read("a.yaml", text.encode())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("store.ts", b"export type Sizes = {\n  tensor_model_parallel_size: number;\n  context_parallel_size: number;\n};\n"),
        ("initialize.cpython-311.pyc", b"\xa7\r\r\n\0\0\nset --tensor-model-parallel-size\0\n"),
    ],
)
def test_what_is_neither_named_nor_written_as_a_language_is_no_broken_file_of_it(name: str, data: bytes) -> None:
    assert read(name, data) is None
    with pytest.raises(ReadError):
        read("sizes.yaml" if b"\0" not in data else "launch.sh", data)


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x01\0\0", b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xfe\x00a", bytes(range(256))])
def test_binary_files_are_left_alone(data: bytes) -> None:
    assert read("a.bin", data) is None


def test_a_pickle_of_plain_data_is_left_alone() -> None:
    assert read("a.pkl", pickle.dumps({"tensor_model_parallel_size": 2})) is None


def test_a_file_is_read_from_the_disk(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text(READ["megatron-shell"][0])
    document = read(str(script))
    assert document is not None
    assert document.configurations[0].settings["tensor_model_parallel_size"].location.path == str(script)


@pytest.mark.parametrize("name", ["missing.sh", ".", "nul\0.sh"])
def test_a_path_that_cannot_be_read_is_an_error(name: str) -> None:
    with pytest.raises(ReadError):
        read(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in its file system")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="regular"):
        read(str(tmp_path / "pipe"))


def test_a_configuration_is_read_without_the_heavy_libraries() -> None:
    code = (
        "import sys\nfrom tvlint.readers.read import read\n"
        "assert read('a.sh', b'python p.py --tensor-model-parallel-size 2\\n') is not None\n"
        "assert read('a.yaml', b'MODEL_ARGS: {--num-layers: 2}\\n') is not None\n"
        "print(*sorted({'z3', 'numpy', 'networkx', 'jsonschema'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_text_about_settings_that_is_no_yaml_is_left_alone() -> None:
    text = b"# Report\n\n- source: `{'tensor_model_parallel_size': 4}`\n\ntensor_model_parallel_size: 4\n"
    assert read("report.md", text) is None
    with pytest.raises(ReadError):
        read("report.yaml", text)
    quoted = b'name = "case"\n"default.yaml" = ["tensor_model_parallel_size: 8", "micro_batch_size: 4"]\n'
    assert read("case.toml", quoted) is None


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "utf-16-le"])
@pytest.mark.parametrize(
    ("name", "text", "is_told"),
    [
        ("a.sh", "torchrun pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size 2\n", True),
        ("a.json", '{"train_batch_size": 64, "zero_optimization": {"stage": 7}}', True),
        ("a.yaml", "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n", True),
        ("a.sh", "echo hello\n", False),
        ("a.txt", "num_layers\n", False),
    ],
)
def test_text_in_utf_16_is_told_where_it_would_be_read(name: str, text: str, is_told: bool, codec: str) -> None:
    mark = "" if codec == "utf-16" else "\ufeff"
    data = (mark + text).encode(codec)
    if is_told:
        with pytest.raises(ReadError, match="the text is UTF-16"):
            read(name, data)
    else:
        assert read(name, data) is None


def test_words_that_show_a_format_are_found_in_what_is_left_of_large_json() -> None:
    words = {word for each in CONFIGURATIONS for word in each.marks} | set(IN_TELLING)
    assert not [word for word in words if set(word) & set(NUMERIC)]
    numbers = ", ".join(f'"{step}": {step / 7}' for step in range(1000))
    for word in sorted(words):
        data = b'{"loss": {%s}, "%s": 1}' % (numbers.encode(), word.strip(b'"'))
        assert names(condensed("values.json", data), (word.strip(b'"'),))
        assert condensed("values.yaml", data) == data.replace(b"-", b"_")
