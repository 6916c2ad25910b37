"""The dashboard in a real browser: a server on a free port, and the system's Chromium. For tests, screenshots and the benchmark."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
]


def chromium() -> str | None:
    """Where the system's Chromium is; None where there is none."""
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


def missing() -> str:
    """Why no browser can be used here; empty when one can."""
    gone = [name for name in ("fastapi", "uvicorn", "playwright") if find_spec(name) is None]
    if gone:
        return f"needs packages that are not installed: {', '.join(gone)}"
    return "" if chromium() else "no Chromium found; on Debian: sudo apt-get install chromium"


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window (Playwright's `Browser`)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def dashboard(target: str, token: str = "", host: str = "127.0.0.1") -> Iterator[tuple[str, Any]]:
    """The dashboard of a folder or store: its address on this machine, and its library. It guards itself as it would on `host`."""
    from autoscout.web.library import Library
    from autoscout.web.server import listen, make_server

    library = Library(target)
    server = make_server(library, token=token, host=host)
    socket = listen("127.0.0.1", 0)
    library.start()
    thread = threading.Thread(target=lambda: server.run(sockets=[socket]), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}", library
    finally:
        server.should_exit = True
        thread.join(20)
        library.close()
