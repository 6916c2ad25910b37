from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helper modules of the tests: _toys, _postgres

import _postgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Who starts the suite in the background makes it ignore Ctrl-C, and every program it starts with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise under nohup


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
