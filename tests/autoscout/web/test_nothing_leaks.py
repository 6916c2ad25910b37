"""Secrets are planted in every field of a campaign that can hold one, and looked for in everything that others can see."""

from __future__ import annotations

import base64
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from _cli_program import run
from _dashboard_site import Site

sys.path.insert(0, str(Path(__file__).parents[3]))  # benchmarks/

pytest.importorskip("fastapi", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

from benchmarks._browser import dashboard

pytestmark = pytest.mark.slow

FORMS = (
    "password={}",
    "api_key: {}",
    '"api_key": "{}"',
    "{{'AWS_SECRET_ACCESS_KEY': '{}'}}",
    "Authorization: Bearer {}",
    "postgresql://scout:{}@host/db",
    "--api-key {}",
    "--password={}",
    "HF_TOKEN={}",
    "client_secret => {}",
    "https://host/path?token={}",
)
"""How a secret is written, so that it can be told to be one."""

SHAPES = ("AKIA{upper}", "hf_{word}{word}", "sk-{word}{word}", "ghp_{word}{word}")
"""Secrets that show by themselves what they are."""

SHOWN = ("report.html", "report.json", "t4.json", "summary.csv", "diff.txt", "gain.json", "README.md")
"""Files that people hand on: they hold no secret, whoever may read them."""

PROGRAM = """
import os, sys
x = int(sys.argv[1])
print("score", (x - 3) ** 2 + 1)
print("started with", os.environ["SERVICE_PASSWORD"], sys.argv[2:])
if x == 5:
    sys.exit("cannot reach " + os.environ["DATABASE"] + " with " + os.environ["SERVICE_PASSWORD"] + " and " + sys.argv[2])
"""


class Planter:
    """Writes secrets of random forms, and keeps what must never be seen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.planted: dict[str, str] = {}  # what must not be seen -> where it was planted

    def word(self, where: str, length: int = 12) -> str:
        word = "".join(self.random.choice("bcdfghjkmnpqrstvwxz") for _ in range(length))
        self.planted[word] = where
        return word

    def secret(self, where: str) -> str:
        if self.random.random() < 0.3:
            shape = self.random.choice(SHAPES)
            return shape.format(word=self.word(where), upper=self.upper(where))
        if self.random.random() < 0.15:
            raw = base64.b64encode(f"user:{self.random.random()}".encode()).decode()
            self.planted[raw] = where
            return f"Authorization: Basic {raw}"
        return self.random.choice(FORMS).format(self.word(where))

    def upper(self, where: str) -> str:
        word = "".join(self.random.choice("ABCDEFGHJKLMNPQRSTUVWXYZ234567") for _ in range(16))
        self.planted[word] = where
        return word


def planted_campaign(folder: Path, seed: int) -> tuple[Path, Planter]:
    """A campaign over real programs that print what they were given, secrets included."""
    planter = Planter(seed)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "helper.txt").write_text("nothing")
    command = [
        sys.executable,
        str(folder / "program.py"),
        "{x}",
        "{where}",
        planter.secret("command").replace("{", "{{").replace("}", "}}"),
    ]
    data: dict[str, Any] = {
        "system": "command",
        "name": "planted",
        "workload": {
            "command": command,
            "env": {
                "SERVICE_PASSWORD": planter.word("env.SERVICE_PASSWORD"),
                "DATABASE": f"postgresql://scout:{planter.word('env.DATABASE')}@host/db",
                "PLAIN": planter.word("env.PLAIN"),
                "HF_TOKEN": f"hf_{planter.word('env.HF_TOKEN')}{planter.word('env.HF_TOKEN')}",
            },
            "files": {"settings.conf": planter.secret("files").replace("{", "{{").replace("}", "}}") + "\n"},
            "metrics": {"score": {"regex": "score ([0-9.]+)"}},
        },
        "hardware": {"note": planter.secret("hardware")},
        "goal": {"metric": "score", "direction": "minimize"},
        "budget": {"trials": 7},
        "measure": {"dirty_repeats": 0},
        "finals": {"finalists": 1, "rounds": 2},
        "search": {"searcher": "random", "seed": seed},
        "first": [{"x": 5}],
        "space": {
            "knobs": {
                "x": {
                    "range": [0, 5],
                    "default": 0,
                    "help": planter.secret("help of a knob"),
                    "warning": planter.secret("warning of a knob"),
                },
                "where": {"values": ["here", planter.secret("value of a knob")], "default": "here"},
            },
            "constraints": [{"rule": "x >= 0", "why": planter.secret("why of a rule")}],
        },
    }
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    path.chmod(0o600)
    return path, planter


@pytest.mark.parametrize("seed", range(3))
def test_no_planted_secret_is_seen_anywhere(tmp_path: Path, seed: int) -> None:
    campaign, planter = planted_campaign(tmp_path, seed)
    home = tmp_path / "autoscout_results" / "planted"
    seen: dict[str, str] = {}
    calls: list[tuple[object, ...]] = [
        ("tune", campaign, "--dry-run"),
        ("tune", campaign, "--dry-run", "--json"),
        ("tune", campaign),
        ("tune", campaign, "--json"),
        ("report", home),
        ("report", home, "--json"),
        ("report", home, "--sweep-dir", tmp_path / "sweep"),
        ("explain", home),
        ("explain", home, "--json"),
        ("explain", home, "--trial", "1"),
        ("explain", home, "--trial", "1", "--json"),
        ("compare", home),
        ("compare", home, "--json"),
        ("render", campaign),
        ("render", campaign, "--json"),
        ("render", campaign, "--export", "-"),
        ("render", campaign, "--export", tmp_path / "exported"),
        ("profile", campaign, "--set", "x=5"),
        ("profile", campaign, "--set", "x=1", "--json"),
        ("space", "show", campaign),
        ("space", "show", campaign, "--json"),
        ("space", "validate", campaign, "--set", "x=77"),
        ("tune", campaign, "--slo", "password=hunter"),
        ("-v", "resume", home, "--max-trials", "8"),
    ]
    for call in calls:
        done = run(tmp_path, *call)
        seen[" ".join(map(str, call)) + ", standard output"] = done.stdout
        seen[" ".join(map(str, call)) + ", standard error"] = done.stderr
    assert (home / "report.html").exists(), "\n".join(seen.values())[:2000]
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path != campaign):
        if path.stat().st_mode & 0o077 or path.name in SHOWN:
            seen[f"the readable file {path.relative_to(tmp_path)}"] = path.read_bytes().decode("utf-8", errors="replace")
    with dashboard(str(home)) as (url, library):
        seen |= crawl(Site(url, library))
    leaks = []
    for secret, where in planter.planted.items():
        for place, text in seen.items():
            asked = where == "env.PLAIN" and ("render" in place or "dry-run" in place)  # a launch that the user asks to see
            if secret in text and not asked:
                leaks.append(f"{where} ({secret}) in {place}")
    assert not leaks, "\n".join(leaks)


def crawl(site: Site) -> dict[str, str]:
    """Every page and document of a dashboard."""
    numbers = [row["number"] for row in site.document("/api/studies/KEY/trials")["trials"]]
    files = {number: site.document(f"/api/studies/KEY/trials/{number}")["files"] for number in numbers}
    parts = ("comparison", "learning", "predicted", "why", "distribution", "slices", "parallel", "trials")
    paths = [
        "/",
        "/compare?study=KEY",
        "/studies/KEY",
        "/studies/KEY/trials",
        "/studies/KEY/knobs",
        "/studies/KEY/knobs?knob=where",
        f"/studies/KEY/diff?trial={numbers[0]}&trial={numbers[-1]}",
        *(f"/studies/KEY/parts/{name}" for name in parts),
        *(f"/studies/KEY/trials/{number}" for number in numbers),
        *(f"/studies/KEY/trials/{number}/files/{name}" for number in numbers for name in files[number]),
        "/api/studies",
        "/api/studies?text=x",
        "/api/compare?study=KEY",
        "/api/studies/KEY",
        "/api/studies/KEY/trials",
        *(f"/api/studies/KEY/trials/{number}" for number in numbers),
        f"/api/studies/KEY/diff?trial={numbers[0]}&trial={numbers[-1]}",
        "/api/studies/KEY/knobs/where",
        "/api/studies/KEY/nothing",
    ]
    answers = {path: site.ask(path) for path in paths}
    assert sum(status == 200 for status, _, _ in answers.values()) > len(paths) / 2
    return {f"the page {path}": text for path, (_, text, _) in answers.items()}


def test_the_hand_over_asks_for_secrets_by_name(tmp_path: Path) -> None:
    campaign, _ = planted_campaign(tmp_path, 0)
    assert run(tmp_path, "tune", campaign).returncode == 0
    best = tmp_path / "autoscout_results" / "planted" / "best"
    script = (best / "run.sh").read_text()
    assert "${HF_TOKEN:?" in script
    assert "${SERVICE_PASSWORD:?" in script
    assert "HF_TOKEN: a secret" in (best / "env").read_text()
