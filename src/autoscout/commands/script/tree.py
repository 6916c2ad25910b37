"""Tokens of a shell script as a tree of commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscout.commands.script.lexer import Lexer, ScriptError, Token

DEEPEST = 40
WORDS_OF_SYNTAX = ("then", "do", "done", "fi", "else", "elif", "esac", "}", ";;")


@dataclass
class Simple:
    """Assignments and words, still as they are written, the text that is put in, and the file that its output goes to."""

    words: list[str] = field(default_factory=list)
    text: Token | None = None
    target: str = ""


@dataclass
class Both:
    """Commands with `&&` and `||`, or with `|`, before each but the first; `!` before them turns what they come to."""

    parts: list[tuple[str, Node]]
    negated: bool = False


@dataclass
class If:
    """Conditions with what is done under them, and what is done otherwise."""

    branches: list[tuple[list[Node], list[Node]]]
    otherwise: list[Node]


@dataclass
class Loop:
    """`for`, `while` or `until`: its head as it is written, and what is repeated."""

    kind: str
    name: str
    words: list[str] | None
    body: list[Node]
    condition: list[Node] = field(default_factory=list)


@dataclass
class Case:
    """A word, and what is done for each of its patterns."""

    word: str
    branches: list[tuple[list[str], list[Node]]]


@dataclass
class Group:
    """`{ ... }`, or `( ... )` in a shell of its own."""

    body: list[Node]
    own: bool = False


@dataclass
class Function:
    """A definition."""

    name: str
    body: Node


Node = Simple | Both | If | Loop | Case | Group | Function


class Parser:
    """Reads commands from tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    def read(self) -> list[Node]:
        """The whole script.

        Raises:
            ScriptError: a word of the syntax is missing or out of place.
        """
        nodes = self._list(())
        if self.place < len(self.tokens):
            raise ScriptError(f"has {self.tokens[self.place].text!r} out of place")
        return nodes

    def _peek(self) -> Token:
        return self.tokens[self.place] if self.place < len(self.tokens) else Token("end", "")

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token.kind in ("op", "word") and token.text in texts

    def _take(self) -> Token:
        token = self._peek()
        self.place += 1
        return token

    def _expect(self, text: str) -> None:
        if not self._is(text):
            raise ScriptError(f"lacks {text!r} before {self._peek().text or 'the end'!r}")
        self.place += 1

    def _lines(self) -> None:
        while self._is("\n", ";"):
            self.place += 1

    def _list(self, ends: Sequence[str]) -> list[Node]:
        """Commands up to one of these words."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ScriptError(f"is nested more than {DEEPEST} deep")
        nodes: list[Node] = []
        while True:
            while self._is("\n", ";", "&"):
                self.place += 1
            if self._peek().kind == "end" or self._is(*ends, ")", *WORDS_OF_SYNTAX):
                self.depth -= 1
                return nodes
            nodes.append(self._and_or())

    def _and_or(self) -> Node:
        return self._joined(("&&", "||"), self._pipeline)

    def _pipeline(self) -> Node:
        negated = self._is("!")
        self.place += negated
        return self._joined(("|", "|&"), self._command, negated=negated)

    def _joined(self, signs: Sequence[str], read: Callable[[], Node], *, negated: bool = False) -> Node:
        parts: list[tuple[str, Node]] = [("", read())]
        while self._is(*signs):
            sign = self._take().text
            self._lines()
            parts.append((sign, read()))
        return parts[0][1] if len(parts) == 1 and not negated else Both(parts, negated)

    def _command(self) -> Node:
        token = self._peek()
        if token.kind == "word":
            for word, read in (("if", self._if), ("case", self._case), ("for", self._loop), ("while", self._loop), ("until", self._loop)):
                if token.text == word:
                    return self._redirected(read())
            if token.text == "{":
                self.place += 1
                body = self._list(("}",))
                self._expect("}")
                return self._redirected(Group(body))
            if token.text == "function":
                self.place += 1
                name = self._take().text
                if self._is("("):
                    self._expect("(")
                    self._expect(")")
                self._lines()
                return Function(name, self._command())
            follows = self.tokens[self.place + 1 : self.place + 3]
            if [item.text for item in follows] == ["(", ")"] and re.fullmatch(r"[\w:.-]+", token.text):
                self.place += 3
                self._lines()
                return Function(token.text, self._command())
        if self._is("("):
            self.place += 1
            body = self._list(())
            self._expect(")")
            return self._redirected(Group(body, own=True))
        return self._simple()

    def _redirected(self, node: Node) -> Node:
        while self._peek().kind == "redirect":
            self.place += 2
        return node

    def _simple(self) -> Simple:
        simple = Simple()
        while True:
            token = self._peek()
            if token.kind == "word":
                simple.words.append(self._take().text)
            elif token.kind == "redirect":
                sign = self._take().text
                target = self._take()
                if target.kind == "text":
                    simple.text = target
                elif sign in (">", ">>", ">|"):
                    simple.target = target.text
            else:
                break
        if not simple.words and simple.text is None and self._peek().kind != "end" and not self._is("\n", ";"):
            self._unexpected()
        return simple

    def _unexpected(self) -> None:
        if self.tokens[self.place - 1].kind not in ("redirect", "text", "word"):
            raise ScriptError(f"has {self._peek().text!r} out of place")

    def _if(self) -> If:
        branches = []
        otherwise: list[Node] = []
        self.place += 1
        while True:
            condition = self._list(("then",))
            self._expect("then")
            branches.append((condition, self._list(("elif", "else", "fi"))))
            word = self._take().text
            if word == "else":
                otherwise = self._list(("fi",))
                self._expect("fi")
                break
            if word == "fi":
                break
            if word != "elif":
                raise ScriptError("has an if without fi")
        return If(branches, otherwise)

    def _loop(self) -> Loop:
        kind = self._take().text
        name, words = "", None
        condition: list[Node] = []
        if kind == "for":
            name = self._take().text
            self._lines()
            if self._is("in"):
                self.place += 1
                words = []
                while self._peek().kind == "word":
                    words.append(self._take().text)
            self._lines()
        else:
            condition = self._list(("do",))
        self._expect("do")
        body = self._list(("done",))
        self._expect("done")
        return Loop(kind, name, words, body, condition)

    def _case(self) -> Case:
        self.place += 1
        word = self._take().text
        self._lines()
        self._expect("in")
        branches = []
        self._lines()
        while not self._is("esac"):
            if self._is("("):
                self.place += 1
            patterns = [self._take().text]
            while self._is("|"):
                self.place += 1
                patterns.append(self._take().text)
            self._expect(")")
            branches.append((patterns, self._list((";;", ";&", ";;&", "esac"))))
            if self._is(";;", ";&", ";;&"):
                self.place += 1
            self._lines()
            if self._peek().kind == "end":
                raise ScriptError("has a case without esac")
        self.place += 1
        return Case(word, branches)


def parsed(text: str) -> list[Node]:
    """A script as a tree.

    Raises:
        ScriptError: it cannot be read.
    """
    try:
        return Parser(Lexer(text).read()).read()
    except RecursionError:
        raise ScriptError("is nested too deep") from None


__all__ = ["Both", "Case", "Function", "Group", "If", "Loop", "Node", "Parser", "ScriptError", "Simple", "parsed"]
