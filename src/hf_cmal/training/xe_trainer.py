"""Word-by-word training (Eq. (5)) of teachers and students.

The loss is the cross-entropy of every target word, divided by the number of target words of the whole
optimizer step (all ranks and micro-batches); a student of predicted length adds its length loss (Sec.
6.1.2), divided by the number of inputs. With glancing (`glancing.py`) the words that are shown cost nothing
and still count in the divisor. It trains any model whose collator gives `labels`: MarianMTModel,
the captioning teacher, and students.
"""

from typing import Any

import torch
from torch import Tensor

from hf_cmal.data.collators import IGNORED
from hf_cmal.data.columns import LABELS
from hf_cmal.training.arguments import XeTrainingArguments
from hf_cmal.training.glancing import glancing_ratio, reveal_words
from hf_cmal.training.sequence_trainer import SequenceTrainer, model_inputs


def cross_entropy_sum(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """`CMAL Eq. (5)`: minus the summed log-probability of the labels.

    Args:
        logits: [B, N, V].
        labels: [B, N], -100 where there is no word.
        label_smoothing: share of the target mass spread over the vocabulary (Sec. 6.1.2: 0.1, as the
            Transformer).

    Returns:
        A scalar, in nats.
    """
    return torch.nn.functional.cross_entropy(  # Eq. (5)
        logits.float().flatten(0, 1),
        labels.flatten(),
        ignore_index=-100,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


class XeTrainer(SequenceTrainer):
    """Trains a teacher or a student word by word; arguments as `Seq2SeqTrainer`.

    Raises:
        ValueError: glancing is asked for and the model is not a student.
    """

    args: XeTrainingArguments

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.args.glancing_ratio is not None and not self.trains_student:
            raise ValueError(
                f"glancing_ratio is {self.args.glancing_ratio}, but glancing trains a student (model_type "
                f"cmal_nag), and this model is of type {self.model.config.model_type!r}; set it to None"
            )

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        labels, tensors = inputs[LABELS], model_inputs(inputs)
        if self.args.glancing_ratio is not None:
            shown = self._glance(labels, tensors)
            tensors["revealed_words"] = labels.masked_fill(~shown, IGNORED)
            labels = labels.masked_fill(shown, IGNORED)
        outputs = model(**tensors)
        word_loss = cross_entropy_sum(
            outputs.logits, labels, label_smoothing=self.args.label_smoothing_factor
        )
        loss = word_loss / self.step_tokens
        if self.trains_student and outputs.length_logits is not None:
            loss = loss + self.length_term(outputs.length_logits, inputs)
        loss = loss * self.args.world_size  # DistributedDataParallel averages gradients over ranks
        return (loss, outputs) if return_outputs else loss

    def _glance(self, labels: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """Which words the student is shown, after it has tried without; bool, [B, N]."""
        assert self.args.glancing_ratio is not None
        with torch.no_grad():
            predictions = self.model(**tensors).logits.argmax(-1)
        ratio = glancing_ratio(
            self.state.global_step / self.state.max_steps,
            start=self.args.glancing_ratio,
            end=self.args.glancing_ratio_end,
        )
        shown = reveal_words(labels, predictions, ratio=ratio)
        self.record(
            {"words_right": _share(labels == predictions, labels), "words_shown": _share(shown, labels)}
        )
        return shown


def _share(chosen: Tensor, labels: Tensor) -> Tensor:
    return chosen.sum() / (labels != IGNORED).sum()
