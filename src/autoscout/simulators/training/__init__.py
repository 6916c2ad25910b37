"""Training of transformers: time and memory of a step by formula."""

from autoscout.simulators.training.model import TrainingModel

__all__ = ["TrainingModel"]
