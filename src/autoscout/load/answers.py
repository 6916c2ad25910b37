"""One request and its answer, and the metrics of many.

Definitions as in vLLM's serving benchmark: time to first token (ttft) and end-to-end latency (e2el) count from sending; the time per
output token (tpot) is `(e2el - ttft) / (tokens - 1)`; inter-token latencies (itl) are the gaps between pieces of a stream. Percentiles
of ttft, tpot and e2el are over requests, those of itl over all gaps of all requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.task import Limit
from autoscout.load.plan import LATENCIES, STATISTICS, split_metric

BEYOND = 5  # values that should lie beyond a percentile, or one slow request decides it


class Reply:
    """A request under way or answered; times in seconds of the clock that never jumps."""

    __slots__ = ("cached_tokens", "ended_s", "error", "input_tokens", "output_tokens", "readable", "requested_tokens", "sent_s", "times_s")

    def __init__(self, requested_tokens: int = 0, input_tokens: int = 0, sent_s: float = 0.0) -> None:
        self.requested_tokens = requested_tokens
        self.input_tokens = input_tokens
        self.sent_s = sent_s
        self.times_s: list[float] = []  # of the pieces of the stream
        self.output_tokens = 0  # as the server counts them
        self.cached_tokens = 0
        self.readable = False  # some of its text can be read
        self.ended_s = 0.0  # 0 while it is under way
        self.error = ""

    @property
    def is_under_way(self) -> bool:
        return self.ended_s == 0.0

    @property
    def is_complete(self) -> bool:
        """Answered in full."""
        return not self.is_under_way and not self.error

    @property
    def tokens(self) -> int:
        return self.output_tokens or len(self.times_s)

    @property
    def ttft_s(self) -> float:
        return self.times_s[0] - self.sent_s

    @property
    def e2el_s(self) -> float:
        return self.times_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float:
        return (self.times_s[-1] - self.times_s[0]) / max(1, self.tokens - 1)

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.times_s)]

    def is_within(self, limits: Sequence[Limit]) -> bool:
        """Whether this one request keeps the limits on latencies.

        A limit on any statistic of ttft, tpot or e2el bounds the request's own value; one on a percentile of itl, that of its own gaps.
        """
        for limit in limits:
            statistic, latency, least = split_metric(limit.metric)
            value_ms = 0.0
            if self.tokens < least:
                continue
            if latency == "itl_ms":
                gaps = self.gaps_s
                value_ms = 1000 * statistics(gaps, (statistic,))[statistic] if gaps else 0.0
            elif latency in LATENCIES:
                value_ms = 1000 * float(getattr(self, latency.removesuffix("_ms") + "_s"))
            else:
                continue
            if limit.op in ("<=", "<") and value_ms > limit.value:
                return False
        return True


def statistics(values: Sequence[float] | NDArray[np.float64], names: Sequence[str] = STATISTICS) -> dict[str, float]:
    """Mean, median and percentiles; zero of nothing."""
    numbers = np.asarray(values if len(values) else [0.0], dtype=float)
    rules: dict[str, Any] = {"mean": np.mean, "median": np.median}
    return {name: float(rules[name](numbers) if name in rules else np.percentile(numbers, float(name[1:]))) for name in names}


def statistic(values: Sequence[float] | NDArray[np.float64], name: str) -> float:
    """One of them."""
    return statistics(values, (name,))[name]


def summary(answers: Sequence[Reply], duration_s: float, limits: Sequence[Limit] = ()) -> dict[str, float]:
    """The metrics of one measurement.

    Args:
        answers: Those that ended; failed ones count only as failed.
        duration_s: From the first request sent to the last token.
        limits: What a request must keep to count for the goodput; none, no goodput.
    """
    done = [answer for answer in answers if answer.is_complete]
    produced, read = sum(answer.tokens for answer in done), sum(answer.input_tokens for answer in done)
    duration_s = max(duration_s, 1e-9)
    metrics = {
        "output_throughput": produced / duration_s,
        "total_token_throughput": (produced + read) / duration_s,
        "request_throughput": len(done) / duration_s,
        "completed": float(len(done)),
        "failed": float(len(answers) - len(done)),
        "input_tokens": float(read),
        "output_tokens": float(produced),
    }
    if limits:
        metrics["goodput"] = sum(answer.is_within(limits) for answer in done) / duration_s
    return {**metrics, **latencies(done, limits)}


def latencies(answers: Sequence[Reply], limits: Sequence[Limit] = ()) -> dict[str, float]:
    """All statistics of all latencies, in milliseconds. The time per token of an answer of one token does not count.

    Those of longer answers alone are there for the limits that ask for them.
    """
    values: dict[str, Sequence[float] | NDArray[np.float64]] = {
        "ttft_ms": [answer.ttft_s for answer in answers],
        "tpot_ms": [answer.tpot_s for answer in answers if answer.tokens > 1],
        "itl_ms": np.concatenate([np.diff(answer.times_s) for answer in answers]) if answers else [],
        "e2el_ms": [answer.e2el_s for answer in answers],
    }
    metrics = {f"{name}_{latency}": 1000 * value for latency in LATENCIES for name, value in statistics(values[latency]).items()}
    for limit in limits:
        name, _, least = split_metric(limit.metric)
        if least:
            longer = [answer.tpot_s for answer in answers if answer.tokens >= max(2, least)]
            metrics[limit.metric] = 1000 * statistic(longer, name)
    return metrics


def breaking(answers: Sequence[Reply], limits: Sequence[Limit]) -> str:
    """Which requests break a limit of their own, in words; empty where none does.

    >>> breaking([], [])
    ''
    """
    done = [answer for answer in answers if answer.is_complete and answer.times_s]
    sentences = []
    for limit in limits:
        late = [answer for answer in done if not answer.is_within([limit])]
        if late:
            sizes = [np.array([(answer.input_tokens, answer.tokens) for answer in group], dtype=float) for group in (late, done)]
            (prompt, answer_), (all_prompt, all_answer) = (np.median(size, axis=0).tolist() for size in sizes)
            sentences.append(
                f"{limit}: {len(late)} of {len(done)} requests are above it; they have prompts of {prompt:.0f} tokens and answers of "
                f"{answer_:.0f} (median; all have {all_prompt:.0f} and {all_answer:.0f})"
            )
    return "; ".join(sentences)


def too_few(limits: Sequence[Limit], objective: str, metrics: Mapping[str, float]) -> list[str]:
    """What the measurement was too short for: percentiles that are asked for and that few values lie beyond, one sentence each."""
    sentences = []
    for name in dict.fromkeys([objective, *(limit.metric for limit in limits)]):
        statistic, latency, _ = split_metric(name)
        if latency not in LATENCIES or not statistic.startswith("p"):
            continue
        count = metrics["output_tokens"] - metrics["completed"] if latency == "itl_ms" else metrics["completed"]
        needed = BEYOND / (1 - float(statistic[1:]) / 100)
        if count < needed:
            what = "tokens" if latency == "itl_ms" else "requests"
            sentences.append(f"{name} is of {count:.0f} {what}; {needed:.0f} are needed for {BEYOND} beyond it")
    return sentences
