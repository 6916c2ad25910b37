"""Modes of the closed loop: the default, AutoSched as published, and what they are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autosched.arrivals.arrivals import DAY_S, HOUR_S, Generator
from autosched.predict.predictor import PredictorOptions
from autosched.tune.search import SearchOptions
from autoscout.core.errors import require

FUTURES = ("days", "predicted", "truth", "last-hour")
STARTS = ("default", "history", "stressed", "window")
OURS = "hybrid"
"""Searcher of the modes that are not the paper's."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How a loop decides.

    Attributes:
        words: What it is, for people.
        start: The configuration it begins with: `default` (the published one), `history` (tuned once on the week before), `stressed`
            (of those as good as that, the one that is best on that week with its jobs coming faster) or `window` (tuned on what really
            comes: an oracle).
        start_trials: Simulations of that tuning.
        every_s: Seconds between decisions; infinite: none.
        futures: What configurations are tried on: `days` (unfinished jobs with drawn remaining times, and a single past day replayed in
            each future), `predicted` (the same with the paper's generator), `truth` (an oracle) or `last-hour` (an empty cluster).
        draws: How many futures.
        horizon_s: How long jobs keep coming in a future.
        cap_s: How long it is simulated at most.
        generators: Of `predicted`: draw i uses number i, from the beginning again after the last.
        predictor: Of remaining times.
        search: How configurations are looked for at a decision.
        causal: Whether a causal model rejects and narrows down.
        aggregate: Whether similar jobs are merged.
        least_gain: Change only when the mean cost over the futures falls by at least this factor.
        least_share: And when it does not rise on at least this share of the futures.
        checked: Whether new settings must also prove themselves on the week behind with its days in other orders, as it was and busier.
        watch_s: Seconds after which it looks again in between; 0: never.
        watch_gain: The factor that a change in between needs.
        alerts: Whether a burst or a large job brings a decision at once; it needs `watch_gain`, too.
        gives_up: Stop changing for a week when the changes of the last one did not gain.
    """

    words: str
    start: str = "default"
    start_trials: int = 60
    every_s: float = np.inf
    futures: str = "days"
    draws: int = 1
    horizon_s: float = DAY_S
    cap_s: float = np.inf
    generators: tuple[Generator, ...] = (Generator(),)
    predictor: PredictorOptions = field(default_factory=PredictorOptions)
    search: SearchOptions = field(default_factory=lambda: SearchOptions(searcher=OURS, trials=24, reject=0.0, scope=False))
    causal: bool = False
    aggregate: bool = False
    least_gain: float = 1.0
    least_share: float = 0.0
    checked: bool = False
    watch_s: float = 0.0
    watch_gain: float = 1.1
    alerts: bool = False
    gives_up: bool = False

    def __post_init__(self) -> None:
        rules = {
            "start": (self.start in STARTS, f"must be one of {', '.join(STARTS)}"),
            "start_trials": (self.start_trials >= 1, "must be at least 1"),
            "every_s": (self.every_s >= 60, "must be at least 60"),
            "futures": (self.futures in FUTURES, f"must be one of {', '.join(FUTURES)}"),
            "draws": (self.draws >= 1, "must be at least 1"),
            "horizon_s": (self.horizon_s > 0, "must be above zero"),
            "cap_s": (self.cap_s >= self.horizon_s, "must not be shorter than the horizon"),
            "least_gain": (self.least_gain >= 1, "must be at least 1"),
            "least_share": (0 <= self.least_share <= 1, "must be from 0 to 1"),
            "watch_s": (self.watch_s == 0 or self.watch_s >= 60, "must be 0 or at least 60"),
        }
        require("mode", self, rules)


_PAPER = Mode(
    words="AutoSched as published: every hour and 5 min, generated and predicted jobs, causal rejection, aggregation",
    every_s=HOUR_S,
    futures="predicted",
    horizon_s=HOUR_S,
    cap_s=DAY_S,
    generators=(Generator(smooth=True),),
    predictor=PredictorOptions(model="xgboost", likeliest=True),
    search=SearchOptions(searcher="bluefin", trials=40),
    causal=True,
    aggregate=True,
    watch_s=300.0,
)

MODES = {
    "static": Mode(words="the published default, never changed"),
    "fixed-history": Mode(words="tuned once on the week before", start="history"),
    "fixed-oracle": Mode(words="the best fixed configuration in hindsight", start="window", start_trials=120),
    "selftune": Mode(
        words="SelfTune: every hour, on the jobs of the last hour and an empty cluster",
        every_s=HOUR_S,
        futures="last-hour",
        horizon_s=HOUR_S,
        search=SearchOptions(searcher="bluefin", trials=40, reject=0.0, scope=False),
    ),
    "paper": _PAPER,
    "default": Mode(
        words="tuned on the week before and then a busier one, then daily on several drawn futures; changed only when nearly all gain",
        start="stressed",
        every_s=DAY_S,
        futures="days",
        draws=4,
        horizon_s=DAY_S,
        least_gain=1.015,
        least_share=0.75,
        checked=True,
        alerts=True,
        gives_up=True,
    ),
    "future-oracle": Mode(
        words="every hour, on what really comes",
        every_s=HOUR_S,
        futures="truth",
        horizon_s=HOUR_S,
        cap_s=DAY_S,
        search=SearchOptions(searcher="bluefin", trials=40, reject=0.0, scope=False),
    ),
}
"""By name. `default` is what is recommended; `static`, `fixed-oracle` and `future-oracle` are what it is compared with."""

LIVE = Mode(
    words="arrivals of several past moments again, remaining times from a predictor; changed only when most of these futures gain",
    every_s=HOUR_S,
    futures="predicted",
    generators=tuple(Generator(method="back", back_s=back) for back in (HOUR_S, DAY_S, 2 * HOUR_S, 7 * DAY_S, 3 * HOUR_S, 2 * DAY_S)),
    draws=6,
    horizon_s=HOUR_S,
    search=SearchOptions(searcher=OURS, trials=40, reject=0.0, scope=False),
    least_gain=1.1,
    least_share=0.75,
)
"""The default of a controller: it looks an hour ahead, because what it decides is judged after an hour."""
