"""Slips that a shell takes for something else."""

from pathlib import Path
from time import process_time

import pytest

from tvlint.findings import Severity
from tvlint.readers.read import read

LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 1"
SLIPS = frozenset(
    {
        "option-run-as-command",
        "assignment-run-as-command",
        "array-without-subscript",
        "misspelled-variable",
        "misspelled-option",
        "option-value-not-a-number",
        "space-after-backslash",
        "misplaced-equals-sign",
        "misspelled-default",
        "misspelled-program",
        "options-not-passed",
        "unknown-option",
        "value-after-complete-option",
    }
)


def slips_of(tmp_path: Path, text: str) -> list[tuple[str, int | None]]:
    path = tmp_path / "train.sh"
    path.write_text(text)
    document = read(str(path))
    assert document is not None
    return [
        (finding.rule, finding.location.line)
        for finding in document.findings
        if finding.rule in SLIPS and finding.severity is Severity.ERROR
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LAUNCH}\n  --bf16\n", ("option-run-as-command", 2)),
        (f"{LAUNCH} \\\n\n  --bf16\n", ("option-run-as-command", 3)),
        (f"{LAUNCH} \\\n# --fp16 \\\n  --bf16\n", ("option-run-as-command", 3)),
        (f"srun \\\n  --label\n  --nodes 2 {LAUNCH}\n", ("option-run-as-command", 3)),
        (f"{LAUNCH}\nsrun --label \\ \n  --nodes 2 true\n", ("space-after-backslash", 2)),
        (f"A=(--lr 1e-4)\n{LAUNCH}\n  ${{A[@]}} \\\n  --bf16\n", ("option-run-as-command", 3)),
        (f'A="\n  --lr 1e-4"\n{LAUNCH}\n  $A\n', ("option-run-as-command", 4)),
        (f"ray job submit --working-dir .\n  -- {LAUNCH}\n", ("option-run-as-command", 2)),
        (f"{LAUNCH}\n  model.optim.lr=1e-4\n", ("option-run-as-command", 2)),
        (f"{LAUNCH}\n  +model.optim.lr=1e-4\n", ("option-run-as-command", 2)),
        (f"{LAUNCH} \\ \n  $MORE\n", ("space-after-backslash", 1)),
        (f"{LAUNCH} \\\t\n  -- a\n", ("space-after-backslash", 1)),
        (f"A=(\n  --lr 1e-4 \\ \n  --bf16)\n{LAUNCH} ${{A[@]}}\n", ("space-after-backslash", 2)),
        (f'A="--lr 1e-4 \\ \n  --bf16"\n{LAUNCH} $A\n', ("space-after-backslash", 1)),
        ('A="--lr 1e-4 --num-layers 2 --hidden-size 8 --micro-batch-size 1 \\ \n  --bf16"\n', ("space-after-backslash", 1)),
        (f'A="--lr 1e-4 \\ \n  --bf16"\neval "{LAUNCH} " $A\n', ("space-after-backslash", 1)),
        (f"N =4\n{LAUNCH}\n", ("assignment-run-as-command", 1)),
        (f"N= 4\n{LAUNCH}\n", ("assignment-run-as-command", 1)),
        (f"A=(--lr 1e-4)\n{LAUNCH} $A\n", ("array-without-subscript", 2)),
        (f"A=(--lr 1e-4)\necho é€\n{LAUNCH} --save é€/$A\n", ("array-without-subscript", 3)),
        (f"DATA_PATH=/data\n{LAUNCH} --data-path ${{DATA_PAHT}}\n", ("misspelled-variable", 2)),
        (LAUNCH.replace("nproc", "nporc"), ("misspelled-option", 1)),
        (f"{LAUNCH}; \\\n  --bf16\n", ("option-run-as-command", 2)),
        (f"{LAUNCH} # ours \\\n  --bf16\n", ("option-run-as-command", 2)),
        (f"\n{LAUNCH.replace('_gpt', '_gtp')}\n", ("misspelled-program", 2)),
        (f"{LAUNCH.replace('pretrain_gpt', '$HOME/Megatron-LM/pertrain_gpt')}\n", ("misspelled-program", 1)),
        (f"N:=4\n{LAUNCH}\n", ("assignment-run-as-command", 1)),
        (f"$N=4\n{LAUNCH}\n", ("assignment-run-as-command", 1)),
        (f"export N==4\n{LAUNCH}\n", ("misplaced-equals-sign", 1)),
        (f"{LAUNCH} --load =$OUT\n", ("misplaced-equals-sign", 1)),
        (f"N=${{N-:4}}\n{LAUNCH} --lr $N\n", ("misspelled-default", 1)),
        (f'N="${{N:4}}"\n{LAUNCH}\n', ("misspelled-default", 1)),
        (f"N=${{M:0}}\n{LAUNCH}\n", ("misspelled-default", 1)),
        (f'A="--nproc_per_node 8"\n{LAUNCH.replace("--nproc-per-node 8", "")}\n', ("options-not-passed", 1)),
        (f"A=(\n--num-layers 2\n)\n{LAUNCH}\n", ("options-not-passed", 1)),
        (
            'A="--lr 1 --num-layers 2 --num-attention-heads 4 --hidden-size 8"\ntorchrun pretrain_gpt.py --lr 1e-4\n',
            ("options-not-passed", 1),
        ),
        (f"MORE_ARGS=(--bf16)\n{LAUNCH} ${{MORE_ARG[@]}}\n", ("misspelled-variable", 2)),
        (f"checkpoint_path=/c\n{LAUNCH} --load $checkpoint_path --save $chekpoint_path\n", ("misspelled-variable", 2)),
        (f"TOKENIZER=/t\n{LAUNCH} --tokenizer-model $TOKENISER\n", ("misspelled-variable", 2)),
        (f'CKPTS_DIR=${{CKPTS_DIR:-"/c"}}\n{LAUNCH} --save "${{CKPTSDIR}}"\n', ("misspelled-variable", 2)),
        (LAUNCH.replace("--nproc-per-node 8", "--nproc-per-node 8 --nnoeds 1"), ("misspelled-option", 1)),
        (LAUNCH.replace("--nproc-per-node 8", "--nproc-per-node 1.5"), ("option-value-not-a-number", 1)),
        (LAUNCH.replace("8", "8 --tp-comm-overlap", 1), ("unknown-option", 1)),
        (LAUNCH.replace("8", "8 --nnodes=2x --node_rank 0", 1), ("option-value-not-a-number", 1)),
        (LAUNCH.replace("8", "8 --master_port MASTER_PORT", 1), ("option-value-not-a-number", 1)),
        (LAUNCH.replace("torchrun --nproc-per-node 8", "deepspeed --num_gpus all"), ("option-value-not-a-number", 1)),
        (LAUNCH.replace("torchrun --nproc-per-node 8", "accelerate launch --machne_rank 0"), ("misspelled-option", 1)),
        (f'more_args="--bf16"\nmore_args+=" $more_agrs"\n{LAUNCH} $more_args\n', ("misspelled-variable", 2)),
        (f"{LAUNCH} \u2013bf16\n", ("unknown-option", 1)),
        (f"A=$1\n{LAUNCH} --ours =$A\n", ("misplaced-equals-sign", 2)),
        (f"{LAUNCH} $MORE \u2013bf16\n", ("unknown-option", 1)),
        ('MODEL_ARGS="--num-layers 2 --num-attention-heads 4 --bf16 True"\n', ("value-after-complete-option", 1)),
        (f"{LAUNCH} --ours 1 \u2013bf16\n", ("unknown-option", 1)),
        (f"{LAUNCH} -max-position-embeddings 8\n", ("unknown-option", 1)),
        (f'{LAUNCH} "--lr 1e-4"\n', ("unknown-option", 1)),
        (f'A="--bf16 # ours\n--lr 1e-4"\n{LAUNCH} $A\n', ("value-after-complete-option", 1)),
    ],
)
def test_a_slip_is_found_where_it_stands(tmp_path: Path, text: str, expected: tuple[str, int]) -> None:
    assert expected in slips_of(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        f"{LAUNCH} \\\n  --bf16 \\\n  --lr 1e-4\n",
        f'echo "usage \\ \n  --bf16"\n# {LAUNCH} \\ \n#  --bf16\n{LAUNCH}\n',
        f'USAGE="usage: a.sh \\ \n  --bf16"\necho "$USAGE" "\\$USAGE"\n{LAUNCH}\n',
        f"cat <<END\n{LAUNCH} \\ \n  --bf16\nEND\n{LAUNCH} # --lr 1 \\ \n",
        f"A=(srun --label)\nB='srun'\n${{A[@]}} \\\n  {LAUNCH}\n$B {LAUNCH}\n$C {LAUNCH}\n",
        f'A=srun\n$A {LAUNCH}\nA="--bf16"\n{LAUNCH} $A\n',
        f"{LAUNCH} --a 'x \\ \n  --y' --b x\\\\ \n",
        f"data_path=$data_paths\n{LAUNCH} --data-path $data_path\n",
        f'export data_path="${{data_paths}}"; {LAUNCH} --data-path $data_path\n',
        f"{LAUNCH}\n# --bf16\n",
        f'{LAUNCH}\ncat <<END\n--bf16\nEND\nA="\n--bf16\nN = 4\n"\n',
        f"A=(\n--bf16\n# --fp16\n\n--lr 1e-4\n)\n{LAUNCH} ${{A[@]}} ${{A[0]}}\n",
        f"if [[ $A = 4 ]]; then\n  {LAUNCH}\nfi\n(( N = 4 ))\n",
        f"while getopts a: A; do\ncase $A in\n--bf16) N=4 ;;\nesac\ndone\n{LAUNCH}\n",
        f"A=(--bf16)\n{LAUNCH} $A\n",
        f"DATA_PATH=/data\n{LAUNCH} --data-path ${{DATA_PAHT:-$DATA_PATH}}\n",
        f"CHECKPOINT_DIR=/c\nstep_a=1\nvariant_1=2\n{LAUNCH} --save $CHECKPOINTS_DIR --load $step_b --seed $variant_2\n",
        f"RANK0=0\nR0ANK=1\n{LAUNCH} --seed $RANK0 --save $HOST1 --load $DATA\n",
        f"TOKENIZER=/t\n{LAUNCH} --tokenizer-model $TOKENISER --load $TOKENIZER\n",
        f"export TOKENIZER=/t\n{LAUNCH} --tokenizer-model $TOKENISER\n",
        f"TP_SIZE=2\nMODEL=a\n{LAUNCH} --seed $PP_SIZE --load $MODELS\n",
        LAUNCH.replace("torchrun --nproc-per-node 8", "accelerate launch --megatron-lm-pp-degrees 2 --nodes 2"),
        f". ./not_there.sh\nDATA_PATH=/data\n{LAUNCH} --data-path $DATA_PAHT\n",
        LAUNCH.replace("nproc-per-node", "nproc-per-nod"),
        LAUNCH.replace("8", "gpu --nnodes 1:4 --master-port={{port}}", 1),
        f"N=abc\nN=${{N:1}}\nM=${{HOST:4}}\nL=${{1:2}}\nfor K in $N; do K=${{K:2}}; done\n{LAUNCH}\n",
        f'A="--num-layers 2"\n# {LAUNCH} $A\n{LAUNCH}\n',
        f'A="--num-layers 2"\n{LAUNCH} --num-layers 4\n',
        f'A="--bf16"\n{LAUNCH}\n',
        f'A="--nproc_per_node 8"\n{LAUNCH.replace("torchrun --nproc-per-node 8", "python")}\n',
        f'export A="--num-layers 2"\n{LAUNCH}\n',
        f'ARGS_1="--bf16"\n{LAUNCH} $ARGS_2 $ARGS_12\n',
        f'A="--num-layers 2"\nB=A\n{LAUNCH} ${{!B}}\n',
        f'A="--num-layers 2"\n. ./launch.sh\n{LAUNCH}\n',
        f'SAVE="your output folder"\n{LAUNCH} --save $SAVE\n',
        f'CMD="{LAUNCH} # ours"\nbash -c "$CMD"\n',
        f"if [[ $N == 4 ]]; then\n  {LAUNCH}\nfi\n",
        f"srun --nproc-per-nodes 8 --tasks-per-nod 3 {LAUNCH}",
        f'{LAUNCH} --train-args "--lr 1e-4 --bf16"\n',
        f". ./env.sh\nN=${{N:4}}\n{LAUNCH}\n",
        f"# N=${{N:4}}\n1=${{1:4}}\n{LAUNCH}\n",
        f"test -f env.sh && . ./env.sh\nN=${{N:4}}\n{LAUNCH}\n",
        f'printf -v N abcdef\nN="${{N:4}}"\nmapfile M\nM=${{M:1}}\n{LAUNCH}\n',
        f"export LD_LIBRARY_PATH=/lib${{LD_LIBRARY_PATH-:/usr/lib}}\n{LAUNCH}\n",
        f"export DISPLAY=${{DISPLAY-:0}}\n{LAUNCH}\n",
        f'set -a\nA="--num-layers 2"\nset +a\n{LAUNCH}\n',
        f'A="--num-layers 2"\n[ -f run.sh ] && . ./run.sh\n{LAUNCH}\n',
        f'A_1="--num-layers 2"\neval "A=\\$A_$1"\n{LAUNCH} $A\n',
        f'A_1="--num-layers 2"\ndeclare -n A=A_$1\n{LAUNCH} $A\n',
        f'A="--num-layers 2"\n{LAUNCH} --use-checkpoint-args\n',
        f'HOST_NAME=a\nprintf "$HOSTNAME"\n{LAUNCH}\n',
    ],
)
def test_no_slip_is_found_in_right_scripts(tmp_path: Path, text: str) -> None:
    assert slips_of(tmp_path, text) == []


