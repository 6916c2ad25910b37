"""Slots in commands: values, options, parts left out, and quoting that survives a real shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscout.commands.template import Scope, Variable, option, parse, plain, quoted
from autoscout.core.config import Value

VALUES: dict[str, Value] = {"batch": 8, "fast": True, "slow": False, "kind": "a b", "lr": 0.0005, "max_num_seqs": 64, "opt.fuse_ops": True}
SCOPE = Scope(VALUES, flags=("max_num_seqs", "slow", "opt.fuse_ops", "inactive"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run --batch {batch}", "run --batch 8"),
        ("run {fast} {slow}", "run true false"),
        ("run {kind}", "run 'a b'"),
        ("run \"{kind}!\" '{kind}'", "run \"a b!\" 'a b'"),
        ("run {batch:flag} {fast:flag} {slow:flag}", "run --batch 8 --fast --no-slow"),
        ("run {max_num_seqs:flag} {opt.fuse_ops:flag}", "run --max-num-seqs 64 --opt.fuse_ops=true"),
        ("run {batch:flag=-b} {slow:flag=--turbo}", "run -b 8 --no-turbo"),
        ("run {fast:switch}{slow:switch} {fast:switch=-f}", "run --fast -f"),
        ("run {fast:int} {slow:onoff} {fast:yesno} {slow:python}", "run 1 off yes False"),
        ("run {lr:.1e} {batch:04d}", "run 5.0e-04 0008"),
        ("run {bucket|25} {bucket:flag} end", "run 25  end"),
        ("run [--bucket {bucket}] [--batch {batch}] x", "run  --batch 8 x"),
        ("run [{batch}] [[{batch}]]", "run 8 [8]"),
        ("run {flags}", "run --max-num-seqs 64 --no-slow --opt.fuse_ops=true"),
        ("awk '{print $1}' ${HOME}/x", "awk '{print $1}' ${HOME}/x"),
        ('run \'{"a": {"b": {batch}}}\' {a,b} {{batch}} {{batch:flag}}', 'run \'{"a": {"b": 8}}\' {a,b} {batch} {batch:flag}'),
        ("[ -f x ] && [[ -f y ]] && ls [a-z]*", "[ -f x ] && [[ -f y ]] && ls [a-z]*"),
        ("[ {batch} -gt 3 ] && [[ {batch} -gt 3 ]]", "[ 8 -gt 3 ] && [[ 8 -gt 3 ]]"),
        ("python -c 'print([{batch}, 1])' \"a [{batch}] b\"", "python -c 'print([8, 1])' \"a [8] b\""),
        (r"echo \"{kind}\" \' {batch}", r"echo \"'a b'\" \' 8"),
    ],
)
def test_shell_lines(text: str, expected: str) -> None:
    template = parse(text, shell=True)
    assert template.faults == ()
    assert template.shell(SCOPE) == expected


def test_what_is_known_only_at_run_time_is_quoted_in_place() -> None:
    line = parse("cat {folder}/a \"{folder}/b\" '{folder}/c' --port={port}", shell=True).shell(SCOPE)
    assert line == 'cat "$AUTOSCOUT_FOLDER"/a "${AUTOSCOUT_FOLDER}/b" \'\'"$AUTOSCOUT_FOLDER"\'/c\' --port="$AUTOSCOUT_PORT"'
    shown = subprocess.run(
        ["/bin/sh", "-c", line.replace("cat", "printf '%s\\n'")],
        env={"AUTOSCOUT_FOLDER": "/my folder", "AUTOSCOUT_PORT": "80"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.splitlines() == ["/my folder/a", "/my folder/b", "/my folder/c", "--port=80"]


@pytest.mark.parametrize("text", ["run {batch:wrong=3}", "run {batch:%%}", "run [--x {batch:%%}]", "run [[{batch:%%}]]", "x ${folder}"])
def test_broken_text_is_noted(text: str) -> None:
    assert parse(text, shell=True).faults


def test_names_that_must_have_a_value() -> None:
    template = parse("run {a} [{b}] {c:flag} {d|1} {e:switch} {f:.2f}", shell=True)
    assert template.bare == {"a", "f"}
    assert template.names == {"a", "b", "c", "d", "e", "f"}
    assert list(template.segments) == [{"b"}]


def test_words_of_argument_lists() -> None:
    assert parse("--batch={batch}").words(SCOPE) == [("--batch=", "8")]
    assert parse("{batch:flag}").words(SCOPE) == [("--batch",), ("8",)]
    assert parse("{bucket:flag}").words(SCOPE) == []
    assert parse("{bucket}").words(SCOPE) == []
    assert parse("{kind}").words(SCOPE) == [("a b",)]
    assert parse("[{batch}]").words(SCOPE) == [("[", "8", "]")], "brackets mean nothing in argument lists"
    assert parse("{folder}/x").words(SCOPE) == [(Variable("folder", "AUTOSCOUT_FOLDER"), "/x")]
    assert plain(parse("{folder}/x").words(SCOPE)[0]) == "{folder}/x"
    assert quoted(parse("{folder}/{kind}").words(SCOPE)[0]) == "\"$AUTOSCOUT_FOLDER\"'/a b'"


def test_variables_without_a_value_are_left_out() -> None:
    assert parse("{batch},{kind}").text_or_none(SCOPE) == "8,a b"
    assert parse("{bucket}").text_or_none(SCOPE) is None
    assert parse("x{bucket|0}").text_or_none(SCOPE) == "x0"


def test_options_as_vllm_writes_them() -> None:
    assert option("max_num_seqs", 64) == ["--max-num-seqs", "64"]
    assert option("enforce_eager", False) == ["--no-enforce-eager"]
    assert option("compilation_config.use_inductor", True) == ["--compilation-config.use_inductor=true"]
    assert option("compilation_config.level", 3) == ["--compilation-config.level", "3"]


_TEXT = st.text(alphabet="ab '\"\\$`;|&<>(){}[]*?~#!\t\n=-%", max_size=12)


@settings(max_examples=40, deadline=None)
@given(bare=_TEXT, double=_TEXT, single=_TEXT)
def test_no_value_can_break_out_of_its_quotes(bare: str, double: str, single: str) -> None:
    template = parse("printf '%s\\0' {bare} \"x{double}y\" 'x{single}y'", shell=True)
    line = template.shell(Scope({"bare": bare, "double": double, "single": single}))
    out = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert out.split("\0") == [bare, f"x{double}y", f"x{single}y", ""]


@pytest.mark.parametrize("text", ["{x:999999999}", "{x:.999999999f}", "a" * 200_000])
def test_templates_that_would_not_fit_any_line(text: str) -> None:
    (fault,) = parse(text, shell=True).faults
    assert "at most" in fault
