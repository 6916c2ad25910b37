"""Which settings act on which metrics: learned by Fast Causal Inference with tiers, kept in check by resampling."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.seeds import stream

Vector = NDArray[np.float64]

RESAMPLES = 20  # of the rows; an edge is kept when it shows in at least half of them
SHARE = 0.5
ALPHA = 0.05  # significance of the tests of independence
MIN_ROWS = 30  # rows below which nothing is left out


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Edges from settings to metrics, between metrics, and from every metric to the objective.

    Attributes:
        knobs, metrics, objective: The three layers, by name.
        edges: (from, to) -> share of the resamples in which it showed.
        method: How it was learned, for people.
    """

    knobs: tuple[str, ...]
    metrics: tuple[str, ...]
    objective: str
    edges: dict[tuple[str, str], float]
    method: str

    def parents(self, name: str) -> tuple[str, ...]:
        """Settings first, then metrics, in the order of the layers."""
        return tuple(other for other in (*self.knobs, *self.metrics) if (other, name) in self.edges)

    def order(self) -> tuple[str, ...]:
        """The metrics, causes before effects."""
        open_metrics, order = list(self.metrics), []
        while open_metrics:
            free = next(
                (name for name in open_metrics if not any((other, name) in self.edges for other in open_metrics if other != name)),
                open_metrics[0],
            )
            open_metrics.remove(free)
            order.append(free)
        return tuple(order)


def full_graph(knobs: tuple[str, ...], metrics: tuple[str, ...], objective: str, why: str) -> Graph:
    """Every setting acts on every metric: what is assumed while little is known."""
    edges = {(knob, metric): 1.0 for knob in knobs for metric in metrics} | {(metric, objective): 1.0 for metric in metrics}
    return Graph(knobs=knobs, metrics=metrics, objective=objective, edges=edges, method=why)


def learn_graph(
    knobs: tuple[str, ...],
    metrics: tuple[str, ...],
    objective: str,
    ranks: Vector,
    values: Vector,
    seed: int = 0,
    resamples: int = RESAMPLES,
    edges: Sequence[tuple[str, str]] = (),
    no_edges: Sequence[tuple[str, str]] = (),
) -> Graph:
    """The graph that data shows.

    Edges inside the settings, from settings straight to the objective, and from a lower layer to a higher one are ruled out. An edge from a
    metric to the objective is never left out: two paths that cancel hide it from tests of independence. Without causal-learn, or where its
    search fails, a setting acts on a metric when its rank correlation with it is significant.

    Args:
        knobs: Names of the columns of `ranks`.
        metrics: Names of the columns of `values`.
        objective: Name of what the metrics act on.
        ranks: Settings, one row per run.
        values: Metrics, one row per run.
        seed: Of the resamples.
        resamples: How many.
        edges, no_edges: What an operator knows, whatever the data shows.
    """
    if len(ranks) < MIN_ROWS:
        whole = full_graph(knobs, metrics, objective, f"all edges: {len(ranks)} runs are too few to leave any out")
        return told(whole, edges, no_edges)
    alive = [column for column in range(ranks.shape[1]) if np.ptp(ranks[:, column]) > 0]
    moving = [column for column in range(values.shape[1]) if np.ptp(values[:, column]) > 1e-12]
    data = np.concatenate([_ranked(ranks[:, alive]), _ranked(values[:, moving])], axis=1)
    causal = importlib.util.find_spec("causallearn") is not None
    counts: dict[tuple[str, str], int] = {}
    names = [*(knobs[column] for column in alive), *(metrics[column] for column in moving)]
    for number in range(resamples):
        rng = stream(seed, "graph", number)
        sample = data[rng.integers(0, len(data), len(data))] + 1e-6 * rng.normal(size=data.shape)  # ties would make columns collinear
        inferred = _inferred(sample, len(alive)) if causal else None
        for one, other in _correlated(sample, len(alive)) if inferred is None else inferred:
            counts[names[one], names[other]] = counts.get((names[one], names[other]), 0) + 1
    frequent = {edge: count / resamples for edge, count in counts.items() if count >= SHARE * resamples}
    frequent |= {(metric, objective): 1.0 for metric in metrics}
    for metric in metrics:
        if metric not in {other for _, other in frequent} and metric in {metrics[column] for column in moving}:
            best = max(knobs, key=lambda knob, metric=metric: counts.get((knob, metric), 0))  # type: ignore[misc]
            frequent[best, metric] = counts.get((best, metric), 0) / resamples
    method = "fast causal inference (causal-learn)" if causal else "rank correlations: causal-learn is not installed"
    graph = Graph(knobs=knobs, metrics=metrics, objective=objective, edges=frequent, method=f"{method}, {len(ranks)} runs")
    return told(graph, edges, no_edges)


