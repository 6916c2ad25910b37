"""Makes the pictures of the dashboard and of the report in docs/images, with the browser of the tests.

`PYTHONPATH=. python scripts/screenshots.py` runs a small study of a made-up engine, whose program is a few lines of Python, and takes
pictures of what it left; and of a controller that tuned a simulated scheduler for a day.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._browser import browser, dashboard, missing
from pictures import replayed

from autoscout.api import tune

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SIZE = {"width": 1180, "height": 860}
ENGINE = """\
import random, sys
settings = dict(word.split("=") for word in sys.argv[1:])
parallel, batch, threads = (int(settings[name]) for name in ("parallel", "batch", "threads"))
flash = settings["flash_attention"].lower() == "true"
if parallel * batch > 40000 and not flash:
    sys.exit("RuntimeError: out of memory: the KV cache does not fit")
rate = 40 * parallel**0.45 * (1.22 if flash else 1) * min(1, threads / 8) ** 0.5 * random.gauss(1, 0.015)
print("throughput", round(rate, 2))
print("ttft", round(12 + 1.9 * parallel + batch / 110 * random.gauss(1, 0.04), 2))
"""
CAMPAIGN: dict[str, Any] = {
    "system": "command",
    "name": "chat-server",
    "workload": {
        "metrics": {"output_throughput": {"regex": "throughput ([0-9.]+)"}, "p95_ttft_ms": {"regex": "ttft ([0-9.]+)"}},
    },
    "goal": {"metric": "output_throughput", "direction": "maximize", "slo": ["p95_ttft_ms<=60"]},
    "space": {
        "knobs": {
            "parallel": {"values": [1, 2, 4, 8, 16, 32, 64], "default": 4, "help": "requests that are answered at once"},
            "batch": {"range": [64, 4096], "log": True, "default": 512, "unit": "tokens", "help": "largest batch of a step"},
            "flash_attention": {"values": [False, True], "default": False, "help": "fused attention kernels"},
            "threads": {"values": [1, 2, 4, 8, 16], "default": 4, "help": "threads that compute"},
        }
    },
    "budget": {"trials": 32},
    "measure": {"dirty_repeats": 0},
    "search": {"workers": 2},
}


def make_study(root: Path) -> Path:
    """A result folder with a real study of a program that is not an engine."""
    (root / "engine.py").write_text(ENGINE)
    words = " ".join(f"{name}={{{name}}}" for name in CAMPAIGN["space"]["knobs"])
    workload = {**CAMPAIGN["workload"], "command": f"python3 engine.py {words}"}
    with chdir(root):  # pictures show relative paths, not those of this machine
        tune({**CAMPAIGN, "workload": workload}, Path("results"))
    return root / "results"


def take(page: Any, name: str) -> None:
    """A picture of what the window shows, in few colours: such pages look the same, and the file is small."""
    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


def main() -> int:
    """Write the pictures."""
    if reason := missing():
        print(f"scripts/screenshots.py: {reason}", file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        results = make_study(Path(folder))
        with dashboard(str(results)) as (url, library):
            study = f"{url}/studies/{library.entries()[0].key}"
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                page = opened.new_page(viewport=SIZE, color_scheme=scheme)
                page.goto(study)
                page.wait_for_selector("svg.parallel")
                take(page, f"dashboard{suffix}")
                if scheme == "light":
                    page.locator("#part-slices").scroll_into_view_if_needed()
                    page.evaluate("document.getElementById('part-slices').scrollIntoView()")
                    take(page, "dashboard-knobs")
                page.set_viewport_size(SIZE | {"height": 800})
                page.goto((results / CAMPAIGN["name"] / "report.html").as_uri())
                take(page, f"report{suffix}")
                page.close()
        replayed(Path(folder) / "cluster")
        with dashboard(str(Path(folder) / "cluster")) as (url, library):
            page = opened.new_page(viewport=SIZE)
            page.goto(f"{url}/clusters/{library.all_followed()[0].key}")
            page.wait_for_selector("svg.gains")
            take(page, "dashboard-cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
