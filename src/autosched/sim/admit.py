"""Admission: jobs that could wait forever are refused before anything runs."""

from __future__ import annotations

import numpy as np

from autosched.sim.cluster import Cluster
from autosched.sim.trace import Trace, examples
from autoscout.common.text import plural
from autoscout.core.errors import ConfigError, Fault


def admit(trace: Trace, cluster: Cluster) -> None:
    """Refuse jobs that could wait forever.

    Raises:
        ConfigError: one fault per reason, naming jobs.
    """
    faults = []
    several = len(cluster.vcs) > 1
    unknown = set(trace.vc.names) - set(cluster.vcs) if several else set()
    lost = np.isin(trace.vc.codes, [trace.vc.code(name) for name in unknown])
    if lost.any():
        faults.append(
            Fault(
                where=trace.source,
                field="vc",
                value=examples(np.asarray(sorted(unknown), np.str_)),
                rule=f"{plural(int(lost.sum()), 'job')} in virtual clusters without nodes",
                fix="Add these to the node file, filter the jobs, or use one cluster for all (--cluster 70x8)",
            )
        )
    for vc in cluster.vcs:
        part = cluster.part(vc)
        mine = (trace.vc.codes == trace.vc.code(vc)) if several else np.ones(len(trace), bool)
        for kind, name in enumerate(trace.kind.names):
            fitting = [group for group in part.groups if name in ("", group.kind)]
            capacity = sum(group.nodes * group.gpus for group in fitting)
            large = mine & (trace.kind.codes == kind) & (trace.gpus > capacity)
            if large.any():
                faults.append(
                    Fault(
                        where=trace.source,
                        field="gpus",
                        value=f"{trace.gpus[large].max():g} GPUs wanted, {capacity} there"
                        + (f" in {vc}" if vc else "")
                        + (f" of type {name}" if name else ""),
                        rule=f"larger than the cluster: {examples(trace.job_id[large])} ({plural(int(large.sum()), 'job')} in all)",
                        fix="Use a larger cluster or filter these jobs",
                    )
                )
    if faults:
        raise ConfigError(faults)
