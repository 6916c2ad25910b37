"""What the trial program of a training run reads and leaves in its folder, and the metrics it reports."""

from __future__ import annotations

INPUT = "train_input.json"
RESULT = "result.json"
STAGE = "stage.txt"  # how far the slowest process came, so that a kill can be dated
STEPS = "steps"  # folder with one file of steps per process
CALL = "turn"  # file in it, with a number: processes that measure several configurations are to begin with that one
TURNS = "AUTOSCOUT_TURNS"  # variable with the configurations, as JSON, where there are several
FAILED = 3  # exit code that goes with a result that says why

STARTING = ("", "starting", "building")
"""Stages before the first step: memory that runs out then does so at the start."""

THROUGHPUTS = ("tokens_per_s", "samples_per_s")
METRICS = (*THROUGHPUTS, "step_ms", "peak_mem_gib", "free_mem_gib", "loss_after")
TFLOPS = "tflops_per_gpu"  # of the model's arithmetic, where the program that trains counts it
