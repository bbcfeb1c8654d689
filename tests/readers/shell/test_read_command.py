"""What `read` takes from a text that the script gives it."""

import pytest

from tvlint.readers.shell.evaluate import evaluate
from tvlint.readers.shell.values import Array, Scalar, Word, known_text, source_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('L="4 2"\nread -ra X <<< "$L"\n', ["4", "2"]),
        ("read -a X <<< '4 2'\n", ["4", "2"]),
        ("read Y X <<< '4 2 1'\n", "2 1"),
        ("read -r X Y <<< '4 2 1'\n", "4"),
        ("read X Y <<< '4'\n", "4"),
        ("read Y X <<< '4'\n", ""),
        ("IFS=, read -ra X <<< '4,2'\n", None),
        ("IFS=,\nread -ra X <<< '4,2'\n", None),
        ("read -n 1 X <<< '42'\n", None),
        ("read X < file\n", None),
        ('read X <<< "$1"\n', None),
    ],
)
def test_words_of_a_given_text_are_read(text: str, expected: str | list[str] | None) -> None:
    value = evaluate(source_of("train.sh", text.encode())).variables["X"]
    if isinstance(value, Array):
        assert [known_text(item.pieces) for item in value.items if isinstance(item, Word)] == expected
    else:
        assert isinstance(value, Scalar)
        assert known_text(value.pieces) == expected
