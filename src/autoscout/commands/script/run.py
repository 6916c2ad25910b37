"""The commands that a shell script would start, as far as that is determined; nothing is run.

Where a condition is known only when the script runs, both ways are read: what they agree on is known after it, and commands of both are
listed.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscout.commands.script.conditions import Condition, Outcome, condition_words
from autoscout.commands.script.expand import Expander
from autoscout.commands.script.lexer import ScriptError, Token
from autoscout.commands.script.state import ScriptState
from autoscout.commands.script.tree import Both, Case, Group, If, Loop, Node, Simple, parsed
from autoscout.commands.script.words import Word, missing_in

MOST_STEPS = 20_000
MOST_ROUNDS = 5_000  # of one loop
DEEPEST = 12  # calls of functions and shells within each other
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
DECLARATIONS = ("export", "declare", "local", "readonly", "typeset")
SHELLS = ("sh", "bash", "dash", "zsh")
TRUE = (":", "true", "echo", "printf", "set", "shift", "cd", "mkdir", "shopt", "trap", "ulimit", "umask", "sleep", "source", ".")
"""Commands that say nothing about what follows."""


@dataclass(frozen=True)
class ScriptCommand:
    """A command that a script starts.

    Attributes:
        words: As it would be given them.
        env: The variables that it would see.
    """

    words: tuple[Word, ...]
    env: Mapping[str, Word]


@dataclass
class Script:
    """What a script does, read once.

    Attributes:
        commands: In the order in which they stand there.
        assumed: Variables that tests read as empty because they are not set.
        files: What it writes into files, by their paths.
        ends: Whether it ends by itself before its last line.
    """

    commands: list[ScriptCommand] = field(default_factory=list)
    assumed: tuple[str, ...] = ()
    files: Mapping[str, Word] = field(default_factory=dict)
    ends: bool = False


def read_script(text: str, variables: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> Script:
    """The commands in the text of a script.

    Args:
        text: The script.
        variables: That are set and exported where it is started.
        arguments: That it is started with.

    Raises:
        ScriptError: it cannot be read, or takes too long to.
    """
    words = {name: value if isinstance(value, Word) else Word(value) for name, value in (variables or {}).items()}
    state = ScriptState(variables=dict(words), exported=set(words), arguments=[Word(word) for word in arguments])
    runner = _Runner()
    runner.read(text, state)
    return Script(runner.commands, tuple(state.assumed), runner.files, state.stop == "exit")


class _Runner:
    def __init__(self) -> None:
        self.commands: list[ScriptCommand] = []
        self.files: dict[str, Word] = {}
        self.steps = 0
        self.depth = 0

    def read(self, text: str, state: ScriptState) -> Outcome:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ScriptError(f"calls itself more than {DEEPEST} deep")
        outcome = self._all(parsed(text), state)
        self.depth -= 1
        return outcome

    def _all(self, nodes: Sequence[Node], state: ScriptState) -> Outcome:
        outcome: Outcome = True
        for node in nodes:
            if state.stop:
                break
            outcome = self._node(node, state)
        return outcome

    def _node(self, node: Node, state: ScriptState) -> Outcome:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ScriptError(f"takes more than {MOST_STEPS:,} steps")
        if isinstance(node, Simple):
            return self._simple(node, state)
        if isinstance(node, Both):
            return self._both(node, state)
        if isinstance(node, If):
            return self._if(node, state)
        if isinstance(node, Loop):
            return self._loop(node, state)
        if isinstance(node, Case):
            return self._case(node, state)
        if isinstance(node, Group):
            return self._all(node.body, state.copy() if node.own else state)
        state.functions[node.name] = node.body
        return True

    def _expander(self, state: ScriptState) -> Expander:
        def output(command: str) -> str | None:
            return self._printed(command, state)

        return Expander(state, output)

    def _printed(self, command: str, state: ScriptState) -> str | None:
        """What `$(...)` prints, for `echo`, `printf %s` and `cat` with a text."""
        nodes = parsed(command)
        node = nodes[0] if len(nodes) == 1 else None
        if not isinstance(node, Simple) or not node.words:
            return None
        if node.words == ["cat"] and node.text is not None:
            return self._document(node.text, state)
        words = [word for raw in node.words for word in self._expander(state).words(raw)]
        if words[0] == "echo" and not any(word.startswith("-") for word in words[1:2]):
            return Word(" ".join(words[1:]), [name for word in words for name in word.missing])
        if words[0] == "printf" and len(words) == 3 and words[1] in ("%s", "%s\\n"):
            return words[2]
        return None

    def _document(self, token: Token, state: ScriptState) -> Word:
        return Word(token.text) if token.quoted else self._expander(state).document(token.text)

    def _both(self, node: Both, state: ScriptState) -> Outcome:
        outcome: Outcome = True
        is_test = False
        piped = any(sign in ("|", "|&") for sign, _ in node.parts)
        for sign, part in node.parts:
            if piped:
                self._node(part, state.copy())
                outcome = None
            elif outcome is None and is_test:  # only the run decides whether this part is reached
                way = state.copy()
                self._node(part, way)
                state.either([state.copy(), way])
            elif not sign or (outcome is not False) is (sign == "&&"):  # other commands are taken to end well
                outcome = self._node(part, state)
                is_test = _is_test(part)
            if state.stop:
                break
        return outcome if not node.negated or outcome is None else not outcome

    def _if(self, node: If, state: ScriptState) -> Outcome:
        ways: list[ScriptState] = []
        for condition, body in node.branches:
            outcome = self._all(condition, state)
            if outcome is False:
                continue
            way = state.copy()
            self._all(body, way)
            ways.append(way)
            if outcome is True:
                break
        else:
            self._all(node.otherwise, state)
            ways.append(state.copy())
        state.either(ways)
        return True

    def _case(self, node: Case, state: ScriptState) -> Outcome:
        expander = self._expander(state)
        value = expander.text(node.word)
        if any(not re.fullmatch(r"\w+|\$\d+", name) for name in value.missing):
            ways = [state.copy() for _ in node.branches]
            for way, (_, body) in zip(ways, node.branches, strict=True):
                self._all(body, way)
            state.either([state.copy(), *ways])
            return None
        state.assumed.update(dict.fromkeys(value.missing))
        for patterns, body in node.branches:
            if any(fnmatch.fnmatchcase(value, str(expander.text(pattern))) for pattern in patterns):
                return self._all(body, state)
        return True

    def _loop(self, node: Loop, state: ScriptState) -> Outcome:
        if node.kind == "for" and node.name.startswith("(("):
            return self._counted(node, state)
        if node.kind == "for":
            return self._listed(node, state)
        status = node.kind == "while"
        for _ in range(MOST_ROUNDS):
            outcome = self._all(node.condition, state)
            if outcome is None or self._is_endless(node):
                before = state.copy()
                self._all(node.body, state)
                state.stop = "" if state.stop in ("break", "continue") else state.stop
                changed = [name for name, value in state.variables.items() if before.variables.get(name) != value]
                state.variables.update({name: Word("", [f"the value of {name}"]) for name in changed})
                return None
            if outcome is not status or self._round(node, state):
                return True
        raise ScriptError(f"has a loop of more than {MOST_ROUNDS:,} rounds")

    @staticmethod
    def _is_endless(node: Loop) -> bool:
        first = node.condition[0] if len(node.condition) == 1 else None
        return isinstance(first, Simple) and first.words in (["true"], [":"], ["1"])

    def _round(self, node: Loop, state: ScriptState) -> bool:
        """Once through the body; whether the loop ends with it."""
        self._all(node.body, state)
        if state.stop == "continue":
            state.stop = ""
        if state.stop == "break":
            state.stop = ""
            return True
        return bool(state.stop)

    def _listed(self, node: Loop, state: ScriptState) -> Outcome:
        expander = self._expander(state)
        words = list(state.arguments) if node.words is None else [word for raw in node.words for word in expander.words(raw)]
        for word in words[:MOST_ROUNDS]:
            state.set(node.name, word)
            if self._round(node, state):
                break
        return True

    def _counted(self, node: Loop, state: ScriptState) -> Outcome:
        """`for ((a; b; c))`."""
        parts = node.name[2:-2].split(";")
        if len(parts) != 3:
            return None
        self._arithmetic(parts[0], state)
        for _ in range(MOST_ROUNDS):
            outcome = self._arithmetic(parts[1], state)
            if outcome is not True or self._round(node, state):
                return outcome
            self._arithmetic(parts[2], state)
        raise ScriptError(f"has a loop of more than {MOST_ROUNDS:,} rounds")

    def _arithmetic(self, text: str, state: ScriptState) -> Outcome:
        """An expression, also one that gives a variable a value; whether it is not zero."""
        expander = self._expander(state)
        if (match := re.fullmatch(r"\s*(\+\+|--)?\s*([A-Za-z_]\w*)\s*(\+\+|--)?\s*", text)) and (sign := match[1] or match[3]):
            state.set(match[2], expander.arithmetic(f"{match[2]} {sign[0]} 1"))
            return True
        if match := re.fullmatch(r"\s*([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.DOTALL):
            state.set(match[1], expander.arithmetic(f"{match[1]} {match[2]} ({match[3]})" if match[2] else match[3]))
            return True
        value = expander.arithmetic(text)
        return None if value.missing else int(value) != 0

    def _simple(self, node: Simple, state: ScriptState) -> Outcome:
        expander = self._expander(state)
        rest = list(node.words)
        assignments = []
        while rest and (match := ASSIGNMENT.fullmatch(rest[0])):
            assignments.append(match)
            rest.pop(0)
        if not rest:
            for match in assignments:
                self._assign(match, state, expander)
            return True
        if rest[0].startswith("[["):
            return Condition(condition_words(rest[0][2:-2]), expander, patterns=True).outcome()
        if rest[0].startswith("(("):
            return self._arithmetic(rest[0][2:-2], state)
        if rest[0] in ("[", "test"):
            return Condition(rest[1:-1] if rest[0] == "[" else rest[1:], expander, patterns=False).outcome()
        if rest[0] in DECLARATIONS:
            return self._declare(rest[0], rest[1:], state, expander)
        words = [word for raw in rest for word in expander.words(raw)]
        if not words:
            return True
        variables = {match[1]: expander.text(match[4]) for match in assignments}
        return self._command(words, variables, node, state)

    def _assign(self, match: re.Match[str], state: ScriptState, expander: Expander) -> None:
        name, index, more, raw = match.groups()
        if index:
            state.set(name, Word("", [f"the value of {name}"]))
        elif raw.startswith("(") and raw.endswith(")"):
            items = [word for part in _items(raw[1:-1]) for word in expander.words(part)]
            before = state.variables.get(name, []) if more else []
            state.set(name, [*(before if isinstance(before, list) else [before]), *items])
        elif more:
            before = state.variables.get(name, Word(""))
            value = expander.text(raw)
            if isinstance(before, list):
                state.set(name, [*before, value])
            else:
                state.set(name, Word(before + value, [*before.missing, *value.missing]))
        else:
            state.set(name, expander.text(raw))

    def _declare(self, word: str, rest: Sequence[str], state: ScriptState, expander: Expander) -> Outcome:
        flags = [raw for raw in rest if raw.startswith("-")]
        exports = word == "export" or any("x" in flag for flag in flags)
        for raw in rest:
            match = ASSIGNMENT.fullmatch(raw)
            if match:
                self._assign(match, state, expander)
            elif not raw.startswith("-") and word == "local":
                state.set(raw, Word("")) if re.fullmatch(r"\w+", raw) else None
            if exports and not raw.startswith("-"):
                state.exported.add(match[1] if match else raw)
        return True

    def _command(self, words: list[Word], variables: Mapping[str, Word], node: Simple, state: ScriptState) -> Outcome:
        name = str(words[0])
        if name in ("exit", "return", "break", "continue"):
            state.stop = name
            return True
        if name in state.functions:
            return self._call(name, words[1:], state)
        if name == "unset":
            for word in words[1:]:
                state.variables.pop(str(word), None)
            return True
        if name in ("read", "mapfile", "readarray", "getopts"):
            for word in words[1:]:
                if re.fullmatch(r"[A-Za-z_]\w*", word):
                    state.set(str(word), Word("", [f"the value of {word}"]))
            return None
        if name == "set" and "--" in words:
            state.arguments = words[words.index(Word("--")) + 1 :]
            return True
        if name == "shift":
            state.arguments = state.arguments[int(words[1]) if len(words) > 1 and words[1].isdigit() else 1 :]
            return True
        if name == "false":
            return False
        if name == "cd" and len(words) > 1 and isinstance(here := state.variables.get("PWD"), str) and not missing_in(words[-1]):
            state.set("PWD", Word(posixpath.normpath(posixpath.join(here, words[-1]))) if words[-1] != "-" else Word(here))
        if name in TRUE:
            return True
        if name in ("eval", *SHELLS) and (inner := _inner_text(words)) is not None:
            return self.read(str(inner), state if name == "eval" else self._inner(state, variables, words)) if not inner.missing else None
        env = {**state.environment(), **variables}
        if name == "cat" and node.text is not None and node.target:
            self.files[str(self._expander(state).text(node.target))] = self._document(node.text, state)
            return True
        if name in SHELLS and node.text is not None and len(words) == 1:
            return self.read(str(self._document(node.text, state)), self._inner(state, variables, ()))
        self.commands.append(ScriptCommand(tuple(words), env))
        if name == "exec" and len(words) > 1:
            state.stop = "exit"
        return None

    @staticmethod
    def _inner(state: ScriptState, variables: Mapping[str, Word], words: Sequence[Word]) -> ScriptState:
        """The state of a shell within: what is exported, and its arguments."""
        inner = state.copy()
        inner.variables = {**state.environment(), **variables}
        inner.exported = set(inner.variables)
        inner.arguments = list(words[4:])
        return inner

    def _call(self, name: str, arguments: list[Word], state: ScriptState) -> Outcome:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ScriptError(f"calls itself more than {DEEPEST} deep")
        before, state.arguments = state.arguments, arguments
        outcome = self._node(state.functions[name], state)
        state.arguments = before
        state.stop = "" if state.stop == "return" else state.stop
        self.depth -= 1
        return outcome


def _items(text: str) -> list[str]:
    """The raw words inside the brackets of an array."""
    nodes = parsed(re.sub(r"\n", " \\\n", _without_comments(text)))
    return [word for node in nodes if isinstance(node, Simple) for word in node.words]


def _without_comments(text: str) -> str:
    return re.sub(r"(^|\s)#[^\n\"']*(?=\n|$)", r"\1", text)


def _is_test(node: Node) -> bool:
    return isinstance(node, Simple) and node.words[:1] != [] and (node.words[0] in ("[", "test") or node.words[0].startswith("[["))


def _inner_text(words: Sequence[Word]) -> Word | None:
    """The script that `eval` or `sh -c` is given; None where it is given a file."""
    if words[0] == "eval":
        return Word(" ".join(words[1:]), [name for word in words for name in word.missing])
    for place, word in enumerate(words[1:], 1):
        if word.startswith("-") and "c" in word and not word.startswith("--"):
            return words[place + 1] if place + 1 < len(words) else None
        if not word.startswith("-"):
            return None
    return None


__all__ = ["Script", "ScriptCommand", "ScriptError", "read_script"]
