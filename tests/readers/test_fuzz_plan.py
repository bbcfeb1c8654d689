"""No text makes the plan readers do anything but give a plan or a located problem."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_plan_json import EXAMPLE, RICH
from test_plan_round_trip import EVERYTHING, assert_round_trips

from tests.sampling import sampled
from tvlint.readers.document import Document, ReadError
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer
from tvlint.reporters.plan import text as text_writer

READERS = {"text": plan_text, "json": plan_json}
SEEDS = {"text": EVERYTHING, "json": RICH}
TOKENS = [
    "=", "(", ")", "[", "]", "{", "}", ",", ":", "->", "-", "!", "`", '"', "\\", "#", "\n", "\r", "\x00", "\ud800", "\u2028",
    "_", "None", "over", "backward", "of", "ranks", "mesh", "program", "segment", "run", "tp", "grad(", "99999999999999999999",
    "-1", "0-99999999", "1e999", "nan", "²", "٣", "null", "true",
]  # fmt: skip


def read(kind: str, text: str) -> Document | None:
    """The document, or None where the reader names a place in the text that it cannot read."""
    READERS[kind].recognise(text)
    try:
        return READERS[kind].read("fuzz", text)
    except ReadError as error:
        problem = error.problem
    place = problem.location
    assert place.path == "fuzz"
    assert place.line is not None
    assert 1 <= place.line <= text.count("\n") + 1
    assert place.column is not None
    assert place.column >= 1
    assert problem.message
    return None


@pytest.mark.parametrize("kind", ["text", "json"])
@settings(max_examples=150)
@given(text=st.text(alphabet=st.one_of(st.characters(), st.sampled_from('{}[]",:=()`#\n\\')), max_size=200))
def test_any_text(kind: str, text: str) -> None:
    read(kind, text)


@pytest.mark.parametrize("kind", ["text", "json"])
@settings(max_examples=400)
@given(seed=st.integers(0, 2**32))
def test_damaged_plans(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    text = SEEDS[kind]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(4):
            case 0:
                text = text[:at] + chance.choice(TOKENS) + text[at:]
            case 1:
                text = text[:at] + text[at + chance.randint(1, 20) :]
            case 2:
                other = chance.randrange(len(text) + 1)
                text = text[:at] + text[other : other + chance.randint(1, 80)] + text[at:]
            case _:
                text = text[:at] + chance.choice(TOKENS) + text[at + 1 :]
    document = read(kind, text)
    if document is not None:
        assert document.plan is not None
        assert_round_trips(document.plan)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_truncated_plans(kind: str) -> None:
    text = SEEDS[kind]
    for end in range(0, len(text), 37):
        read(kind, text[:end])


@pytest.mark.parametrize(
    "text",
    sampled(
        [
            "program\n  y = f(" + "[" * 100_000,
            "program\n  y = f(" + "[" * 90 + "]" * 90 + ")\n",
            "mesh " + " ".join(f"a{index}=2" for index in range(5000)),
            "program ranks " + ",".join(["0"] * 100_000),
            "tensor x f32[" + "1," * 100_000 + "]",
            'plan "' + "a" * 1_000_000,
            "`" * 100_000,
            "program\n  run f micro-batch 0-999999999\n",
            "mesh a=1048576\nprogram ranks 0-1048575,0-1048575,0-1048575\n",
            "y" * 1_000_000,
            "program\n  y = f(" + "9" * 1_000_000 + ")\n",
            "program\n" + "  a = b\n" * 3,
        ],
        3,
    ),
    ids=range(12),
)
def test_hostile_text(text: str) -> None:
    read("text", text)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, '{"tvlint_plan": 1, "x": "' + "\\u0000" * 1000 + '"}', '{"tvlint_plan": 2}',
     "null", "1" * 5000, "NaN",
     '{"a": 1, "a": 1}', EXAMPLE.replace('"size": 2', '"size": 1048576'), "\ufeff{}", '{"\ud800": 1}'],
    ids=range(11),
)  # fmt: skip
def test_hostile_json(text: str) -> None:
    read("json", text)


def test_large_plans_are_read_and_written() -> None:
    lines = [f'  y{index}: f32[4,8] = gelu(y{index - 1}, approximate="tanh")' for index in range(1, 3000)]
    plan = plan_text.read("large.plan", "mesh tp=2\ninput y0 f32[4,8]\nprogram\n" + "\n".join(lines)).plan
    assert plan is not None
    assert len(text_writer.write(plan).split("\n")) < 3010
    assert plan_json.read("large.json", json_writer.write(plan)).plan is not None
