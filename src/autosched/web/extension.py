"""The dashboard's pages about clusters whose schedulers are controlled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fastapi import HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse

from autosched.web import cluster_pages
from autosched.web.clusters import FILE, ClusterEntry, Clusters, is_controllers_own
from autoscout.common.markup import Markup
from autoscout.core.clock import Clock
from autoscout.study.stores import scheme_of
from autoscout.web.extension import Extension
from autoscout.web.responses import json_response, session_of


class ClusterPages(Extension):
    """Controlled clusters: found in the stores of controllers, a page each, and their decisions."""

    systems: ClassVar[Mapping[str, tuple[str, str]]] = {"sched": ("schedulers", "Scheduler studies")}

    def __init__(self, target: str, clock: Clock) -> None:
        super().__init__(target, clock)
        self._clusters = Clusters(clock)

    def stores(self) -> Sequence[str]:
        path = Path(self.target)
        if scheme_of(self.target) or not path.is_dir():
            return ()
        return sorted(map(str, [*path.glob(FILE), *path.glob(f"*/{FILE}")]))

    def is_own(self, store: str) -> bool:
        return is_controllers_own(store)

    def look(self, store: str) -> None:
        self._clusters.look(store)

    def entries(self) -> Sequence[ClusterEntry]:
        return self._clusters.entries()

    def section(self) -> Markup:
        return cluster_pages.clusters_section(self._clusters.entries())

    def pages(self) -> Mapping[str, Any]:
        return {"/clusters/{key}": self.cluster, "/clusters/{key}/decisions/{number}": self.decision}

    def documents(self) -> Mapping[str, Any]:
        return {"/api/clusters": self.clusters_document, "/api/clusters/{key}": self.cluster_document}

    def cluster(self, request: Request, key: str, before: int = 0, everything: bool = Query(default=False, alias="all")) -> HTMLResponse:
        """The page of a cluster."""
        return HTMLResponse(cluster_pages.cluster_page(self._entry(key), session_of(request), before, everything=everything))

    def decision(self, request: Request, key: str, number: int) -> HTMLResponse:
        """The page of one decision."""
        entry = self._entry(key)
        decision = next((each for each in entry.overview().entries if each.id == number), None)
        if decision is None:
            raise HTTPException(404, "There is no such decision.")
        return HTMLResponse(cluster_pages.decision_page(entry, decision, session_of(request)))

    def clusters_document(self) -> Response:
        """All clusters, a row each."""
        return json_response({"clusters": [cluster_pages.cluster_row(entry) for entry in self._clusters.entries()]})

    def cluster_document(self, key: str) -> Response:
        """Everything that is shown of one cluster."""
        return json_response(self._entry(key).overview().to_json())

    def _entry(self, key: str) -> ClusterEntry:
        entry = self._clusters.entry(key)
        if entry is None:
            raise HTTPException(404, "There is no such cluster.")
        return entry


__all__ = ["ClusterPages"]
