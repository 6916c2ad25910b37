"""`python -m benchmarks.search` and `benchmarks.search_compare`: families, figures by hand, a race that resumes, a verdict."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from itertools import combinations
from pathlib import Path

import pytest
from bench_tables import write_folder

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import _search_families, _search_race, search, search_compare  # noqa: E402
from benchmarks._drawn_clusters import drawn_layout, drawn_server  # noqa: E402
from benchmarks._drawn_spaces import KINDS, drawn_space  # noqa: E402
from benchmarks._search_families import CHOOSING, FAMILIES, FINAL, Family, chosen  # noqa: E402
from benchmarks._search_figures import difference, figures, overall  # noqa: E402
from benchmarks._search_race import ADAPTERS, Contestant, Run, race  # noqa: E402

from autoscout.core.errors import ConfigError  # noqa: E402


def run(label: str, table: str, seed: int, area: float, evaluations: int) -> Run:
    more = {"reached": evaluations < 10, "failures": 1, "ms": 2.0, "family": "toy"}
    return {"label": label, "table": table, "seed": seed, "area": area, "evaluations": evaluations, **more}


def test_figures_by_hand() -> None:
    mine = [
        run("new", table, seed, area + 0.1 * seed, 2 if table == "a" else 8) for table, area in (("a", 0.1), ("b", 0.3)) for seed in (0, 1)
    ]
    other = [run("old", "a", 0, 0.2, 4), run("old", "a", 1, 0.4, 4), run("old", "b", 0, 0.4, 8)]
    row = figures(mine)
    assert row.area == pytest.approx(0.25)
    assert row.area_error == pytest.approx(0.05), "0.2 and 0.3 in two seeds"
    assert row.evaluations == pytest.approx(4.0), "geometric mean"
    gap = difference(mine, other)
    assert gap.seeds == 2
    assert gap.area == pytest.approx((-0.1 - 0.2) / 2), "paired by table and seed, the mean over a seed's tables first"
    assert gap.area_error == pytest.approx(0.05)
    assert gap.verdict == "better"
    assert difference(other, mine).verdict == "worse"
    assert gap.evaluations == pytest.approx((math.log(0.5) / 2 + math.log(0.5)) / 2)
    assert overall({"x": mine, "y": mine})[0] == pytest.approx(0.25)
    assert math.isnan(difference(mine, []).area)


def test_every_family_has_a_part_and_drawn_tables_differ_by_seed(tmp_path: Path) -> None:
    assert {family.part for family in FAMILIES} == {CHOOSING, FINAL}
    assert {family.name for family in chosen(CHOOSING)}.isdisjoint(family.name for family in chosen(FINAL))
    assert [family.name for family in chosen("all", "small,edges")] == ["edges", "small"]
    family = next(family for family in FAMILIES if family.name == "small edges")
    (first,), (again,), (second,) = (family.tables(tmp_path, seed) for seed in (0, 0, 1))
    assert first == again
    assert first["name"] != second["name"]


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_spaces_are_what_their_kind_says(kind: str) -> None:
    for number in (0, 1):
        table = drawn_space(kind, number)
        values = [value for _, value in table.rows]
        failing = sum(value is None for value in values) / len(values)
        least, most = KINDS[kind].rows
        assert least <= len(values) <= most
        assert failing == pytest.approx(0.0) if KINDS[kind].failing[1] == 0 else failing <= KINDS[kind].failing[1] + 0.1
        assert [value for _, value in drawn_space(kind, number).rows] == values
    assert KINDS[kind].gates == 0 or any(knob.when for knob in table.space.knobs.values())


def test_small_spaces_fail_for_every_reason_in_turn() -> None:
    """Past a limit and out of time, what fails is at one end; values and pairs of values that are refused fail wherever they are used."""
    reasons = KINDS["small-refusals"].reasons
    for number in range(2 * len(reasons)):
        table, reason = drawn_space("small-refusals", number), reasons[number % len(reasons)]
        failing = [config for config, value in table.rows if value is None]
        working = [config for config, value in table.rows if value is not None]
        assert working
        if reason == "values":
            seen = {pair for config in working for pair in config.items()}
            assert all(set(config.items()) - seen for config in failing), "each holds a value that never works"
        if reason == "clashes":
            seen = {pair for config in working for pair in combinations(sorted(config.items()), 2)}
            assert all(set(combinations(sorted(config.items()), 2)) - seen for config in failing)


def test_drawn_machines_have_layouts_that_fit_and_some_that_do_not(tmp_path: Path) -> None:
    layouts, server = drawn_layout(tmp_path, 2), drawn_server(tmp_path, 9)
    for table in (layouts, server):
        values = [value for _, value in table.rows]
        assert 0 < sum(value is None for value in values) < len(values)
        assert table.workload["synthetic"] is True


def recorded(tmp_path: Path) -> Family:
    folder = write_folder(tmp_path / "tables")
    names = tuple(json.loads((folder / "manifest.json").read_text()))
    return Family(name="toy", part=CHOOSING, about="a toy", recorded=(folder, names), noise=(0.05,))


def test_a_race_is_resumed_and_the_same_code_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = recorded(tmp_path)
    monkeypatch.setattr(_search_families, "BUDGET", 5)
    contestants = [Contestant.parse("hybrid"), Contestant.parse(f"hybrid@{ROOT}"), Contestant.parse("hybrid:cautious=true")]
    runs = race(contestants, [family], [0, 1], tmp_path)
    lots = {one.label: [run for run in runs if run["label"] == one.label] for one in contestants}
    assert difference(lots["hybrid"], lots[f"hybrid@{ROOT}"]).area == 0.0
    assert all(run["steps"] <= 5 for run in runs)
    lines = (tmp_path / "runs.jsonl").read_text()
    assert len(race(contestants, [family], [0, 1], tmp_path)) == len(runs)
    assert (tmp_path / "runs.jsonl").read_text() == lines, "a finished race is not run again"


def test_the_comparison_says_what_may_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_compare, "chosen", lambda part, names: [recorded(tmp_path)])
    monkeypatch.setattr(_search_families, "BUDGET", 12)
    words = ["compare", "random", "cherrypick", "--seeds", "3", "--runs", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    status = search_compare.main()
    told = capsys.readouterr().out
    assert ("do not merge" in told) == bool(status)
    assert "| toy |" in told
    monkeypatch.setattr(sys, "argv", ["compare", "random", "hybrd"])
    assert search_compare.main() == 2
    assert "unknown" in capsys.readouterr().err
    gaps = {"one": difference([run("a", "t", seed, 0.2, 9) for seed in (0, 1)], [run("b", "t", seed, 0.1, 9) for seed in (0, 1)])}
    assert search_compare.verdict(gaps, "a") == "a loses two standard errors in one: do not merge."


def test_other_tuners_run_where_their_packages_are() -> None:
    assert Contestant.parse("hybrid").python == sys.executable
    python = Contestant.parse("optuna-tpe").python
    assert python == (sys.executable if importlib.util.find_spec("optuna") else str(ADAPTERS))


@pytest.mark.parametrize("text", ["hybrid@no-such-commit", "hybrid+auto~much", "nobody"])
def test_what_cannot_run_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Contestant.parse(text)


def test_the_page_compares_everybody_family_by_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PAGE", tmp_path / "search.md")
    (tmp_path / "search.md").write_text("# Old\n\n## The change to one proposer\n\nBetter.\n\n## Families that were kept aside\n\nNone.\n")
    monkeypatch.setattr(_search_families, "BUDGET", 6)
    words = ["--seeds", "2", "--searchers", "hybrid,random,hybrid+auto", "--families", "small,servers", "--runs", str(tmp_path), "--write"]
    monkeypatch.setattr(sys, "argv", ["search", *words])
    search.main()
    page = (tmp_path / "search.md").read_text()
    assert str(tmp_path) not in page, "no paths of this machine"
    assert "| `random` |" in page
    assert page.count("## Families that were kept aside") == 1
    assert page.endswith("## The change to one proposer\n\nBetter.\n"), "comparisons are not lost"
    assert "| servers |" in page.partition("## Told what")[2], "the serving simulator informs the search"
    monkeypatch.setattr(sys, "argv", ["search", *words[:-1], "--stop", "--write"])
    monkeypatch.setattr(_search_race, "_program", None)
    search.main()
    assert (tmp_path / "search.md").read_text() == page, "what there is, nothing run"


def test_the_page_says_which_bars_hold() -> None:
    def lot(area: float, evaluations: int, label: str = "") -> list[Run]:
        return [run(label, "t", seed, area + 0.01 * seed, evaluations) for seed in (0, 1)]

    lots = {
        "layouts": {
            "hybrid": lot(0.1, 8),
            "random": lot(0.2, 20),
            "udo": lot(0.4, 40),
            "hybrid+auto": lot(0.1, 1),
            "hybrid+auto~0.8": lot(0.1, 9),
        },
        "small": {"hybrid": lot(0.1, 4), "random": lot(0.2, 4)},
        "small edges": {"hybrid": lot(0.3, 4), "random": lot(0.1, 8)},
    }
    rows = search._bars({name: lots[name] for name in ("layouts", "small edges")}, lots).splitlines()
    told = {row.split("|")[1].strip(): (row.split("|")[2].strip(), row.split("|")[4].strip()) for row in rows[2:]}
    assert told["area, times the best peer's, all families"] == ("1.32 (`random`)", "**does not hold**"), "udo did not run them all"
    assert told["evaluations to 5 %, times the best peer's, all families"] == ("0.45 (`random`)", "holds")
    assert told["small: area less that of `random`, in errors"][1] == "holds"
    assert told["small edges: area less that of `random`, in errors"][1] == "**does not hold**"
    assert told["layouts, `hybrid+auto`: evaluations, times those without"][1] == "holds"
    assert told["layouts, `hybrid+auto~0.8`: evaluations, times those without"][1] == "**does not hold**"
