"""Operators that a project declares: what that means, what is wrong with them where, and what proofs make of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tests.equivalence.models.test_attention import plans
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import Compute, Literal
from tvlint.ops.annotations.bracketed import without_bracketed
from tvlint.ops.annotations.declared import Declared
from tvlint.ops.declaring import with_declared
from tvlint.ops.spec import Call, UnsupportedError
from tvlint.ops.table import meant, spec_of
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.run.project.project_file import ProjectError, load
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FOLDER = ROOT / "fixtures" / "clean" / "generated-code"
SILU = Declared("my.silu", "* -> *")


def problems(folder: Path, text: str) -> list[tuple[int | None, str]]:
    path = folder / "tvlint.toml"
    path.write_text(text)
    with pytest.raises(ProjectError) as told:
        load(path, "tvlint.toml")
    return [(problem.location.line, f"{problem.message}; {problem.help}") for problem in told.value.problems]


def test_declarations_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tvlint.toml"
    path.write_text(
        '[[operator]]\nname = "a.norm"\nannotation = "b h^ -> b h^"\nlinear-in = [0]\n'
        '[[operator]]\nname = "f"\nsame-as = "torch.relu"\n'
    )
    found = load(path, "tvlint.toml").operators
    assert found == (Declared("a.norm", "b h^ -> b h^", ((0,),)), Declared("f", same_as="torch.relu"))


def test_operands_are_named_as_well_as_counted(tmp_path: Path) -> None:
    path = tmp_path / "tvlint.toml"
    named = 'arguments = ["x", "w", "b"]\nlinear-in = ["x", ["w", 2]]\n'
    path.write_text(f'[[operator]]\nname = "f"\nannotation = "* k+, n k+, n -> * n"\n{named}')
    assert load(path, "tvlint.toml").operators == (Declared("f", "* k+, n k+, n -> * n", ((0,), (1, 2))),)


@pytest.mark.parametrize(
    ("annotation", "shapes", "sizes"),
    [
        ("* (2 h^) -> * h^", ((4, 6),), {"h": 3}),
        ("b (h d) -> b (h d)", ((4, 6),), {}),
        ("b (h^ d^), h^ -> b h^ d^", ((4, 6), (2,)), {"d": 3}),
        ("b h^ d^ -> b (h^ d^)", ((4, 2, 3),), {"(h d)": 6}),
        ("* (2 h^) -> * h^", ((4, 7),), None),
        ("(a^ b^) -> a^", ((4,),), None),
    ],
)
def test_dimensions_in_brackets_have_the_size_of_their_product(
    annotation: str, shapes: tuple[tuple[int, ...], ...], sizes: dict[str, int] | None
) -> None:
    spec = spec_of(meant("m.f", (Declared("f", annotation),)))
    assert spec is not None
    if sizes is None:
        with pytest.raises(UnsupportedError):
            spec.bind(Call("f", shapes, {}))
    else:
        assert spec.bind(Call("f", shapes, {})).sizes == sizes


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('annotation = "a -> a"', 1, "needs `name`"),
        ('name = "f"', 1, "needs `annotation` or `same-as`"),
        ('name = "f"\nanotation = "a -> a"', 3, "did you mean `annotation`"),
        ('name = "f g"\nannotation = "a -> a"', 2, "no name of a function"),
        ('name = "torch.relu"\nannotation = "* -> *"', 2, "`torch.relu` is an operator that tvlint knows"),
        ('name = "f"\nannotation = "a b"', 3, "one `->`"),
        ('name = "f"\nannotation = "a -> b"', 3, "the dimension `b` of a result is in no operand"),
        ('name = "f"\nannotation = "a b -> a"', 3, "mark it `b+`"),
        ('name = "f"\nannotation = "a+ -> a"', 3, "summed over and is in a result"),
        ('name = "f"\nannotation = "a (b c) -> a"', 3, "the dimension `b` is in no result"),
        ('name = "f"\nannotation = "(b c -> b"', 3, "`(` is not understood"),
        ('name = "f"\nannotation = "(b-c) -> (b-c)"', 3, "in brackets stand names and numbers"),
        ('name = "f"\nannotation = "(b *) -> (b *)"', 3, "in brackets stand names and numbers"),
        ('name = "f"\nannotation = "* a * -> *"', 3, "once in a tensor"),
        ('name = "f"\nannotation = "a a -> a"', 3, "twice"),
        ('name = "f"\nannotation = "a, -> a"', 3, "without dimensions"),
        ('name = "f"\nannotation = "a -> a"\nlinear-in = [1]', 4, "no operand 1"),
        ('name = "f"\nannotation = "a -> a"\nlinear-in = [true]', 4, "must be a list of operands"),
        ('name = "f"\nannotation = "a -> a"\nlinear-in = ["x"]', 4, "`x` needs `arguments`"),
        ('name = "f"\nannotation = "a -> a"\narguments = ["y"]\nlinear-in = ["x"]', 5, "no operand `x` in `arguments`"),
        ('name = "f"\nannotation = "a, a -> a"\narguments = ["y"]', 4, "1 argument, and the annotation has 2 operands"),
        ('name = "dist.all_reduce"\nsame-as = "print"', 2, "`dist.all_reduce` exchanges values with other ranks"),
        ('name = "torch.distributed.broadcast"\nannotation = "* -> *"', 2, "exchanges values with other ranks"),
        ('name = "barrier"\nsame-as = "print"', 2, "exchanges values with other ranks"),
        ('name = "my.AdamW"\nsame-as = "print"', 3, "known as a function with an effect (optimizer)"),
        ('name = "f"\nsame-as = "torch.rely"', 3, "did you mean `torch.relu`"),
        ('name = "f"\nsame-as = "torch.relu"\nannotation = "* -> *"', 3, "leave `annotation`"),
        ('name = "f"\nannotation = "a -> a"\n[[operator]]\nname = "f"\nannotation = "a -> a"', 5, "declared twice"),
    ],
)
def test_a_wrong_declaration_is_told_at_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    found = problems(tmp_path, f"[[operator]]\n{text}\n")
    assert len(found) == 1
    assert found[0][0] == line
    assert said in found[0][1]


def test_the_name_that_carries_a_declaration_is_not_shown() -> None:
    text = "weight w f32[4,4]\ninput x f32[4,4]\nloss l\nprogram\n  y = linear(x, w)\n{}  l = sum(y)\n"
    text += "  dy = backward l (grad(l))\n  _, grad(w) = backward y (dy)\n"
    parallel, reference = plans(text.format("  my.note(w!)\n"), text.format(""))
    verdict = prove(with_declared(parallel, [Declared("my.note", same_as="print")]), reference)
    assert [reason.message for reason in verdict.reasons if "my.note" in reason.message]
    assert not [reason.message for reason in verdict.reasons if "declared(" in reason.message]


def test_a_declaration_is_about_a_function_of_that_name_and_no_framework_s() -> None:
    assert meant("model.my.silu", (SILU,)) == "declared(* -> *|).model.my.silu"
    assert meant("model.silu", (SILU,)) == "model.silu"
    assert meant("notmy.silu", (SILU,)) == "notmy.silu"
    for name in ("torch.nn.functional.silu", "F.silu", "nn.functional.silu", "aten.silu", "torch.ops.aten.silu.default"):
        assert meant(name, (Declared("silu", "a+ -> 1"), Declared(name, same_as="torch.clone"))) == name


def test_the_declaration_that_names_more_of_the_function_counts_in_any_order() -> None:
    anywhere, own = Declared("act", "* -> *", ((0,),)), Declared("my.act", "* -> *")
    assert meant("my.act", (anywhere, own)) == meant("my.act", (own, anywhere)) == "declared(* -> *|).my.act"
    assert meant("other.act", (own, anywhere)) == "declared(* -> *|0).other.act"


def test_the_name_of_a_declared_operator_says_what_it_means() -> None:
    spec = spec_of(meant("m.f", (Declared("f", "* k+, n^ k+ -> * n^", ((0,), (1,))),)))
    assert spec is not None
    assert (
        spec.assumption == "`m.f` is the function its declaration describes: * k+, n^ k+ -> * n^, linear in operand 0 and in 1"
    )
    bound = spec.bind(Call("f", ((2, 3, 4), (5, 4), Literal(7)), {"eps": 1.0}))
    assert bound.operands == (("*0", "*1", "k"), ("n", "k"))
    assert bound.outputs == (("*0", "*1", "n"),)
    assert (bound.reduced, bound.whole) == ({"k"}, {"n"})
    assert bound.linear == (frozenset({0}), frozenset({1}))
    assert bound.attributes == (((2, 7),), (("eps", ("float", "1.0")),))
    for shapes in (((2, 3),), ((2, 3), (4,)), ((), (5, 4))):
        with pytest.raises(UnsupportedError):
            spec.bind(Call("f", shapes, {}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped folder, with an activation function of the project's own in place of `silu`."""
    copy = Path(shutil.copytree(FOLDER, tmp_path / "code"))
    for file in copy.glob("gencode*.py"):
        text = re.sub(r"(silu\(\w+), inplace=False\)", r"\1)", file.read_text())
        file.write_text(
            text.replace("torch.nn.functional.silu(", "my.silu(").replace("import torch\n", "import torch\nimport my\n", 1)
        )
    text = (FOLDER / "reference.plan").read_text()
    assert "silu" in text
    (tmp_path / "reference.plan").write_text(text.replace("silu", "my.silu"))
    return copy


