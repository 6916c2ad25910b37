from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from autoscout.common.document import Item, compose
from autoscout.core.config import Config
from autoscout.core.errors import EXIT_BAD_INPUT, AutoScoutError, ConfigError, SpaceError
from autoscout.space import Choice, Flag, Grid, Space, json_schema, read_space, write_space
from autoscout.space.yaml import space_from_item

ROOT = Path(__file__).parents[3]
GOOD = """\
facts: {gpus: 8, layers: 32, engine: fast}
knobs:
  tp: {values: [1, 2, 4, 8], default: 1, sparse: true, help: tensor parallel}
  dp: [1, 2, 4, 8]
  sp: {type: bool, when: tp > 1}
  fast: bool
  bucket_mb: {range: [1, 512], log: true, when: dp > 1, default: 25, unit: MB, restart: false}
  share: {range: [0.5, 0.95], step: 0.05}
  stages: {range: [1, layers // 4], type: int}
  attention: {values: [on, off, auto, null], default: auto}
  rank: {type: choice, values: [3, 1, 2]}
constraints:
  - tp * dp == gpus
  - {rule: "layers % tp == 0", why: layers are dealt out whole}
"""


def faults(text: str, **how: object) -> list[str]:
    with pytest.raises(AutoScoutError) as caught:
        read_space(text, where="bad.yaml", **how)  # type: ignore[arg-type]
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return [str(fault) for fault in caught.value.faults]


def test_reads_every_kind_of_knob() -> None:
    space = read_space(GOOD)
    assert dict(space.facts) == {"gpus": 8, "layers": 32, "engine": "fast"}
    assert space.knobs["tp"] == Grid("tp", values=[1, 2, 4, 8], sparse=True, help="tensor parallel")
    assert space.knobs["dp"] == Grid("dp", values=[1, 2, 4, 8])
    assert space.knobs["sp"] == Flag("sp", when="tp > 1")
    assert space.knobs["fast"] == Flag("fast")
    assert space.knobs["bucket_mb"] == Grid("bucket_mb", 1, 512, log=True, when="dp > 1", default=25, unit="MB", restart=False)
    assert space.knobs["stages"] == Grid("stages", 1, 8)
    assert space.knobs["attention"] == Choice("attention", ["on", "off", "auto", None], default="auto")
    assert space.knobs["rank"] == Choice("rank", [3, 1, 2])
    assert space.choices("dp", Config(tp=2)) == (4,)
    assert space.constraints[1].why == "layers are dealt out whole"
    assert space.constraints[1].where == "space:14"


def test_sources(tmp_path: Path) -> None:
    space = read_space(GOOD)
    path = tmp_path / "space.yaml"
    path.write_text(GOOD)
    assert read_space(path) == space
    assert read_space(str(path)) == space
    assert read_space(yaml.safe_load(GOOD.replace("[on, off", "['on', 'off'"))) == space
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text("system: toy\nspace:\n" + "".join(f"  {line}\n" for line in GOOD.splitlines()))
    assert read_space(campaign) == space
    assert read_space(write_space(space, tmp_path / "again.yaml")) == space
    assert read_space(tmp_path / "again.yaml") == space
    assert read_space(json.dumps({"knobs": {"a": [1, 2]}})) == Space([Grid("a", values=[1, 2])])


def test_given_facts_win() -> None:
    assert read_space(GOOD, facts={"gpus": 4}).choices("dp", Config(tp=2)) == (2,)


def test_a_node_of_a_larger_document_keeps_its_lines() -> None:
    text = "system: toy\nsearch:\n  space:\n    knobs:\n      a: [1, 2]\n    constraints:\n      - a > b\n"
    node = yaml.compose(text)
    block = node.value[1][1].value[0][1]
    with pytest.raises(SpaceError) as caught:
        space_from_item(Item(block, "campaign.yaml", "search.space"))
    (fault,) = caught.value.faults
    assert (fault.where, fault.field) == ("campaign.yaml:7", "search.space.constraints[0]")
    assert space_from_item(Item(block, "campaign.yaml"), facts={"b": 1}).count().value == 1


