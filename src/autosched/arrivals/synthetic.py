"""Synthetic traces, calibrated to published statistics of real clusters, so that everything works with no download.

Arrivals follow a day and a week, and come in bursts: a user submits several similar jobs at once (hyper-parameter search, debugging).
Durations are log-normal with the published mean and median; jobs of one burst resemble each other. Sizes are powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.sim.trace import Labels, Trace
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.seeds import stream

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Statistics of a cluster.

    Attributes:
        mean_s, median_s: Durations.
        longest_s: Where the tail is cut before it is stretched to the mean.
        sizes: GPUs and the share of jobs that ask for as many.
        completed, cancelled: Shares of jobs by how they end; the rest fail.
        daily: How much busier the busiest hour is than the mean, 0 to 1.
        weekend: Arrivals at the weekend, relative to other days.
        burst: Mean number of similar jobs submitted at once.
        users: People.
    """

    mean_s: float
    median_s: float
    longest_s: float
    sizes: tuple[tuple[float, float], ...]
    completed: float = 0.6
    cancelled: float = 0.2
    daily: float = 0.5
    weekend: float = 0.7
    burst: float = 2.0
    users: int = 200


PROFILES = {
    "philly": Profile(
        mean_s=18_006,
        median_s=874,
        longest_s=4_240_676,
        sizes=((1, 0.84), (2, 0.04), (4, 0.05), (8, 0.04), (16, 0.03)),
        completed=0.604,
        cancelled=0.09,
        daily=0.3,
    ),
    "venus": Profile(
        mean_s=13_041,
        median_s=204,
        longest_s=4_000_000,
        sizes=((1, 0.51), (2, 0.05), (4, 0.09), (8, 0.21), (16, 0.07), (32, 0.05), (64, 0.02)),
        completed=0.526,
        cancelled=0.272,
        daily=0.6,
        users=118,
    ),
    "earth": Profile(
        mean_s=5_131,
        median_s=234,
        longest_s=4_000_000,
        sizes=((1, 0.755), (2, 0.08), (4, 0.08), (8, 0.06), (16, 0.025)),
        completed=0.735,
        cancelled=0.136,
    ),
    "saturn": Profile(
        mean_s=5_253,
        median_s=124,
        longest_s=4_000_000,
        sizes=((1, 0.62), (2, 0.07), (4, 0.08), (8, 0.16), (16, 0.04), (32, 0.03)),
        completed=0.582,
        cancelled=0.272,
    ),
    "pai": Profile(
        mean_s=4_787,
        median_s=481,
        longest_s=1_000_000,
        sizes=((0.25, 0.30), (0.5, 0.34), (1, 0.30), (2, 0.05), (4, 0.01)),
        completed=0.7,
        cancelled=0.1,
        burst=6.0,
        users=1_300,
    ),
    "seren": Profile(
        mean_s=1_414,
        median_s=122,
        longest_s=1_209_604,
        sizes=((1, 0.61), (2, 0.06), (4, 0.08), (8, 0.19), (16, 0.02), (32, 0.015), (64, 0.01), (128, 0.015)),
        completed=0.497,
        cancelled=0.075,
        burst=4.0,
    ),
    "kalos": Profile(
        mean_s=1_260,
        median_s=124,
        longest_s=625_740,
        sizes=((1, 0.546), (8, 0.25), (16, 0.05), (32, 0.05), (64, 0.04), (128, 0.03), (256, 0.02), (512, 0.008), (1024, 0.006)),
        completed=0.541,
        cancelled=0.062,
        burst=3.0,
    ),
}
"""Calibrated to the cluster summaries that accompany Helios, Acme, Philly and PAI."""


