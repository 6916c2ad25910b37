"""Time of collectives over a node's links and over the network."""

from __future__ import annotations

from autoscout.simulators.training.arithmetic import Array, ceil, floor, has_any, larger, log2, smaller, sqrt, where
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import TrainingJob

START_SHARE = 0.38
"""Share of the GPU's latency figure that starts one collective: 432 NCCL runs on A100 and H100 then err by 7 to 13 %, all four kinds."""
BUCKET_HALF_BYTES = 4.0e6  # message size at which a ring reaches half of its plateau over a network


def collective_s(bytes_: Array, ranks: Array, rounds: float, stride: Array, job: TrainingJob, constants: TrainingConstants) -> Array:
    """Seconds of one collective of `bytes_` over `ranks` that sit `stride` apart.

    `rounds` is 2 for all-reduce, 1 for all-gather and reduce-scatter. A group that fits into its node
    uses the node's links; otherwise the hierarchical form: inside the node, then the rest over the network.
    """
    local = smaller(larger(1.0, floor(job.node_gpus / stride)), ranks)
    nodes = ceil(ranks / local)
    carried_s = rounds * (local - 1.0) / local * bytes_ / (job.bus_rate * constants.bus_scale)
    # best cut into pieces that follow each other: S/B + a becomes (sqrt(S/B) + sqrt(a)) squared
    inside_s = where(local > 1.0, (sqrt(carried_s) + sqrt(START_SHARE * job.bus_latency_s)) ** 2, 0.0)
    if not has_any(nodes > 1.0):
        return inside_s
    across_s = rounds * (nodes - 1.0) / nodes * (bytes_ / local) / (job.nic_rate * constants.nic_share)
    # all-reduce uses trees; for the others newer libraries do too, older ones pass every piece round a ring
    hops = log2(larger(nodes, 2.0))
    if rounds <= 1.0:
        hops = hops + constants.ring_share * larger(0.0, nodes - 1.0 - hops)
    across_s = across_s + constants.nic_latency_s * hops
    return inside_s + where(nodes > 1.0, across_s, 0.0)


def exchange_s(bytes_: Array, ranks: Array, stride: Array, job: TrainingJob, constants: TrainingConstants) -> Array:
    """Seconds of an all-to-all in which each rank gives away `bytes_`: what leaves the node passes the rank's own share of the network."""
    local = smaller(larger(1.0, floor(job.node_gpus / stride)), ranks)
    inside_s = (local - 1.0) / ranks * bytes_ / (job.bus_rate * constants.bus_scale)
    inside_s = (sqrt(inside_s) + sqrt(START_SHARE * job.bus_latency_s)) ** 2
    if not has_any(ranks > local):
        return inside_s
    across_s = (ranks - local) / ranks * bytes_ / (job.nic_rate * constants.nic_share) + constants.nic_latency_s * ceil(ranks / local)
    return larger(inside_s, where(ranks > local, across_s, 0.0))  # both kinds of links carry at once


def send_s(bytes_: Array, stride: Array, job: TrainingJob, constants: TrainingConstants) -> Array:
    """Seconds of one point-to-point message between ranks `stride` apart."""
    inside = stride < job.node_gpus
    rate = where(inside, job.bus_rate * constants.bus_scale, job.nic_rate * constants.nic_share)
    return bytes_ / rate + where(inside, 0.5 * job.bus_latency_s, constants.nic_latency_s)


__all__ = ["BUCKET_HALF_BYTES", "collective_s", "exchange_s", "send_s"]
