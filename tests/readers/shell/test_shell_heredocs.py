"""Launches inside here-documents and strings: whose variables count, where a finding stands, and what is no script."""

from __future__ import annotations

import pytest

from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.read import read

LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size {} --num-layers 24\n"


def configurations(text: str) -> tuple[Configuration, ...]:
    document = read("launch.sh", text.encode())
    return document.configurations if document is not None else ()


def tensor_size(text: str) -> object:
    (only,) = configurations(text)
    value = only.settings["tensor_model_parallel_size"].value
    return "unknown" if isinstance(value, Unknown) else value


@pytest.mark.parametrize(
    "head",
    [
        "cat > run.sh <<EOF",
        "cat <<EOF > run.sh",
        "cat <<EOF | sbatch",
        "sbatch --wait <<EOF",
        "ssh $HOST bash -s <<EOF",
        "srun bash <<-EOF",
        "tee run.sh <<EOF",
        "sudo tee -a run.sh >/dev/null <<EOF",
        "tee run.sh <<EOF > /dev/null",
    ],
)
def test_the_first_shell_fills_in_its_variables(head: str) -> None:
    assert tensor_size(f"#!/bin/bash\nTP=4\n{head}\n{LAUNCH.format('$TP')}EOF\n") == 4


def test_a_quoted_document_sees_exported_variables_alone() -> None:
    script = "#!/bin/bash\n{}TP=4\nssh host bash <<'EOF'\n" + LAUNCH.format("$TP") + "EOF\n"
    assert tensor_size(script.format("export ")) == 4
    assert tensor_size(script.format("")) == "unknown"


def test_an_escaped_variable_is_the_second_shells() -> None:
    script = "#!/bin/bash\nTP=4\ncat > run.sh <<EOF\n{}" + LAUNCH.format(r"\$TP") + "EOF\n"
    assert tensor_size(script.format("")) == "unknown"
    assert tensor_size(script.format("TP=2\n")) == 2


@pytest.mark.parametrize(
    ("size", "expected"),
    [("$TP", 4), ("${TP}", 4), (r"\$TP", 2), ("${TP:-8}", 4), (r"\${TP:-8}", 2), ("$OTHER", "unknown"), (r"\\\$TP", "$TP")],
)
def test_each_shell_has_its_own_variable_of_one_name(size: str, expected: object) -> None:
    script = "#!/bin/bash\nTP=4\ncat > run.sh <<EOF\nTP=2\nOTHER=3\n" + LAUNCH.format(size) + "EOF\n"
    assert tensor_size(script) == expected


def test_what_the_first_shell_computes_is_not_followed_where_the_second_one_has_a_variable_of_the_name() -> None:
    script = "#!/bin/bash\nTP=4\ncat > run.sh <<EOF\nTP=2\necho $TP\n" + LAUNCH.format("$((TP * 2))") + "EOF\n"
    assert configurations(script) == ()


@pytest.mark.parametrize(
    ("before", "behind", "is_launch"),
    [
        ("(", ") > run.sh", True),
        ("{", "} | sbatch", True),
        ("(echo '#!/bin/bash'; {", "}; true) > run.sh", True),
        ("(", ") > notes.md", False),
        ("{", "}", False),
    ],
)
def test_a_group_that_writes_a_script_holds_a_launch(before: str, behind: str, is_launch: bool) -> None:
    script = f"#!/bin/bash\nTP=4\n{before} cat <<EOF\n{LAUNCH.format('$TP')}EOF\n{behind}\n"
    assert len(configurations(script)) == is_launch


def test_a_variable_that_is_handed_on_under_its_name_is_in_no_doubt() -> None:
    assert tensor_size("#!/bin/bash\nTP=4\nsbatch <<EOF\nexport TP=$TP\n" + LAUNCH.format("$TP") + "EOF\n") == 4


@pytest.mark.parametrize(
    "head",
    [
        "cat <<EOF",
        "cat >&2 <<EOF",
        "cat > /dev/null <<EOF",
        "cat > train.yaml <<EOF",
        "python - <<EOF",
        "cat > notes.md <<EOF",
        "tee notes.md >/dev/null <<EOF",
    ],
)
def test_what_is_printed_or_no_script_is_no_launch(head: str) -> None:
    assert configurations(f"#!/bin/bash\n{head}\n{LAUNCH.format(4)}EOF\n") == ()


def test_a_value_stands_where_it_stands_in_the_file() -> None:
    (only,) = configurations("#!/bin/bash\n# für später\nsbatch <<EOF\nexport A=\\$B\n" + LAUNCH.format(4) + "EOF\n")
    place = only.settings["tensor_model_parallel_size"].location
    assert (place.path, place.line, place.column) == ("launch.sh", 5, 74)


@pytest.mark.parametrize("makes", ["CMD=$(cat <<EOF\n{}EOF\n)\n", "read -r -d '' CMD <<EOF || true\n{}EOF\n"])
def test_a_document_may_be_a_variables_text(makes: str) -> None:
    assert tensor_size("#!/bin/bash\nTP=4\n" + makes.format(LAUNCH.format("$TP")) + 'srun bash -c "cd /x && $CMD"\n') == 4


def test_documents_in_documents_end() -> None:
    text = LAUNCH.format(4)
    for depth in range(40):
        text = f"bash <<'E{depth}'\n{text}E{depth}\n"
    assert configurations("#!/bin/bash\n" + text) == ()


def test_overrides_in_a_string_for_another_shell_count() -> None:
    overrides = "train.iters=5 model.tensor_model_parallel_size=$TP model.num_layers=3"
    (only,) = configurations(f'#!/bin/bash\nTP=4\nO="{overrides}"\nsrun bash -c "python a.py $O"\n')
    assert only.section == "model"
    assert only.settings["tensor_model_parallel_size"].value == 4


def test_a_function_whose_brace_stands_alone_makes_no_other_language() -> None:
    assert tensor_size("usage()\n{\n  echo no\n}\n" + LAUNCH.format(4)) == 4
