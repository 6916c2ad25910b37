"""Scripts that are read and not run, compared with what bash makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autoscout.commands.script import ScriptError, missing_in, read_script

SHOWS = 'serve() { printf "%s\\0" "$@"; printf "\\n"; }\n'
"""Prints the words that `serve` is given."""

DETERMINED = {
    "words": "serve a 'b c' \"d e\" f\\ g h\"i\"'j' --k=\"l m\" ''",
    "variables": 'A=1; B="x y"; C=$A$B; serve $A "$B" $B ${C} "${C}z" \'$A\' "\\$A"',
    "defaults": 'E=; serve ${N:-d} ${E:-e} ${E-f} "${N:-g h}" ${E:+i} ${A:=j} $A ${N:+k} "${E:+l}"',
    "arrays": 'A=(--x 1 "y z"); A+=(--w); B=(); serve "${A[@]}" "${B[@]}" ${A[1]} ${#A[@]} "${A[*]}" "${N[@]}"',
    "array over lines": 'A=(\n  --x 1  # why\n  --y \'{"a": 2}\'\n)\nserve "${A[@]}"',
    "arithmetic": "A=7; B=$((A * 2 + 1)); serve $B $((B / 4)) $((B % 4)) $(( -B / 2 )) $((A > 3 && A < 9)) $((A == 7 ? 1 : 2)) $((1 << 4))",
    "counting": 'for ((i = 1; i <= 3; i++)); do L+=("$((i * 2))"); done; (( i += 5 )); serve "${L[@]}" $i',
    "if": 'A=8; if [ "$A" -gt 8 ]; then B=x; elif [[ $A == 8 && "$N" != yes ]]; then B=y; else B=z; fi; serve $B',
    "tests": 'A=abc; [[ $A == a* ]] && B=1; [ "$A" = "a*" ] || C=2; [[ $A =~ ^a.c$ ]] && D=3; [[ ! -n "$N" ]] && E=4; serve $B $C $D $E',
    "case": 'A=b2; case "$A" in a|c) B=1;; b*) B=2 ;; *) B=3;; esac; serve $B',
    "functions": 'f() { local X="$1"; shift; serve "$X" "$@" $#; }; f 1 "2 3" 4; g() { return; serve no; }; g; serve end',
    "loops": 'for w in a b; do if [ "$w" = a ]; then continue; fi; serve "$w"; done; for w in 1 2; do [ $w = 2 ] && break; serve $w; done',
    "cuts": "P=a/b/c.tar.gz; serve ${P##*/} ${P%%.*} ${P#*/} ${P%.*} ${P/b/x} ${P//a/y} ${P^^} ${#P} ${P:2:3}",
    "here-document": 'A=5; J=$(cat <<EOF\n{"a": ${A},\n "b": "\\$A"}\nEOF\n); serve "$J"; K=$(cat <<\'EOF\'\n$A\nEOF\n); serve "$K"',
    "substitution": 'A=$(echo one two); serve "$A" $A `echo three`',
    "shells": 'export A=1; B=2; bash -c \'serve $A $1\' x y 2>/dev/null; (C=3; serve $C); serve "$C"; eval "serve $A ev"',
    "line continuation": "serve a \\\n  --b c \\\n  # no\nserve d # e",
    "redirections": "serve a >/dev/stdout 2>&1; serve b 2>/dev/null; { serve c; } 2>&1; serve d < /dev/null",
    "pipes": "serve a | cat; true && serve b; false || serve c; false && serve d; ! false && serve e",
    "while": "I=0; while [ $I -lt 3 ]; do serve $I; I=$((I + 1)); done; until [ $I -eq 0 ]; do I=$((I-1)); done; serve $I",
    "exit": 'if [[ -z "${N:-}" ]]; then serve before; exit 0; fi; serve after',
    "positional": 'set -- a "b c"; serve "$1" "$2" "$@" $#; shift; serve "$@"',
    "prefix": "A=1 B='2 3' serve x",
    "quotes in defaults": 'K=\'{"a": true}\'; V="${N:-$K}"; serve "$V" "${N:-"q r"}"',
    "strings": "serve $'a\\nb' \"c\\\\d\" e\\$f",
    "appended": 'A=x; A+=y; serve $A; declare -a L=(1 2); L+=(3); serve ${L[@]}; unset A; serve "${A-gone}"',
}


@pytest.mark.parametrize("name", DETERMINED)
def test_as_bash_reads_it(name: str, tmp_path: Path) -> None:
    script = DETERMINED[name]
    text = SHOWS + "export -f serve\n" + script
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, check=False)
    runs = [part.split("\0") for part in done.stdout.split("\0\n")[:-1]]
    commands = read_script(script).commands
    assert [list(map(str, command.words[1:])) for command in commands if command.words[0] == "serve"] == runs
    assert runs, done.stderr


def test_what_is_not_determined_says_what_it_lacks() -> None:
    (command,) = read_script('N=$(nproc)\nserve --a "$TP" --b $((TP * 2)) --c "$N" --d ${E:-1} "${X[@]}"').commands
    assert [missing_in(word) for word in command.words] == [(), (), ("TP",), (), ("TP",), (), ("$(nproc)",), (), ()]


def test_both_ways_of_a_condition_that_only_the_run_decides() -> None:
    text = """
if [ -d "$DIR" ]; then A=1; B=2; else A=1; B=3; fi
if ! check_it; then serve failed; exit 1; fi
[ -f x ] && C=4
[ -f x ] || exit 1
serve "$A" "$B" "$C"
"""
    first, second = (command for command in read_script(text).commands if command.words[0] == "serve")
    assert first.words[1:] == ("failed",)
    assert [(str(word), missing_in(word)) for word in second.words[1:]] == [("1", ()), ("", ("the value of B",)), ("", ("the value of C",))]


def test_variables_that_are_given_and_those_that_commands_see() -> None:
    script = read_script('export A=1\nB=2\nC=3 serve "$TP"\nif [ "$MODE" = x ]; then serve no; fi', {"TP": "8"})
    assert dict(script.commands[0].env) == {"A": "1", "C": "3", "TP": "8"}
    assert script.commands[0].words == ("serve", "8")
    assert script.assumed == ("MODE",)


def test_files_that_it_writes() -> None:
    script = read_script("SIZE=8\ncat > conf.yaml << EOF\nmax-num-seqs: $SIZE\nEOF\nserve --config conf.yaml")
    assert dict(script.files) == {"conf.yaml": "max-num-seqs: 8"}


@pytest.mark.parametrize(
    "text",
    [
        "serve 'a",
        'serve "a',
        "if true; then serve",
        "case x in y) serve",
        "serve $(echo",
        "serve )",
        "for i in 1; do serve",
        "while [ 1 = 1 ]; do A=1; done",
        "for ((i = 0; i >= 0; i++)); do serve; done",
        "f() { f; }; f",
        "A=x" + "; A=$A$A" * 40,
        "serve " + "$(" * 60,
        "(" * 300,
        "if true; then " * 100,
        'eval "$0" \'eval "eval x"\' <<< "' + "[[ a",
        "A=1; " * 30_000,
    ],
)
def test_what_cannot_be_read_ends_with_one_sentence(text: str) -> None:
    with pytest.raises(ScriptError) as error:
        read_script(text)
    assert len(str(error.value)) < 200


def test_nothing_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    read_script(f"touch {trace}; A=$(touch {trace}); eval 'touch {trace}'; echo x > {trace}; serve `touch {trace}`")
    assert not trace.exists()
