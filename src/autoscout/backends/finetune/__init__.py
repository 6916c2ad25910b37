"""Backend `finetune`: full and LoRA fine-tuning of a Hugging Face model."""

from autoscout.backends.finetune.backend import FinetuneBackend

__all__ = ["FinetuneBackend"]
