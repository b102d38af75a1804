"""Word-by-word training (Eq. (5)) of teachers and students.

The loss is the cross-entropy of every target word, divided by the number of target words of the whole
optimizer step (all ranks and micro-batches); a student of predicted length adds its length loss (Sec.
6.1.2), divided by the number of inputs. It trains any model whose collator gives `labels`: MarianMTModel,
the captioning teacher, and students.
"""

from typing import Any

import torch
from torch import Tensor

from hf_cmal.data.columns import LABELS
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
    """Trains a teacher or a student word by word; arguments as `Seq2SeqTrainer`."""

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        outputs = model(**model_inputs(inputs))
        word_loss = cross_entropy_sum(
            outputs.logits, inputs[LABELS], label_smoothing=self.args.label_smoothing_factor
        )
        loss = word_loss / self.step_tokens
        if self.trains_student and outputs.length_logits is not None:
            loss = loss + self.length_term(outputs.length_logits, inputs)
        loss = loss * self.args.world_size  # DistributedDataParallel averages gradients over ranks
        return (loss, outputs) if return_outputs else loss
