"""What the guides show must run: campaigns are prepared, the first one is measured, the Python is executed."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import yaml

from autoscout.backends.command.backend import PLAN
from autoscout.core.trial import Measurement, Status, Trial
from autoscout.execute.local import LocalExecutor
from autoscout.search.grid.searcher import GridOptions, GridSearcher
from autoscout.study.assemble import build_searcher
from autoscout.study.campaign import Campaign
from autoscout.study.plugin_options import build_options
from autoscout.study.setup import prepare
from autoscout.study.start import StartingPoint

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["guides/command.md", "reference/searchers.md"])
def test_the_campaigns_are_complete(page: str) -> None:
    whole = [data for block in blocks(page, "yaml") if "system" in (data := yaml.safe_load(block))]
    assert whole
    for data in whole:
        setup = prepare(Campaign.model_validate(data))
        assert build_searcher(setup, StartingPoint()).ask(1)


def test_the_sort_example_measures_and_refuses_the_wrong_answer(tmp_path: Path) -> None:
    setup = prepare(Campaign.model_validate(yaml.safe_load(blocks("guides/command.md", "yaml")[0])))
    wrong = setup.default.extend(compare="--dictionary-order")
    with LocalExecutor() as executor:
        for config, status in ((setup.default, Status.OK), (wrong, Status.WRONG_OUTPUT)):
            done = executor.submit(setup.backend.render(config, setup.task, 1)).result()
            assert setup.backend.parse(done, setup.task).status is status


def test_the_vllm_example_leaves_flags_out_and_finds_its_result() -> None:
    data = yaml.safe_load(blocks("reference/command.md", "yaml")[0])
    data["workload"]["find_program"] = False  # no engine is needed to read it
    setup = prepare(Campaign.model_validate({"system": "command", **data}))
    launch = setup.backend.render(setup.default.extend(max_num_seqs=64), setup.task, 1)
    plan = json.loads(launch.files[PLAN])
    assert plan["serve"]["shell"] == 'vllm serve Qwen/Qwen3-0.6B --port "$AUTOSCOUT_PORT" --max-num-seqs 64'
    assert '--result-dir "$AUTOSCOUT_FOLDER" --result-filename bench.json' in plan["run"]["shell"]
    assert "bench.json" in launch.outputs


def test_the_rules_example_reads_as_options() -> None:
    data = yaml.safe_load(blocks("reference/searchers.md", "yaml")[1])
    options = build_options(GridSearcher, data["search"]["options"], "search.options")
    assert isinstance(options, GridOptions)
    assert options.rules[0].holds({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 8})
    assert not options.rules[0].holds({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 32})


def test_the_python_prints_what_it_says() -> None:
    for block in blocks("reference/searchers.md", "python"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, "reference/searchers.md", "exec"), {})
        assert out.getvalue().split() == re.findall(r"# (\S+)$", block, re.MULTILINE)


def test_the_number_of_trials_in_the_staged_example() -> None:
    setup = prepare(Campaign.model_validate(yaml.safe_load(blocks("reference/searchers.md", "yaml")[0])))
    search = build_searcher(setup, StartingPoint())
    counts: dict[int, int] = {}
    while asked := search.ask(3):
        for proposal in asked:
            stage = proposal.origin.notes["stage"]
            counts[stage] = counts.get(stage, 0) + 1
            cost = 5.0 - float(str(proposal.config["zero_stage"]))
            search.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"wall_s": cost}))])
    assert counts == {0: 4, 1: 7, 2: 2}
