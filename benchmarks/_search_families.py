"""Families of tables on which searchers are compared, and which part of the comparison each belongs to.

A choice (a constant, a part that is added or removed) is made on the families of the part `choosing`. The others are only looked at for
the results page. Drawn families have a new table for every seed, so what is found does not depend on which table was drawn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._drawn_clusters import drawn_layout, drawn_server
from benchmarks._drawn_spaces import drawn_space
from benchmarks._paper_cluster import Job
from benchmarks._paper_cluster import write as write_job
from benchmarks.synthetic import Written, write_tables

ROOT = Path(__file__).parents[1]
OWN = ROOT / "benchmarks" / "tables"
SHARED = Path(os.environ.get("AUTOSCOUT_SHARED_TABLES") or ROOT.parent / "shared" / "tables")
"""Tables that others recorded: next to the repository, or where the environment says."""
CHOOSING, FINAL = "choosing", "final"
BUDGET = 100
"""Evaluations of a run, or `SMALL_SHARE` of the rows where that is less."""
SMALL_SHARE = 0.6
CLUSTER_JOBS = (("llama", "full"), ("nemotron", "full"), ("qwen", "5dp"))
"""Model and space of the virtual cluster of a seed, in turn: the paper's jobs on clusters that its page does not use."""
FIRST_CLUSTER = 100
NOISE_LEVELS = (0.02, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tables that are alike.

    Attributes:
        name: For people and `--families`.
        part: `choosing` or `final`.
        about: What they are, for the page.
        recorded: Their folder and names; None for drawn ones.
        at_once: How many recorded ones a seed runs, in turn; 0 for all.
        draw: Makes the table of a seed in a folder; None for recorded ones.
        noise: Standard deviation of the logarithm of what a search is told, by seed in turn; it is judged by the table.
    """

    name: str
    part: str
    about: str
    recorded: tuple[Path, tuple[str, ...]] | None = None
    draw: Callable[[Path, int], Any] | None = None
    noise: tuple[float, ...] = (0.0,)
    at_once: int = 0

    def tables(self, folder: Path, seed: int) -> list[dict[str, Any]]:
        """The tables of a seed as the program that runs searchers reads them; a drawn one is made in `folder` unless it is there."""
        more = {"family": self.name, "noise": self.noise[seed % len(self.noise)], "budget": BUDGET, "share": SMALL_SHARE}
        if self.recorded is not None:
            place, names = self.recorded
            some = names if not self.at_once else [names[(seed * self.at_once + step) % len(names)] for step in range(self.at_once)]
            return [{"folder": str(place), "name": name, **more} for name in some] if place.is_dir() else []
        made = folder / f"{self.name}-{seed}"
        if self.draw is not None and not (made / "manifest.json").is_file():
            self.draw(made, seed)
        name = next(iter(json.loads((made / "manifest.json").read_text(encoding="utf-8"))))
        return [{"folder": str(made), "name": name, **more}]


def _cluster(folder: Path, seed: int) -> None:
    model, space = CLUSTER_JOBS[seed % len(CLUSTER_JOBS)]
    write_job(folder, Job(model=model, space=space, cluster=FIRST_CLUSTER + seed))


def _written(make: Callable[[Path, int], Written]) -> Callable[[Path, int], None]:
    return lambda folder, seed: write_tables(folder, [make(folder, seed)])


def _space(kind: str) -> Callable[[Path, int], None]:
    return lambda folder, seed: write_tables(folder, [drawn_space(kind, seed)])


def _triton() -> tuple[str, ...]:
    return tuple(name for name in json.loads((OWN / "manifest.json").read_text(encoding="utf-8")) if name.startswith("triton"))


FAMILIES = (
    Family(
        name="kernels",
        part=CHOOSING,
        about="recorded GPU kernels of others",
        recorded=(SHARED, ("gpu_convolution_a100", "gpu_gemm_rtx3090", "gpu_pnpoly_rtx3090")),
    ),
    Family(
        name="recorded layouts",
        part=CHOOSING,
        about="recorded layouts of LLM training",
        recorded=(SHARED, ("llm_train_13b_64gpu", "llm_train_13b_8k_128gpu")),
    ),
    Family(
        name="software",
        part=CHOOSING,
        about="recorded options of programs and of one server",
        recorded=(SHARED, ("sw_dune", "sw_x264", "dnn_infer_tx2_inception", "llm_serve_vllm")),
    ),
    Family(name="clusters", part=CHOOSING, about="the paper's jobs on drawn clusters of two kinds of GPU", draw=_cluster),
    Family(name="edges", part=CHOOSING, about="drawn spaces, 30 to 70 % fail, fast ones first", draw=_space("edges"), noise=(0.0, 0.02)),
    Family(name="small", part=CHOOSING, about="drawn spaces of 8 to 60 configurations", draw=_space("small")),
    Family(
        name="small refusals",
        part=CHOOSING,
        about="drawn spaces of 8 to 60, of which 10 to 60 % fail: past a limit, values, pairs of values, slow ones, any",
        draw=_space("small-refusals"),
    ),
    Family(name="layouts", part=FINAL, about="layouts of drawn models on 16 to 128 drawn GPUs", draw=_written(drawn_layout)),
    Family(name="servers", part=FINAL, about="settings of drawn servers under drawn loads", draw=_written(drawn_server)),
    Family(name="triton", part=FINAL, about="recorded Triton kernels", recorded=(OWN, _triton()), at_once=3),
    Family(name="torch", part=FINAL, about="recorded programs in PyTorch", recorded=(OWN, ("torch_decoding", "torch_training"))),
    Family(name="interactions", part=FINAL, about="drawn spaces whose knobs act in pairs", draw=_space("interactions")),
    Family(name="conditional", part=FINAL, about="drawn spaces with knobs below others", draw=_space("conditional")),
    Family(name="noisy", part=FINAL, about="drawn spaces, told with 2 to 10 % of noise", draw=_space("noisy"), noise=NOISE_LEVELS),
    Family(name="small edges", part=FINAL, about="drawn spaces of 8 to 60, of which 20 to 60 % fail", draw=_space("small-edges")),
)


def chosen(part: str, names: str = "") -> list[Family]:
    """The families of a part (`choosing`, `final` or `all`), or those named, separated by commas."""
    named = [name.strip() for name in names.split(",") if name.strip()]
    return [family for family in FAMILIES if (family.name in named if named else part in ("all", family.part))]