@pytest.mark.parametrize("line", ["--bf16", "N =4", f"{LAUNCH} $A"])
def test_many_slips_are_looked_up_in_one_tree(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[bytes] = []
    monkeypatch.setattr("tvlint.readers.shell.syntax.filled_in", lambda data: filled.append(data) or data)
    assert len(slips_of(tmp_path, f"A=(--lr 1e-4)\n{LAUNCH}\n" + 20 * f"{line}\n")) == 20
    assert len(filled) == len({*filled})


def test_slips_in_many_blocks_are_found_without_a_walk_to_the_root_for_each(tmp_path: Path) -> None:
    """A parent costs a node as much as the blocks around it are deep."""
    depth = 1500
    started = process_time()
    found = slips_of(tmp_path, f"{LAUNCH}\n" + depth * "{\n" + depth * "--bf16\n" + depth * "}\n")
    assert len(found) == 500
    assert process_time() - started < 5


def test_defaults_that_do_not_end_are_looked_through_once(tmp_path: Path) -> None:
    """Each may begin another one up to the end of the line."""
    started = process_time()
    assert slips_of(tmp_path, f"# {40_000 * '${a-:'}\n{LAUNCH}\n") == []
    assert process_time() - started < 5


def test_no_slip_is_found_in_what_is_no_syntax_of_a_shell(tmp_path: Path) -> None:
    assert slips_of(tmp_path, f"{LAUNCH}\na=(\n--bf16\nN =4\n") == []


@pytest.mark.parametrize(
    ("program", "is_meant"),
    [
        ("finetune_llm.py", False),
        ("finetunes_llm.py", True),
        ("finetune_lm.py", False),
        ("finetune_lml.py", True),
        ("finetune_vlm.py", False),
        ("finetune_gmm.py", False),
        ("finetune_llm_v2.py", False),
        ("other.py", False),
    ],
)
def test_a_program_is_misspelled_where_one_beside_it_is_surely_meant(tmp_path: Path, program: str, is_meant: bool) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "finetune_llm.py").write_text("import megatron.training\n")
    found = slips_of(tmp_path, LAUNCH.replace("pretrain_gpt.py", f"tasks/{program}") + "\n")
    assert found == [("misspelled-program", 1)] * is_meant


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (f"{LAUNCH} $A --bf16", '"${A[@]}"'),
        (f"{LAUNCH} ${{A}}", '"${A[@]}"'),
        (f'{LAUNCH} "$A"', "${A[@]}"),
        (f'bash -c "{LAUNCH} $A --bf16"', "${A[@]}"),
        (f"{LAUNCH} --save x/$A", "${A[@]}"),
    ],
)
def test_the_repair_of_a_list_has_the_quotes_that_its_help_shows(tmp_path: Path, command: str, written: str) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"A=(--lr 1e-4)\n{command}\n")
    document = read(str(path))
    assert document is not None
    fixes = [fix for each in document.findings if each.rule == "array-without-subscript" for fix in each.fixes]
    assert [edit.text for fix in fixes for edit in fix.edits] == [written]