def told(graph: Graph, edges: Sequence[tuple[str, str]], no_edges: Sequence[tuple[str, str]]) -> Graph:
    """A graph with what an operator knows of it; edges from nowhere, such as knobs of another scheduler, are left out."""
    names = {*graph.knobs, *graph.metrics}
    sure = {edge: 1.0 for edge in edges if edge[0] in names and edge[0] != edge[1]}
    remaining = {edge: share for edge, share in {**graph.edges, **sure}.items() if edge not in no_edges}
    said = f", with {len(sure)} edges given and {len(no_edges)} ruled out" if sure or no_edges else ""
    return replace(graph, edges=remaining, method=graph.method + said)


def _ranked(columns: Vector) -> Vector:
    """Normal scores of ranks: tests for normal data then see any monotone relation."""
    from scipy.stats import norm, rankdata

    ranks = np.apply_along_axis(rankdata, 0, columns) if columns.size else columns
    scores: Vector = norm.ppf((ranks - 0.5) / len(columns))
    return scores


def _inferred(data: Vector, knobs: int) -> list[tuple[int, int]] | None:
    """Edges by FCI from settings to metrics and between metrics; None where its search fails."""
    fci: Any = importlib.import_module("causallearn.search.ConstraintBased.FCI")
    node: Any = importlib.import_module("causallearn.graph.GraphNode")
    knowledge: Any = importlib.import_module("causallearn.utils.PCUtils.BackgroundKnowledge")
    tiers = knowledge.BackgroundKnowledge()
    nodes = [node.GraphNode(f"X{number + 1}") for number in range(data.shape[1])]
    for number, each in enumerate(nodes):
        tiers.add_node_to_tier(each, int(number >= knobs))
    for one in nodes[:knobs]:
        for other in nodes[:knobs]:
            if one is not other:
                tiers.add_forbidden_by_node(one, other)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
            warnings.simplefilter("ignore")
            graph, _ = fci.fci(data, "fisherz", ALPHA, background_knowledge=tiers, depth=2, verbose=False, show_progress=False)
    except Exception:  # whatever a library for research raises: the fallback answers
        return None
    marks = graph.graph  # marks[j, i] is the mark at j of the edge between i and j: -1 tail, 1 arrow, 2 circle
    edges = []
    for one in range(data.shape[1]):
        for other in range(max(knobs, one + 1), data.shape[1]):
            if marks[one, other] == 0 and marks[other, one] == 0:
                continue
            if one < knobs or (marks[other, one] == 1 and marks[one, other] != 1):
                edges.append((one, other))
            elif marks[one, other] == 1 and marks[other, one] != 1:
                edges.append((other, one))
    return edges


def _correlated(data: Vector, knobs: int) -> list[tuple[int, int]]:
    """Settings and metrics whose correlation is significant."""
    from scipy.stats import t

    rows = len(data)
    correlation = np.nan_to_num(np.corrcoef(data, rowvar=False))
    score = np.abs(correlation) * np.sqrt((rows - 2) / np.maximum(1e-12, 1 - correlation**2))
    tests = max(1, knobs * (data.shape[1] - knobs))  # as many chances for a false edge
    limit = float(t.ppf(1 - ALPHA / 2 / tests, rows - 2))
    return [(one, other) for one in range(knobs) for other in range(knobs, data.shape[1]) if score[one, other] > limit]
