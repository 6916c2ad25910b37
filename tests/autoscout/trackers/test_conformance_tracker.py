"""The shipped suite over every tracker, each read back by the reader of its own package, MLflow through a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from _services import Row, mlflow_rows, mlflow_server, optuna_rows, tensorboard_rows, trackio_rows, wandb_rows

from _houses import own
from autoscout.core import plugins
from autoscout.core.tracker import Tracker
from autoscout.testing.tracker import TrackerSuite

pytestmark = pytest.mark.adapters
NAMES = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


class TestEveryTracker(TrackerSuite):
    @pytest.fixture(params=own("tracker", "autoscout"))
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str], Callable[[], list[Row]]]:
        """The tracker's name, its options, and its reader."""
        name, fresh = request.param, f"test{next(NAMES)}"
        if name == "mlflow":
            address = request.getfixturevalue("server")
            return name, {"uri": address, "experiment": fresh}, lambda: mlflow_rows(address, fresh)
        if name == "trackio":
            return name, {"project": fresh}, lambda: trackio_rows(fresh)
        readers: dict[str, Callable[[], list[Row]]] = {
            "tensorboard": lambda: tensorboard_rows(tmp_path / "tensorboard"),
            "wandb": lambda: wandb_rows(tmp_path),
            "optuna": lambda: optuna_rows(tmp_path / "study.db"),
        }
        return name, {"folder": str(tmp_path), **({"mode": "offline"} if name == "wandb" else {})}, readers[name]

    @pytest.fixture
    def make(self, place: tuple[str, dict[str, str], Any]) -> Callable[[], Tracker]:
        kind: Any = plugins.get("tracker", place[0])
        options: Any = plugins.options_type(kind)
        return lambda: kind(options(**place[1]))

    @pytest.fixture
    def read(self, place: tuple[str, dict[str, str], Callable[[], list[Row]]]) -> Callable[[], list[Row]]:
        return place[2]
