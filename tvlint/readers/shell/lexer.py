"""Words of a command that stands in a string (`eval "$cmd"`, `bash -c "..."`), with the places they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.shell.values import Choice, Fork, Gap, Hole, Item, Piece, Text, Word, slice_text

NAME = Pattern(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
BLANK = Pattern(r"<[A-Za-z][^<>|&;()\n]{0,199}[A-Za-z_.]>")
"""What a template leaves open in a text (`<path of the repository>`), which a shell would take for redirections."""
DEEPEST = 20


@dataclass(slots=True)
class _Reading:
    lookup: Callable[[str], tuple[Piece, ...] | None]
    depth: int
    commands: list[tuple[Item, ...]] = field(default_factory=list)
    words: list[Item] = field(default_factory=list)
    word: list[Piece] = field(default_factory=list)
    quote: str = ""
    redirects: bool = False

    def end_word(self) -> None:
        if self.word and not self.redirects:
            self.words.append(self._item())
        if self.word:
            self.redirects = False
        self.word = []

    def _item(self) -> Item:
        only = self.word[0]
        if len(self.word) == 1 and isinstance(only, Hole):
            return Gap(only.reason, only.span)
        if len(self.word) == 1 and isinstance(only, Choice):
            alternatives = tuple(
                tuple(item for words in commands_in(pieces, self.lookup, self.depth + 1) for item in words)
                for pieces in only.alternatives
            )
            return Fork(alternatives, only.reason, only.span, only.weight)
        return Word(tuple(self.word))

    def end_command(self) -> None:
        self.end_word()
        if self.words:
            self.commands.append(tuple(self.words))
        self.words = []


def commands_in(
    pieces: Sequence[Piece], lookup: Callable[[str], tuple[Piece, ...] | None], depth: int = 0
) -> list[tuple[Item, ...]]:
    """Return the commands in a text, each as its words; `lookup` gives the text of a variable that the text itself names."""
    reading = _Reading(lookup, depth)
    if depth > DEEPEST:
        return []
    for piece in pieces:
        if isinstance(piece, Text):
            _scan(reading, piece)
        else:
            reading.word.append(piece)
    reading.end_command()
    return reading.commands


def _scan(reading: _Reading, piece: Text) -> None:
    text = piece.text
    place = 0
    while place < len(text):
        character = text[place]
        if reading.quote:
            place = _quoted(reading, piece, place)
        elif character in "'\"":
            reading.quote = character
            reading.word.append(slice_text(piece, place + 1, place + 1))
            place += 1
        elif character in " \t\r":
            reading.end_word()
            place += 1
        elif character in "\n;&|":
            reading.end_command()
            place += 1
        elif character == "<" and (blank := BLANK.match(text, place)):
            reading.word.append(Hole("a blank to be filled in", slice_text(piece, place, blank.end()).span))
            place = blank.end()
        elif character in "<>":
            reading.redirects = True
            reading.word = []
            place += 1
        elif character == "#" and not reading.word:
            place = _line_end(text, place)
        else:
            place = _plain(reading, piece, place)


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end == -1 else end


def _quoted(reading: _Reading, piece: Text, place: int) -> int:
    text = piece.text
    if text[place] == reading.quote:
        reading.quote = ""
        return place + 1
    if reading.quote == '"' and text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`", "\n"):
        if text[place + 1] != "\n":
            reading.word.append(slice_text(piece, place + 1, place + 2))
        return place + 2
    if reading.quote == '"' and text[place] == "$":
        return _dollar(reading, piece, place)
    stops = "'" if reading.quote == "'" else '"\\$'
    return _run(reading, piece, place, stops)


def _plain(reading: _Reading, piece: Text, place: int) -> int:
    text = piece.text
    if text[place] == "\\":
        if text[place + 1 : place + 2] not in ("\n", ""):
            reading.word.append(slice_text(piece, place + 1, place + 2))
        return place + 2
    if text[place] == "$":
        return _dollar(reading, piece, place)
    return _run(reading, piece, place, " \t\r\n;&|<>'\"\\$")


def _run(reading: _Reading, piece: Text, place: int, stops: str) -> int:
    end = place + 1
    while end < len(piece.text) and piece.text[end] not in stops:
        end += 1
    reading.word.append(slice_text(piece, place, end))
    return end


def _dollar(reading: _Reading, piece: Text, place: int) -> int:
    match = NAME.match(piece.text, place)
    if match is None:
        reading.word.append(Hole("depends on an expansion inside a string", piece.span))
        return place + 1
    name = match[1] or match[2]
    found = reading.lookup(name)
    if found is None:
        reading.word.append(Hole(f"`{name}` is not set in the file", slice_text(piece, place, match.end()).span))
    else:
        reading.word.extend(found)
    return match.end()
