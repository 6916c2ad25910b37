"""Figures for Prometheus, as plain text over HTTP."""

from __future__ import annotations

import math
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from autosched.control.controller import Controller
from autosched.control.ledger import STATES
from autosched.service.access import Tokens
from autoscout.common.openmetrics import MEDIA_TYPE, MetricFamily, metrics_text
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.log import logger

log = logger(__name__)

CALL_S = 10.0  # that a client may take to ask


def exposition(controller: Controller) -> str:
    """The figures in Prometheus' text format."""
    state, cluster = controller.state, controller.settings.cluster
    entries = controller.ledger.history(most=1_000)
    last = next((entry for entry in reversed(entries) if math.isfinite(entry.measured)), None)
    single: dict[str, tuple[Literal["gauge", "counter"], str, float]] = {
        "up": ("gauge", "whether the last look at the cluster succeeded", float(state.healthy)),
        "looks_total": ("counter", "looks at the cluster", float(state.looks)),
        "look_failures_total": ("counter", "looks that failed", float(state.failures)),
        "load": ("gauge", "GPUs wanted over GPUs there are", state.load),
        "waiting_jobs": ("gauge", "jobs without GPUs", float(state.waiting)),
        "running_jobs": ("gauge", "jobs with GPUs", float(state.running)),
        "last_look_seconds": ("gauge", "moment of the last look", state.at_s),
        "predicted_gain": ("gauge", "of the last change that was judged", last.predicted if last else math.nan),
        "measured_gain": ("gauge", "of the last change that was judged", last.measured if last else math.nan),
    }
    label = {"cluster": cluster}
    decisions = tuple(({**label, "state": name}, float(sum(entry.state == name for entry in entries))) for name in STATES)
    numbers = {name: value for name, value in state.settings.items() if isinstance(value, (int, float))}
    settings = tuple(({**label, "knob": name}, float(value)) for name, value in numbers.items())
    families = [
        MetricFamily(name=f"autoscout_control_{name}", kind=kind, help=words, values=((label, value),))
        for name, (kind, words, value) in single.items()
    ]
    families += [
        MetricFamily(name="autoscout_control_decisions", kind="gauge", help="decisions by state, the last thousand", values=decisions),
        MetricFamily(name="autoscout_control_setting", kind="gauge", help="value of a setting that is a number", values=settings),
    ]
    return metrics_text(families)


class MetricsServer:
    """Serves `/metrics` until it is stopped.

    Args:
        controller: Whose figures.
        address: host:port.
        tokens: One of which callers must show; None: none.
        tls: With a certificate; None: plain HTTP.

    Raises:
        ConfigError: the address cannot be used.
    """

    def __init__(self, controller: Controller, address: str, tokens: Tokens | None = None, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")

        class Handler(BaseHTTPRequestHandler):
            timeout = CALL_S

            def do_GET(self) -> None:
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if tokens is not None and tokens.caller(token) is None:
                    self.send_error(401)
                elif self.path.split("?")[0] != "/metrics":
                    self.send_error(404)
                else:
                    self._tell()

            def _tell(self) -> None:
                try:
                    body = exposition(controller).encode()
                except StoreError as error:
                    log.warning("metrics: %s", error)
                    self.send_error(503, "the store does not answer")
                    return
                self.send_response(200)
                self.send_header("Content-Type", MEDIA_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
                log.debug("metrics: a call from %s was cut off", client_address, exc_info=True)

        try:
            self._server = Listener((host, int(port)), Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise ConfigError(Fault(where="service", field="metrics", value=address, rule=f"cannot be used: {error}")) from error
        if tls is not None:  # shaking hands is left to the thread of the call: a client that never does holds up nobody else
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)
