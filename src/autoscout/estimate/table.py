"""The answer of `autoscout estimate` for a terminal: one line per configuration, at any width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from autoscout.analysis.labels import PART_NAMES
from autoscout.estimate.search import Candidate, Estimate

_SHORT = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "tokens",
    "enable_expert_parallel": "ep",
    "kv_cache_dtype": "kv",
}
_FIRST = ("tp", "pp", "dp", "cp", "ep", "prefill_gpus", "prefill_tp", "mbs", "vp", "ar", "seqs", "tokens")
_PLAIN: dict[str, tuple[object, ...]] = {"ar": ("none",), "seqs": (), "tokens": (), "mbs": (), "ep": (1, False), "kv": ("auto",)}
_PLAIN |= {"precision": ("auto",)}
"""Knob -> the values that go without saying; any other knob: 1."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    title: str
    cell: Callable[[Candidate], str]
    needed: int  # the column with the least goes first when the terminal is narrow


def _metric(title: str, name: str, needed: int, form: str = ".4g") -> _Column:
    def cell(candidate: Candidate) -> str:
        return format(candidate.metrics[name], form) if name in candidate.metrics else "-"

    return _Column(title=title, cell=cell, needed=needed)


_TRAINING = (
    _metric("step s", "step_s", 9),
    _metric("tok/s/GPU", "tokens_per_s_per_gpu", 4, ".0f"),
    _metric("TFLOPS", "tflops_per_gpu", 1, ".0f"),
    _metric("MFU", "mfu", 3, ".0%"),
)
_SERVING = (
    _metric("tok/s", "output_throughput", 9, ".0f"),
    _metric("req/s", "request_throughput", 4, ".3g"),
    _metric("most/s", "capacity_rps", 8, ".3g"),
    _metric("good/s", "request_goodput", 6, ".3g"),
    _metric("good", "goodput_share", 3, ".0%"),
    _metric("e2e95", "p95_e2el_ms", 3, ".0f"),
    _metric("ttft50", "median_ttft_ms", 2, ".0f"),
    _metric("ttft95", "p95_ttft_ms", 5, ".0f"),
    _metric("tpot50", "median_tpot_ms", 1, ".1f"),
    _metric("tpot95", "p95_tpot_ms", 5, ".1f"),
)


def show(result: Estimate, console: Console) -> None:
    """Print the candidates, one line each, and the first one's breakdown as bars."""
    serving = "cache_tokens" in result.candidates[0].memory
    console.print(f"simulated: {result.compared} configurations compared, {result.fitting} likely to fit", highlight=False)
    for warning in result.warnings:
        console.print(f"WARNING: {warning}", style="bold red", highlight=False)
    console.print(f"load: {result.load}", highlight=False)
    console.print(f"ranked {result.ranking}\n", highlight=False)
    metrics = [column for column in (_SERVING if serving else _TRAINING) if any(column.cell(one) != "-" for one in result.candidates)]
    columns = [
        *metrics,
        _Column(title="cache tok" if serving else "GiB", cell=_memory, needed=2 if serving else 7),
        _Column(title="fits", cell=lambda candidate: f"{candidate.feasible:.0%}", needed=10),
        *([_Column(title="gain", cell=_gain, needed=8)] if any(one.gain for one in result.candidates) else []),
        *([_Column(title="over yours", cell=_gain_over_yours, needed=11)] if any(one.is_baseline for one in result.candidates) else []),
        _Column(title="±", cell=lambda candidate: f"{candidate.spread:.0%}", needed=8),
    ]
    lines, dropped = _lines(result.candidates, columns, console.width)
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    more = "; over yours: gain over what you run" if any(one.is_baseline for one in result.candidates) else ""
    console.print(f"\n{_legend(serving, dropped, more)}", highlight=False)
    _breakdown(result.candidates[0], console)
    console.print(f"\nconstants from: {result.made_from}", highlight=False)
    if result.local:
        console.print(f"and from {result.local}", highlight=False)


