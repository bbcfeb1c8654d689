"""The expression language of rule pages: what it computes, and that unknowns and wrong values stay unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.expression_language import MAX_DEPTH, verify
from tvlint.ir.configuration import Unknown
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.evaluation import Result, evaluate_expression
from tvlint.rulebook.language.expression import ExpressionError, names, parse
from tvlint.rulebook.language.functions import FUNCTIONS, MAX_MAGNITUDE
from tvlint.rulebook.language.template import fill, fill_known
from tvlint.rulebook.language.version import holds_for, is_assumed
from tvlint.rulebook.megatron.layer_pattern import list_pattern_length
from tvlint.rulebook.megatron.pipeline_layout import parse_layout

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "writing-rules.md"


def value(text: str, /, **settings: Any) -> Result:
    """The value of an expression where `settings` are given; a name that is not given is unknown."""
    return evaluate_expression(
        parse(text), lambda name: settings.get(name, Unknown(f"`{name}` is not given")), lambda name: name in settings
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 // 2 - 7 % 4", 0),
        ("2 - 3 - 4", -5),
        ("12 // 3 // 2", 2),
        ("-2 * -3", 6),
        ("6 / 4", 1.5),
        ("not 1 == 2 and 3 > 2", True),
        ("true or false and false", True),
        ("'a' in ['a', 'b']", True),
        ("3 not in [1, 2]", True),
        ("1 == 1.0", True),
        ("none == none", True),
        ("0 == none", False),
        ("'x' if 1 > 2 else 'y'", "y"),
        ("1 if false else 2 if false else 3", 3),
        ("divides(4, 48)", True),
        ("divides(4, 47)", False),
        ("exact(48, 4)", 12),
        ("lcm(4, 6)", 12),
        ("gcd(4, 6)", 2),
        ("min(3, 1, 2) + max([4, 5])", 6),
        ("default(none, 5)", 5),
        ("default(0, 5)", 0),
        ("len([1, 2]) + len('abc')", 3),
        ("product([2, 3, 4])", 24),
        ("others(['a', 'b'], ['a'])", ("b",)),
        ("others('c', ['a'])", ("c",)),
        ("contains('a2a+p2p', 'p2p')", True),
        ("multiple_above(50257, 128)", 50304),
        ("nearest_multiple(47, 2)", "46 or 48"),
        ("nearest_multiple(48, 2)", "48"),
        ("nearest_multiple(3, 8)", "8"),
        ("divisors_near(12, 8)", "6 or 12"),
        ("divisors_near(7, 8)", "7"),
        ("layout_stages('Et*3|(tt|)*2L')", 4),
        ("layout_count('Et*3|(tt|)*2L', 't')", 7),
        ("layout_empty_stages('Et||tL|')", 2),
        ("is_layout('Et|x')", False),
    ],
)
def test_a_known_expression_has_its_value(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x and false", False),
        ("false and x", False),
        ("x or true", True),
        ("not (x and false)", True),
        ("2 if x else 2", 2),
        ("known(x)", False),
        ("known(1 // 0)", False),
        ("known(none)", True),
    ],
)
def test_what_is_decided_anyway_is_known(text: str, expected: object) -> None:
    assert value(text) is expected or value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x and true",
        "x or false",
        "x == x",
        "1 if x else 2",
        "x in [1]",
        "[x] == [1]",
        "x * 0",
        "'a' == 1",
        "'a' < 'b'",
        "true + 1",
        "'a' + 1",
        "none > 0",
        "1 and true",
        "1 in 2",
        "'1' in [1]",
        "1 // 0",
        "1 % 0",
        "4 % -2",
        "1 / 0",
        "divides(0, 4)",
        "divides(1.5, 3)",
        "divides(2, '4')",
        "divides(true, 4)",
        "exact(7, 2)",
        "lcm(0, 3)",
        "len(3)",
        "nearest_multiple(4, 0)",
        "layout_stages('Et|x')",
        "is_layout('${LAYOUT}')",
        "is_layout('(t*99999)*99999')",
        "min('a', 2)",
        "1000000000000000000000000000000 * 1000000000000000000000000000000",
    ],
)
def test_what_cannot_be_told_is_unknown_and_says_why(text: str) -> None:
    found = value(text)
    assert isinstance(found, Unknown)
    assert found.reason


@pytest.mark.parametrize(
    "text", ["", "1 +", "(1", "1 2", "a b", "[1", "f(1", "1 if 2", "1 < 2 < 3", "not", "a = 1", "a; b", "`ls`", "'open", "2 in"]
)
def test_a_wrong_expression_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(ExpressionError):
        verify(parse(text))


@pytest.mark.parametrize(
    "text", ["a := 1", "[x for x in a]", "lambda: 1", "f'{a}'", "a.b.c", "a[0]", "f(x=1)", "f(*a)", "True", "1j", "~a"]
)
def test_what_python_has_beside_the_language_is_never_evaluated(text: str) -> None:
    with pytest.raises(ExpressionError):
        verify(parse(text))
    with pytest.raises(ExpressionError):
        value(text)


@pytest.mark.parametrize("opening", ["(", "not ", "-", "[", "abs(", "1 if a else "])
def test_depth_and_size_are_bounded(opening: str) -> None:
    with pytest.raises(ExpressionError):
        verify(parse(opening * (MAX_DEPTH + 2) + "1"))
    with pytest.raises(ExpressionError):
        verify(parse(" + ".join(["1"] * 300)))


SETTING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.text(max_size=20),
    st.just(Unknown("hidden")),
    st.lists(st.one_of(st.integers(), st.text(max_size=3)), max_size=3).map(tuple),
)


@given(SETTING, SETTING, SETTING)
def test_no_value_of_a_file_raises(a: object, b: object, c: object) -> None:
    for text in ("a + b * c - a", "a // b % c", "a / b", "a < b and b <= c", "a == b or not c", "a in [b, c]", "a if b else c"):
        value(text, a=a, b=b, c=c)


ARGUMENTS = {
    **dict.fromkeys(["abs", "is_integer", "is_layout", "layout_stages", "layout_empty_stages", "len", "product", "text"], "a"),
    **dict.fromkeys(["layout_text", "batch_schedule_sizes", "list_pattern_length", "hybrid_layers"], "a"),
    **dict.fromkeys(["hybrid_segments", "is_hybrid_pattern"], "a"),
    **dict.fromkeys(["max", "min", "lcm", "gcd"], "a, b, c"),
    "layout_list": "a",
    "hybrid_stages": "a, b, c, none",
    "split_layers": "a, b, c, none, 1, a, b, 0",
}


@given(SETTING, SETTING, SETTING, st.sampled_from(sorted(FUNCTIONS)))
def test_no_function_raises_on_a_value_of_a_file(a: object, b: object, c: object, function: str) -> None:
    value(f"{function}({ARGUMENTS.get(function, 'a, b')})", a=a, b=b, c=c)


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_integer_arithmetic_is_exact(a: int, b: int) -> None:
    assert value("a // b * b + a % b == a", a=a, b=b) is True
    assert value("divides(b, a * b)", a=a, b=b) is True
    assert value("multiple_above(a, b) % b == 0 and multiple_above(a, b) - a < b", a=a, b=b) is True


THREE = st.sampled_from([True, False, Unknown("u")])


@given(THREE, THREE)
def test_logic_is_kleenes(a: bool | Unknown, b: bool | Unknown) -> None:
    def truths(one: bool | Unknown) -> set[bool]:
        return {True, False} if isinstance(one, Unknown) else {one}

    for text, operation in (("a and b", lambda x, y: x and y), ("a or b", lambda x, y: x or y)):
        possible = {operation(x, y) for x in truths(a) for y in truths(b)}
        found = value(text, a=a, b=b)
        assert (found is next(iter(possible))) if len(possible) == 1 else isinstance(found, Unknown)


def test_set_asks_for_presence_not_value() -> None:
    assert value("set(a) and not set(b)", a=None) is True


def test_a_template_shows_values_and_a_help_with_an_unknown_is_left_out() -> None:
    settings: dict[str, Any] = {"layers": 47, "flag": True, "sizes": (2, 4), "nothing": None}

    def evaluate(expression: Any) -> Result:
        return evaluate_expression(expression, lambda name: settings.get(name, Unknown("no")), lambda name: name in settings)

    text = "{layers} of {layers + 1}, {flag}, {sizes}, {nothing}, {missing}"
    assert fill(text, evaluate) == "47 of 48, true, [2, 4], none, ?"
    assert fill_known("use {missing}", evaluate) == ""
    assert fill_known("use {nearest_multiple(layers, 2)}", evaluate) == "use 46 or 48"


def test_a_huge_number_is_not_printed() -> None:
    settings = {"a": 10**5000}
    assert fill("{a} {a * a}", lambda e: evaluate_expression(e, lambda name: settings[name], lambda name: True)) == "? ?"
    assert len(str(MAX_MAGNITUDE)) < 50


@pytest.mark.parametrize(
    ("version_range", "version", "expected"),
    [
        ("*", "", True),
        ("*", "0.1", True),
        (">=0.16", "0.16.0", True),
        (">=0.16", "core_v0.9.0", False),
        (">=0.12,<0.15", "0.14.2", True),
        (">=0.12,<0.15", "0.15", False),
        (">=0.16", "", True),
        ("!<0.9", "0.8", False),
        ("!<0.9", "0.9", True),
        ("!<0.9", "", True),
    ],
)
def test_a_version_range_holds(version_range: str, version: str, expected: bool) -> None:
    assert holds_for(version_range, version) is expected


def test_an_unstated_version_is_the_newest_and_that_is_said() -> None:
    assert isinstance(holds_for("<0.15", ""), Unknown)


def test_a_snapshot_after_a_release_may_hold_a_part_of_the_next_one() -> None:
    assert isinstance(holds_for(">=0.11,<0.13", "0.12-later"), Unknown)
    assert holds_for("<0.14", "0.12-later") is True
    assert holds_for("<0.12", "0.12-later") is False
    assert holds_for(">=0.12", "0.12-later") is True
    assert is_assumed(">=0.16", "")
    assert not is_assumed("*", "")
    assert not is_assumed("!<0.9", "")
    assert not is_assumed(">=0.16", "0.17")


@given(st.text(alphabet="EtmL|()*,19 ", max_size=30))
def test_any_text_is_a_layout_or_not(text: str) -> None:
    try:
        stages = parse_layout(text)
    except ValueError:
        return
    assert stages is None or set("".join(stages)) <= set("EtmL")


def test_every_derived_setting_parses_and_the_documentation_names_every_function() -> None:
    for name, text in DERIVED.items():
        verify(parse(text))
        assert name not in names(parse(text))
    documentation = DOCUMENTATION.read_text(encoding="utf-8")
    assert [name for name in FUNCTIONS if f"`{name}" not in documentation] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is_batch_schedule('0:768 1.5T:1536', 2048)", True),
        ("is_batch_schedule('0:768,30B:1536', 2048)", True),
        ("is_batch_schedule('1K:768 1M:1536', 1)", False),
        ("is_batch_schedule('0:768 1K:1536', 2048)", False),
        ("is_batch_schedule('0:768 1536', 2048)", False),
        ("is_batch_schedule('', 2048)", False),
        ("batch_schedule_sizes('1M:32, 0:16')", (16, 32)),
        ("not_multiples([8, 12, 16], 8)", (12,)),
        ("list_pattern_length('([0]*3 + [1]*45)')", 48),
        ("list_pattern_length('([1, 1]+[0]*1)*3')", 9),
        ("hybrid_layers('M-M*|M-/MM')", 6),
        ("hybrid_segments('M-M*|M-/M|M')", 2),
        ("is_hybrid_pattern('M-M*|ME/M*/M*')", True),
        ("is_hybrid_pattern('M-M*X')", False),
        ("is_hybrid_pattern('M-M*/M*/MM')", False),
        ("is_hybrid_pattern('M*+')", False),
        ("is_hybrid_pattern('M-/M|M')", False),
        ("layout_stages_with('Ett|tm|mL', 'm')", (1, 2)),
        ("layout_text('Et*2|tL')", "EtttL"),
        ("ends_with('EtL', 'L')", True),
    ],
)
def test_schedules_and_patterns_are_read(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "list_pattern_length('[0]*3+')",
        "list_pattern_length('[0]*[1]')",
        "list_pattern_length('([0]')",
        "list_pattern_length('__import__')",
        "list_pattern_length('[0]*999999999')",
        "list_pattern_length('3')",
        "list_pattern_length('[,]')",
        "list_pattern_length('[1,,0]')",
        "hybrid_layers('$PATTERN')",
        "is_hybrid_pattern('$PATTERN')",
        "batch_schedule_sizes('$SCHEDULE')",
        "is_batch_schedule('0:768', 0)",
    ],
)
def test_a_pattern_that_cannot_be_read_is_unknown(text: str) -> None:
    assert isinstance(value(text), Unknown)


@pytest.mark.parametrize("text", ["[0]*01", "[01]", "[1 2]", "[0]*1 0", "[0]*1234567890"])
def test_a_list_pattern_that_python_refuses_or_no_model_has_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="the pattern is not a list expression"):
        list_pattern_length(text)


@given(st.text(alphabet="[](),*+019 ", max_size=40))
def test_any_text_is_a_list_pattern_or_not(text: str) -> None:
    try:
        length = list_pattern_length(text)
    except ValueError:
        return
    assert length == len(eval(text))
