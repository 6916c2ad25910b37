"""Backend `deepspeed`: ZeRO, offloading, buckets and batches of DeepSpeed, on a built-in GPT or the user's own script."""

from autoscout.backends.deepspeed.backend import DeepSpeedBackend

__all__ = ["DeepSpeedBackend"]