def test_a_variable_that_the_environment_might_have_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"DATA_HOME=/d\n{LAUNCH} --data-path $DATA_HMEO/a --load $DATA_HOMR --save $DATA_HOME --seed $DATA_HOMES\n")
    document = read(str(path))
    assert document is not None
    found = [(each.severity, each.help) for each in document.findings if each.rule == "misspelled-variable"]
    assert found == [(Severity.WARNING, "did you mean `DATA_HOME`?")]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("source ./not_there.sh\nDATA_HOME=/d\n{} --data-path $DATA_HMOE --load $DATA_HOME", "DATA_HOME"),
        ("source ./not_there.sh\nDATA_ARGS='--data-path /d'\n{} $DAT_ARGS", "DATA_ARGS"),
        ("source ./not_there.sh\nUSE_MCORE=1\n{} --data-path $USE_MCORE --load $WORLD_SIZE", ""),
        ('export "$KEY"="$VALUE"\nDATA_HOME=/d\n{} --data-path $DATA_HMOE --load $DATA_HOME', ""),
        ('declare -g "$1"=/d\nDATA_HOME=/d\n{} --data-path $DATA_HMOE', ""),
    ],
)
def test_a_variable_that_another_script_might_set_is_a_warning_at_most(text: str, meant: str, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(text.format(LAUNCH) + "\n")
    document = read(str(path))
    assert document is not None
    found = [(each.severity, each.help) for each in document.findings if each.rule == "misspelled-variable"]
    assert found == [(Severity.WARNING, f"did you mean `{meant}`?")] * bool(meant)


def test_a_list_of_another_script_that_is_cut_off_its_launch_is_run_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "model.sh").write_text("MODEL_ARGS=(--num-layers 2)\nRUN=(srun)\n")
    script = f"source $(dirname $0)/model.sh\n{LAUNCH}\n  ${{MODEL_ARGS[@]}} \\\n  --bf16\n${{RUN[@]}} {LAUNCH}\n"
    assert slips_of(tmp_path, script) == [("option-run-as-command", 3)]


def test_a_variable_that_job_systems_set_is_none_of_the_script(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"WORLDSIZE=8\n{LAUNCH} --data-path $WORLDSIZE --load $WORLD_SIZE\n")
    document = read(str(path))
    assert document is not None
    assert not [each for each in document.findings if each.rule == "misspelled-variable"]
