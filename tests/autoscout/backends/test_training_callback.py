"""The callback in the real Trainers of Hugging Face and Lightning: steps, useful tokens, and the same loss however a batch is cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout import training
from autoscout.training.callback import useful_tokens


def reported(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "rank0.jsonl").read_text().splitlines()]
    return [line for line in lines if "tokens" in line]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOSCOUT_STEPS", str(tmp_path))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_no_trainer_is_an_error_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transformers", "lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ValueError, match="framework must be one of transformers, lightning, pytorch_lightning"):
        training.callback()


@pytest.mark.training
def test_padding_and_masked_tokens_are_no_work() -> None:
    torch = pytest.importorskip("torch")
    ids = torch.ones(2, 4, dtype=torch.long)
    labels = torch.tensor([[5, 6, -100, -100], [-100, 5, 6, 7]])
    assert useful_tokens({"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]), "labels": labels}) == 5
    assert useful_tokens({"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])}) == 6
    assert useful_tokens({"input_ids": ids}) == useful_tokens([ids, labels]) == useful_tokens(ids) == 8


@pytest.mark.training
@pytest.mark.slow
def test_hugging_faces_trainer_reports_by_one_line(trial: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    told = {}
    for micro in (4, 2, 1):
        for path in trial.glob("rank*.jsonl"):
            path.unlink()
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
        transformers.set_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        rows = []
        for number in range(16):
            ids = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(number))
            labels = ids.clone()
            labels[4 + number % 4 :] = -100  # of another length each
            rows.append({"input_ids": ids, "labels": labels})
        arguments = transformers.TrainingArguments(
            output_dir=str(trial / "out"),
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=4 // micro,
            max_steps=4,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            seed=0,
        )
        transformers.Trainer(
            model=model, args=arguments, train_dataset=rows, callbacks=[training.callback("transformers", tokens=None)]
        ).train()
        told[micro] = reported(trial)
        assert [step["samples"] for step in told[micro]] == [4, 4, 4, 4]
    assert {step["tokens"] for step in told[4]} <= {float(count) for count in range(16, 29)}
    for micro in (2, 1):
        assert [step["tokens"] for step in told[micro]] == [step["tokens"] for step in told[4]], "the same work however it is cut"
        assert [step["loss"] for step in told[micro]] == pytest.approx([step["loss"] for step in told[4]], rel=1e-3)


@pytest.mark.training
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # it warns of workers, Slurm and more
def test_lightning_reports_by_one_line(trial: Path) -> None:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    told = {}
    for micro in (4, 2):
        for path in trial.glob("rank*.jsonl"):
            path.unlink()
        data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
        lightning.Trainer(
            max_steps=4,
            accumulate_grad_batches=4 // micro,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[training.callback("lightning")],
        ).fit(Model(), torch.utils.data.DataLoader(data, batch_size=micro))
        told[micro] = reported(trial)
        assert [(step["samples"], step["tokens"]) for step in told[micro]] == [(4.0, 16.0)] * 4
    assert [step["loss"] for step in told[2]] == pytest.approx([step["loss"] for step in told[4]], rel=1e-4)
