"""`tvlint diff`: two versions of a configuration, as files, folders or revisions of a repository."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.builders.checkout import commit_all
from tvlint.cli import main
from tvlint.data import data_path

SCRIPT = """torchrun --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size {tp} --micro-batch-size 4 \\
  --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512
"""


def tvlint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["diff", *arguments])
    except SystemExit as error:
        code = int(error.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repository(here: Path) -> Path:
    """A repository with a tensor-parallel size of 2 at `old`, of 4 at `new`, and of 8 on disk."""

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=here, check=True, capture_output=True
        )

    git("init", "-q")
    (here / "configs").mkdir()
    for tp, tag in ((2, "old"), (4, "new")):
        (here / "configs" / "train.sh").write_text(SCRIPT.format(tp=tp))
        (here / "same.sh").write_text(SCRIPT.format(tp=1))
        git("add", "-A")
        git("commit", "-qm", tag)
        git("tag", tag)
    (here / "configs" / "train.sh").write_text(SCRIPT.format(tp=8))
    return here


def test_two_files_are_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text(SCRIPT.format(tp=4))
    code, out, err = tvlint(capsys, "a.sh", "b.sh")
    assert (code, err) == (0, "")
    assert "b.sh:2:32: warning: the global batch goes from 16 to 8 sequences" in out
    assert "--tensor-model-parallel-size  2 -> 4" in out
    assert "data parallel size" in out
    assert tvlint(capsys, "a.sh", "b.sh", "--fail-on", "warning")[0] == 1


def test_what_is_written_is_no_finding(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text(
        SCRIPT.format(tp=2).replace("--micro-batch-size 4", "--micro-batch-size 4 --global-batch-size 32")
    )
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert code == 0
    assert "changed-global-batch" not in out
    assert "--global-batch-size  not given -> 32" in out


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        (["old"], "2 -> 8"),
        (["new", "--", "configs"], "4 -> 8"),
        (["old", "new"], "2 -> 4"),
        (["old", "new", "configs"], "2 -> 4"),
    ],
)
def test_revisions_are_compared(repository: Path, arguments: list[str], sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tvlint(capsys, *arguments)
    assert (code, err) == (0, "")
    assert f"--tensor-model-parallel-size  {sizes}" in out
    assert "configs/train.sh:2:32: warning" in out
    assert f"parallel-size {sizes[-1]} --micro" in out
    assert "same.sh" not in out


def test_revisions_are_compared_from_a_folder_inside(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository / "configs")
    code, out, _ = tvlint(capsys, "old", "--", "train.sh")
    assert code == 0
    assert "train.sh:2:32: warning" in out


def test_a_script_changes_with_the_file_that_it_reads(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "sizes.sh").write_text("TP=2\n")
    (repository / "run.sh").write_text(". sizes.sh\n" + SCRIPT.format(tp="$TP"))
    commit_all(repository)
    (repository / "sizes.sh").write_text("TP=4\n")
    code, out, _ = tvlint(capsys, "HEAD")
    assert code == 0
    assert "run.sh:\n  written:\n    --tensor-model-parallel-size  2 -> 4" in out


def test_two_folders_are_compared_by_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, tp in (("a", 2), ("b", 4)):
        (here / folder / "inner").mkdir(parents=True)
        (here / folder / "inner" / "run.sh").write_text(SCRIPT.format(tp=tp))
        (here / folder / f"only-{folder}.sh").write_text(SCRIPT.format(tp=tp))
    code, out, _ = tvlint(capsys, "a", "b")
    assert code == 0
    assert "b/inner/run.sh:2:32: warning" in out
    assert "only-" not in out


@pytest.mark.parametrize("format", ["json", "markdown", "html", "sarif", "junit", "github", "concise"])
def test_every_format_tells_the_change(here: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text(SCRIPT.format(tp=4))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh", "-o", format)
    assert code == 0
    assert "changed-global-batch" in out
    if format == "json":
        document = json.loads(out)
        schema = json.loads((data_path("schemas") / "report.schema.json").read_text())
        jsonschema.validate(document, schema)
        (comparison,) = document["comparisons"]
        assert comparison["written"] == [{"name": "--tensor-model-parallel-size", "before": "2", "after": "4"}]
        assert {"name": "global batch size", "before": "16", "after": "8"} in comparison["follows"]
    if format == "markdown":
        assert "| global batch size | 16 | **8** |" in out


def test_a_comment_silences_what_is_meant(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text("# tvlint: ignore[changed-global-batch] we want it\n" + SCRIPT.format(tp=4))
    assert "changed-global-batch" not in tvlint(capsys, "a.sh", "b.sh")[1].replace("ignore[changed-global-batch]", "")


@pytest.mark.parametrize("revision", ["nothing", "--upload-pack=x", "-x", "old:configs", "", "a\nb", "@{u}"])
def test_what_is_no_revision_is_said(repository: Path, revision: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tvlint(capsys, revision)
    assert (code, out) == (2, "")
    assert err.startswith("tvlint: error: ")


def test_links_in_a_revision_are_not_followed(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "link.sh").symlink_to("/etc/passwd")
    commit_all(repository)
    (repository / "link.sh").unlink()
    (repository / "link.sh").write_text(SCRIPT.format(tp=2))
    code, out, err = tvlint(capsys, "HEAD", "--", "link.sh")
    assert (code, out) == (0, "nothing was checked\n")
    assert "nothing to compare" in err


def test_no_difference_is_said(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = tvlint(capsys, "old", "new", "same.sh")
    assert code == 0
    assert "nothing to compare" in err


def test_outside_a_repository_only_files_are_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    code, _, err = tvlint(capsys, "a.sh", "b.sh")
    assert code == 2
    assert "no file `b.sh`" in err
    code, _, err = tvlint(capsys, "main")
    assert code == 2
    assert "`main` is neither a file nor a revision of a git repository here" in err


BLOCK = """ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: {connections}
MODEL_ARGS:
  --pipeline-model-parallel-size: {pp}
  --micro-batch-size: 1
  --global-batch-size: 64
  --num-layers: 8