def verdict(folder: Path, *operators: Declared) -> tuple[Outcome, str]:
    report = prove_pair(Pair(str(folder), str(folder.parent / "reference.plan"), operators=operators))
    assert report.problems == ()
    found = report.verdicts[0]
    return found.outcome, "\n".join((*found.assumptions, *(reason.message for reason in found.reasons)))


def test_without_a_declaration_nothing_is_decided_and_the_lines_to_add_are_told(folder: Path) -> None:
    outcome, said = verdict(folder)
    assert outcome is Outcome.UNKNOWN
    assert "`[[operator]]` `name = 'silu'`" in said


def test_a_declared_operator_is_proved_under_that_assumption(folder: Path) -> None:
    outcome, said = verdict(folder, SILU)
    assert outcome is Outcome.PROVED
    assert "`my.silu` is the function its declaration describes" in said


@pytest.mark.heavy
def test_a_declaration_that_forbids_a_split_does_not_prove_it(folder: Path) -> None:
    assert verdict(folder, Declared("silu", "a b^ -> a b^"))[0] is not Outcome.PROVED


@pytest.mark.heavy
def test_an_operator_that_is_the_same_as_a_known_one_is_proved_against_it(folder: Path) -> None:
    same = Declared("silu", same_as="torch.nn.functional.silu")
    (folder.parent / "reference.plan").write_text((FOLDER / "reference.plan").read_text())
    outcome, said = verdict(folder, same)
    assert outcome is Outcome.PROVED
    assert "`my.silu` computes what `torch.nn.functional.silu` does" in said
    assert verdict(folder, Declared("silu", same_as="torch.nn.functional.gelu"))[0] is not Outcome.PROVED
    assert verdict(folder, SILU)[0] is not Outcome.PROVED


