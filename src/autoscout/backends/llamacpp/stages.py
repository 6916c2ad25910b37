"""What the measuring process reads and leaves in its folder."""

from __future__ import annotations

INPUT = "bench_input.json"
RESULT = "bench.json"
STAGE = "stage.txt"  # the step under way, so that a kill can be dated
STAGES = ("preparing", "loading", "checking", "warming", "measuring", "done")
FAILED = 3  # exit code that goes with a result that says why
