"""The records that kernels work on: one per job, node, cluster and set of options. Times are seconds from the start of the run.

Arrays of records are plain NumPy structured arrays: `job[3].gpus` reads and writes one field, compiled or not, and `job["gpus"]` is
the whole column. A single record (`option = options[0]`) does not keep its array alive in compiled code, so arrays of records are
made by the caller of a kernel and never inside one.

A loop keeps nothing to itself: whatever it must know to resume is in these arrays when it returns, so that they are the snapshot.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Table = NDArray[np.float64]
Index = NDArray[np.int64]
Flags = NDArray[np.bool_]
Records = NDArray[Any]
Shelves = NDArray[np.int64]
Record = Any


def record(*names: str, counts: tuple[str, ...] = ()) -> np.dtype[Any]:
    """A record of float64 fields, and of int64 fields for counts."""
    return np.dtype((np.record, [*((name, np.float64) for name in names), *((name, np.int64) for name in counts)]))


JOB = record(
    # What the loops look at most, so that it shares a cache line.
    "status",  # ABSENT, PENDING, RUNNING or ENDED
    "gpus",  # GPUs wanted; below one: a share of a single GPU
    "remaining_s",  # work left when it last changed state
    "executed_s",  # seconds run when it last changed state
    "since_s",  # when it last changed state
    "rate",  # work per second while running
    "finish_s",  # when it will end if left alone
    "submit_s",  # when it joins
    # Input.
    "work_s",  # seconds of work at full speed
    "estimate_s",  # what the scheduler believes work_s to be
    "cost_s",  # seconds of work added by each preemption
    "skew",  # sensitivity to being spread over nodes
    "kind",  # number of the GPU type wanted, -1 for any
    "user",  # number of the owner, 0 when unknown
    "rank_key",  # a fixed order, for policies that have one
    # State.
    "listed",  # rises with every entry into the list of pending or running jobs
    "queue",  # number of its priority queue
    "base_s",  # seconds run before its last promotion
    "waited_s",  # seconds waited before since_s, after its last promotion
    "grants",  # times its allocation was confirmed since it started
    "deserved",  # GPU-seconds a fair share would have given it
    # Outcome.
    "start_s",
    "end_s",
    "preemptions",
    "nodes",  # nodes of its last allocation
    "fewest",  # nodes it needs at least
)

ABSENT, PENDING, RUNNING, ENDED = -1.0, 0.0, 1.0, 2.0

NODE = record(
    "gpus",
    "free",  # whole GPUs that nobody uses
    "kind",  # number of its GPU type
    "speed",  # work per second
    "shared",  # GPUs given to jobs that want a share of one
)

CLUSTER = record(  # one per virtual cluster: all that a loop knows besides jobs, nodes and allocations
    "capacity",  # GPUs
    "free_gpus",
    "round_s",  # seconds between decisions, 0 when every event brings one
    "eligible",  # written by policies: share of the competitors that may be granted anything
    "finish_s",  # when the next running job ends
    "now_s",  # the last moment at which something happened
    "woken_s",  # decide at this moment though nobody arrives or ends
    "changed",  # 1: the last decision started or stopped somebody
    "blocked",  # 1: somebody has waited since the last decision
    "idle_gpu_s",  # GPU-seconds that nobody used while somebody waited
    "least_left_s",  # the least work that was left at a look; see `ranked.py`
    "looks",  # looks since then
    "may_pack",  # Lucid: 1 while jobs may join others
    "checked_s",  # Lucid: the last look at the forecast
    "reviewed_s",  # the last moment at which the policy put the jobs in order, where it does so only now and then
    "backfilled_s",  # the last moment of a backfill
    "usable_s",  # profiler: when a borrowed node can be used
    counts=(
        "present",  # jobs in the system
        "pending",  # those of them that wait
        "arrived",  # jobs that have joined
        "listed",  # entries into the lists so far
        "decisions",
        "vain",  # decisions in a row that changed nothing while nothing ran
        "ended",  # jobs
        "promotions",  # returns to the first queue
        "expiries",  # leases that ended
        "scaled",  # nodes that came or left
        "slots",  # records of nodes in use
        "grown",  # profiler: 1 while it has a borrowed node
    ),
)

SAME_S = 1e-6
"""Ends that are no further apart are one moment: moments are sums and quotients, and so are not exact."""

RECENT = 1_024
"""Services (GPU-seconds) of the latest jobs that ended, which a loop keeps for policies that learn; a ring, `ended` % RECENT is next."""

OPTIONS = record(
    "round_s",  # seconds between decisions; 0: decide at every event
    "round_offset_s",  # a moment at which a round falls
    "preemptive",
    "walk",  # WALK_STRICT or WALK_SKIP
    "placement",  # one of the PLACE_ rules
    "remainder_to_emptiest",  # 1: the rest of a multi-node job goes to the emptiest node; 0: to the one it fits best
    "tick_s",  # seconds between running out of work and leaving
    "largest_first",
    "every_event",  # 1: the policy keeps state of its own and must see every event
    "pack_limit",  # jobs with a skew above it must run on the fewest nodes
    "checkpoint_s",  # work since the last multiple is lost at preemption; 0: nothing is lost
    "slow_two",  # speed on one node more than needed
    "slow_more",  # speed on even more nodes
    "until_s",  # stop before the first thing that happens here or later
    "logging",
    "review_s",  # seconds between the moments as of which the policy orders jobs; 0: it always does so as of now
    "review_offset_s",  # a moment at which it does
    "backfill",  # jobs tried behind a blocked one; 0: none
    "backfill_every_s",  # seconds between two backfills at least; in between only the first in order start
    "backfill_offset_s",  # a moment from which the first one is counted
    "reserve_all",  # 1: everybody who is tried gets a reservation; 0: only the first that does not fit
    "backfill_window_s",  # reservations begin no further ahead
    "resolution_s",  # grid of the plan that reservations are made on
    "origin_s",  # on the clock of the trace, the moment from which the loop counts
    "kinds",  # GPU types, where some jobs want one of several; else 0
    "most_decisions",  # stop after as many; 0: never
)

WALK_STRICT, WALK_SKIP = 0.0, 1.0
PLACE_COUNT, PLACE_CONSOLIDATED, PLACE_RELAXED, PLACE_FEWEST = 0.0, 1.0, 2.0, 3.0

# What a policy says of a job; see `ranked.py`.
COMPETES, PROTECTED, SET_ASIDE = 0.0, 1.0, 2.0

# Columns of the log: one row per job and node whenever GPUs change hands.
LOG_TIME, LOG_JOB, LOG_NODE, LOG_GPUS = 0, 1, 2, 3
LOG_COLUMNS = 4


class PolicyView(NamedTuple):
    """What a policy sees at a decision, and where it writes its order; see `ranked.py`.

    `active`, `key`, `tie` and `flag` have one entry per job in the system; `active[i]` is the number of the job in `job`. Take the
    arrays out of the view before a loop: compiled code counts references whenever a field is read.
    """

    now: float
    active: Index
    job: Records
    cluster: Record
    params: Vector
    memory: Vector
    key: Vector
    tie: Vector
    flag: Vector
    recent: Vector


class Allocations(NamedTuple):
    """Who holds which GPUs, see `place.py`; and which nodes have how many left, see `shelves.py`."""

    held: NDArray[np.int64]
    link_node: Index
    link_gpus: Vector
    link_next: Index
    cursor: Index
    shares: Table
    shelves: Shelves
    sizes: Vector


class LoopState(NamedTuple):
    """What all loops work on: all jobs, the numbers of those in the system, nodes, totals, allocations, services of the latest ends."""

    job: Records
    active: Index
    node: Records
    cluster: Record
    allocations: Allocations
    recent: Vector


Log = tuple[Table, Index]
"""Rows of (time, job, node, GPUs taken or, negative, given back); how many are filled."""
