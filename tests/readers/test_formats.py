"""Every format of text is documented, and whatever stands in a file of it, reading it ends well."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shared import ROOT
from tvlint.frameworks.kin import KNOWN
from tvlint.readers.document import ReadError
from tvlint.readers.languages import condensed
from tvlint.readers.read import CONFIGURATIONS, PLANS, Format, read

EXAMPLES = {
    "nnscaler.trainer.reader": (
        "compute_config:\n  plan_ngpus: 2\n  runtime_ngpus: 4\n  use_end2end: true\npas_policy: autodist\n"
        "micro_batch_size: 2\nglobal_batch_size: 8\n"
    ),
    "nnscaler.trainer.constraints": (
        "- name: torch.nn.functional.linear\n  parent_module: MLP\n  allowed_partition_dims:\n    - 0,1\n"
        "  replica_allowed: false\n"
    ),
    "nnscaler.trainer.autodist_plan": (
        '{"desc": {"spmd_descs": [{"mesh_desc": [1, 2], "partition_descs": [[4, [[[0, 1], 2]]]]}]}, "e2e_time": 1.5}'
    ),
    "megatron.neox": "pipe-parallel-size: 2\nmodel-parallel-size: 2\nnum-layers: 4\npos-emb: rotary\nno-weight-tying: true\n",
    "deepspeed.config_json": (
        '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "fp16": {}}'
    ),
    "megatron.areal": "actor:\n  backend: megatron:d4p2t2\n  path: Qwen/Qwen2.5-7B\n",
    "torchtitan": "[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n[training]\nseq_len = 8\n",
    "training_arguments": (
        "output_dir: a\nlearning_rate: 1e-4\nlr_scheduler_type: cosiine\nnum_train_epochs: 1\nbf16: true\n"
        "per_device_train_batch_size: 0\ngradient_accumulation_stesp: 2\n"
    ),
    "megatron.launch_script": (
        "export A=(--num-layers 4)\nTP=${TP:-2}\nif [ $TP -gt 1 ]; then B=--sequence-parallel; fi\n"
        'torchrun --nproc-per-node 8 pretrain_gpt.py \\\n  "${A[@]}" $B --tensor-model-parallel-size $TP\n'
    ),
    "recipe.reader": (
        "from nemo.collections import llm\n\ndef recipe():\n    made = llm.recipe()\n"
        "    made.trainer.strategy.tensor_model_parallel_size = 2\n"
        "    made.trainer.strategy.pipeline_model_parallel_size = 4\n    return made\n"
    ),
    "megatron.python_launcher": (
        "import os\n\ndef train(args):\n    sizes = f'--tensor-model-parallel-size {args.tp} --num-layers 4 '\n"
        "    sizes += '--pipeline-model-parallel-size 2'\n    os.system(f'torchrun pretrain_gpt.py {sizes}')\n"
    ),
    "plan_json.reader": (
        '{"tvlint_plan": 1, "mesh": [{"axis": "tp", "size": 2}], "micro_batches": 1, "tensors": {"x": {"shape": [4], '
        '"dtype": "float32", "role": "input"}, "y": {"shape": [4], "dtype": "float32", "role": "activation"}}, "segments": '
        '{"only": {"phase": "forward", "inputs": ["x"], "outputs": ["y"], "operators": [{"kind": "compute", "op": "gelu", '
        '"inputs": ["x"], "outputs": ["y"]}]}}, "programs": [{"ranks": [0, 1], "steps": [{"segment": "only", '
        '"micro_batch": 0}]}], "outputs": ["y"]}'
    ),
    "plan_text.reader": (
        "mesh tp=2\nweight w f32[8,8] tp:S(0)\ninput x f32[4,8]\nprogram\n  h = linear(x, w)\n"
        "  y = all-gather(h, dim=1) over tp\n  da, grad(w) = backward h (grad(h))\n  update w\n"
    ),
    "schedule_csv": "0F0,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n",
    "megatron.model_args_yaml": "MODEL_ARGS:\n  --num-layers: 4\n  --tensor-model-parallel-size: 2\n  --bf16: true\n",
}
"""One file of every format. A new format gets its own here, and with it the tests below."""

TOKENS = ("{", "[", "]", ":", "'", '"', "\\", "$(", "\0", "\n", "-1", "9" * 30, "é", "\ud800")

formats = pytest.mark.parametrize("format", [*CONFIGURATIONS, *PLANS], ids=lambda format: format.module)


def example_of(format: Format) -> str:
    assert format.module in EXAMPLES, "write an example of the new format into EXAMPLES"
    return EXAMPLES[format.module]


@formats
def test_the_example_is_read_by_the_reader_of_its_format_alone(format: Format) -> None:
    text = example_of(format)
    data = text.encode()
    document = read("f", data)
    words = condensed("f", data) if format in CONFIGURATIONS else data
    assert not format.marks or any(mark in words for mark in format.marks)
    assert format.also in data
    assert document is not None
    again = format.reader.read("f", text if format in PLANS else data)
    assert repr(document) == repr(again)


@pytest.mark.parametrize("format", CONFIGURATIONS, ids=lambda format: format.module)
def test_a_framework_that_is_known_is_the_one_that_the_configurations_are_judged_as(format: Format) -> None:
    document = read("f", example_of(format).encode())
    assert document is not None
    assert {each.framework for each in document.configurations} <= KNOWN


@formats
def test_the_documentation_has_a_row(format: Format) -> None:
    rows = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row.startswith(f"| {format.name} |")], f"write a row `{format.name}` into docs/formats.md"


@formats
@settings(max_examples=120)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_read_or_a_located_problem(format: Format, seed: int) -> None:
    chance = random.Random(seed)
    text = example_of(format)
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        match chance.randrange(4):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:]
            case 2:
                text = text[:at] + chance.choice(TOKENS)
            case 3:
                text = text[:at] + text[at:to][::-1] + text[to:]
    assert place_of_problem(text.encode("utf-8", "replace")) in ("", "f")


def place_of_problem(data: bytes) -> str:
    """Return the file that a problem is located in; nothing where there is none."""
    try:
        read("f", data)
    except ReadError as error:
        return error.problem.location.path
    return ""
