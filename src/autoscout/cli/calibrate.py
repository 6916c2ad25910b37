"""`autoscout calibrate`: constants of the simulators from tables of measurements, with the error on unseen workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators.serving.calibration import calibrate_serving, save_serving, serving_to_json
from autoscout.simulators.serving.tables import read_serving_table
from autoscout.simulators.training.calibrate import BOUNDS, calibrate_tables
from autoscout.simulators.training.calibration import to_json

USUAL = ("gemm_scale", "layer_gap_s", "layer_host_s", "element_bytes", "bus_scale", "nic_share", "dp_overlap")


def calibrate(
    tables: Annotated[list[Path], typer.Argument(help="CSV files: knobs, model, gpu, n_gpus, seq, gbs and a measured time per row.")],
    out: Annotated[Path, typer.Option(help="Where to write the calibration.")] = Path("calibration.yaml"),
    name: Annotated[str, typer.Option(help="Name of the calibration, usually GPU and software.")] = "mine",
    stack: Annotated[str, typer.Option(help="Shipped calibration to start from.")] = "default",
    constant: Annotated[list[str] | None, typer.Option(help="Constant to fit; may be repeated. Few rows decide few constants.")] = None,
    given: Annotated[list[str] | None, typer.Option("--set", help="Column that the files lack: ar=1; may be repeated.")] = None,
    serving: Annotated[bool, typer.Option("--serving", help="The tables are of serving runs (columns of the silicon sample).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit the simulators to measured tables, and say how wrong they are on workloads that the fit has not seen."""
    missing = [path for path in tables if not path.is_file()]
    if missing:
        raise ConfigError([Fault(where=str(path), rule="no such file") for path in missing])
    if serving:
        if len(tables) != 1:
            raise ConfigError(Fault(where="calibrate", value=str(len(tables)), rule="serving takes one table at a time"))
        table = read_serving_table(tables[0])
        if not np.isfinite(table.tpot_s).any():
            rule = f"no row can be used: {len(table.left_out)} left out, {len(table.rows)} without a time between tokens"
            rule += f"; the first: {table.left_out[0]}" if table.left_out else ""
            raise ConfigError(
                Fault(
                    where=str(tables[0]),
                    rule=rule,
                    fix="Columns: model_path, system, backend, isl, osl, concurrency, batch_size, tp_size, silicon_tpot_ms",
                )
            )
        constants = calibrate_serving(table, table.models, name=name, made_from=f"{tables[0].name}, {len(table.rows)} rows")
        save_serving(constants, out)
        if as_json:
            typer.echo(json.dumps({**serving_to_json(constants), "out": str(out), "left_out": table.left_out}, indent=1, allow_nan=False))
            return
        typer.echo(
            _verdict(constants.rows, "error of the time between tokens on unseen models", constants.mape, "models", constants.spread, out)
        )
        _name_left_out(table.left_out)
        return
    columns = dict(text.partition("=")[::2] for text in given or [])
    fitted, left_out = calibrate_tables(tables, constant or list(USUAL), name=name, stack=stack, columns=columns, out=out)
    if as_json:
        typer.echo(json.dumps({**to_json(fitted), "out": str(out), "left_out": left_out}, indent=1, allow_nan=False))
        return
    typer.echo(_verdict(fitted.rows, "error on unseen workloads", fitted.mape, "workloads", fitted.spread, out))
    _name_left_out(left_out)
    typer.echo(f"constants that can be fitted: {', '.join(BOUNDS)}")


def _name_left_out(left_out: Sequence[str]) -> None:
    """Every row that was not used, with the reason."""
    if left_out:
        typer.echo(f"{len(left_out)} rows were left out:")
        for row in left_out:
            typer.echo(f"  {row}")


def _verdict(rows: int, what: str, mape: float | None, kind: str, spread: float, out: Path) -> str:
    if mape is None:
        return (
            f"{rows} rows, {what} cannot be judged: needs at least two {kind}; the shipped spread of {spread:.0%} stays; written to {out}"
        )
    return f"{rows} rows, {what}: {mape:.1%}; written to {out}"


__all__ = ["calibrate"]
