"""Fine-tuning with Hugging Face's Trainer: `python trainer.py`. What AutoScout needs of it is the callback."""

from __future__ import annotations

import argparse
import tempfile

import torch
from gpt import HEADS, LAYERS, LENGTH, ROWS, STEPS, WIDTH, WORDS, say
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

from autoscout import training


class Lines(TrainerCallback):
    """Prints a line a step."""

    def on_step_end(self, args: object, state: object, control: object, **_: object) -> None:  # noqa: ARG002
        say(state.global_step - 1, 0.0)  # type: ignore[attr-defined]


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--micro-batch", type=int, default=2)
    flags.add_argument("--checkpointing", choices=["yes", "no"], default="yes")
    flags.add_argument("--attention", choices=["eager", "sdpa"], default="eager")
    flags.add_argument("--optimizer", choices=["adamw_torch", "adamw_torch_fused"], default="adamw_torch")
    given = flags.parse_args()
    set_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    shape = LlamaConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, attn_implementation=given.attention, **sizes)
    tokens = torch.randint(0, 64, (ROWS * 64, LENGTH))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=given.micro_batch,
        gradient_accumulation_steps=ROWS // given.micro_batch,
        gradient_checkpointing=given.checkpointing == "yes",
        optim=given.optimizer,
        learning_rate=1e-3,
        max_steps=STEPS,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    Trainer(model=LlamaForCausalLM(shape), args=arguments, train_dataset=rows, callbacks=[training.callback(), Lines()]).train()


if __name__ == "__main__":
    main()
