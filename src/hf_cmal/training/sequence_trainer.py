"""What XE and CMAL training share on top of Seq2SeqTrainer.

Token-budget batches, losses normalised over all ranks and micro-batches, evaluation by decoding, the
paper's learning-rate rules, metrics averaged over ranks, and a stop at the first loss that is not finite.
It decides no loss: `XeTrainer` and `CmalTrainer` do.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from hf_cmal.data.columns import FEATURES, INPUT_IDS, LABELS
from hf_cmal.data.statistics import list_lengths
from hf_cmal.evaluation.loading import is_student
from hf_cmal.training.arguments import SequenceTrainingArguments
from hf_cmal.training.batching import EpochDataLoader, TokenBudgetBatchSampler
from hf_cmal.training.schedules import learning_rate_factor
from hf_cmal.training.weight_average import WeightAverage


def model_inputs(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a batch that go to the model: everything but the labels and the Python columns."""
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor) and name != LABELS}


def source_lengths(inputs: Mapping[str, Any]) -> Tensor:
    """Number of real source positions of each row of a batch, eos included; [B]."""
    mask: Tensor = inputs["attention_mask"] if INPUT_IDS in inputs else inputs["feature_mask"]
    return mask.sum(-1)


class SequenceTrainer(Seq2SeqTrainer):
    """Base of `XeTrainer` and `CmalTrainer`; takes the arguments of `Seq2SeqTrainer`."""

    args: SequenceTrainingArguments
    # compute_loss divides by the counts of the whole optimizer step, so the Trainer must not divide again.
    loss_is_scaled_for_ga = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if (
            self.args.device.type == "cpu"
            and self.args.bf16
            and self.model.config._attn_implementation == "sdpa"
        ):
            # On CPUs the backward pass of PyTorch's fused attention takes several times as long in bf16 as
            # that of the same sums written out (docs/decisions.md).
            self.model.set_attn_implementation("eager")
        self.average: WeightAverage | None = None
        if self.args.average_decay is not None:
            self.average = WeightAverage(self.model, decay=self.args.average_decay)
            self.add_callback(_UpdateAverage(self.average))
        self.step_tokens = 0
        self.step_inputs = 0
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    @property
    def trains_student(self) -> bool:
        return is_student(self.model)

    # ---- batches ---

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self.args.max_tokens_per_batch is None:
            return super().get_train_dataloader()
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset; none was given")
        columns = self.train_dataset.column_names
        source = INPUT_IDS if INPUT_IDS in columns else FEATURES
        sampler = TokenBudgetBatchSampler(
            list_lengths(self.train_dataset, source),
            list_lengths(self.train_dataset, LABELS),
            max_tokens=self.args.max_tokens_per_batch,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            num_replicas=self.args.world_size,
            rank=self.args.process_index,
        )
        return EpochDataLoader(
            self.train_dataset,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """Counts target tokens and inputs of the whole optimizer step, over all micro-batches and ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        tokens = sum(int((batch[LABELS] != -100).sum()) for batch in batches)
        inputs = sum(len(batch[LABELS]) for batch in batches)
        counts = self.accelerator.gather(torch.tensor([[tokens, inputs]], device=device)).sum(0)
        self.step_tokens, self.step_inputs = (int(count) for count in counts)
        return batches, self.step_tokens

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor | int | None:
        return None  # counted in get_batch_samples, without the shift that the Trainer assumes

    # ---- optimisation ---

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        if self.args.learning_rate_rule is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        batches = len(self.get_train_dataloader())
        updates_per_epoch = -(-batches // self.args.gradient_accumulation_steps)
        warmup_steps = self.args.get_warmup_steps(num_training_steps)
        rule = self.args.learning_rate_rule
        self.lr_scheduler = LambdaLR(
            optimizer if optimizer is not None else self.optimizer,
            lambda update: learning_rate_factor(
                rule, update, updates_per_epoch=updates_per_epoch, warmup_steps=warmup_steps
            ),
        )
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def length_term(self, length_logits: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """The length predictor's share of the loss (Sec. 6.1.2), over all inputs of the step."""
        losses = self.model.length_loss(length_logits, source_lengths(inputs), inputs["target_lengths"])
        weighted: Tensor = self.model.config.length_loss_weight * losses.sum() / self.step_inputs
        return weighted

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            sources = inputs.get("source") or inputs.get("image_id") or []
            raise FloatingPointError(
                f"the loss is {loss.item()} at step {self.state.global_step}, epoch {self.state.epoch}: "
                f"training stopped before the update. The batch begins with {list(sources)[:3]!r}. Lower the "
                "learning rate or leave bf16/fp16, and resume from the last checkpoint"
            )
        return loss

    # ---- the average of the weights ---

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that are evaluated and kept."""
        return nullcontext() if self.average is None else self.average.applied()

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with self.averaged_weights():
            return super().evaluate(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if self.average is not None and self.args.should_save:
            # before the file that makes the checkpoint whole
            folder = Path(self._get_output_dir(trial=None)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            self.average.save(folder)
        super()._save_checkpoint(*args, **kwargs)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: torch.nn.Module | None = None
    ) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.average is not None:
            self.average.load(resume_from_checkpoint)

    # ---- metrics ---

    def record(self, metrics: Mapping[str, float | Tensor]) -> None:
        """Adds this micro-batch's metrics to the averages that the next `log` writes."""
        for name, value in metrics.items():
            self._sums[name] += float(value)
            self._counts[name] += 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:  # a training log: every rank is here, whatever it recorded
            recorded = gather_object([(dict(self._sums), dict(self._counts))])
            names = sorted({name for sums, _ in recorded for name in sums})
            for name in names:
                total = sum(sums.get(name, 0.0) for sums, _ in recorded)
                logs[name] = total / sum(counts.get(name, 0) for _, counts in recorded)
            self._sums.clear()
            self._counts.clear()
        super().log(logs, start_time)

    # ---- evaluation ---

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        # Seq2SeqTrainer would keep the rows that fill up the last round of several ranks.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Word-by-word loss on the labels, and the decoded tokens for `compute_metrics`."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = self.evaluation_loss(model, inputs)
        if prediction_loss_only or not self.args.predict_with_generate:
            return loss, None, None
        not_for_generation = ("decoder_input_ids", "target_lengths")
        generation_inputs = {
            name: value for name, value in model_inputs(inputs).items() if name not in not_for_generation
        }
        settings = gen_kwargs or dict(getattr(self, "_gen_kwargs", {}))
        if self.trains_student:
            settings = {}  # one pass: beams and maximum lengths are the teacher's settings
        with self.compute_loss_context_manager():
            tokens = self.model.generate(**generation_inputs, **settings)
        return loss, tokens, inputs[LABELS]

    def evaluation_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Mean cross-entropy per target token of one batch, without smoothing."""
        outputs = model(**model_inputs(inputs))
        return torch.nn.functional.cross_entropy(
            outputs.logits.float().flatten(0, 1), inputs[LABELS].flatten(), ignore_index=-100
        )


class _UpdateAverage(TrainerCallback):
    """Tells the average of each optimizer step."""

    def __init__(self, average: WeightAverage) -> None:
        self.average = average

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.average.update()
