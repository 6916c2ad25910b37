from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_tables import square, write_folder

from autoscout.cli.main import main
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.study.folder import Folder
from autoscout.study.stores import open_store
from autoscout_lab.bench import Entry, Run, find_tables, load_table
from autoscout_lab.bench.simulated import Simulated, as_comparison, informants, informed

SHARED = Path(__file__).parents[4] / "shared" / "tables"
LLM = ["llm_train_13b_64gpu", "llm_train_13b_8k_128gpu"]


def training_folder(folder: Path) -> Path:
    """A table of a training job on 16 GPUs, one column made by hand: tensor parallelism of 2 is best, none does not fit."""
    folder.mkdir(parents=True, exist_ok=True)
    params = [
        {"name": "tensor_parallel", "kind": "categorical", "role": "sparse", "values": [1, 2, 4, 8]},
        {"name": "micro_batch_size", "kind": "ordinal", "role": "dense", "values": [1, 2, 4]},
    ]
    entry = {"family": "toy", "objective": "min", "unit": "s", "complete": True, "params": params}
    task = {
        "model": {"layers": 40, "hidden": 5120, "heads": 40, "ffn": 13824, "gated": True, "vocab": 32000},
        "gpus": 16,
        "gpu": "A100-80",
        "global_batch": 256,
        "seq_len": 2048,
    }
    (folder / "manifest.json").write_text(json.dumps({"job": entry}))
    (folder / "tasks.json").write_text(json.dumps({"job": task}))
    lines = ["tensor_parallel,micro_batch_size,value"]
    lines += [f"{tp},{mbs},{'' if tp == 1 else 10 + tp + 0.1 * mbs}" for tp in (1, 2, 4, 8) for mbs in (1, 2, 4)]
    (folder / "job.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(*line: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(list(line))
    return ended.value.code


def test_simulators_carry_options() -> None:
    found = Simulated.parse("training:adapt=false")
    assert (found.plugin, dict(found.options)) == ("training", {"adapt": False})
    assert found.build().options.adapt is False


@pytest.mark.parametrize(
    ("text", "message"), [("nobody", "unknown simulator"), ("training:adept=1", "adapt"), ("training:x", "NAME=VALUE")]
)
def test_bad_simulators_say_why(text: str, message: str) -> None:
    with pytest.raises(AutoScoutError, match=message):
        Simulated.parse(text)


def test_only_searchers_that_can_use_it_are_entered_twice() -> None:
    entries = informed([Entry.parse("random"), Entry.parse("hybrid:start=3")], Simulated.parse("training"))
    assert [entry.label for entry in entries] == ["random", "hybrid:start=3", "hybrid:start=3+training"]
    with pytest.raises(ConfigError, match="Add hybrid"):
        informed([Entry.parse("random")], Simulated.parse("training"))


def test_tables_it_cannot_read_say_why(tmp_path: Path) -> None:
    training = Simulated.parse("training")
    assert "none of the knobs" in training.reads(square())
    (source,) = find_tables(str(training_folder(tmp_path)))
    assert training.reads(load_table(source)) == ""
    (tmp_path / "tasks.json").unlink()
    load_table.cache_clear()
    assert "model" in training.reads(load_table(source))


def test_the_command_compares_with_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training_folder(tmp_path)
    line = ["bench", "search", "--tables", str(folder), "--searchers", "hybrid", "--seeds", "2", "--budget", "8", "--jobs", "1"]
    assert run(*line, "--simulator", "training") == 0
    printed = capsys.readouterr().out
    assert "hybrid+training" in printed
    assert "real evaluations to 5 %" in printed
    assert run(*line, "--simulator", "training", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["simulator"]
    assert [row["table"] for row in rows] == ["job", "all tables"]
    before, after = rows[0]["evaluations"]
    assert after < before
    assert rows[0]["wasted"][1] <= rows[0]["wasted"][0]


def test_the_command_refuses_tables_that_say_nothing_about_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path)
    assert run("bench", "search", "--tables", str(folder), "--searchers", "hybrid", "--simulator", "training") == 2
    assert "tasks.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", '{"job": ["A100"]}'])
