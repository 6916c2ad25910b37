"""Serving of transformers: latency and throughput by formula and by replaying the batching loop."""

from autoscout.simulators.serving.model import ServingModel

__all__ = ["ServingModel"]
