"""The vocabulary of published tokenizers, and what a rank needs against the memory of an accelerator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders.topologies import LLAMA, known, topology
from tvlint.cli import main
from tvlint.data import data_path
from tvlint.ir.configuration import Unknown
from tvlint.topology.fit import Fit, fit
from tvlint.topology.known import GIB, VOCABULARIES, Accelerator, accelerator

UNSIZED = {name: value for name, value in LLAMA.items() if name != "padded_vocab_size"}
SCRIPT = """\
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 14336 \\
  --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization RMSNorm \\
  --position-embedding-type rope \\
  --untie-embeddings-and-output-weights --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 \\
  --global-batch-size 64 --hidden-dropout 0 --bf16 --use-flash-attn --tokenizer-type HuggingFaceTokenizer \\
  --tokenizer-model meta-llama/Llama-3.1-8B{further}
"""


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "meta-llama/Llama-3.1-8B-Instruct"}, 128256),
        ({"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "Qwen/Qwen2.5-7B-Instruct"}, 151665),
        ({"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "mistralai/Mistral-7B-Instruct-v0.3"}, 32768),
        ({"tokenizer_type": "GPT2BPETokenizer"}, 50257),
        ({"tokenizer_type": "TikTokenizer"}, 131072),
        ({"tokenizer_type": "TikTokenizer", "vocab_size": 100000}, 100000),
    ],
)
def test_a_published_tokenizer_gives_the_vocabulary_and_a_note(settings: dict[str, object], tokens: int) -> None:
    found = topology(**UNSIZED, **settings)
    assert known(found.vocabulary).given == tokens
    assert any(f"taken to have {tokens:,} tokens" in note for note in found.notes) == ("vocab_size" not in settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "/data/Llama-3.1-8B"},
        {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "someone/Llama-3.1-8B"},
        {"tokenizer_type": "SentencePieceTokenizer", "tokenizer_model": "meta-llama/Llama-2-7b-hf"},
        {"tokenizer_model": "meta-llama/Llama-3.1-8B"},
    ],
)
def test_another_tokenizer_is_not_taken_for_a_published_one(settings: dict[str, object]) -> None:
    found = topology(**UNSIZED, **settings)
    assert isinstance(found.vocabulary, Unknown)
    assert not any("tokens" in note for note in found.notes)


def test_a_vocabulary_that_the_file_leaves_open_is_not_replaced() -> None:
    found = topology(**UNSIZED, tokenizer_type="GPT2BPETokenizer", vocab_size=Unknown("depends on `$V`"))
    assert isinstance(found.vocabulary, Unknown)
    assert "$V" in found.vocabulary.reason


def test_an_accelerator_is_a_name_or_a_size() -> None:
    sizes = {
        text: found.memory if (found := accelerator(text)) else None
        for text in ("h100", "80GB", "80 GiB", "23.5G", "A100-40GB")
    }
    assert sizes == {"h100": 80 * GIB, "80GB": 80 * GIB, "80 GiB": 80 * GIB, "23.5G": int(23.5 * GIB), "A100-40GB": 40 * GIB}
    assert [accelerator(text) for text in ("A100", "H20", "MI250X", "Z9", "0GB", "", "80", "-1GB")] == [None] * 8


def test_a_name_of_several_sizes_is_answered_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT.format(further=""))
    with pytest.raises(SystemExit) as left:
        main(["topology", str(tmp_path / "train.sh"), "--gpu", "a100"])
    assert left.value.code == 2
    assert "write `a100-40GB` or `a100-80GB`" in capsys.readouterr().err
    assert [accelerator(text) for text in ("a100-40GB", "B200_192GB")] == [
        Accelerator("a100-40GB", 40 * GIB),
        Accelerator("B200_192GB", 192 * GIB),
    ]


def test_the_fullest_stage_is_judged_to_the_byte() -> None:
    found = topology(**LLAMA, pipeline_model_parallel_size=4, bf16=True, use_flash_attn=True)
    most = max(known(stage.total) for stage in known(found.memory))
    exact = known(fit(found.memory, known(accelerator("80GB"))))
    assert (exact.needed, exact.open) == (most, ())
    tenth = -(-most * 10 // 9)
    for memory, fits in ((most - 1, False), (most, None), (tenth - 1, None), (tenth, True)):
        assert Fit(type(exact.accelerator)("x", memory), exact.stage, exact.needed, ()).fits is fits


@pytest.mark.parametrize("name", ["cpu_offloading_num_layers", "fine_grained_activation_offloading"])
def test_activations_on_the_host_leave_open_whether_it_fits(name: str) -> None:
    there = {**LLAMA, "tensor_model_parallel_size": 8, "bf16": True, "use_flash_attn": True}
    host = topology(**there, **{name: 4 if name.endswith("layers") else True})
    judged = known(fit(host.memory, known(accelerator("H100"))))
    assert (judged.open, judged.fits) == (("activations",), None)
    assert known(fit(topology(**there).memory, known(accelerator("H100")))).fits is True


def test_what_is_known_may_be_too_much_already() -> None:
    found = topology(
        **UNSIZED,
        bf16=True,
        tokenizer_type="HuggingFaceTokenizer",
        tokenizer_model="Qwen/Qwen3-8B",
        cpu_offloading_num_layers=4,
    )
    judged = known(fit(found.memory, known(accelerator("80GB"))))
    assert (judged.open, judged.fits) == (("activations",), False)


def test_an_unknown_vocabulary_gives_a_range_that_decides_where_it_can() -> None:
    found = topology(**UNSIZED, bf16=True, use_flash_attn=True, tensor_model_parallel_size=8)
    least, most = known(found.between)
    sizes = [max(known(stage.total) for stage in memory) for memory in (least, most)]
    for tokens, memory in zip(VOCABULARIES, (least, most), strict=True):
        given = topology(**{**UNSIZED, "vocab_size": tokens}, bf16=True, use_flash_attn=True, tensor_model_parallel_size=8)
        assert (given.memory, given.between) == (memory, None)
    for size, fits in ((sizes[0] - 1, False), (sizes[0], None), (sizes[1], None), (-(-sizes[1] * 10 // 9), True)):
        judged = known(fit(found.memory, Accelerator("x", size), found.between))
        assert (judged.needed, judged.most, judged.fits) == (*sizes, fits)


def test_a_range_is_shown_for_each_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format(further="").replace("meta-llama/Llama-3.1-8B", "$TOKENIZER"), encoding="utf-8")
    assert main(["topology", str(script), "--gpu", "10GB"]) == 0
    said = capsys.readouterr().out
    assert "vocabulary         not known, and taken to have 32,000 to 262,144 tokens" in said
    assert re.search(r"pp 0 +7\.2\d+ B-9\.1\d+ B +13\.\d\d-17\.\d\d ", said)
    assert re.search(
        r"does not fit: a rank of pp 0 needs [\d.]+ to [\d.]+ of 10\.00 GiB of `10GB`, at\s+least [\d.]+ GiB too much", said
    )
    assert main(["topology", str(script), "--gpu", "10GB", "-o", "json"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["topologies"]
    assert content["fit"]["neededAtMost"] > content["fit"]["needed"]


@pytest.mark.parametrize(
    ("further", "fits", "said"),
    [
        ("", False, "does not fit: a rank of pp 0 needs"),
        (" --tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer", True, "fits: a rank of pp 0 needs"),
    ],
)
def test_the_command_says_whether_it_fits(
    further: str, fits: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format(further=further), encoding="utf-8")
    assert main(["topology", str(script), "--gpu", "80GB", "-o", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, json.loads((data_path("schemas") / "topology.schema.json").read_text(encoding="utf-8")))
    assert content["topologies"][0]["fit"]["fits"] is fits
    assert main(["topology", str(script), "--gpu", "80GB"]) == 0
    assert said in capsys.readouterr().out


def judged(folder: Path, further: str, gpu: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    script = folder / "train.sh"
    script.write_text(SCRIPT.format(further=further), encoding="utf-8")
    assert main(["topology", str(script), "--gpu", gpu, "-o", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.validate(content, json.loads((data_path("schemas") / "topology.schema.json").read_text(encoding="utf-8")))
    found: dict[str, Any] = content["topologies"][0]["fit"]
    return found


@pytest.mark.parametrize(
    ("further", "gpu", "count"),
    [
        ("", "80GB", 3),
        (" --tensor-model-parallel-size 2 --use-distributed-optimizer", "48GB", 2),
        (" --tensor-model-parallel-size 4 --sequence-parallel", "24GB", 2),
    ],
)
def test_what_is_said_to_make_it_fit_does(
    further: str, gpu: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = judged(tmp_path, further, gpu, capsys)
    assert (found["fits"], len(found["changes"])) == (False, count)
    for change in found["changes"]:
        changed = " ".join(name if value is True else f"{name} {value}" for name, value in change["settings"].items())
        again = judged(tmp_path, f"{further} {changed}", gpu, capsys)
        assert (again["fits"], again["needed"], again["changes"]) == (True, change["needed"], [])
        assert (
            main(["check", str(tmp_path / "train.sh"), "--select", "heads-not-divisible-by-tp,world-size-not-divisible"]) == 0
        )
        capsys.readouterr()


def test_no_change_is_offered_that_breaks_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    further = " --tensor-model-parallel-size 2 --use-distributed-optimizer"
    names = [
        [name for change in judged(tmp_path, further + odd, "48GB", capsys)["changes"] for name in change["settings"]]
        for odd in ("", " --seq-length 8190")
    ]
    assert ["--tensor-model-parallel-size" in each for each in names] == [True, False]


def test_what_nothing_makes_fit_has_no_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, " --tensor-model-parallel-size 8", "1GB", capsys)["changes"] == []


def test_a_change_is_shown_as_the_file_would_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format(further=" --tensor-model-parallel-size 4 --sequence-parallel"), encoding="utf-8")
    assert main(["topology", str(script), "--gpu", "32GB"]) == 0
    assert re.search(r"fits with +`--pipeline-model-parallel-size 2`: [\d.]+ GiB\n", capsys.readouterr().out)


def test_an_unknown_accelerator_is_refused_with_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["topology", "train.sh", "--gpu", "A999"])
    assert error.value.code == 2
    assert "give its size, such as `80GB`" in capsys.readouterr().err
