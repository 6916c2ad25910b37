from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_tables import square, write_folder
from typer.testing import CliRunner

from autoscout.cli.main import app, main
from autoscout.core.errors import AutoScoutError, ConfigError
from autoscout_lab.bench import Entry, Race, Run, find_tables, load_table, run_race, score
from autoscout_lab.bench.page import HEAD, as_page, cells, write_png
from autoscout_lab.bench.race import RUNS, read_runs
from autoscout_lab.bench.score import evaluations_to, regrets


def race_on(folder: Path, *searchers: str, **more: object) -> Race:
    settings = {"seeds": (0, 1), "budget": 6, "jobs": 0, **more}
    return Race(entries=tuple(map(Entry.parse, searchers)), tables=tuple(find_tables(str(folder))), **settings)  # type: ignore[arg-type]


def test_entries_carry_options() -> None:
    entry = Entry.parse("evolution:population=7:second=0.5")
    assert (entry.plugin, dict(entry.options)) == ("evolution", {"population": 7, "second": 0.5})
    assert Entry.parse("grid:shuffle=true").build(square().space, square().task, 0) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nobody", "unknown searcher"),
        ("evolution:population", "NAME=VALUE"),
        ("evolution:popluation=3", "population"),
        ("random:listed=-1", "negative"),
    ],
)
def test_bad_entries_say_why(text: str, message: str) -> None:
    with pytest.raises(AutoScoutError, match=message):
        Entry.parse(text)


def test_a_race_needs_something_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"budget[\s\S]*seeds"):
        race_on(write_folder(tmp_path), "random", budget=0, seeds=())


def test_a_race_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder, output = write_folder(tmp_path / "tables"), tmp_path / "out"
    done: list[tuple[int, int]] = []
    first = run_race(race_on(folder, "random", output=output), lambda run, count, total: done.append((count, total)))
    assert done == [(1, 2), (2, 2)]
    with (output / RUNS).open("a") as file:
        file.write('{"searcher": "rand')  # killed while writing
    again: list[Run] = []
    race = race_on(folder, "random", "coordinate", output=output)
    both = run_race(race, lambda run, count, total: again.append(run))
    assert {run.searcher for run in again} == {"coordinate"}
    assert [run for run in both if run.searcher == "random"] == first
    assert run_race(race) == both


def test_processes_give_the_same_runs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)

    def losses(jobs: int) -> list[tuple[float | None, ...]]:
        return [run.losses for run in run_race(race_on(folder, "random", "evolution", jobs=jobs))]

    assert losses(2) == losses(0)


def runs_by_hand() -> list[Run]:
    """Two searchers on the bowl (optimum 1, median 6.5 or so), one seed: one at once, one late and over a failure."""
    return [
        Run(searcher="good", table="square", seed=0, budget=4, losses=(1.0, 5.0, 9.0), cpu_ms=(1.0, 1.0, 4.0)),
        Run(searcher="bad", table="square", seed=0, budget=4, losses=(None, 20.0, 2.0, 1.04), cpu_ms=(2.0, 2.0, 2.0, 2.0)),
    ]


def test_scores_by_hand() -> None:
    table = square()
    good, bad = runs_by_hand()
    assert regrets(good, table).tolist() == [0.0, 0.0, 0.0, 0.0], "a run that ended early keeps its best"
    span = table.middle - table.optimum
    assert regrets(bad, table).tolist() == pytest.approx([1.0, 1.0, 1.0 / span, 0.04 / span])
    assert [evaluations_to(bad, table, within) for within in (0.01, 0.05, 0.10)] == [8.0, 4.0, 4.0]
    scores = score([good, bad], {"square": table})
    first, second = scores.overall
    assert (first.searcher, first.rank, first.area, first.failures) == ("good", 1.0, 0.0, 0.0)
    assert (second.searcher, second.rank, second.failures) == ("bad", 2.0, 0.25)
    assert second.area == pytest.approx((2.0 + 1.04 / span) / 4)
    assert second.evaluations_to[0.01] == pytest.approx(8.0)
    assert (first.median_ms, first.late_ms, second.reached[0.01]) == (1.0, 4.0, 0.0)


