"""Several launches of one configuration made into one measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from autoscout.core.launch import Completed
from autoscout.core.trial import COMPILED, SPENT, Measurement, Status


def dirt(conditions: Mapping[str, float]) -> tuple[float, float]:
    """Orders samples from the least disturbed to the most."""
    others = max(conditions.get("gpu_other_share", 0.0), conditions.get("other_cpu_share", 0.0))
    return others, conditions.get("cpu_pressure", 0.0)


def circumstances(completed: Completed) -> dict[str, float]:
    """What a launch saw, for the measurement's conditions."""
    return {
        **completed.conditions,
        "wall_s": completed.wall_s,
        "cpu_s": completed.cpu_s,
        "peak_memory_gb": completed.peak_memory_gb,
    }


def joined(repeats: Sequence[Measurement], launched: Sequence[Measurement], dirty_repeats: int, dirty: bool) -> Measurement:
    """One measurement of several: medians of what was kept, the cost of everything launched.

    A configuration that failed once has failed: one that works only most of the time must not be recommended. Likewise one that was
    stopped early because it could not win.

    Args:
        repeats: One per repeat.
        launched: All that ran, disturbed ones included.
        dirty_repeats: How many were run again because the machine was busy.
        dirty: Whether one that was kept had been disturbed.
    """
    counts = {"launches": float(len(launched))} if len(launched) > 1 else {}
    counts |= {"dirty_repeats": float(dirty_repeats)} if dirty_repeats else {}
    counts |= {"dirty": 1.0} if dirty else {}
    counts |= {name: sum(one.spent.get(name, 0.0) for one in launched) for name in SPENT if any(name in one.spent for one in launched)}
    counts |= {COMPILED: compiled_s} if (compiled_s := sum(one.compiled_s for one in launched)) else {}
    cost_s = sum(one.cost_s for one in launched)
    failed = next((one for one in repeats if not one.ok), None)
    if failed is not None:
        return replace(failed, cost_s=cost_s, conditions={**failed.conditions, **counts})
    if len(repeats) == 1:
        return replace(repeats[0], cost_s=cost_s, conditions={**repeats[0].conditions, **counts})
    names = set.intersection(*(set(one.metrics) for one in repeats))
    conditions = set.intersection(*(set(one.conditions) for one in repeats))
    curves = {name: values for name, values in repeats[0].samples.items() if name not in names}  # by step, not by repeat
    return Measurement(
        status=Status.OK,
        metrics={name: median(one.metrics[name] for one in repeats) for name in sorted(names)},
        samples={
            **curves,
            **{name: tuple(value for one in repeats for value in one.samples.get(name, (one.metrics[name],))) for name in sorted(names)},
        },
        fidelity=repeats[0].fidelity,
        cost_s=cost_s,
        conditions={name: fmean(one.conditions[name] for one in repeats) for name in sorted(conditions)} | counts,
        folder=repeats[-1].folder,
        machine=",".join(sorted({one.machine for one in repeats if one.machine})),
    )