def settings(candidate: Candidate) -> str:
    """The knobs that say something: those that are 1 or at their default are left out."""
    knobs = {_SHORT.get(name, name): value for name, value in candidate.config.items()}
    if knobs.get("tp", 1) == 1 and knobs.get("sp") is False:
        del knobs["sp"]  # nothing to split
    names = [name for name in _FIRST if name in knobs] + [name for name in knobs if name not in _FIRST]
    said = [f"{name}={knobs[name]}" for name in names if name in ("sp",) or not _plain(name, knobs[name])]
    return " ".join(said) or "all knobs at 1"


def _plain(name: str, value: object) -> bool:
    """Whether a value goes without saying; `True` is not 1 here."""
    return any(value == usual and isinstance(value, bool) == isinstance(usual, bool) for usual in _PLAIN.get(name, (1,)))


def _lines(candidates: tuple[Candidate, ...], columns: list[_Column], width: int) -> tuple[list[str], list[str]]:
    """Aligned lines with their header, and the titles of the columns that found no room."""
    first = ["configuration", *(settings(one) + _mark(one) for one in candidates)]
    cells = {column.title: [column.title, *(column.cell(candidate) for candidate in candidates)] for column in columns}
    widths = {title: max(map(len, texts)) for title, texts in cells.items()}
    lead = max(map(len, first))
    dropped: list[str] = []
    for column in sorted(columns, key=lambda column: column.needed):
        if lead + sum(2 + widths[title] for title in cells) <= width or len(cells) <= 2:
            break
        dropped.append(column.title)
        del cells[column.title]
    rows = zip(first, *cells.values(), strict=True)
    return [
        row[0].ljust(lead) + "".join(f"  {text:>{widths[title]}}" for title, text in zip(cells, row[1:], strict=True)) for row in rows
    ], dropped


def _legend(serving: bool, dropped: list[str], more: str) -> str:
    text = "fits: chance to fit into memory; ±: error to expect; knobs at 1 or their default are left out"
    if serving:
        text += (
            "; tp, dp: tensor_parallel_size, data_parallel_size; seqs: max_num_seqs; tokens: max_num_batched_tokens; "
            "ep: experts on ranks of their own; prefill: GPUs that compute prompts only; most/s: the highest rate within the limits; "
            "good/s, good: requests per second, and share of requests, within them with the model's error to spare; "
            "ttft, tpot: median and 95th percentile in ms; gain: over the engine's default by what is ranked"
        )
    else:
        text += "; GiB: needed of those a GPU has"
    text += more
    return f"{text}; no room for: {', '.join(dropped)}" if dropped else text


def _breakdown(best: Candidate, console: Console) -> None:
    if not best.parts:
        return
    total_s = sum(best.parts.values())
    console.print(f"\nwhere the time of the first goes ({total_s:.4g} s per step):")
    for name, seconds in sorted(best.parts.items(), key=lambda pair: -pair[1]):
        if seconds > 0.001 * total_s:
            share = seconds / total_s
            console.print(f"  {PART_NAMES.get(name, name):24s} {seconds:9.4f} s {share:6.1%} {'█' * round(30 * share)}".rstrip())
    console.print("and its memory:")
    for name, size in best.memory.items():
        console.print(f"  {name.removesuffix('_bytes'):24s} {size / 2**30:9.2f} GiB")


def _gain(candidate: Candidate) -> str:
    return "-" if candidate.gain is None or candidate.is_default else f"{candidate.gain:.2f}x"


def _gain_over_yours(candidate: Candidate) -> str:
    gain = candidate.gain_over_baseline
    return "-" if gain is None or candidate.is_baseline else f"{gain:.2f}x"


def _mark(candidate: Candidate) -> str:
    marks = ["default"] * candidate.is_default + ["yours"] * candidate.is_baseline
    return f" ({', '.join(marks)})" if marks else ""


def _memory(candidate: Candidate) -> str:
    if "cache_tokens" in candidate.memory:
        return f"{candidate.memory['cache_tokens']:,.0f}"
    need = sum(size for name, size in candidate.memory.items() if name != "capacity_bytes")
    return f"{need / 2**30:.0f}/{candidate.memory['capacity_bytes'] / 2**30:.0f}"


__all__ = ["settings", "show"]
