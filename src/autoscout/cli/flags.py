"""Arguments and flags whose values the Tab key completes; a verb that words one otherwise has its own."""

from __future__ import annotations

from typing import Annotated

import typer

from autoscout.cli import complete

Target = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete.targets, help="A backend (see `autoscout doctor`) or a campaign file; with --from it may be left out."
    ),
]
Launch = Annotated[
    str | None, typer.Option("--from", help="The launch that you run today, in quotes, or a file with it: the study begins with it.")
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(help="What you run today: KNOB=VALUE,... (may be repeated), a launch command in quotes, or a file with either."),
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", autocompletion=complete.models, help="The model to run, in the backend's own terms.")
]
Pinned = Annotated[
    list[str] | None, typer.Option("--set", autocompletion=complete.settings, help="Pin a knob: KNOB=VALUE; may be repeated.")
]
Free = Annotated[
    list[str] | None, typer.Option("--free", autocompletion=complete.knob_names, help="Search this knob too, or all; may be repeated.")
]
Metric = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        autocompletion=complete.metrics,
        help="Metric to improve; repeated, the study looks for the front of all. METRIC:maximize says which way.",
    ),
]
Direction = Annotated[str | None, typer.Option(autocompletion=complete.directions, help="minimize or maximize.")]
Slo = Annotated[
    list[str] | None,
    typer.Option("--slo", autocompletion=complete.metrics, help="Limit to keep, such as 'p95_ttft_ms<=500'; may be repeated."),
]
Guard = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        autocompletion=complete.metrics,
        help="Limit relative to the baseline, or else the default, such as 'p99_itl_ms<=1.2x'; may be repeated.",
    ),
]
Searcher = Annotated[
    str | None, typer.Option("--searcher", autocompletion=complete.searchers, help="Who proposes (see `autoscout doctor`).")
]
Simulator = Annotated[
    str | None,
    typer.Option(autocompletion=complete.simulators, help="Predictions save trials: auto, none, a name, or a,b."),
]
LearnFrom = Annotated[
    list[str] | None,
    typer.Option(autocompletion=complete.folders, help="Past studies to learn from too: folder, store, or study.db; may be repeated."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        autocompletion=complete.trackers,
        help="Show the study in a tracker too: mlflow, wandb, trackio, tensorboard, optuna, or NAME:OPTION=VALUE; may be repeated.",
    ),
]
Executor = Annotated[str | None, typer.Option(autocompletion=complete.executors, help="Where trials run (see `autoscout doctor`).")]
System = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete.systems,
        help="megatron, fsdp, deepspeed, ... for training; vllm, sglang, trtllm for serving. With --from it may be left out.",
    ),
]
KnownModel = Annotated[
    str,
    typer.Option(
        autocompletion=complete.models,
        help="A known model, a Hugging Face path, or a config.json; with --from it may be left out.",
        show_default=False,
    ),
]
Machines = Annotated[
    str,
    typer.Option(
        help="COUNTxGPU, joined by + for mixed clusters: 8xA100-80+4xA40; with --from and --gpu it may be left out.", show_default=False
    ),
]
ServedLaunch = Annotated[
    str | None,
    typer.Option("--from", help="vllm and sglang: the launch that you run today, in quotes, or a file with it: it is a row of its own."),
]
ServingLimit = Annotated[
    list[str] | None,
    typer.Option(
        autocompletion=complete.metrics,
        help="Serving: a limit such as 'p95_ttft_ms<=500'; may be repeated. Without a load: the highest rate within it.",
    ),
]
Traffic = Annotated[
    str | None,
    typer.Option(
        help="What users ask, instead of lengths: http://HOST:PORT/metrics, prometheus:http://HOST:9090, a log, a trace, or a description."
    ),
]
TrafficOver = Annotated[
    str | None, typer.Option(help="How long a live page is read (5m), or how far a Prometheus server is asked back (7d is 168h).")
]
TrafficWindows = Annotated[int | None, typer.Option(min=1, max=12, help="How many typical windows of the traffic to judge on.")]
