"""Find where a shell stops reading a script, as `bash -n` does, in one pass over its text.

A script of which it is not known what the shell makes of it is not refused. What is left open: text in backticks and
here-documents, which a shell reads only when it runs it, `coproc`, `$[...]`, extended patterns, quotes in expansions in quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass

DEEPEST = 60
"""So many levels of nesting are followed."""
_MOST_SHOWN = 40
"""So many characters of a word are shown."""
ATTEMPTS = 20
"""So often double brackets are read anew as brackets in brackets."""
PLAIN = Pattern(r"[^ \t\n;&|<>()\\'\"`$?*+@!]+")
WORD = Pattern(r"[^ \t\n;&|<>()\\'\"`$]+")
ONE_WORD = Pattern(r"[^ \t\n<>]+[ \t]*")
OPENS_SUBSCRIPT = Pattern(r"[ \t\n()<>;&|'\"`]")
SIMPLY_QUOTED = {sign: Pattern(rf"[^\\{sign}]+") for sign in "'`"}
UNQUOTED = Pattern(r"""\\(.)|["']""")
QUOTED = Pattern(r'[^\\"`$]+')
EXPANDED = Pattern(r"[^\\'\"`$}]+")
COUNTED = Pattern(r"[^\\'\"`$()]+")
SPACES = Pattern(r"(?:[ \t]|\\\n)+")
COMMENT = Pattern(r"#[^\n]*")
REDIRECTION = Pattern(r"&>>|&>|<<<|<<-|<<|<&|<>|>>|>&|>\||[<>](?!\()")
NAME = Pattern(r"[A-Za-z_][A-Za-z_0-9]*\+?=")
SUBSCRIPT = Pattern(r"[A-Za-z_][A-Za-z_0-9]*\[")
CLOSED_BY = {"then": "if", "elif": "if", "else": "if", "fi": "if", "do": "for", "done": "for", "esac": "case", "}": "{"}
"""Words that only go on with what another word, or one like it, has opened."""
COMPOUNDS = frozenset({"if", "while", "until", "for", "select", "case", "function", "{", "[["})
LOOPS = frozenset({"while", "until", "for", "select"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Where a shell stops, with what is wrong there."""

    start: int
    end: int
    message: str
    help: str


class _Refused(Exception):
    """The shell refuses the script."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Unclear(Exception):
    """What the shell makes of the script is not known."""


def refusal(text: str) -> Refusal | None:
    """Return where a shell stops reading `text`; None where it reads all of it, or where that is not known.

    What is no ASCII counts as a letter, so that `text` may be bytes, each as one character.
    """
    reader = _Reader(text)
    try:
        reader.commands(frozenset({""}))
    except _Refused as refused:
        return refused.refusal
    except _Unclear:
        return None
    return None


class _Reader:
    """Reads a script from its start; `at` is the place of what is read next."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._attempts = 0
        self._open: list[tuple[str, int]] = []
        self._documents: list[tuple[str, bool]] = []
        """The ends of here-documents that begin on the next line, and whether tabs before them count for nothing."""

    def commands(self, ends: frozenset[str], *, may_be_empty: bool = False) -> str:
        """Read commands up to a word or sign of `ends`, which is read too, and return that; the end of the text is ""."""
        wanted, empty = False, not may_be_empty and "" not in ends
        while True:
            self._skip_lines()
            found = self._closing()
            if found is not None:
                if found not in ends or wanted or empty:
                    self._refuse_closing(found, ends, "behind `&&` or `||`" if wanted else "")
                self.at += len(found)
                return found
            self._pipeline()
            empty, wanted = False, False
            self._skip_spaces()
            if self._takes("&&") or self._takes("||"):
                wanted = True
            elif self.text.startswith((";;", ";&"), self.at) or self._peek() == "\n" or self._closing() is not None:
                continue
            elif not (self._takes(";") or self._takes("&")):
                self._refuse()

    def _closing(self) -> str | None:
        """Return the word or sign that closes something, where it comes next; "" at the end of the text."""
        if self.at >= len(self.text):
            return ""
        for sign in (";;&", ";;", ";&", ")"):
            if self.text.startswith(sign, self.at):
                return sign
        word = self._reserved()
        return word if word in CLOSED_BY else None

    def _refuse_closing(self, found: str, ends: frozenset[str], after: str) -> NoReturn:
        """Refuse what closes nothing, or closes too early."""
        if found == "":
            self._refuse_end(after)
        if found in ends:
            self._refuse(found, f"no command stands before `{found}`", "write `:` where nothing is to be done")
        opener = CLOSED_BY.get(found)
        if not any(word == opener or (opener == "for" and word in LOOPS) for word, _ in self._open):
            names = {"for": "no loop is open", None: "nothing is open that it closes"}
            text = names.get(opener, f"no `{opener}` is open")
            self._refuse(found, f"`{found}` stands where {text}", "take it out, or open what it closes")
        self._refuse(found, f"`{found}` stands where {self._needed(_either(ends))}", "close first what was opened last")

    def _needed(self, what: str) -> str:
        """Return what the innermost that is open goes on with."""
        word, start = self._open[-1]
        return f"`{word}` of line {self.text.count(chr(10), 0, start) + 1} needs {what}"

    def _pipeline(self) -> None:
        while True:
            while (word := self._reserved()) in ("!", "time"):
                self.at += len(word)
                self._skip_spaces()
                if word == "time" and self._reserved() == "-p":
                    self.at += 2
                    self._skip_spaces()
                if self._peek() in ("", "\n", ";"):
                    return
            self._command()
            self._skip_spaces()
            if self.text.startswith("||", self.at) or not self._takes("|"):
                return
            self._takes("&")
            self._skip_lines()
            found = self._closing()
            if found == "":
                self._refuse_end("behind `|`")
            if found is not None:
                message = f"`{found}` stands where a command must follow `|`"
                self._refuse(found, message, "write the command, or take the `|` out")

    def _command(self) -> None:
        if self.text.startswith("((", self.at) and self._counted("((", self.at):
            self._redirections()
            return
        if self._peek() == "(":
            with self._opened("("):
                self.at += 1
                self.commands(frozenset({")"}))
            self._redirections()
            return
        word = self._reserved()
        if word == "coproc":
            raise _Unclear
        if word in ("in", "]]"):
            self._refuse(word, f"`{word}` stands where nothing is open that goes on with it", "take it out, or quote it")
        if word not in COMPOUNDS:
            self._simple()
            return
        with self._opened(word):
            self.at += len(word)
            self._compound(word)
        if word != "function":
            self._redirections()

    def _compound(self, word: str) -> None:
        if word == "if":
            self.commands(frozenset({"then"}))
            while (found := self.commands(frozenset({"elif", "else", "fi"}))) == "elif":
                self.commands(frozenset({"then"}))
            if found == "else":
                self.commands(frozenset({"fi"}))
        elif word in ("while", "until"):
            self.commands(frozenset({"do"}))
            self.commands(frozenset({"done"}))
        elif word in ("for", "select"):
            self._loop()
        elif word == "case":
            self._choice()
        elif word == "{":
            self.commands(frozenset({"}"}))
        elif word == "[[":
            self._condition()
        else:
            self._skip_spaces()
            self._named_word()
            self._skip_spaces()
            if self._takes("("):
                self._skip_spaces()
                self._expect_closing()
            self._body()

    def _loop(self) -> None:
        self._skip_spaces()
        if self._takes("(("):
            if not self._arithmetic():
                raise _Unclear
            self._skip_spaces()
            self._takes(";")
        else:
            self._named_word()
            self._skip_lines()
            if self._reserved() == "in":
                self.at += 2
                self._skip_spaces()
                while self._peek() not in (";", "\n"):
                    self._named_word()
                    self._skip_spaces()
                if self.text.startswith(";;", self.at):
                    self._refuse()
            self._takes(";")
        self._skip_lines()
        word = self._reserved()
        if word == "{":
            self.at += 1
            self.commands(frozenset({"}"}))
        elif word == "do":
            self.at += 2
            self.commands(frozenset({"done"}))
        elif self.at >= len(self.text):
            self._refuse_end("")
        else:
            self._refuse(word, self._needed("`do` here"), "write `do` on a line of its own, or behind `;`")

    def _choice(self) -> None:
        self._skip_spaces()
        self._named_word()
        self._skip_lines()
        if self._reserved() != "in":
            self._refuse(None, self._needed("`in` here"), "write it behind the one word that `case` looks at")
        self.at += 2
        while True:
            self._skip_lines()
            if self._reserved() == "esac":
                self.at += 4
                return
            self._takes("(")
            while True:
                self._skip_spaces()
                self._named_word("a pattern must stand here", "write it as in `pattern) command ;;`, and close with `esac`")
                self._skip_spaces()
                if not self._takes("|"):
                    break
            self._expect_closing()
            if self.commands(frozenset({";;", ";&", ";;&", "esac"}), may_be_empty=True) == "esac":
                return

    def _condition(self) -> None:
        while True:
            self._skip_lines()
            if self.at >= len(self.text):
                self._refuse_end("")
            sign = self._peek()
            if sign == ";":
                self._refuse(";", self._needed("`]]` before this"), "write `]]`, with a space before it")
            if sign in "()<>&|":
                self.at += 1
            elif self._word() == "]]":
                return

    def _simple(self) -> None:
        """Read words, assignments and redirections."""
        start, count, assigns = self.at, 0, True
        while True:
            self._skip_spaces()
            if self._redirection():
                count += 1
                continue
            sign = self._peek()
            if sign == "" or sign in "\n;|&)":
                if count == 0:
                    self._refuse()
                return
            if sign == "(":
                if count != 1 or ONE_WORD.fullmatch(self.text, start, self.at) is None:
                    self._refuse("(", "", "quote it, or write `\\(`")
                self._function(start)
                return
            if assigns and SUBSCRIPT.match(self.text, self.at):
                self._subscript()
            assigned = NAME.match(self.text, self.at)
            self._word()
            if assigned is not None and assigned.end() == self.at and self._peek() == "(":
                self._array()
            elif assigned is None:
                assigns = False
            count += 1

    def _function(self, start: int) -> None:
        self.at += 1
        self._skip_spaces()
        self._expect_closing()
        with self._opened(self.text[start : self.at].split("(", 1)[0].strip()[:40] + "()", start):
            self._body()

    def _body(self) -> None:
        """Read the compound command that is the body of a function."""
        self._skip_lines()
        if self.at >= len(self.text):
            self._refuse_end("")
        if self._peek() != "(" and self._reserved() not in COMPOUNDS - {"function"}:
            self._refuse(None, "the body of a function must begin here", "write it in `{` and `}`")
        self._command()

    def _redirections(self) -> None:
        """Read redirections behind a compound command, behind which nothing else stands."""
        while True:
            self._skip_spaces()
            if not self._redirection():
                break
        if self._peek() not in ("\n", ";", "&", "|") and self._closing() is None:
            word = PLAIN.match(self.text, self.at)
            self._refuse(word[0] if word else None, "", "put it on a line of its own, or behind `;`")

    def _redirection(self) -> bool:
        """Read a redirection, if one comes next."""
        place = self.at
        while place < len(self.text) and self.text[place] in "0123456789":
            place += 1
        found = REDIRECTION.match(self.text, place)
        if found is None or (place > self.at and found[0].startswith("&")):
            return False
        self.at = found.end()
        self._skip_spaces()
        if found[0] in ("<<", "<<-"):
            self._document(found[0] == "<<-")
        elif found[0] in (">&", "<&") and self._takes("-"):
            return True
        else:
            self._named_word(f"a file must follow `{found[0]}`", "quote it where no redirection is meant")
        return True

    def _document(self, tabs: bool) -> None:
        """Read the word that ends a here-document."""
        start = self.at
        word = self._word()
        raw = self.text[start : self.at]
        if word == "" and not raw:
            self._refuse(None, "a word must follow `<<`", "write the word that ends the text")
        if "$" in raw or "`" in raw or "\n" in raw:
            raise _Unclear
        self._documents.append((UNQUOTED.sub(r"\1", raw), tabs))

    def _lines_of_documents(self) -> None:
        """Skip the here-documents that begin here."""
        for end, tabs in self._documents:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = min(len(self.text), stop + 1)
                if (line.lstrip("\t") if tabs else line) == end:
                    break
        self._documents.clear()

    def _array(self) -> None:
        with self._opened("=("):
            self.at += 1
            while True:
                self._skip_lines()
                if self._takes(")"):
                    return
                if self.at >= len(self.text):
                    self._refuse_end("")
                if self._peek() in ";&|<>(" and not self.text.startswith(("<(", ">("), self.at):
                    self._refuse(self._peek(), "", "quote it, or close the array before it")
                self._word()

    def _subscript(self) -> None:
        """Leave assignments to elements open whose index is more than a word."""
        end = self.text.find("]", self.at, self.at + 1000)
        if end < 0 or OPENS_SUBSCRIPT.search(self.text, self.at, end):
            raise _Unclear

    def _named_word(self, message: str = "", help: str = "") -> None:
        """Read a word; refuse what is none."""
        start = self.at
        self._word()
        if self.at == start:
            if self.at >= len(self.text):
                self._refuse_end("")
            self._refuse(None, message, help)

    def _word(self) -> str | None:
        """Read a word and return it, or None where it is not plain."""
        start, plain = self.at, True
        while self.at < len(self.text):
            found = PLAIN.match(self.text, self.at)
            if found is not None:
                self.at = found.end()
                continue
            sign = self.text[self.at]
            if sign in "?*+@!":
                if self.text.startswith("(", self.at + 1):
                    raise _Unclear
                self.at += 1
                continue
            if sign in "<>" and self.text.startswith("(", self.at + 1):
                self.at += 1
                self._substitution("(")
            elif sign == "\\":
                self.at += 2
            elif sign == "'":
                self._until_quote("'", self.at)
            elif sign == '"':
                self._double_quoted()
            elif sign in "`$":
                self._expansion(quoted=False)
            else:
                break
            plain = False
        self.at = min(self.at, len(self.text))
        return self.text[start : self.at] if plain else None

    def _until_quote(self, sign: str, start: int, escapes: bool = False) -> None:
        place = start + 1
        while place < len(self.text):
            if escapes and self.text[place] == "\\":
                place += 2
            elif self.text[place] == sign:
                self.at = place + 1
                return
            elif escapes:
                found = SIMPLY_QUOTED[sign].match(self.text, place)
                place = found.end() if found else place + 1
            else:
                place = self.text.find(sign, place)
                place = len(self.text) if place < 0 else place
        self._refuse_open(sign, start)

    def _double_quoted(self) -> None:
        start = self.at
        self.at += 1
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == '"':
                self.at += 1
                return
            if sign == "\\":
                self.at += 2
            elif sign in "`$":
                self._expansion(quoted=True)
            else:
                found = QUOTED.match(self.text, self.at)
                self.at = found.end() if found else self.at + 1
        self._refuse_open('"', start)

    def _expansion(self, quoted: bool) -> None:
        """Read what begins with a dollar or a backtick."""
        start = self.at
        if self.text[start] == "`":
            self._until_quote("`", start, escapes=True)
            return
        after = self.text[start + 1 : start + 2]
        self.at += 1
        if after == "(":
            if not (self.text.startswith("((", self.at) and self._counted("$((", start)):
                self._substitution("$(", start)
        elif after == "{":
            with self._opened("${", start):
                self.at += 1
                self._parameter(quoted)
        elif after == "[":
            raise _Unclear
        elif not quoted and after == "'":
            self._until_quote("'", self.at, escapes=True)
        elif not quoted and after == '"':
            self._double_quoted()
        elif after and after not in " \t\n;&|<>)\\\"'`":
            self.at += 1

    def _parameter(self, quoted: bool) -> None:
        start = self.at
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "}":
                self.at += 1
                return
            if sign == "\\":
                self.at += 2
            elif sign == '"':
                self._double_quoted()
            elif sign == "'":
                if quoted:
                    raise _Unclear
                self._until_quote("'", self.at)
            elif sign == "$" and self.text.startswith("$}", self.at):
                self.at += 1
            elif sign in "`$":
                self._expansion(quoted)
            else:
                found = EXPANDED.match(self.text, self.at)
                self.at = found.end() if found else self.at + 1
        self.at = start
        self._refuse_open("}", start - 2)

    def _substitution(self, sign: str, start: int | None = None) -> None:
        if self._documents:
            raise _Unclear
        with self._opened(sign, self.at if start is None else start):
            self.at += 1
            self.commands(frozenset({")"}), may_be_empty=True)
        if self._documents:
            raise _Unclear

    def _counted(self, sign: str, start: int) -> bool:
        """Read an arithmetic expression in double brackets; nothing is read where they are brackets in brackets."""
        place = self.at
        self.at = start + len(sign)
        with self._opened(sign, start):
            if self._arithmetic():
                return True
        self.at, self._attempts = place, self._attempts + 1
        if self._attempts > ATTEMPTS:
            raise _Unclear
        return False

    def _arithmetic(self) -> bool:
        """Read up to the two brackets that end an arithmetic expression, and return whether they do."""
        depth = 0
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "(":
                depth, self.at = depth + 1, self.at + 1
            elif sign == ")":
                if depth == 0:
                    return self._takes("))")
                depth, self.at = depth - 1, self.at + 1
            elif sign == "\\":
                self.at += 2
            elif sign == '"':
                self._double_quoted()
            elif sign == "'":
                self._until_quote("'", self.at)
            elif self.text.startswith("${", self.at):
                self._parameter_of_numbers()
            elif sign in "`$":
                self._expansion(quoted=False)
            else:
                found = COUNTED.match(self.text, self.at)
                self.at = found.end() if found else self.at + 1
        return False

    def _parameter_of_numbers(self) -> None:
        """Read an expansion in an arithmetic expression, of which the shell first counts the brackets alone."""
        try:
            self._expansion(quoted=False)
        except _Refused:
            raise _Unclear from None

    def _reserved(self) -> str:
        """Return the word that comes next, which is not read, where it has no quotes; "" where it has."""
        found = WORD.match(self.text, self.at)
        if found is None or self.text[found.end() : found.end() + 1] in tuple("\\'\"`$"):
            return ""
        return found[0]

    def _skip_spaces(self) -> None:
        found = SPACES.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        if self._peek() == "#":
            comment = COMMENT.match(self.text, self.at)
            self.at = comment.end() if comment is not None else self.at

    def _skip_lines(self) -> None:
        while True:
            self._skip_spaces()
            if not self._takes("\n"):
                return
            self._lines_of_documents()

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _takes(self, sign: str) -> bool:
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def _expect_closing(self) -> None:
        if not self._takes(")"):
            self._refuse(None, "`)` must stand here", "")

    @contextmanager
    def _opened(self, what: str, start: int | None = None) -> Iterator[None]:
        """Note what is open while it is read."""
        if len(self._open) >= DEEPEST:
            raise _Unclear
        self._open.append((what, self.at if start is None else start))
        yield
        self._open.pop()

    def _refuse(self, found: str | None = None, message: str = "", help: str = "") -> NoReturn:
        """Refuse what comes next, which is `found`, or begins with it."""
        if self.at >= len(self.text):
            self._refuse_end("")
        word = found or self._reserved() or self._peek()
        shown = word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}..."
        usual = "the line ends where the shell needs a word" if word == "\n" else f"the shell takes no `{shown}` here"
        before = self.text[: self.at].rstrip(" \t")
        is_cut_off = word in ("|", "&") and before.endswith("\n") and before.strip() != ""
        lost = "end the line before in a backslash" if is_cut_off else "no line from here on is run"
        raise _Refused(Refusal(self.at, self.at + len(word), message or usual, help or lost))

    def _refuse_end(self, after: str) -> NoReturn:
        """Refuse the end of the text."""
        if after or not self._open:
            end = len(self.text.rstrip())
            message = f"the script ends where a command must follow {after}".rstrip()
            raise _Refused(Refusal(max(0, end - 1), end, message, "write the command, or take out what asks for it"))
        word, start = self._open[-1]
        closer = {"if": "fi", "case": "esac", "{": "}", "[[": "]]", "((": "))", "$((": "))", "${": "}"}.get(word, ")")
        closer = "done" if word in LOOPS else "}" if word == "function" or word.endswith("()") else closer
        self._refuse_open(closer, start, word)

    def _refuse_open(self, closer: str, start: int, opener: str | None = None) -> NoReturn:
        shown = opener or self.text[start : start + 1]
        message = f"the script ends where `{closer}` must follow"
        raise _Refused(Refusal(start, start + len(shown), message, f"close `{shown}`, which is open from here on"))


def _either(words: frozenset[str]) -> str:
    return " or ".join(f"`{word}`" for word in sorted(words) if word) or "the end of the script"
