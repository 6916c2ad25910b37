"""A Prometheus server that scrapes vLLM or SGLang: `prometheus:http://HOST:9090`, with `?match=job="NAME"` where it scrapes several."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from autoscout.core.clock import Clock
from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic import http
from autoscout.traffic.description import Traffic
from autoscout.traffic.exposition import ENGINES, EngineMetrics, MetricsPage, variation_of, window_of
from autoscout.traffic.typical import mark_typical

TITLE = "a Prometheus server: prometheus:http://HOST:9090"
PREFIX = "prometheus:"
USUAL_S = 86_400.0  # that is looked at where nothing is said
WINDOWS = 24
LEAST_WINDOW_S = 60.0
COUNT_S = 60.0  # intervals in which requests are counted, for bursts
MOST_POINTS = 5000  # Prometheus gives at most 11,000 of a series
LEAST_REQUESTS = 20  # of a window


def takes_address(source: str) -> bool:
    """Whether this is one."""
    return source.startswith(PREFIX)


def fetch(source: str, over_s: float, clock: Clock) -> Traffic:
    """The traffic of the last `over_s` seconds, in windows."""
    server = _Server(source.removeprefix(PREFIX))
    over_s = over_s or USUAL_S
    step_s = max(LEAST_WINDOW_S, over_s / WINDOWS)
    end_s = clock.now_s()
    engine, pages = server.histograms(end_s - over_s, end_s, step_s)
    counts = server.counts(engine, end_s - over_s, end_s, max(COUNT_S, over_s / MOST_POINTS))
    windows = []
    for at_s, page in sorted(pages.items()):
        number = page.values.get(f"{engine.outputs}_count", 0.0)
        if number >= LEAST_REQUESTS:
            inside = [count for time_s, count in counts.items() if at_s - step_s < time_s <= at_s]
            name = datetime.fromtimestamp(at_s - step_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            windows.append(window_of(page, name, step_s, variation_of(inside)))
    if not windows:
        rule = f"has no window of {step_s:.0f} s with {LEAST_REQUESTS} requests of {engine.title} in the last {over_s:.0f} s"
        raise ConfigError(Fault(where=server.shown, rule=rule, fix="Give a longer --traffic-over, or another ?match="))
    return mark_typical(Traffic(source=f"Prometheus at {server.shown} ({engine.title})", windows=tuple(windows)))


class _Server:
    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if not http.is_address(address) or not parts.hostname:
            rule = "must read prometheus:http://HOST:PORT"
            raise ConfigError(
                Fault(where="--traffic", value=repr(PREFIX + address), rule=rule, fix="Example: prometheus:http://127.0.0.1:9090")
            )
        self._base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._match = ",".join(parse_qs(parts.query).get("match", []))
        self.shown = http.without_secrets(self._base)

    def histograms(self, begin_s: float, end_s: float, step_s: float) -> tuple[EngineMetrics, dict[float, MetricsPage]]:
        """Whose metrics there are, and their growth in each step by its end."""
        for engine in (one for one in ENGINES if one.inputs):
            pages: defaultdict[float, MetricsPage] = defaultdict(lambda: MetricsPage(self.shown))
            for histogram in (engine.inputs, engine.outputs):
                query = f"sum by (le) (increase({histogram}_bucket{{{self._match}}}[{step_s:.0f}s]))"
                for series in self._range(query, begin_s, end_s, step_s):
                    edge = _number(series.get("metric", {}).get("le"))
                    for at_s, value in _points(series):
                        if edge is not None:
                            pages[at_s].buckets.setdefault(histogram, {})[edge] = value
                for kind in ("sum", "count"):
                    self._fill(pages, f"{histogram}_{kind}", begin_s, end_s, step_s)
            if not pages:
                continue
            for counters in (engine.hits, engine.looked_up):
                next((one for one in counters if self._fill(pages, one, begin_s, end_s, step_s)), None)
            return engine, dict(pages)
        names = " or ".join(f"{engine.inputs}_bucket" for engine in ENGINES if engine.inputs)
        rule = f"has no {names}{f' with {self._match}' if self._match else ''} in that time"
        raise ConfigError(Fault(where=self.shown, rule=rule, fix="Check that it scrapes the server, ?match=, and --traffic-over"))

    def counts(self, engine: EngineMetrics, begin_s: float, end_s: float, step_s: float) -> dict[float, float]:
        """How many requests were answered in each short interval, by its end."""
        query = f"sum(increase({engine.outputs}_count{{{self._match}}}[{step_s:.0f}s]))"
        return {at_s: value for series in self._range(query, begin_s, end_s, step_s) for at_s, value in _points(series)}

    def _fill(self, pages: defaultdict[float, MetricsPage], name: str, begin_s: float, end_s: float, step_s: float) -> bool:
        increases = self._range(f"sum(increase({name}{{{self._match}}}[{step_s:.0f}s]))", begin_s, end_s, step_s)
        for at_s, value in (point for series in increases for point in _points(series)):
            pages[at_s].values[name] = value
        return bool(increases)

    def _range(self, query: str, begin_s: float, end_s: float, step_s: float) -> list[Mapping[str, Any]]:
        values = {"query": query, "start": f"{begin_s + step_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.0f}"}
        text = http.get(f"{self._base}/api/v1/query_range?{urlencode(values)}")
        try:
            answer = json.loads(text)
            if answer["status"] != "success":
                raise ConfigError(Fault(where=self.shown, rule=f"Prometheus refused the query: {answer.get('error', '')}", value=query))
            results = answer["data"]["result"]
            return [series for series in results if isinstance(series, Mapping)]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            rule, fix = "does not answer as a Prometheus server does", "Give its own address: prometheus:http://HOST:9090"
            raise ConfigError(Fault(where=self.shown, rule=rule, fix=fix)) from error


def _points(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    points = series.get("values")
    pairs = (
        [(_number(point[0]), _number(point[1])) for point in points if isinstance(point, list) and len(point) == 2]
        if isinstance(points, list)
        else []
    )
    return [(at_s, value) for at_s, value in pairs if at_s is not None and value is not None and math.isfinite(value)]


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


__all__ = ["TITLE", "fetch", "takes_address"]
