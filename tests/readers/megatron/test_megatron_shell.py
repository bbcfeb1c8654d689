"""Launch scripts: what is resolved, where it stands, and what stays unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.invalid_options import still_refused
from tvlint.readers.megatron.launch_script import read
from tvlint.readers.megatron.recognise_launch import recognise
from tvlint.readers.shell.syntax import PLACEHOLDER, Syntax
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

TAIL = " --num-layers 4 --micro-batch-size 1\n"


def configurations(text: str, path: str = "train.sh") -> tuple[Configuration, ...]:
    document = read(path, text.encode())
    assert document is not None
    return document.configurations


def only(text: str, path: str = "train.sh") -> Configuration:
    (configuration,) = configurations(text, path)
    return configuration


def tp(text: str) -> Setting:
    return only(text).settings["tensor_model_parallel_size"]


def place(setting: Setting) -> tuple[int | None, int | None, int | None]:
    return setting.location.line, setting.location.column, setting.location.end_column


def test_literal_flag_has_the_places_of_value_and_name() -> None:
    setting = tp("torchrun pretrain_gpt.py \\\n  --tensor-model-parallel-size 8" + TAIL)
    assert setting.value == 8
    assert place(setting) == (2, 32, 33)
    assert (setting.name_location.line, setting.name_location.column, setting.name_location.end_column) == (2, 3, 31)
    assert setting.written == "--tensor-model-parallel-size"


@pytest.mark.parametrize(
    ("text", "value", "where"),
    [
        ("TP=8\npython p.py --tensor-model-parallel-size $TP", 8, (1, 4, 5)),
        ('TP="8"\npython p.py --tensor-model-parallel-size "${TP}"', 8, (1, 5, 6)),
        ("TP=${1:-8}\npython p.py --tensor-model-parallel-size $TP", 8, (1, 9, 10)),
        ("TP=${T:-$((2*4))}\npython p.py --tensor-model-parallel-size $TP", 8, (1, 9, 17)),
        ("python p.py --tensor-model-parallel-size=8", 8, (1, 42, 43)),
        ("python p.py --tensor_model_parallel_size 8", 8, (1, 42, 43)),
        ("A=(--tensor-model-parallel-size 8)\npython p.py ${A[@]}", 8, (1, 33, 34)),
        ('A=(\n  --x 1 # --y\n)\nA+=(--tensor-model-parallel-size 8)\npython p.py "${A[@]}"', 8, (4, 34, 35)),
        ('A="--x 1 \\\n --tensor-model-parallel-size 8 \\\n"\npython p.py $A', 8, (2, 31, 32)),
        ('A="--x 1"\nA+=" --tensor-model-parallel-size 8"\npython p.py $A', 8, (2, 35, 36)),
        ('C="python p.py --tensor-model-parallel-size 8 --num-layers 2"\neval "$C"', 8, (1, 45, 46)),
        ("C='python p.py --tensor-model-parallel-size 8 --num-layers 2'\neval $C", 8, (1, 45, 46)),
        ('srun bash -c "python p.py --tensor-model-parallel-size 8"', 8, (1, 56, 57)),
        ("export TP=8 PP=2\npython p.py --tensor-model-parallel-size $TP", 8, (1, 11, 12)),
        (
            "D=<path of data> (e.g., /d)\nM=<model> \\ \n  (e.g. /m)\nTP=8\npython p.py --tensor-model-parallel-size $TP",
            8,
            (4, 4, 5),
        ),
        (": ${TP:=8}\npython p.py --tensor-model-parallel-size $TP", 8, (1, 9, 10)),
        ('if [ -z "$TP" ]; then\n TP=8\nfi\npython p.py --tensor-model-parallel-size $TP', 8, (2, 5, 6)),
        ("M=a\ncase $M in a) TP=8;; *) TP=4;; esac\npython p.py --tensor-model-parallel-size $TP", 8, (2, 18, 19)),
        ("M=a\nif [[ $M == b ]]; then TP=4; else TP=8; fi\npython p.py --tensor-model-parallel-size $TP", 8, (2, 38, 39)),
        ("f() { local T=$1; python p.py --tensor-model-parallel-size $T; }\nf 8", 8, (2, 3, 4)),
        ('A=(--bf16)\nC="python p.py \\\n ${A[@]} \\\n --tensor-model-parallel-size 8"\neval $C', 8, (4, 31, 32)),
        ('A=(--tensor-model-parallel-size 8)\nC="p.py --bf16 ${A[@]} ${A[@]} --fp16"\n$C', 8, (1, 33, 34)),
        ('A=(--tensor-model-parallel-size 8)\nC="python p.py ${A[@]}"\nsrun bash -c "$C"', 8, (1, 33, 34)),
        ('C="p.py --tensor-model-parallel-size 8"\nif [ $1 ]; then C="$C --x $2"; fi\n$C', 8, (1, 38, 39)),
        ('C="p.py --tensor-model-parallel-size 8"\n[ $1 ] && C+=" --x"\nbash -c "X=1 $C"', 8, (1, 38, 39)),
        ("é=1 # é\nT='é' TP=8\npython p.py --x 'é' --tensor-model-parallel-size 8", 8, (3, 50, 51)),
        ("TP=4\nif [ $1 ]; then TP=8; exit 1; fi\npython p.py --tensor-model-parallel-size $TP", 4, (1, 4, 5)),
        ("TP=8\nwhile [ $# -gt 0 ]; do TP=$1; shift; done\npython p.py --tensor-model-parallel-size $TP", 8, (1, 4, 5)),
    ],
)
def test_a_value_stands_where_it_is_literally_written(text: str, value: int, where: tuple[int, int, int]) -> None:
    setting = tp(text + "\n")
    assert setting.value == value
    assert place(setting) == where


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python p.py --tensor-model-parallel-size $1", "depends on `$1`"),
        ("python p.py --tensor-model-parallel-size $TP", "`TP` is not set in the file"),
        ("TP=$(nproc)\npython p.py --tensor-model-parallel-size $TP", "depends on a command's output"),
        (
            "TP=2\nif [ $1 = x ]; then TP=4; fi\npython p.py --tensor-model-parallel-size $TP",
            "set under a condition at line 2",
        ),
        (
            "for TP in 1 2; do\npython p.py --tensor-model-parallel-size $TP\ndone",
            "takes several values in the loop at line 1",
        ),
        ("TP=$((8/0))\npython p.py --tensor-model-parallel-size $TP", "divides by zero"),
        ("read TP\npython p.py --tensor-model-parallel-size $TP", "`TP` is set by `read`"),
    ],
)
def test_what_only_a_run_can_tell_is_unknown(text: str, reason: str) -> None:
    assert tp(text + "\n").value == Unknown(reason, given=True)


def test_branches_that_agree_leave_the_value_known() -> None:
    text = "if [ $1 ]; then TP=4; else TP=4; fi\npython p.py --tensor-model-parallel-size $TP\n"
    assert tp(text).value == 4


def test_an_option_of_an_undecided_branch_is_unknown_and_others_stay_default() -> None:
    text = 'SP=""\nif [ $1 ]; then SP="--sequence-parallel"; fi\npython p.py --tensor-model-parallel-size 2 $SP --bf16\n'
    configuration = only(text)
    assert isinstance(configuration.settings["sequence_parallel"].value, Unknown)
    assert configuration.settings["bf16"].value is True
    assert configuration.complete


@pytest.mark.parametrize("words", ["$@", '"$@"', "$EXTRA_ARGS", "${ARGS[@]}", "$(cat args.txt)"])
def test_unknown_words_make_a_configuration_incomplete(words: str) -> None:
    assert not only(f"python p.py --tensor-model-parallel-size 2 {words}\n").complete
    assert only("python p.py --tensor-model-parallel-size 2\n").complete


def test_a_source_that_is_not_found_makes_a_configuration_incomplete() -> None:
    assert not only("source nowhere.sh\npython p.py --tensor-model-parallel-size 2\n").complete


def test_the_last_of_several_wins_and_the_others_are_kept() -> None:
    configuration = only("python p.py --tensor-model-parallel-size 2 --num-layers 4 --tensor-model-parallel-size 8\n")
    assert configuration.settings["tensor_model_parallel_size"].value == 8
    assert [setting.value for setting in configuration.overridden] == [2]


def test_values_have_the_types_of_their_options() -> None:
    text = (
        "python p.py --tensor-model-parallel-size 2 --lr 1e-5 --num-layers x --no-masked-softmax-fusion --cp-comm-type p2p a2a"
        " --pipeline-model-parallel-layout \"'Et*2|L'\" --bf16 --unheard-of 3\n"
    )
    settings = only(text).settings
    assert settings["lr"].value == 1e-5
    assert settings["num_layers"].value == "x"
    assert settings["masked_softmax_fusion"].value is False
    assert settings["cp_comm_type"].value == ("p2p", "a2a")
    assert settings["pipeline_model_parallel_layout"].value == "'Et*2|L'"
    assert settings["bf16"].value is True
    assert settings["unheard_of"].value == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torchrun --nproc_per_node=8 --nnodes 4 p.py", 32),
        ("torchrun --nproc-per-node 8 p.py", 8),
        ("G=8\nN=2\nD=(--nproc_per_node $G --nnodes $N)\ntorchrun ${D[@]} p.py", 16),
        ("python -m torch.distributed.launch --nproc_per_node 4 --nnodes 2 p.py", 8),
        ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun python p.py", 32),
        ("#SBATCH -N 4\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node 8 p.py", 32),
        ("mpirun -np 16 python p.py", 16),
    ],
)
def test_world_size_follows_from_the_launcher(text: str, value: int) -> None:
    assert only(text + " --tensor-model-parallel-size 2" + TAIL).settings["world_size"].value == value


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc_per_node ${GPUS:-8} --nnodes 2 p.py",
        "WORLD_SIZE=4\npython p.py",
        "torchrun --nnodes 1:4 --nproc_per_node 8 p.py",
        "torchrun $DISTRIBUTED p.py",
        "torchrun --nproc_per_node 8 --nnodes $WORLD_SIZE p.py",
        "torchrun --nproc_per_node gpu p.py",
    ],
)
def test_world_size_is_unknown_where_the_environment_decides(text: str) -> None:
    assert isinstance(only(text + " --tensor-model-parallel-size 2" + TAIL).settings["world_size"].value, Unknown)


def test_exported_variables_are_the_environment_of_the_launch() -> None:
    text = "export CUDA_DEVICE_MAX_CONNECTIONS=1\nX=2\nNVTE_X=a python p.py --tensor-model-parallel-size 2\n"
    environment = only(text).environment
    assert {name: setting.value for name, setting in environment.items()} == {"CUDA_DEVICE_MAX_CONNECTIONS": 1, "NVTE_X": "a"}
    assert place(environment["CUDA_DEVICE_MAX_CONNECTIONS"]) == (1, 36, 37)


def test_several_launches_are_several_configurations() -> None:
    text = "python a.py --tensor-model-parallel-size 2\npython b.py --tensor-model-parallel-size 4\n"
    found = configurations(text)
    assert [each.section for each in found] == ["line 1", "line 2"]
    assert [each.settings["tensor_model_parallel_size"].value for each in found] == [2, 4]


@pytest.mark.parametrize(
    "text",
    [
        "cat <<EOF\npython p.py --tensor-model-parallel-size 2 --num-layers 3\nEOF\n",
        "# python p.py --tensor-model-parallel-size 2\nls\n",
        'echo "--tensor-model-parallel-size 2 --num-layers 2"\n',
    ],
)
def test_text_that_runs_nothing_is_no_launch(text: str) -> None:
    assert read("train.sh", text.encode()) is None


def test_a_script_that_only_sets_option_lists_is_one_incomplete_configuration() -> None:
    text = 'A="--num-layers 4 --num-attention-heads 8 --hidden-size 64"\nB=(--tensor-model-parallel-size 2)\n'
    configuration = only(text)
    assert not configuration.complete
    assert configuration.settings["num_layers"].value == 4
    assert configuration.settings["tensor_model_parallel_size"].value == 2


def test_a_sourced_file_of_the_same_repository_is_followed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "model.sh").write_text("TP=8\n")
    text = 'D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nsource $D/conf/model.sh\n'
    text += "python p.py --tensor-model-parallel-size $TP\n"
    configuration = only(text, str(tmp_path / "train.sh"))
    setting = configuration.settings["tensor_model_parallel_size"]
    assert setting.value == 8
    assert setting.location.path.endswith("model.sh")
    assert configuration.complete


def test_a_source_outside_the_repository_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "outside.sh").write_text("TP=8\n")
    inside = tmp_path / "repository"
    (inside / ".git").mkdir(parents=True)
    (inside / "link.sh").symlink_to(tmp_path / "outside.sh")
    for target in ("../outside.sh", str(tmp_path / "outside.sh"), "link.sh"):
        text = f"source {target}\npython p.py --tensor-model-parallel-size $TP\n"
        setting = only(text, str(inside / "train.sh")).settings["tensor_model_parallel_size"]
        assert isinstance(setting.value, Unknown)


def test_a_script_that_sources_itself_ends(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("source ./train.sh\npython p.py --tensor-model-parallel-size 2\n")
    assert configurations(script.read_text(), str(script))


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A=$A$A\n" * 64 + "python p.py --tensor-model-parallel-size 2 $A\n",
        "A=()\n" + 'A=("${A[@]}" "${A[@]}" x)\n' * 64 + "python p.py --tensor-model-parallel-size 2 ${A[@]}\n",
        "A=x\n" + "if [ $1 ]; then A=a$A; else A=b$A; fi\n" * 64 + "python p.py --tensor-model-parallel-size 2 $A\n",
        "python p.py --tensor-model-parallel-size 2 " + "$((" * 2000 + "1" + "))" * 2000 + "\n",
        "python p.py --tensor-model-parallel-size 2 " + "${A:-" * 2000 + "1" + "}" * 2000 + "\n",
        "if [ $1 ]; then\n" * 500 + "A=1\n" + "fi\n" * 500 + "python p.py --tensor-model-parallel-size 2\n",
        "python p.py --tensor-model-parallel-size 2 $((9**9**9**9))\n",
    ],
)
def test_values_that_would_explode_are_given_up(text: str) -> None:
    assert configurations(text)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + ")" * 60000, "((((" + ("o-b-" + ")" * 46 + "size 1\n((((") * 1100],
    ids=["one line", "many lines"],
)
def test_what_the_parser_would_take_minutes_for_is_refused_at_its_line(text: str) -> None:
    with pytest.raises(ReadError, match="its syntax is not found in 2 seconds") as raised:
        read("train.sh", f"python p.py --tensor-model-parallel-size 2\necho {text}".encode())
    assert 2 <= raised.value.problem.location.line <= text.count("\n") + 2


@pytest.mark.heavy
def test_the_scripts_inside_a_script_have_that_time_together() -> None:
    """Each of them takes the parser half a second."""
    nasty = "echo " + "(" * 300 + ")" * 8000
    launch = "python p.py --tensor-model-parallel-size 2"
    inner = "".join(f"bash <<'E{number}'\n{launch}\n{nasty}{number}\nE{number}\n" for number in range(20))
    with pytest.raises(ReadError, match="its syntax is not found in 2 seconds") as raised:
        read("train.sh", f"{launch}\n{inner}".encode())
    assert raised.value.problem.location.line % 4 == 0


def test_a_script_is_parsed_once_for_all_texts_that_it_is_tried_with(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = Syntax._parsed
    monkeypatch.setattr(Syntax, "_parsed", lambda self, source, data: parsed.append(data) or parse(self, source, data))
    branches = "".join(f"if [ $X = {number} ]; then TP={number}; fi\n" for number in (2, 4, 8))
    configuration = only(f"{branches}python p.py --train-iters 9 --tensor-model-parallel-size $TP{TAIL}")
    assert [case.settings["tensor_model_parallel_size"].value for case in configuration.cases[:3]] == [2, 4, 8]
    assert len(parsed) == 1


def test_a_long_script_is_read() -> None:
    text = "python p.py --tensor-model-parallel-size 2 \\\n" + "  --an-option-of-its-own 1 \\\n" * 20000 + "  --bf16\n"
    assert configurations(text)


def test_functions_that_call_each_other_without_end_are_given_up() -> None:
    text = "f() { f; f; f; f; f; f; f; f; }\nf\npython p.py --tensor-model-parallel-size 2\n"
    with pytest.raises(ReadError, match="too complex"):
        configurations(text)


def test_a_nul_byte_is_a_located_error() -> None:
    with pytest.raises(ReadError) as caught:
        read("train.sh", b"A=1\npython p.py --tensor-model-parallel-size 2\0\n")
    assert caught.value.problem.location.line == 2


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("python p.py --tensor-model-parallel-size 2 --save $1", True),
        ('python p.py --tensor-model-parallel-size 2 --save "$DIR/x"', True),
        ("if [ $1 ]; then S=a; else S=b; fi\npython p.py --tensor-model-parallel-size 2 --save $S", True),
        ("if [ $1 ]; then S='--save a'; else S='--save b'; fi\npython p.py --tensor-model-parallel-size 2 $S", True),
        ("if [ $1 ]; then S='--save a'; fi\npython p.py --tensor-model-parallel-size 2 $S", False),
        ("python p.py --tensor-model-parallel-size 2 --save", False),
    ],
)
def test_an_option_that_surely_stands_is_given_whatever_its_value(text: str, given: bool) -> None:
    value = only(text + "\n").settings["save"].value
    assert isinstance(value, Unknown)
    assert value.given is given


@pytest.mark.parametrize(
    ("expansion", "value"),
    [("${A[@]}", "0:16"), ('"${A[@]}"', "0:16 1:32"), ("${A[*]}", "0:16")],
)
def test_only_an_unquoted_list_is_cut_at_its_blanks(expansion: str, value: str) -> None:
    text = f'A=(--step-batch-size-schedule "0:16 1:32" --tensor-model-parallel-size 8)\npython pretrain_gpt.py {expansion}\n'
    assert only(text).settings["step_batch_size_schedule"].value == value


def test_a_variable_set_before_a_sourced_file_or_a_function_holds_there_only(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "model.sh").write_text('A=(--tensor-model-parallel-size "${TP:-1}")\n', encoding="utf-8")
    text = (
        "g() { B=$TP; }\nTP=4 source model.sh\nTP=2 g\npython pretrain_gpt.py ${A[@]} --seq-length $B --num-layers ${TP:-8}\n"
    )
    settings = only(text, str(tmp_path / "train.sh")).settings
    assert [settings[name].value for name in ("tensor_model_parallel_size", "seq_length", "num_layers")] == [4, 2, 8]


@pytest.mark.parametrize("text", ["A=({})\npython pretrain_gpt.py ${{A[@]}}\n", "python pretrain_gpt.py {}\n"])
def test_a_word_that_the_grammar_cuts_is_unknown(text: str) -> None:
    options = "--moe-layer-freq [0]*$DENSE+[1]*$SPARSE --tensor-model-parallel-size 2"
    settings = only(text.format(options)).settings
    assert isinstance(settings["moe_layer_freq"].value, Unknown)
    assert settings["tensor_model_parallel_size"].value == 2


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (
            "--tensor-model-paralel-size 2 --micro-batch-size 1 --num-layers-per-virtual-pipeline-stagge 1",
            ["misspelled-option"] * 2,
        ),
        ("--sequence-parralel --num-layers 24 --micro-batch-size 1 --hidden-size 64 --lr 1e-4 --seed 1", ["misspelled-option"]),
        ("--own-option-of-a-program 2 --position-embedding-type rotary --num-layers 24", []),
        ("--own-option-of-a-program 2 --num-layers 2.5", ["option-value-not-a-number"]),
        ("--position-embedding-type rotary", ["option-value-not-a-choice"]),
        ("--attention-backend flash --num-layers $LAYERS", []),
        ("--attention-backend flesh", ["option-value-not-a-choice"]),
        ("--train-iters 1e6 --train-iters 100", ["option-value-not-a-number"]),
        ("--data-path 1 a 2 b --lr 1e-4", []),
    ],
)
def test_the_parser_s_own_refusals_are_found(options: str, found: list[str]) -> None:
    document = read("train.sh", f"torchrun pretrain_gpt.py --pipeline-model-parallel-size 2 {options}\n".encode())
    assert document is not None
    assert [finding.rule for finding in document.findings] == found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--recompute-granularity partial", ["option-value-not-a-choice"]),
        ("--num-layers many", ["option-value-not-a-number"]),
        ("--moe-token-dispatcher-type alltoall_seq", []),
        ("--moe-flex-dispatcher-backend other", []),
    ],
)
def test_values_are_judged_for_an_older_release_where_it_takes_the_same(options: str, found: list[str]) -> None:
    launch = f"python pretrain_gpt.py --tensor-model-parallel-size 2 {options}\n"
    document = read("train.sh", f"export PYTHONPATH=backends/Megatron-LM-250624\n{launch}".encode())
    assert document is not None
    assert [finding.rule for finding in document.findings] == found
    plain = read("train.sh", launch.encode())
    assert plain is not None
    assert [finding.rule for finding in still_refused(plain.findings, [replace(only(launch), version="0.12")])] == found
    assert len(plain.findings) == 1


def test_a_dated_snapshot_tells_the_version() -> None:
    launch = "python pretrain_gpt.py --tensor-model-parallel-size 2 --position-embedding-type rotary\n"
    assert only(f"export PYTHONPATH=backends/Megatron-LM-250624\n{launch}").version == "0.12-later"
    assert only(f"P=Megatron-LM-250624:Megatron-LM-240718\n{launch}").version == ""
    assert only(launch).version == ""


def test_a_placeholder_is_an_unknown_value_and_takes_no_words_from_what_follows() -> None:
    text = (
        "DATA=<path of the data>_text\nSAVE=<where to>\n\npython p.py --tensor-model-parallel-size 2 --data-path $DATA" + TAIL
    )
    configuration = only(text)
    assert configuration.complete
    assert configuration.settings["tensor_model_parallel_size"].value == 2
    assert isinstance(configuration.settings["data_path"].value, Unknown)


@pytest.mark.parametrize("line", ["N=<in.txt wc -l", "N=<a b> out.txt c", "N=1 sort <a >b"])
def test_redirections_are_no_placeholders(line: str) -> None:
    assert PLACEHOLDER.search(line.encode()) is None


def test_a_script_without_interpreter_line_may_write_other_languages() -> None:
    script = "CONFIG=ds.json\ncat <<EOT > $CONFIG\n{\n}\nEOT\n" + f"torchrun p.py --tensor-model-parallel-size 2{TAIL}\n"
    assert recognise("run", script.encode())
    assert not recognise("run", script.replace("cat <<EOT", "cat").encode())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--lr 1e-4x", ["option-value-not-a-number"]),
        ("--normalization RmsNorm", ["option-value-not-a-choice"]),
        ("--ckpt-format torch-dist", ["option-value-not-a-choice"]),
        ("--lr-decay-style cosin", ["option-value-not-a-choice"]),
        ("--lr-decay-style cosine2", []),
        ("--lr-decay-style cosine-long", []),
        ("--ckpt-format other_format", []),
        ("--position-embedding-type alibi", []),
        ("--normalization OtherNorm --lr 1e-4", []),
        ("--tokenizer-type HFTokenizer", []),
        ("--tokenizer-type GPT2BPETokenzer", ["option-value-not-a-choice"]),
    ],
)
def test_a_framework_that_takes_megatron_s_options_refuses_what_no_parser_takes(options: str, found: list[str]) -> None:
    document = read("train.sh", f"python slime/train.py --tensor-model-parallel-size 2 --own-option 1 {options}\n".encode())
    assert document is not None
    assert [each.framework for each in document.configurations] == ["slime"]
    assert [finding.rule for finding in document.findings] == found


@pytest.mark.parametrize(
    ("value", "choices", "change", "found"),
    [
        ("OtherNorm", "['LayerNorm', 'RMSNorm']", "", ["one of `LayerNorm`, `RMSNorm`"]),
        ("OtherNorm", "['LayerNorm', 'RMSNorm']", "action.choices.append(own)", []),
        ("OtherNorm", "['LayerNorm', 'RMSNorm']", "PLAIN = 'OtherNorm'", ["one of `LayerNorm`, `RMSNorm`"]),
        ("OtherNorm", "CHOICES", "CHOICES = ['OtherNorm', 'RMSNorm']", []),
        ("OtherNorm", "['OtherNorm', 'rmsnorm']", "", []),
        ("RMSNorm", "['OtherNorm', 'rmsnorm']", "", ["one of `OtherNorm`, `rmsnorm`"]),
    ],
)
def test_source_that_states_choices_decides_on_them(
    value: str, choices: str, change: str, found: list[str], tmp_path: Path
) -> None:
    parser = f"parser = argparse.ArgumentParser()\nparser.add_argument('--normalization', choices={choices})\n"
    parser += "parser.add_argument('--own-option')\nparser.add_argument('--tensor-model-parallel-size', type=int)\n"
    (tmp_path / "pretrain_own.py").write_text(f"import argparse\nimport megatron_patch\n{parser}{change}\n")
    script = tmp_path / "train.sh"
    launch = f"python pretrain_own.py --tensor-model-parallel-size 2 --own-option 1 --normalization {value}\n"
    document = read(str(script), launch.encode())
    assert document is not None
    assert {finding.rule for finding in document.findings} <= {"option-value-not-a-choice"}
    assert [finding.help for finding in document.findings] == found


def test_a_launch_of_the_first_releases_is_not_held_to_what_later_ones_take() -> None:
    sizes = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
    launch = f"deepspeed pretrain_gpt2.py --deepspeed --model-parallel-size 2 --batch-size 8 {sizes} --train-iters 10"
    document = read("train.sh", f"{launch} --warmup .01 --checkpoint-activations\n".encode())
    assert document is not None
    assert document.findings == ()
    results = [result for each in document.configurations for result in evaluate(each, load_rules())]
    assert [each.rule for each in results if isinstance(each, Finding) and each.severity is Severity.ERROR] == []