def test_equal_searchers_share_a_rank() -> None:
    good, _ = runs_by_hand()
    twin = Run(**{**good.to_json(), "searcher": "twin", "losses": good.losses, "cpu_ms": good.cpu_ms})
    scores = score([good, twin], {"square": square()})
    assert [line.rank for line in scores.overall] == [1.5, 1.5]
    assert all(line.rank_low <= line.rank <= line.rank_high for line in scores.overall)


def test_tables_count_alike_by_the_geometric_mean(tmp_path: Path) -> None:
    table, other = square(), load_table(find_tables(str(write_folder(tmp_path)))[0])
    one = Run(searcher="s", table="square", seed=0, budget=4, losses=(1.0,), cpu_ms=(1.0,))
    two = Run(searcher="s", table="toy", seed=0, budget=4, losses=(None, None, None, 1.0), cpu_ms=(1.0,) * 4)
    (overall,) = score([one, two], {"square": table, "toy": other}).overall
    assert overall.evaluations_to[0.05] == pytest.approx(math.sqrt(1 * 4))


def test_the_page_shows_every_searcher_and_table(tmp_path: Path) -> None:
    scores = score(runs_by_hand(), {"square": square()})
    page = as_page(scores, "<script>")
    assert "<script>" not in page
    assert page.count("<polyline") == 2 * 2, "two curves, for all tables and for the one"
    assert "square" in page
    assert all(len(cells(line)) == len(HEAD) for line in scores.overall)
    json.dumps(scores.to_json(), allow_nan=False)
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    write_png(scores, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = write_folder(tmp_path / "tables"), tmp_path / "out"
    words = ["bench", "search", "--tables", str(folder), "--searchers", "random,coordinate", "--seeds", "2", "--budget", "5", "--jobs", "1"]
    with pytest.raises(SystemExit) as leave:
        main([*words, "--output", str(output), "--json"])
    assert leave.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["searcher"] for line in found["overall"]} == {"random", "coordinate"}
    assert "<svg" in (output / "bench.html").read_text()
    with pytest.raises(SystemExit):
        main(words)
    assert "coordinate" in capsys.readouterr().out


def test_workers_end_with_a_race_that_is_killed(tmp_path: Path) -> None:
    tables = str(write_folder(tmp_path))
    words = ["bench", "search", "--tables", tables, "--searchers", "cherrypick", "--seeds", "9999", "--jobs", "1"]
    race = subprocess.Popen([sys.executable, "-c", "from autoscout.cli.main import main; main()", *words], stderr=subprocess.DEVNULL)
    try:
        children = wait_for(lambda: workers(race.pid))
    finally:
        race.kill()
        race.wait()
    assert children
    assert wait_for(lambda: not any(alive(child) for child in children)), "a worker went on for nobody"


def workers(pid: int) -> list[str]:
    """Its children, once one of them has imported what it needs to run."""
    found = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    ready = [child for child in found if alive(child) and len(list(Path(f"/proc/{child}/task").iterdir())) > 1]  # the watching thread
    return found if ready else []


def alive(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(what: Callable[[], Any], patience_s: float = 60.0) -> Any:
    end = time.monotonic() + patience_s
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_numbers_of_workers_are_compared(tmp_path: Path) -> None:
    tables, output = str(write_folder(tmp_path / "tables")), tmp_path / "out"
    common = ["bench", "search", "--tables", tables, "--searchers", "random,evolution", "--seeds", "2", "--budget", "8"]
    done = CliRunner().invoke(app, [*common, "--workers", "1,4", "--jobs", "1", "--json", "--output", str(output)])
    names = {line["searcher"] for line in json.loads(done.stdout)["overall"]}
    assert names == {"random, 1 at once", "random, 4 at once", "evolution, 1 at once", "evolution, 4 at once"}
    assert {run.workers for run in read_runs(output)} == {1, 4}
    for wrong in ("0", "two", ""):
        assert isinstance(CliRunner().invoke(app, [*common, "--workers", wrong]).exception, ConfigError)
