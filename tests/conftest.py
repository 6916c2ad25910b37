from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helper modules of the tests: _toys, _postgres

import _postgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Who starts the suite in the background makes it ignore Ctrl-C, and every program it starts with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise under nohup


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write the recorded files of these tests instead of comparing with them")
    parser.addoption("--report", type=Path, help="write durations and skips to this file, for scripts/test_table.py")


@pytest.fixture
def check_recorded(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares text with the recorded file at a path; a missing file is a failure. `--record` writes it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--record"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run this test with --record, read the file and commit it"
        assert text == path.read_text(), f"{path} differs: if the change is meant, run this test with --record and read the difference"

    return check


@pytest.fixture
def cached_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts the `config.json` of a remote model into a local cache of Hugging Face that only this test sees."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name: str, config: dict[str, object], snapshot: str = "0123abcd") -> Path:
        path = tmp_path / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / snapshot / "config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(config))
        return path

    return put


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for which reason: a skip that nobody sees is a test that nobody runs."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    terminalreporter.section(f"{sum(reasons.values())} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5d}  {reason}")
    ran = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, []) if report.when == "call"]
    terminalreporter.line(f"external tests: {_external(ran)} ran, {_external(skipped)} skipped")
    if path := terminalreporter.config.getoption("--report"):
        path.write_text(json.dumps({"seconds": _seconds(terminalreporter), "skips": reasons}))


def _seconds(terminalreporter: pytest.TerminalReporter) -> list[tuple[float, str]]:
    """Seconds of set-up, call and tear-down by test, the slowest first; as many as a table may want."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind if isinstance(report, pytest.TestReport)]
    slowest = sorted(((report.duration, f"{report.nodeid} ({report.when})") for report in reports), reverse=True)
    return slowest[:100]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ").strip().splitlines()[0] if told.strip() else "NO REASON GIVEN"


def _external(reports: list[pytest.TestReport]) -> int:
    return sum("external" in getattr(report, "keywords", ()) for report in reports)


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """GPU leases of the tests are not those of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOSCOUT_LEASES", str(tmp_path_factory.mktemp("leases")))
        patch.delenv("AUTOSCOUT_FAKE_GPUS", raising=False)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[_postgres.Server]:
    reason = _postgres.missing()
    if reason:
        pytest.skip(reason)
    with _postgres.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: _postgres.Server) -> str:
    return postgres.database()
