"""Values reach a program unchanged from every place of a shell line, or are refused there; judged by real shells."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscout.commands.template import Scope, parse
from autoscout.core.errors import ConfigError

SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]
HOSTILE = [
    "two words", "it's", '"', "'\"'", "$HOME", "$(echo no)", "`echo no`", "back\\slash\\", "\\", "\\\\n", "line\nline", "\n", "tail\n\n",
    "é ü 漢字 🙂", "-rf", "--", "-n", "*", "~", "#no", "a;b", "a&&b", "|", ">x", "!", "{a,b}", "{folder}", "${x}", "$", "EOF",
    "\nEOF\necho no\n", "", " ", "\t", "%s", ")", "))",
]  # fmt: skip

LINES = {
    "a word": "printf '%s.\\0' {x}",
    "double quotes": "printf '%s\\0' \"{x}.\"",
    "single quotes": "printf '%s\\0' '{x}.'",
    "an assignment": "v={x}; printf '%s.\\0' \"$v\"",
    "$(...)": "v=$(printf '%s.' {x}); printf '%s\\0' \"$v\"",
    "$(...) in double quotes": "printf '%s\\0' \"$(printf '%s.' {x})\"",
    'quotes in "$(...)"': "printf '%s\\0' \"$(printf '%s.' \"{x}\")\"",
    "single quotes in \"$(...)\"": "printf '%s\\0' \"$(printf '%s' '{x}.')\"",
    "$(...) in $(...)": "printf '%s\\0' \"$(printf '%s' \"$(printf '%s.' {x})\")\"",
    "backquotes": "v=`printf '%s.' {x}`; printf '%s\\0' \"$v\"",
    "double quotes in backquotes": "v=`printf '%s.' \"{x}\"`; printf '%s\\0' \"$v\"",
    "single quotes in backquotes": "v=`printf '%s' '{x}.'`; printf '%s\\0' \"$v\"",
    "backquotes in double quotes": "printf '%s\\0' \"`printf '%s.' {x}`\"",
    "after backquotes": "v=`echo '{x}'`; printf '%s.\\0' {x}",
    "a here-document": "{ cat; printf '\\0'; } <<EOF\n{x}.\nEOF",
    "a here-document with tabs": "if :; then\n\t{ cat; printf '\\0'; } <<-EOF\n\t{x}.\n\tEOF\nfi",
    "$(...) in a here-document": "{ cat; printf '\\0'; } <<EOF\n$(printf '%s.' {x})\nEOF",
    "a here-document in $(...)": "printf '%s\\0' \"$(cat <<EOF\n{x}.\nEOF\n)\"",
    "after a here-document": "cat <<EOF >/dev/null\nit's \"\nEOF\nprintf '%s.\\0' {x}",
    "after a literal here-document": "cat <<'EOF' >/dev/null\nit's $( \"\nEOF\nprintf '%s.\\0' {x}",
    "after two here-documents": "cat <<A - <<'B' >/dev/null\nit's\nA\n\"\nB\nprintf '%s.\\0' {x}",
    "after a comment": "# it's \"not` closed\nprintf '%s.\\0' {x}",
    "after a #": "printf '%s' a#b' 'c >/dev/null; printf '%s.\\0' {x}",
    "a subshell": "( printf '%s.\\0' {x} )",
    "a part in brackets": "printf '%s.\\0' [{x}]",
    "a part in brackets in backquotes": "v=`printf '%s.' [{x}] `; printf '%s\\0' \"$v\"",
    "a case": "case {x} in *) printf '%s.\\0' {x};; esac",
    "after ${...}": "printf '%s' \"${NOPE:-x y}\" ${NOPE:-'\"'} >/dev/null; printf '%s.\\0' {x}",
    "after arithmetic": "n=$(( (1 + 2) * 3 )); printf '%s.\\0' {x}",
    "after escapes": "printf '%s' \\\" \\' \"\\\"\" >/dev/null; printf '%s.\\0' {x}",
}  # fmt: skip


def said(shell: str, text: str, value: str) -> str:
    line = parse(text, shell=True).shell(Scope({"x": value}))
    done = subprocess.run(
        [shell, "-c", line], capture_output=True, text=True, check=False, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("place", LINES)
def test_hostile_values_arrive_unchanged(place: str, shell: str) -> None:
    for value in HOSTILE:
        out = said(shell, LINES[place], value)
        assert out.removesuffix("\n").removesuffix("\0").rstrip("\n") == f"{value}.", (place, value)


@settings(max_examples=60, deadline=None)
@given(place=st.sampled_from(sorted(LINES)), value=st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12))
@example(place="backquotes", value="\\`\\$")
def test_any_value_arrives_unchanged(place: str, value: str) -> None:
    out = said("sh", LINES[place], value)
    assert out.removesuffix("\n").removesuffix("\0").rstrip("\n") == f"{value}."


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("cat <<'EOF'\n{x}\nEOF", "delimiter is quoted"),
        ("cat <<\\EOF\n{x}\nEOF", "delimiter is quoted"),
        ("run # with {x}", "comment"),
        ("echo $(( {x} + 1 ))", "arithmetic"),
        ("echo ${VAR:-{x}}", "inside ${...}"),
        ('echo "${VAR:-"{x}"}"', "inside ${...}"),
        ("echo $'{x}'", "inside $'...'"),
        ("echo `echo \\`echo {x}\\``", "backquotes inside backquotes"),
        ("echo $(case 1 in a) echo;; esac; echo {x})", "case"),
    ],
)
def test_where_nothing_reaches_only_plain_words_are_written(line: str, place: str) -> None:
    template = parse(line, shell=True)
    assert template.shell(Scope({"x": 8})) == line.replace("{x}", "8")
    with pytest.raises(ConfigError, match="cannot be passed unchanged") as refused:
        template.shell(Scope({"x": "a b"}))
    assert place in str(refused.value)
    assert refused.value.faults[0].fix


@pytest.mark.parametrize("place", LINES)
def test_no_executor_finds_its_own_placeholder_in_a_value(place: str) -> None:
    line = parse(LINES[place], shell=True).shell(Scope({"x": "a {folder} b"}))
    assert "{folder}" not in line


def test_a_word_does_not_end_a_literal_here_document() -> None:
    with pytest.raises(ConfigError, match="delimiter is quoted"):
        parse("cat <<'EOF'\n{x}\nEOF", shell=True).shell(Scope({"x": "EOF"}))


def test_what_is_known_at_run_time_needs_a_place_that_expands_variables() -> None:
    assert "run time" in parse("cat <<'EOF'\n{folder}\nEOF", shell=True).faults[0]
    line = parse("cat <<EOF\n{folder}\nEOF\necho `ls {folder}`", shell=True)
    assert line.faults == ()
    assert line.shell(Scope({})) == 'cat <<EOF\n${AUTOSCOUT_FOLDER}\nEOF\necho `ls "$AUTOSCOUT_FOLDER"`'