"""


def test_without_a_number_of_ranks_both_versions_are_compared_on_as_many(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.yaml").write_text(BLOCK.format(connections=1, pp=4))
    (here / "b.yaml").write_text(BLOCK.format(connections=32, pp=2))
    out = " ".join(tvlint(capsys, "a.yaml", "b.yaml")[1].split())
    assert "CUDA_DEVICE_MAX_CONNECTIONS 1 -> 32" in out
    assert "minimum world size 4 -> 2" in out
    assert "micro batches on 4 ranks 64 -> 32" in out
    assert " world size 4 -> 2" not in out.replace("minimum world size", "")


def test_values_that_neither_version_tells_are_not_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp="$1").replace("--num-layers", "--no-bias-gelu-fusion --num-layers"))
    (here / "b.sh").write_text(
        "# moved\n" + SCRIPT.format(tp="$1").replace("--num-layers", "--no-masked-softmax-fusion --num-layers")
    )
    out = " ".join(tvlint(capsys, "a.sh", "b.sh")[1].split())
    assert "--no-masked-softmax-fusion not given -> given" in out
    assert "--no-bias-gelu-fusion given -> not given" in out
    assert "--tensor-model-parallel-size" not in out
    assert "?" not in out


def test_launches_are_compared_in_their_order_though_lines_move(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (SCRIPT.format(tp=2).replace("--num-layers 8", f"--num-layers {layers}") for layers in (8, 24))
    (here / "a.sh").write_text(first + "\n" + second)
    (here / "b.sh").write_text(
        "# one\n" * (first.count("\n") + 1) + first + "\n" + second.replace("--num-layers 24", "--num-layers 26")
    )
    out = tvlint(capsys, "a.sh", "b.sh")[1]
    assert "24 -> 26" in " ".join(out.split())
    assert "8 -> 24" not in " ".join(out.split())


def test_a_mistake_that_the_change_brings_is_a_finding_and_one_that_was_there_is_none(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2) + SCRIPT.format(tp=3))
    (here / "b.sh").write_text("# moved\n" + SCRIPT.format(tp=2) + SCRIPT.format(tp=3))
    assert tvlint(capsys, "a.sh", "b.sh")[0] == 0
    (here / "b.sh").write_text(SCRIPT.format(tp=3) + SCRIPT.format(tp=3))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert code == 1
    assert re.findall(r"^  - 8 attention heads .*\n    at: b.sh:(\d+):", out, re.MULTILINE) == ["3"]


def test_a_mistake_that_the_change_mends_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=3))
    (here / "b.sh").write_text(SCRIPT.format(tp=2))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert code == 0
    assert re.search(r"heads-not-divisible-by-tp +8 attention heads do not divide .* -> fixed", out)


def test_the_same_edit_of_many_files_is_told_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, tp in (("a", 2), ("b", 4)):
        (here / folder).mkdir()
        for number in range(12):
            (here / folder / f"run{number:02}.sh").write_text(SCRIPT.format(tp=tp))
    _, out, _ = tvlint(capsys, "a", "b")
    assert out.count("--tensor-model-parallel-size  2 -> 4") == 1
    assert "b/run00.sh, and 11 more configurations in the same way:" in out
    _, out, _ = tvlint(capsys, "a", "b", "-o", "json")
    assert len(json.loads(out)["comparisons"]) == 12


def test_a_mistake_of_the_same_edit_is_told_once_for_people_and_of_each_file_for_programs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, tp in (("a", 2), ("b", 3)):
        (here / folder).mkdir()
        for number in range(4):
            (here / folder / f"run{number}.sh").write_text(SCRIPT.format(tp=tp))
    (here / "b" / "run3.sh").write_text(SCRIPT.format(tp=5))
    code, out, _ = tvlint(capsys, "a", "b")
    assert code == 1
    assert out.count("8 attention heads do not divide over 3") == out.count("8 attention heads do not divide over 5") == 1
    assert " ".join(out.split()).count("the same in 2 other files") > 0
    _, out, _ = tvlint(capsys, "a", "b", "-o", "markdown")
    assert out.count("8 attention heads do not divide") == 2
    _, out, _ = tvlint(capsys, "a", "b", "-o", "json")
    assert out.count('"rule": "heads-not-divisible-by-tp"') == 4


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a" * 60 + "10" + "b" * 60, "a" * 60 + "20" + "b" * 60, f"…{'a' * 12}10{'b' * 32}… -> …{'a' * 12}20{'b' * 32}…"),
        ("a" * 60, "a" * 60 + "/x", f"…{'a' * 12} -> …{'a' * 12}/x"),
        ("a" * 60, "b" * 60, f"{'a' * 47}… -> {'b' * 47}…"),
        ("a" * 40 + "1", "a" * 40 + "2", f"{'a' * 40}1 -> {'a' * 40}2"),
    ],
)
def test_long_values_are_shown_where_they_differ(
    here: Path, old: str, new: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("a.sh", old), ("b.sh", new)):
        (here / name).write_text(SCRIPT.format(tp=2).rstrip() + f" --save {value}\n")
    _, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert told in out


def test_what_is_no_configuration_is_told_of_a_named_file_alone(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "README.md").write_text("one")
    commit_all(repository)
    (repository / "README.md").write_text("two")
    assert "README" not in tvlint(capsys, "HEAD")[2]
    (repository / "OTHER.md").write_text("other")
    assert "`OTHER.md` is no configuration" in tvlint(capsys, "README.md", "OTHER.md")[2]


def test_many_layers_are_counted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text(SCRIPT.format(tp=2).replace("--num-layers 8", "--num-layers 3"))
    assert re.search(r"layers by stage +Et\*8L -> EtttL", tvlint(capsys, "a.sh", "b.sh")[1])


def test_of_an_inference_engine_follow_its_replicas_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "python3 x.py trainer.n_gpus_per_node=8 trainer.nnodes=2 actor_rollout_ref.rollout.tensor_model_parallel_size="
    (here / "a.sh").write_text(f"{text}8\n")
    (here / "b.sh").write_text(f"{text}4\n")
    follows = tvlint(capsys, "a.sh", "b.sh")[1].partition("follows:\n")[2].partition("\n\n")[0]
    assert [re.sub(r" {2,}", "  ", line.strip()) for line in follows.splitlines()] == [
        "ranks of a replica  8 -> 4",
        "replicas  2 -> 4",
    ]


@pytest.mark.parametrize("arguments", [["HEAD"], ["HEAD~1", "HEAD"]])
def test_files_that_came_moved_and_are_gone_are_told(
    repository: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = "\n".join(f"export NAME_{number}=1" for number in range(9)) + "\n" + SCRIPT.format(tp=2)
    (repository / "old.sh").write_text(before)
    commit_all(repository)
    (repository / "old.sh").unlink()
    (repository / "moved.sh").write_text(before.replace("-size 2", "-size 4"))
    (repository / "same.sh").unlink()
    (repository / "same.txt").write_text("nothing\n")
    heads = " --num-attention-heads 6 --hidden-size 60 --num-layers 1"
    (repository / "wrong.sh").write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4{heads}\n")
    if len(arguments) == 2:
        commit_all(repository)
    code, out, err = tvlint(capsys, *arguments)
    assert (code, err) == (1, "")
    assert "moved.sh:\n  written:\n    the file                      old.sh -> moved.sh\n" in out
    assert "    --tensor-model-parallel-size  2 -> 4\n" in out
    assert "same.sh:\n  written:\n    the file  there -> gone\n" in out
    assert "wrong.sh:\n  written:\n    the file  not there -> new\n" in out
    assert ": error: 6 attention heads do not divide over 4 tensor-parallel ranks" in out
    assert "old.sh:" not in out
    assert "same.txt" not in out


def test_a_mistake_stands_at_the_line_that_the_change_has_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "HEADS=8\nTP={tp}\ntorchrun --nproc-per-node 24 pretrain_gpt.py --num-attention-heads $HEADS \\\n"
    launch = sizes + "  --tensor-model-parallel-size $TP --kv-channels 64 --hidden-size 96 --ffn-hidden-size 96\n"
    (here / "a.sh").write_text(launch.format(tp=2))
    (here / "b.sh").write_text(launch.format(tp=3))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert code == 1
    assert "b.sh:2:4: error: 8 attention heads do not divide over 3 tensor-parallel ranks" in out
    assert "b.sh:1:7: note: the change leaves this line as it was" in out
    silent = "# tvlint: ignore[heads-not-divisible-by-tp] tried\n"
    (here / "b.sh").write_text(launch.format(tp=3).replace("HEADS=8\n", f"HEADS=8 {silent}"))
    assert tvlint(capsys, "a.sh", "b.sh")[0] == 0


VERL = """python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
  actor_rollout_ref.actor.optim.lr={lr} actor_rollout_ref.model.enable_gradient_checkpointing={checkpointing} \\
  data.train_files=$HOME/data {more} "$@"
