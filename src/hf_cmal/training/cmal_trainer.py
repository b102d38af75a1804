"""Counterfactuals-critical multi-agent learning (Sec. 4) of a NAG student.

One step is: one forward pass, joint actions sampled from its log-probabilities, their rewards and those of
their counterfactual edits, and a surrogate loss whose gradient is Eq. (7), (11) or (18), whichever the
estimator stands for. The references are the real ones (Sec. 4.6). It knows no reward and no estimator by
name.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_utils import TrainOutput

from hf_cmal.data.columns import REFERENCE_IDS, REFERENCES
from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.base import Estimator, StatefulEstimator
from hf_cmal.metrics.tokens import length_accuracy, repetition_rate
from hf_cmal.models.nag.sequences_nag import alive_mask
from hf_cmal.rewards import get_reward
from hf_cmal.rewards.base import Reward
from hf_cmal.rewards.document_frequencies import DocumentFrequencies
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.training.arguments import CmalTrainingArguments
from hf_cmal.training.document_frequencies import (
    DOCUMENT_FREQUENCIES,
    count_document_frequencies,
    counted_eos,
    load_document_frequencies,
    needs_document_frequencies,
)
from hf_cmal.training.sequence_trainer import SequenceTrainer, model_inputs, source_lengths

ESTIMATOR_STATE = "estimator_state.json"


class CmalTrainer(SequenceTrainer):
    """Trains a student by CMAL.

    Args:
        reward: what a sentence is worth; by default the one that `args` names.
        estimator: by default the one that `args` names, with its options.
        decode: token ids of sentences to strings, for `args.log_completions_steps` and rewards on strings.
        Everything else as `Seq2SeqTrainer`; `train_dataset` has the columns of `hf_cmal.data.encoding`.

    Raises:
        ValueError: if the model is not a student, naming its model type.
    """

    args: CmalTrainingArguments

    def __init__(
        self,
        *args: Any,
        reward: Reward | None = None,
        estimator: Estimator | None = None,
        decode: Callable[[Sequence[Sequence[int]]], list[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not self.trains_student:
            raise ValueError(
                f"CMAL trains a student (model_type cmal_nag), got {self.model.config.model_type!r}; make "
                "one from a teacher with init_student_from_teacher"
            )
        self.eos_token_id = counted_eos(self.model.config)
        self.decode = decode
        self.estimator = estimator if estimator is not None else estimator_from_arguments(self.args)
        self._counted: DocumentFrequencies | None = None
        self.reward = reward if reward is not None else self._reward_from_arguments()
        if self.args.log_completions_steps is not None and decode is None:
            raise ValueError("log_completions_steps needs `decode`, e.g. the tokenizer's batch_decode")
        self._micro_step = 0
        self._step_rewards: list[float] = []

    def _reward_from_arguments(self) -> Reward:
        options: dict[str, Any] = {}
        if needs_document_frequencies(self.args.reward):
            student = (self.model.config, self.processing_class)
            if self.args.document_frequencies is None:
                self._counted = count_document_frequencies(self.train_dataset[REFERENCE_IDS], *student)
                options["document_frequencies"] = self._counted
            else:
                path = self.args.document_frequencies
                options["document_frequencies"] = load_document_frequencies(path, *student)
        return get_reward(self.args.reward, decode=self.decode, **options)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        if self._counted is not None and self.args.should_save:
            self._counted.save(Path(self.args.output_dir) / DOCUMENT_FREQUENCIES)
        return super().train(*args, **kwargs)

    # ---- one step ---

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        start = time.perf_counter()
        loss = super().training_step(*args, **kwargs)
        self.record({"step_time": time.perf_counter() - start})
        return loss

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        outputs = model(**self._policy_inputs(inputs))
        logits = self.model.suppress_tokens(outputs.logits.float())
        if self.args.temperature != 1.0:  # each pass over [B,N,V] costs
            logits = logits / self.args.temperature
        log_probs = logits.log_softmax(-1)
        agent_mask = outputs.agent_mask

        bound = self.reward.bind(
            inputs[REFERENCE_IDS], agent_mask, eos_token_id=self.eos_token_id, columns=_python_columns(inputs)
        )
        proposals = self.estimator.propose(
            log_probs.detach(),
            agent_mask,
            eos_token_id=self.eos_token_id,
            num_samples=self.args.num_samples,
            candidates=bound.candidates if bound.other_is_exact else None,
            generator=self.generator(log_probs.device),
        )
        rewards = bound.score(proposals.actions)
        edit_rewards = (
            None if proposals.edits is None else bound.score_edits(proposals.actions, proposals.edits)
        )
        surrogate = self.estimator.surrogate(
            log_probs, proposals, rewards, edit_rewards, num_inputs=self.step_inputs
        )
        loss = surrogate.loss
        if outputs.length_logits is not None:
            loss = loss + self.length_term(outputs.length_logits, inputs)
            self._record_length_accuracy(outputs.length_logits.detach(), inputs)

        self._record_step(log_probs.detach(), agent_mask, proposals, rewards, surrogate.stats)
        self._log_completions(inputs, proposals, rewards)
        self._micro_step += 1
        loss = loss * self.args.world_size  # DistributedDataParallel averages gradients over ranks
        return (loss, outputs) if return_outputs else loss

    def _policy_inputs(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """What the model reads. Without target lengths it has as many agents as it predicts."""
        left_out = ("target_lengths",) if self.args.predicted_lengths else ()
        return {name: value for name, value in model_inputs(inputs).items() if name not in left_out}

    def generator(self, device: torch.device) -> torch.Generator:
        """Seeded from (seed, step, micro-step, rank) alone, so a resumed run samples the same sentences."""
        seed = 0
        for part in (self.args.seed, self.state.global_step, self._micro_step, self.args.process_index):
            seed = (seed * 1_000_003 + part + 1) % (2**63)
        return torch.Generator(device=device).manual_seed(seed)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Tensor | int | None]:
        """A new optimizer step begins: the estimator learns the rewards of the last one."""
        self._update_estimator()
        self._micro_step = 0
        return super().get_batch_samples(*args, **kwargs)

    # ---- the estimator's state ---

    def _update_estimator(self) -> None:
        if self._step_rewards and isinstance(self.estimator, StatefulEstimator):
            mean = torch.tensor(self._step_rewards, dtype=torch.float64, device=self.args.device).mean()
            self.estimator.update(float(self.accelerator.gather(mean.reshape(1)).mean()))
        self._step_rewards = []

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._update_estimator()
        if self.args.should_save and isinstance(self.estimator, StatefulEstimator):
            folder = Path(self._get_output_dir(trial=None)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)  # before the file that makes the checkpoint whole
            (folder / ESTIMATOR_STATE).write_text(json.dumps(self.estimator.state_dict()))
        super()._save_checkpoint(*args, **kwargs)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: torch.nn.Module | None = None
    ) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if isinstance(self.estimator, StatefulEstimator):
            state = Path(resume_from_checkpoint) / ESTIMATOR_STATE
            self.estimator.load_state_dict(json.loads(state.read_text()))

    # ---- metrics ---

    def _record_step(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        stats: dict[str, Tensor],
    ) -> None:
        sampled = rewards[:, : proposals.num_samples]
        self._step_rewards.append(float(sampled.mean()))
        samples = proposals.actions[:, : proposals.num_samples].flatten(0, 1)
        alive = proposals.alive.flatten(0, 1)
        decoded = agent_mask
        if self.eos_token_id is not None:
            decoded = alive_mask(log_probs.argmax(-1), agent_mask, self.eos_token_id)
        # The entropy is the mean of -log pi(u) over samples u: no further pass over [B,N,V].
        chosen = log_probs.gather(-1, proposals.actions[:, : proposals.num_samples].transpose(1, 2))
        self.record(
            {
                "reward": sampled.mean(),
                "reward_std": sampled.std(unbiased=False),
                f"rewards/{self.reward.name}/mean": sampled.mean(),
                "entropy": -chosen[agent_mask].mean(),
                "completions/mean_length": alive.sum(-1).float().mean(),
                "completions/greedy_length": decoded.sum(-1).float().mean(),
                "repetition_rate": repetition_rate(samples, alive),
                **stats,
            }
        )

    def _record_length_accuracy(self, length_logits: Tensor, inputs: dict[str, Any]) -> None:
        predicted = self.model.model.predict_target_lengths(length_logits, source_lengths(inputs))
        self.record({"length_accuracy": length_accuracy(predicted, inputs["target_lengths"])})

    def _log_completions(self, inputs: dict[str, Any], proposals: Proposals, rewards: Tensor) -> None:
        every = self.args.log_completions_steps
        if every is None or self.decode is None or self._micro_step or self.state.global_step % every:
            return
        first = [
            proposals.actions[0, s][proposals.alive[0, s]].tolist() for s in range(proposals.num_samples)
        ]
        entry = {
            "step": self.state.global_step,
            "references": inputs[REFERENCES][0] if REFERENCES in inputs else None,
            "completions": [
                {"text": text, "reward": float(reward)}
                for text, reward in zip(self.decode(first), rewards[0], strict=False)
            ],
        }
        if self.args.should_save:
            with (Path(self.args.output_dir) / "completions.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def estimator_from_arguments(args: CmalTrainingArguments) -> Estimator:
    """The estimator that the arguments name, with the options that are set.

    Raises:
        ValueError: an option is set that the estimator does not have.
    """
    options: dict[str, Any] = dict(args.estimator_options or {})
    if args.top_k is not None:
        options["top_k"] = args.top_k
    if args.compositional_weight != 0.0:
        options["compositional_weight"] = args.compositional_weight
    return get_estimator(args.estimator, **options)


def _python_columns(inputs: dict[str, Any]) -> dict[str, Sequence[Any]]:
    """The columns of the batch that are no tensors: what a reward on strings is called with."""
    return {
        name: value for name, value in inputs.items() if isinstance(value, list) and name != REFERENCE_IDS
    }