def test_no_file_declares_its_own_operators(folder: Path) -> None:
    path = folder.parent / "reference.plan"
    text = path.read_text()
    path.write_text(text.replace("my.silu", '"declared(* -> *|).my.silu"'))
    with pytest.raises(ReadError):
        read(str(path))


LANGUAGE = {
    "a number": ("b 64 -> b 64", ((4, 64),), (("b", "64#0.1"),), ()),
    "a marked number": ("b 3^ -> b", ((4, 3),), (("b", "3#0.1"),), ()),
    "any tensor": ("a, ? -> a", ((4,), (2, 3)), (("a",), ("?1.0", "?1.1")), ()),
    "a constant": ("a, ? -> a", ((4,), Literal(None)), (("a",),), ()),
    "the middle": ("a * b^ -> a *", ((4, 2, 3, 5),), (("a", "*0", "*1", "b"),), ()),
    "twice": ("o k^ k^ -> o", ((4, 3, 3),), (("o", "k", "k~1"),), ()),
    "results": ("a b -> a, b, a b", ((4, 2),), (("a", "b"),), ()),
    "a size by name": ("(a b^) -> a b^", ((12,),), (("(a b)",),), (("b", 3),)),
}


@pytest.mark.parametrize("name", list(LANGUAGE))
def test_what_an_annotation_of_nnscaler_may_say_is_taken(name: str) -> None:
    annotation, inputs, operands, words = LANGUAGE[name]
    spec = spec_of(meant("m.f", (Declared("f", annotation),)))
    assert spec is not None
    bound = spec.bind(Call("f", inputs, dict(words)))
    assert bound.operands == operands
    split = {own for names in operands for own in names if (own[0] in "ab*" and own != "b") or own == "o"}
    assert bound.whole >= {own for names in operands for own in names} - split - {"b"}
    assert not bound.whole & (split - {"(a b)"})