"""
SECTIONS = """trainer:
  lr: {lr}
actor:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  micro_batch_size: 1
  loss: {{agg_mode: {mode}, of: "${{trainer.lr}}"}}
"""


def test_a_mistake_of_two_sections_at_one_place_is_told_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.rollout.tensor_model_parallel_size=2"
    )
    run = f"python3 -m verl.trainer.main_ppo data.train_batch_size=64 {sizes} actor_rollout_ref.actor.ppo_mini_batch_size="
    (here / "a.sh").write_text(f"{run}32\n")
    (here / "b.sh").write_text(f"{run}128\n")
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert (code, out.count("larger than the train batch"), "1 error in 1 file" in out) == (1, 1, True)


def test_overrides_beside_the_sizes_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(VERL.format(lr="1e-6", checkpointing="True", more=""))
    (here / "b.sh").write_text(VERL.format(lr="1e-5", checkpointing="False", more="actor_rollout_ref.rollout.temperature=0.6"))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    told = {tuple(re.split("  +", row.strip())) for row in out.splitlines() if " -> " in row}
    assert code == 0
    assert told == {
        ("actor_rollout_ref.actor.optim.lr", "1e-06 -> 1e-05"),
        ("actor_rollout_ref.model.enable_gradient_checkpointing", "true -> false"),
        ("actor_rollout_ref.rollout.temperature", "not given -> 0.6"),
    }


def test_what_stands_beside_a_section_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text(SECTIONS.format(lr="1.0e-6", mode="token-mean"))
    (here / "b.yaml").write_text(SECTIONS.format(lr="2.0e-6", mode="seq-mean"))
    _, out, _ = tvlint(capsys, "a.yaml", "b.yaml")
    told = {tuple(re.split("  +", row.strip())) for row in out.splitlines() if " -> " in row}
    assert told == {("trainer.lr", "1e-06 -> 2e-06"), ("actor.loss.agg_mode", "token-mean -> seq-mean")}


def test_mistakes_of_one_cause_stand_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sh").write_text(SCRIPT.format(tp=2))
    (here / "b.sh").write_text(SCRIPT.format(tp=3))
    code, out, _ = tvlint(capsys, "a.sh", "b.sh")
    assert code == 1
    (head,) = [row for row in out.splitlines() if " error: " in row]
    together = int(head.split(" error: ")[1].split(" mistakes of one cause")[0])
    assert len(re.findall(r"^  - .* \[[\w-]+\]$", out, re.MULTILINE)) == together > 1
    assert out.count("  help: all rules hold with") == out.count("all rules hold with") == 1
    assert f"\n{together} errors" in out
    _, out, _ = tvlint(capsys, "a.sh", "b.sh", "-o", "markdown")
    assert out.count(f"{together} mistakes of one cause") == out.count("all rules hold with") == 1