def test_all_faults_at_once_in_order_of_lines() -> None:
    text = """\
facts: {gpus: 8, bad: [1]}
knobs:
  tp: {values: [1, 2, 4], default: 3}
  pp: {valus: [1, 2]}
  tp: {values: [1]}
  sp: {type: bool, when: tpp > 1}
  mb: {range: [1, gpu]}
  up: {range: [8, 1]}
  no: {}
  two: {values: [1], range: [1, 2]}
  odd: {type: integer, values: [1]}
  text: {values: [1, 2], sparse: maybe, help: 3}
  evil: {values: [1], when: "__import__('os').system('true')"}
  step: {values: [1, 2], step: 1}
  log: {range: [0, 8], log: true}
  list: 7
constraints:
  - tp * pp = gpus
  - {rul: tp > 1}
  - [1]
extra: 1
"""
    found = faults(text)
    expected = [
        ("bad.yaml:1: facts.bad", "must be a number, text"),
        ("bad.yaml:3: knobs.tp.default", "one of the values [1, 2, 4] (found 3)"),
        ("bad.yaml:4: knobs.pp", "needs values, a range"),
        ("bad.yaml:4: knobs.pp.valus", "Did you mean 'values'?"),
        ("bad.yaml:5: knobs.tp", "is there twice"),
        ("bad.yaml:6: knobs.sp.when", "'tpp' is neither a knob nor a fact (found `tpp > 1`). Did you mean 'tp'"),
        ("bad.yaml:7: knobs.mb.range", "'gpu' is neither"),
        ("bad.yaml:8: knobs.up.range", "must not be above"),
        ("bad.yaml:9: knobs.no", "needs values, a range"),
        ("bad.yaml:10: knobs.two.range", "exclude each other"),
        ("bad.yaml:11: knobs.odd.type", "one of bool, choice, int, float"),
        ("bad.yaml:12: knobs.text.help", "must be text"),
        ("bad.yaml:12: knobs.text.sparse", "must be true or false (found maybe)"),
        ("bad.yaml:13: knobs.evil.when", "double underscore"),
        ("bad.yaml:14: knobs.step.step", "needs a range"),
        ("bad.yaml:15: knobs.log.range", "start above zero"),
        ("bad.yaml:16: knobs.list", "must be a mapping"),
        ("bad.yaml:18: constraints[0]", "Write '=='"),
        ("bad.yaml:19: constraints[1]", "a constraint is an expression"),
        ("bad.yaml:19: constraints[1].rul", "Did you mean 'rule'?"),
        ("bad.yaml:20: constraints[2]", "a constraint is an expression"),
        ("bad.yaml:21: extra", "There are: among, constraints, facts, knobs"),
    ]
    assert len(found) == len(expected)
    for fault, (start, words) in zip(found, expected, strict=True):
        assert fault.startswith(start + ":")
        assert words in fault


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("knobs:\n  a: [1, 2\n  b: 3\n", "bad.yaml:3:", "not valid YAML"),
        ("knobs:\n\ta: 1\n", "bad.yaml:2:", "not valid YAML"),
        ("a: 'open\nb: 1\n", "bad.yaml:3:", "not valid YAML"),
        ("---\na: 1\n---\nb: 2\n", "bad.yaml:3:", "not valid YAML"),
        ("\n", "bad.yaml:", "empty"),
        ("- 1\n- 2\n", "bad.yaml:1:", "must be a mapping"),
        ("facts: {a: 1}\nknobs: {}\n", "bad.yaml:1:", "needs knobs"),
        ("knobs:\n  a: {type: bool, when: b}\n  b: {type: bool, when: a}\n", "bad.yaml:2: knobs.a.when:", "a -> b -> a"),
        ("knobs:\n  a: [1, 2]\n  b: [1, 2]\nconstraints:\n  - a < b\n  - a > b\n", "bad.yaml:5:", "`a < b` and `a > b` (bad.yaml:6)"),
        ("knobs:\n  a: [x, y]\nconstraints:\n  - a * 2 > 1\n", "bad.yaml:4: constraints[0]:", "arithmetic"),
        ("knobs:\n  a: {values: [x, y], when: 9 ** 99 ** 99 > 1}\n", "bad.yaml:2: knobs.a.when:", "too large"),
        ("knobs:\n  a: [x, y]\n  b: {type: bool, when: a == x}\n", "bad.yaml:3: knobs.b.when:", "Text needs quotes: 'x'"),
        ("knobs:\n  a: [x, y]\nconstraints:\n  - a != x\n", "bad.yaml:4: constraints[0]:", "Text needs quotes: 'x'"),
        ("knobs:\n  a: {range: [1, 9000000]}\nconstraints:\n  - a > 1\n", "bad.yaml:2: knobs.a:", "1,000,000 values at most"),
        ("knobs:\n  a: {range: [1, 2, 3]}\n", "bad.yaml:2: knobs.a.range:", "two ends"),
        ("knobs:\n  a: {range: [1, 4], type: choice}\n", "bad.yaml:2: knobs.a.type:", "not a choice"),
        ("knobs:\n  a: {range: [1, gpus > 1]}\nfacts: {gpus: 8}\n", "bad.yaml:2: knobs.a.range:", "come to a number"),
        ("knobs:\n  a: {values: 5}\n", "bad.yaml:2: knobs.a.values:", "must be a list"),
        ("knobs:\n  gpus: [1, 2]\nfacts: {gpus: 8}\n", "bad.yaml:2: knobs.gpus:", "must not share a name"),
        ("knobs:\n  ? [1, 2]\n  : [1]\n", "bad.yaml:2: knobs.", "must be text"),
        ("knobs:\n  a: {values: [1, [2]]}\n", "bad.yaml:2: knobs.a.values:", "number, text, true, false or null"),
        ("knobs:\n  a: {values: [1, .nan]}\n", "bad.yaml:2: knobs.a.values:", "finite"),
        ("knobs:\n  a: !!python/object/apply:os.system ['true']\n", "bad.yaml:2:", ""),
        ("knobs: &x\n  a: [1, 2]\n  b: *x\n", "bad.yaml:", ""),
    ],
)
def test_single_faults_stand_at_their_line(text: str, place: str, words: str) -> None:
    (found,) = faults(text)[:1]
    assert found.startswith(place)
    assert words in found


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_space(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_space(tmp_path / "binary.yaml")


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[on, off, yes, no, 1e-5, 1e3, .5, 0x10, 2020-01-01, 1:30, true, False, null, ~, 1_000, 010, -3, '5']"
    expected = ["on", "off", "yes", "no", 1e-5, 1000.0, 0.5, 16, "2020-01-01", "1:30", True, False, None, None, 1000, "010", -3, "5"]
    assert compose(text, "text").value == expected


def test_anchors_and_merges() -> None:
    lines = ["knobs:", "  a: &common {values: [1, 2], sparse: true}", "  b: {<<: *common, default: 2}"]
    space = read_space("\n".join([*lines, "  c: {<<: [*common, {help: x}], sparse: false}"]))
    assert space.knobs["b"] == Grid("b", values=[1, 2], sparse=True, default=2)
    assert space.knobs["c"] == Grid("c", values=[1, 2], help="x")


def test_functions_cannot_be_written() -> None:
    with pytest.raises(SpaceError, match="Python function"):
        write_space(Space([Grid("a", 1, 2)], [lambda a: a > 1]))


def test_pinned_spaces_can_be_written() -> None:
    space = read_space(GOOD).pin(Config(bucket_mb=25, fast=True, sp=True, attention=None))
    assert read_space(write_space(space)) == space


def test_the_schema_is_published_and_accepts_what_we_read_and_write() -> None:
    published = json.loads((ROOT / "docs" / "reference" / "space.schema.json").read_text())
    assert published == json_schema(), "write json_schema() to docs/reference/space.schema.json"
    check = jsonschema.Draft202012Validator(json_schema())
    check.check_schema(json_schema())
    for text in (GOOD, (ROOT / "recipes" / "megatron_space.yaml").read_text(), write_space(read_space(GOOD))):
        check.validate(compose(text, "text").value)


@pytest.mark.parametrize(
    "text",
    [
        "knobs: {a: {valus: [1]}}",
        "knobs: {a: {values: []}}",
        "knobs: {a: {values: [1], range: [1, 2]}}",
        "knobs: {a: {range: [1]}}",
        "knobs: {a: {type: bool, values: [1]}}",
        "knobs: {}",
        "facts: {a: 1}",
        "knobs: {a: [1]}\nconstraints: [{rul: a}]",
        "knobs: {a: [1]}\nother: 1",
    ],
)
def test_the_schema_refuses_what_we_refuse(text: str) -> None:
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(compose(text, "text").value))
    with pytest.raises(SpaceError):
        read_space(text + "\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("knobs: {k: [1, 2]}\namong: [{k: .inf}]\n", r"space:2: among\[0\]\.k: a number must be finite"),
        ("knobs: {k: {range: [1, 9], step: []}}\n", "a step must be a number"),
        ("knobs: {k: {range: [1, []], type: float}}\n", "must be finite numbers"),
        ("knobs: {k: {type: !!bool x}}\n", "cannot be read"),
        ("knobs: {k: [!!timestamp x]}\n", "cannot be read"),
        ("knobs: {k: {range: [1, 9], points: 100000000000}}\n", "from 2 to 100,000"),
    ],
)
def test_values_that_no_knob_takes(text: str, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        read_space(text)


def test_text_that_looks_like_a_number_is_written_in_quotes() -> None:
    space = Space([Choice("rate", ["1e-5", "12E3", "-1e+3", "0.5", "1_000", "0x1f", "on", "null"]), Choice("same", ["1e-5", "on"])])
    assert read_space(write_space(space)) == space