def test_tasks_that_describe_nothing_are_told_where(tmp_path: Path, text: str) -> None:
    folder = training_folder(tmp_path)
    (folder / "tasks.json").write_text(text)
    with pytest.raises(ConfigError, match=r"tasks\.json:.* must map names of tables") as caught:
        load_table(find_tables(str(folder))[0])
    assert len(caught.value.faults) == 1


def test_a_file_elsewhere_describes_tables_whose_folder_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training_folder(tmp_path / "tables")
    described = (folder / "tasks.json").rename(tmp_path / "described.json")
    line = ["bench", "search", "--tables", str(folder), "--searchers", "hybrid", "--seeds", "1", "--budget", "4", "--jobs", "1"]
    assert run(*line) == 0
    assert "informed" not in capsys.readouterr().out
    assert run(*line, "--tasks", str(described)) == 0
    assert "hybrid informed by training on job" in capsys.readouterr().out
    described.write_text('{"job": ["A100"]}')
    assert run(*line, "--tasks", str(described)) == 2
    assert "described.json: job: must map names of tables" in capsys.readouterr().err
    assert run(*line, "--tasks", str(tmp_path / "nowhere.json")) == 2


def test_a_past_study_brings_its_own_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its store knows model, GPUs and load, which is what a simulator asks for."""
    objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE)
    load = {"model": "llama-3.1-8b", "input_tokens": 256, "output_tokens": 32, "concurrency": 8, "requests": 16}
    task = Task(system="vllm", objective=objective, workload=load, hardware={"gpus": "4xH100"})
    folder = Folder(tmp_path / "served")
    folder.join("served")
    folder.keep({"name": "served", "goal": {"metric": "output_throughput", "direction": "maximize"}})
    configs = [Config(tensor_parallel_size=tp, max_num_seqs=seqs) for tp in (1, 2, 4) for seqs in (4, 8, 64)]
    measurements = [Measurement(status=Status.OK, metrics={"output_throughput": 100.0 + tp}) for tp in range(len(configs))]
    with closing(open_store(folder.store, journal=folder.journal)) as store:
        store.open(StudyRecord(name="served", task=task, space="", spec={}))
        pairs = zip(configs, measurements, strict=True)
        store.append("served", [Trial(proposal=Proposal(config=config), measurement=found, study="served") for config, found in pairs])
    (source,) = find_tables(str(folder.path))
    assert load_table(source).task == task
    line = ["bench", "search", "--tables", str(folder.path), "--searchers", "hybrid", "--seeds", "1", "--budget", "3", "--jobs", "1"]
    assert run(*line) == 0
    assert "hybrid informed by serving on served" in capsys.readouterr().out


@pytest.mark.external
def test_the_recorded_server_is_described_for_the_serving_model() -> None:
    """What its authors publish of the load says enough for the model, which is right that graphs are faster."""
    if not SHARED.is_dir():
        pytest.skip("the tables that others recorded are not here")
    pytest.importorskip("pyarrow")
    described = Path(__file__).parents[3] / "benchmarks" / "recorded_tasks.json"
    table = load_table(find_tables(str(SHARED), ["llm_serve_vllm"], str(described))[0])
    simulator = Simulated.parse("serving")
    assert simulator.reads(table) == ""
    plain = [row for row, config in enumerate(table.configs) if not config["enable_speculative_decoding"]]
    predicted = simulator.build().predict([table.configs[row] for row in plain], table.task).value
    eager = np.array([bool(table.configs[row]["enforce_eager"]) for row in plain])
    assert predicted[eager].min() > predicted[~eager].max()
    assert np.median(table.losses[plain][eager]) > np.median(table.losses[plain][~eager])


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_hybrid_is_informed_where_a_simulator_understands_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training_folder(tmp_path / "tables")
    line = ["bench", "search", "--tables", str(folder), "--searchers", "hybrid,random", "--seeds", "2", "--budget", "8", "--jobs", "1"]
    kept = ["--output", str(tmp_path / "out")]
    assert run(*line, *kept, "--simulator", "none") == 0
    assert "informed by" not in capsys.readouterr().out
    assert "informed by" not in (tmp_path / "out" / "bench.html").read_text()
    assert run(*line, *kept) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "hybrid informed by training on job; --simulator none races without"
    assert first in (tmp_path / "out" / "bench.html").read_text(), "the page says it too"
    runs = lines_of(tmp_path / "out")
    assert [(entry["searcher"], entry["informed"]) for entry in runs] == [
        *[("hybrid", ""), ("random", "")] * 2,
        *[("hybrid", "training")] * 2,
    ], "what was informed is another run; what was not stands already"
    assert run(*line, *kept, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["informed"] == {"job": "training"}
    assert run(*line, *kept, "--simulator", "none", "--json") == 0
    without = json.loads(capsys.readouterr().out)
    assert without["informed"] == {}
    assert len(lines_of(tmp_path / "out")) == 6, "both were read back"
    means = [{score["searcher"]: score["area"] for score in found["overall"]} for found in (told, without)]
    assert means[0]["hybrid"] < means[1]["hybrid"]
    assert means[0]["random"] == means[1]["random"]


def test_runs_of_earlier_versions_count_as_not_informed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training_folder(tmp_path / "tables")
    line = ["bench", "search", "--tables", str(folder), "--searchers", "hybrid", "--seeds", "1", "--budget", "6", "--jobs", "1"]
    line += ["--output", str(tmp_path / "out")]
    assert run(*line, "--simulator", "none") == 0
    (old,) = lines_of(tmp_path / "out")
    del old["informed"]
    (tmp_path / "out" / "runs.jsonl").write_text(json.dumps(old) + "\n")
    assert run(*line, "--simulator", "none") == 0
    assert lines_of(tmp_path / "out") == [old], "nothing was run again"
    assert run(*line) == 0
    assert [entry.get("informed", "") for entry in lines_of(tmp_path / "out")] == ["", "training"]
    capsys.readouterr()


def test_tables_that_nobody_understands_are_raced_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path)
    line = ["bench", "search", "--tables", str(folder), "--searchers", "hybrid", "--seeds", "1", "--budget", "5", "--jobs", "1"]
    assert run(*line, "--json") == 0
    assert json.loads(capsys.readouterr().out)["informed"] == {}
    assert informants([Entry.parse("random")], [load_table(*find_tables(str(training_folder(tmp_path / "t"))))]) == {}


def test_the_comparison_reads_aloud() -> None:
    row = {"table": "t", "searchers": ["h", "h+s"], "evaluations": [20.0, 5.0], "wasted": [4.0, 1.0], "failures": [0.4, 0.1]}
    assert "h+s 5.0, h 20.0 (ratio 0.25); failed 1.0, 4.0; 10.0 %, 40.0 %" in as_comparison([row])
    assert "%," not in as_comparison([{**row, "failures": [None, None]}]).splitlines()[1]


@pytest.mark.external
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not here")
def test_the_training_model_saves_a_third_of_the_evaluations() -> None:
    from autoscout_lab.bench.replay import replay

    (able,) = [entry for entry in informed([Entry.parse("hybrid")], Simulated.parse("training")) if entry.simulator]
    for source in find_tables(str(SHARED), LLM):
        table = load_table(source)
        found: dict[str, list[Run]] = {"with": [], "without": []}
        for seed in (0, 1):
            for name, entry in (("with", able), ("without", Entry.parse("hybrid"))):
                searcher = entry.build(table.space, table.task, seed)
                found[name].append(replay(table, searcher, name=name, seed=seed, budget=30))
        goal = 1.05 * table.optimum
        mean = {name: sum(_reach(run, goal) for run in runs) / len(runs) for name, runs in found.items()}
        assert mean["with"] <= 2.0 / 3.0 * mean["without"]
        failed = {name: sum(run.losses[: _reach(run, goal)].count(None) for run in runs) for name, runs in found.items()}
        assert failed["with"] <= failed["without"], "until the goal is reached; later only the edge of memory is left to try"


def _reach(run: Run, goal: float) -> int:
    return next((index + 1 for index, loss in enumerate(run.losses) if loss is not None and loss <= goal), 2 * run.budget)
