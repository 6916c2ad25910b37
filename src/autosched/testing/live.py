"""What every live scheduler must do. Subclass `LiveSuite` in a test module and give it the fixture `live`, one that runs:

    class TestMyScheduler(LiveSuite):
        @pytest.fixture
        def live(self, tmp_path):
            return MyScheduler(MyScheduler.example(tmp_path))

Needs no pytest itself; the methods are plain functions of the scheduler. They change its settings and bring them back.
"""

from __future__ import annotations

import json

from autosched.live_scheduler import ChangePlan, LiveScheduler
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.seeds import stream

PATIENCE_S = 10.0  # until a change is reported
SAMPLES = 50  # configurations drawn until one differs from the settings in force


def other_settings(live: LiveScheduler) -> Config:
    """Settings of its space that are not in force."""
    cluster_state = live.look()
    space, draw = live.space(cluster_state.cluster), stream(4, type(live).__name__)
    for _ in range(SAMPLES):
        sample = space.sample(draw) or Config()
        after = cluster_state.settings.extend({name: value for name, value in sample.items() if name not in live.pinned})
        if after != cluster_state.settings:
            return after
    raise AssertionError("its space holds nothing but the settings in force")


def is_in_force(live: LiveScheduler, settings: Config) -> bool:
    """Whether the scheduler reports these settings, now or a little later."""
    deadline_s = live.clock.span_s() + PATIENCE_S
    while live.settings() != settings:
        if live.clock.span_s() >= deadline_s:
            return False
        live.clock.sleep(0.2)
    return True


def from_ledger(plan: ChangePlan) -> ChangePlan:
    """A plan as a controller reads it back from its ledger."""
    return ChangePlan(diff=plan.diff, data=json.loads(json.dumps(plan.data)))


class LiveSuite:
    """The contract, as tests."""

    def test_the_class(self, live: LiveScheduler) -> None:
        assert isinstance(live, LiveScheduler)
        assert type(live).__doc__
        assert live.model in plugins.available("scheduler")

    def test_options_that_it_does_not_know_are_refused(self, live: LiveScheduler) -> None:
        refusal = ""
        try:
            type(live)({"no such option": 1})  # type: ignore[call-arg]
        except ConfigError as error:
            refusal = str(error)
        assert "no such option" in refusal

    def test_the_cluster_is_described(self, live: LiveScheduler) -> None:
        cluster_state = live.look()
        snapshot = cluster_state.snapshot
        assert cluster_state.cluster.gpus > 0
        assert snapshot.at_s == cluster_state.at_s
        assert (snapshot.jobs.submit_s <= cluster_state.at_s).all()
        assert (snapshot.remaining_s >= 0).all()
        assert cluster_state.settings == live.settings()
        assert [fault for event in cluster_state.events for fault in event.faults()] == []

    def test_time_does_not_go_back(self, live: LiveScheduler) -> None:
        first = live.look()
        live.clock.sleep(0.01)
        assert live.look().at_s >= first.at_s

    def test_its_model_knows_its_knobs(self, live: LiveScheduler) -> None:
        cluster_state = live.look()
        model = plugins.get("scheduler", live.model)
        mine, knobs = live.space(cluster_state.cluster), model.space(cluster_state.cluster).knobs
        assert set(mine.knobs) <= set(knobs)
        assert set(live.pinned) <= set(knobs)
        assert set(mine.knobs) - set(live.pinned), "there is nothing to tune"
        assert set(mine.default()) <= set(cluster_state.settings) | set(live.pinned), "every knob is among the settings"
        model.of(model.space(cluster_state.cluster).default().extend(live.pinned))

    def test_a_plan_changes_nothing(self, live: LiveScheduler) -> None:
        before = live.settings()
        plan = live.plan(other_settings(live))
        assert plan.diff
        assert live.settings() == before
        assert live.stored(plan) == "before"

    def test_a_plan_for_the_settings_in_force_is_empty(self, live: LiveScheduler) -> None:
        assert live.plan(live.settings()).diff == ""

    def test_a_change_takes_and_is_brought_back(self, live: LiveScheduler) -> None:
        """With nothing but what a ledger keeps, also when it is brought back twice."""
        before, after = live.settings(), other_settings(live)
        plan = live.plan(after)
        live.apply(plan)
        assert is_in_force(live, after)
        assert live.stored(from_ledger(plan)) == "after"
        for _ in range(2):
            live.restore(from_ledger(plan))
            assert is_in_force(live, before)
            assert live.stored(from_ledger(plan)) == "before"

    def test_restoring_a_plan_that_never_took_changes_nothing(self, live: LiveScheduler) -> None:
        before = live.settings()
        live.restore(live.plan(other_settings(live)))
        assert live.settings() == before