MOST_JOBS = 10_000_000  # of one synthetic trace: about 1 GB in memory
MOST_DAYS = 36_500  # of one synthetic trace: a hundred years


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to generate.

    Attributes:
        profile: Name in `PROFILES`.
        jobs: How many.
        days: Over how many days they arrive.
        load: With `cluster_gpus`: mean demand over capacity; durations are scaled to reach it. 0: durations as published.
        cluster_gpus: Capacity for `load`, and the largest size asked for.
        vcs: Virtual clusters, of very different popularity; 0: none.
        start_s: When the trace begins; the default is a Monday.
        seed: Equal seeds give equal traces.
    """

    profile: str = "philly"
    jobs: int = 10_000
    days: float = 14.0
    load: float = 0.0
    cluster_gpus: int = 0
    vcs: int = 0
    start_s: float = 1_577_664_000.0
    seed: int = 0

    def __post_init__(self) -> None:
        rules = [
            ("profile", self.profile in PROFILES, f"must be one of {', '.join(PROFILES)}"),
            ("jobs", 1 <= self.jobs <= MOST_JOBS, f"must be from 1 to {MOST_JOBS:,}"),
            ("days", 0 < self.days <= MOST_DAYS, f"must be above zero and at most {MOST_DAYS:,}"),
            ("seed", abs(self.seed) < 2**63, "must have at most 63 bits"),
            ("load", self.load >= 0, "must not be negative"),
            ("cluster_gpus", self.load == 0 or self.cluster_gpus > 0, "must be given with a load"),
        ]
        faults = [Fault(where="recipe", field=name, value=str(getattr(self, name)), rule=rule) for name, ok, rule in rules if not ok]
        if faults:
            raise ConfigError(faults)


def generate(recipe: Recipe) -> Trace:
    """A trace by recipe."""
    profile = PROFILES[recipe.profile]
    burst = _bursts(recipe, profile)
    bursts = int(burst[-1]) + 1
    when = _arrivals(recipe, profile, bursts)
    draw = stream(recipe.seed, "synthetic", "jobs")
    jobs = recipe.jobs
    submit = when[burst] + np.where(np.diff(burst, prepend=-1) == 0, draw.exponential(20.0, jobs), 0.0)
    sizes = np.asarray([size for size, _ in profile.sizes])
    weights = np.asarray([share for _, share in profile.sizes])
    gpus = draw.choice(sizes, bursts, p=weights / weights.sum())[burst]
    if recipe.cluster_gpus:
        gpus = np.minimum(gpus, recipe.cluster_gpus)
    spread = np.sqrt(2 * np.log(profile.mean_s / profile.median_s))
    shared, own = draw.normal(size=bursts)[burst], draw.normal(size=jobs)
    duration = profile.median_s * np.exp(spread * (0.8 * shared + 0.6 * own))
    duration = _with_mean(np.clip(duration, 1.0, profile.longest_s), profile)
    if recipe.load:
        gpu_seconds = recipe.load * recipe.cluster_gpus * recipe.days * DAY_S
        duration = np.maximum(1.0, np.round(duration * gpu_seconds / np.dot(gpus, duration)))
    ends = draw.random(jobs)
    status = np.where(ends < profile.completed, 0, np.where(ends < profile.completed + profile.cancelled, 1, 2))
    owner = np.minimum(draw.zipf(1.6, bursts) - 1, profile.users - 1)[burst]
    group = np.minimum(draw.zipf(1.5, bursts) - 1, max(0, recipe.vcs - 1))[burst]
    order = np.argsort(np.round(submit), kind="stable")
    digits = len(str(jobs))
    return Trace(
        job_id=np.char.add("job-", np.char.zfill(np.arange(jobs).astype(np.str_), digits)),
        submit_s=np.round(submit)[order],
        duration_s=duration[order],
        gpus=gpus[order],
        user=Labels(owner[order].astype(np.int64), tuple(f"user-{number}" for number in range(profile.users))),
        vc=Labels(group[order].astype(np.int64), tuple(f"vc-{number}" for number in range(recipe.vcs)) or ("",)),
        status=Labels(status[order].astype(np.int64), ("COMPLETED", "CANCELLED", "FAILED")),
        name=Labels.constant("", jobs),
        kind=Labels.constant("", jobs),
        source=f"synthetic {recipe.profile}, seed {recipe.seed}",
    )


def _with_mean(duration: NDArray[np.float64], profile: Profile) -> NDArray[np.float64]:
    """Stretch the part above the median until the mean is the published one, which the cut at the longest would miss."""
    above = duration > profile.median_s
    excess = float((duration[above] - profile.median_s).sum())
    tail_s = profile.mean_s * len(duration) - float(duration[~above].sum()) - profile.median_s * int(above.sum())
    if excess > 0 and tail_s > 0:
        duration = np.where(above, profile.median_s + (duration - profile.median_s) * tail_s / excess, duration)
    return np.maximum(1.0, np.round(duration))


def _bursts(recipe: Recipe, profile: Profile) -> NDArray[np.int64]:
    """For each job the burst it belongs to, rising from 0."""
    draw = stream(recipe.seed, "synthetic", "bursts")
    lengths = draw.geometric(1.0 / profile.burst, recipe.jobs)
    return np.repeat(np.arange(recipe.jobs), lengths)[: recipe.jobs]


def _arrivals(recipe: Recipe, profile: Profile, bursts: int) -> NDArray[np.float64]:
    """Moments drawn from a rate that follows the day and the week, sorted."""
    draw = stream(recipe.seed, "synthetic", "arrivals")
    steps = max(2, int(np.ceil(recipe.days * 96)))
    edges = np.linspace(0.0, recipe.days * DAY_S, steps + 1)
    middle = (edges[:-1] + edges[1:]) / 2 + recipe.start_s
    hour = (middle % DAY_S) / DAY_S
    weekday = ((middle // DAY_S) + 3) % 7  # the epoch began on a Thursday
    rate = (1.0 + profile.daily * np.sin(2 * np.pi * (hour - 0.35))) * np.where(weekday >= 5, profile.weekend, 1.0)
    total = np.concatenate([[0.0], np.cumsum(rate)])
    moments: NDArray[np.float64] = recipe.start_s + np.interp(np.sort(draw.random(bursts)) * total[-1], total, edges)
    return moments