@pytest.mark.parametrize("shapes", [((4, 63),), ((4, 3, 64),)])
def test_a_number_is_a_size(shapes: tuple[tuple[int, ...], ...]) -> None:
    spec = spec_of(meant("m.f", (Declared("f", "b 64 -> b 64"),)))
    assert spec is not None
    with pytest.raises(UnsupportedError):
        spec.bind(Call("f", shapes, {}))


def test_dimensions_in_brackets_are_dimensions_of_views() -> None:
    declared = Declared("f", "b (h+ d^ 3), h+ -> b (2 d^)")
    call = Compute(meant("m.f", (declared,)), ("x", "w"), ("y",), {"d": 4, "eps": 1.0})
    first, own, last = without_bracketed(call, {"x": (5, 24), "w": (2,)})
    assert (first.op, first.inputs, first.attributes) == ("torch.Tensor.view", ("x",), {"size": (5, 2, 4, 3)})
    assert own.op == meant("m.f", (Declared("f", "b h+ d^ 3, h+ -> b 2 d^"),))
    assert (own.inputs, own.outputs, own.attributes) == ((*first.outputs, "w"), ("y.as",), {"eps": 1.0})
    assert (last.inputs, last.outputs, last.attributes) == (("y.as",), ("y",), {"size": (5, 8)})
    assert without_bracketed(call, {"x": (5, 25), "w": (2,)}) == (call,)
    assert without_bracketed(call, {"x": (5, 24)}) == (call,)


def test_a_bracket_is_split_only_where_it_can_be_followed() -> None:
    for annotation, whole in (
        ("(a b) -> (a b)", set()),
        ("(a b) c, b -> (a b) c", {"(a b)", "a", "b"}),
        ("(a 2) -> (a 2)", {"(a 2)", "a"}),
    ):
        spec = spec_of(meant("m.f", (Declared("f", annotation),)))
        assert spec is not None
        shapes = ((4, 3), (2,)) if "," in annotation else ((4,),)
        assert spec.bind(Call("f", shapes, {})).whole == whole


def test_what_draws_random_numbers_draws_them_for_its_first_operand() -> None:
    spec = spec_of(meant("m.f", (Declared("f", "b *, b -> b *", random=True),)))
    assert spec is not None
    assert spec.may_draw
    assert "with random numbers" in spec.assumption
    draws = spec.bind(Call("f", ((4, 2), (4,)), {})).draws
    assert draws is not None
    assert (draws.names, draws.of) == (("b", "*0"), (0,))
