"""Makes src/autoscout/simulators/serving/calibrations.yaml from the silicon sample: `python -m benchmarks.calibrate_serving`."""

from __future__ import annotations

from pathlib import Path

import yaml

from autoscout.simulators.serving import calibration
from autoscout.simulators.serving.calibration import START, calibrate_serving, serving_to_json
from benchmarks._simulator_tables import families, serving_sample

OUT = Path(calibration.__file__).parent / "calibrations.yaml"


def main() -> None:
    table = serving_sample()
    runs = f"{len(table.rows)} aggregated runs of vLLM, SGLang and TensorRT-LLM, H100 to B300"
    made_from = f"silicon sample, part a: {runs} (ai-dynamo/aiconfigurator)"
    found = calibrate_serving(table, families(table), name="serving", made_from=made_from, start=START)
    print(f"{found.rows} rows, TPOT MAPE {found.mape:.1%} on unseen models")
    head = "# Written by benchmarks/calibrate_serving.py; mape, spreads and margins are those of models that were left out.\n"
    OUT.write_text(head + yaml.safe_dump(serving_to_json(found), sort_keys=False, width=140))


if __name__ == "__main__":
    main()
