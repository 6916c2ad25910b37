"""A recorded API server of Kubernetes: answers what was recorded, takes merge patches, and remembers every request."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KUEUE, VOLCANO = "/apis/kueue.x-k8s.io/v1beta1", "/apis/scheduling.volcano.sh/v1beta1"


def _resource(name: str, kind: str, namespaced: bool) -> dict[str, Any]:
    return {"name": name, "singularName": kind.lower(), "kind": kind, "namespaced": namespaced, "verbs": ["get", "list", "patch"]}


DISCOVERY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [_resource("configmaps", "ConfigMap", True), _resource("nodes", "Node", False)],
    },
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/v1beta1", "version": "v1beta1"}],
                "preferredVersion": {"groupVersion": f"{group}/v1beta1", "version": "v1beta1"},
            }
            for group in ("kueue.x-k8s.io", "scheduling.volcano.sh")
        ],
    },
    KUEUE: {
        "kind": "APIResourceList",
        "groupVersion": "kueue.x-k8s.io/v1beta1",
        "resources": [
            _resource("clusterqueues", "ClusterQueue", False),
            _resource("localqueues", "LocalQueue", True),
            _resource("workloads", "Workload", True),
        ],
    },
    VOLCANO: {
        "kind": "APIResourceList",
        "groupVersion": "scheduling.volcano.sh/v1beta1",
        "resources": [_resource("queues", "Queue", False), _resource("podgroups", "PodGroup", True)],
    },
}


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


class RecordedApi:
    """Serves `objects` (path -> object or list) on a port of its own."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.patches: list[tuple[str, Any]] = []
        self.refuse = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self, code: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                found = DISCOVERY.get(path, outer.objects.get(path))
                if found is None:
                    self._reply(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": path})
                else:
                    self._reply(200, found)

            def do_PATCH(self) -> None:
                path = self.path.split("?")[0]
                patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.patches.append((path, patch))
                if outer.refuse:
                    message = "admission webhook denied the request"
                    self._reply(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message})
                    return
                outer.objects[path] = merged(outer.objects[path], patch)
                self._reply(200, outer.objects[path])

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
