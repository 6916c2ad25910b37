"""Rows of the tables that kernels work on. All tables hold float64; times are seconds from the start of the run."""

from __future__ import annotations

# Rows of the job table. The first block is input, the second is state, the third is outcome.
SUBMIT = 0  # when the job joins
GPUS = 1  # GPUs wanted; below one: a share of a single GPU
WORK = 2  # seconds of work at full speed
ESTIMATE = 3  # what somebody believes WORK to be
COST = 4  # seconds of work added by each preemption
SKEW = 5  # sensitivity to being spread over nodes
KIND = 6  # GPU type wanted, -1 for any
USER = 7  # index of the owner, 0 when unknown
RANK_KEY = 8  # a fixed order, for policies that have one

STATUS = 9  # see below
REMAINING = 10  # work left when it last changed state
EXECUTED = 11  # seconds run when it last changed state
SINCE = 12  # when it last changed state
RATE = 13  # work per second while running
FINISH = 14  # when it will end if left alone
LISTED = 15  # order of entry into the list (pending or running) it stands in
QUEUE = 16  # priority queue it stands in
BASE = 17  # seconds run before its last promotion
WAITED = 18  # seconds spent waiting before SINCE, after its last promotion
GRANTS = 19  # times its allocation was confirmed since it started
DESERVED = 20  # GPU-seconds a fair share would have given it

START = 21
END = 22
PREEMPTIONS = 23
NODES = 24  # nodes of its last allocation
HOME = 25  # node that a job of a snapshot sits on; -1: several, or not known
JOB_ROWS = 26

ABSENT, PENDING, RUNNING, ENDED = -1.0, 0.0, 1.0, 2.0

# Rows of the node table.
SIZE = 0
FREE = 1  # whole GPUs that nobody uses
TYPE = 2
SPEED = 3
SHARED = 4  # GPUs given to fractional jobs
NODE_ROWS = 5

# Places of the cluster vector that policies may read.
CAPACITY = 0
FREE_GPUS = 1
PRESENT = 2  # jobs in the system
ROUND = 3  # seconds between decisions, 0 when every event brings one
ELIGIBLE = 4  # written by policies: share of the competitors that may be granted anything
CLUSTER_PLACES = 5

# What a policy says of a job; see `ranked.py`.
COMPETES, PROTECTED, SET_ASIDE = 0.0, 1.0, 2.0

# Places of the options vector of a loop.
ROUND_S = 0
ROUND_OFFSET = 1
PREEMPTIVE = 2
WALK = 3
PLACEMENT = 4
REMAINDER_NEXT = 5  # 1: the rest of a multi-node job goes to the emptiest node (as Lucid's artifact does)
LAG = 6  # seconds between running out of work and leaving (one tick in Lucid's artifact)
LARGEST_FIRST = 7
EVERY_EVENT = 8  # 1: the policy keeps state of its own and wants to see every event
PACK_LIMIT = 9  # jobs with a SKEW above it must sit on the fewest nodes
CHECKPOINT_S = 10  # work since the last multiple is lost at preemption; 0: nothing is lost
SLOW_TWO = 11  # speed when spread over one node too many
SLOW_MORE = 12  # speed when spread further
UNTIL = 13  # stop here, jobs still present keep their state
LOGGING = 14
BACKFILL = 15  # jobs tried behind a blocked one; 0: none
RESERVE_ALL = 16  # 1: everybody who is tried gets a reservation; 0: only the first that does not fit
BACKFILL_WINDOW_S = 17  # reservations lie no further ahead
RESOLUTION_S = 18  # grid of the plan that reservations are made on
LOOP_PLACES = 19

WALK_STRICT, WALK_SKIP = 0.0, 1.0
PLACE_COUNT, PLACE_CONSOLIDATED, PLACE_RELAXED, PLACE_FEWEST = 0.0, 1.0, 2.0, 3.0

# Columns of the log: one row per job and node whenever GPUs change hands.
LOG_TIME, LOG_JOB, LOG_NODE, LOG_GPUS = 0, 1, 2, 3
LOG_COLUMNS = 4
