"""Where the time of a training step goes: the real trainers with clocks around their parts.

Nothing of a step is written again here. The reward and the estimator are handed to the trainer with a clock
in them, hooks time the model's forward pass, and a step is the Trainer's: forward, loss, backward, clipping,
optimizer, scheduler.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hf_cmal.estimators import Estimator, Surrogate
from hf_cmal.rewards import BoundReward, Reward
from hf_cmal.sampling import Edits, Proposals
from hf_cmal.training.sequence_trainer import SequenceTrainer

REWARD_PARTS = ("bind", "score", "score_edits")


class Stopwatch:
    """Seconds by part, since the last `take`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        seconds = dict(self.seconds)
        self.seconds.clear()
        return seconds


@dataclass(frozen=True)
class TimedBound:
    """A bound reward with a clock."""

    bound: BoundReward
    watch: Stopwatch

    @property
    def candidates(self) -> Tensor | None:
        return self.bound.candidates

    @property
    def other_is_exact(self) -> bool:
        return self.bound.other_is_exact

    def score(self, actions: Tensor) -> Tensor:
        with self.watch.part("score"):
            return self.bound.score(actions)

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        with self.watch.part("score_edits"):
            return self.bound.score_edits(actions, edits)


@dataclass(frozen=True)
class TimedReward:
    """A reward with a clock."""

    reward: Reward
    watch: Stopwatch

    @property
    def name(self) -> str:
        return self.reward.name

    @property
    def signature(self) -> str:
        return self.reward.signature

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> TimedBound:
        with self.watch.part("bind"):
            bound = self.reward.bind(references, agent_mask, eos_token_id=eos_token_id, columns=columns)
        return TimedBound(bound, self.watch)


@dataclass(frozen=True)
class TimedEstimator:
    """An estimator with a clock."""

    estimator: Estimator
    watch: Stopwatch

    def propose(self, log_probs: Tensor, agent_mask: Tensor, **options: Any) -> Proposals:
        with self.watch.part("propose"):
            return self.estimator.propose(log_probs, agent_mask, **options)

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        with self.watch.part("surrogate"):
            return self.estimator.surrogate(
                log_probs, proposals, rewards, edit_rewards, num_inputs=num_inputs
            )


def timed_step(trainer: SequenceTrainer, batch: dict[str, Any], watch: Stopwatch) -> dict[str, float]:
    """Seconds of one optimizer step on `batch` and of its parts; `step` is the whole.

    `forward` is the model's, `loss` what else `compute_loss` does, `backward` all else of `training_step`,
    `optimizer` the clipping of the gradients and the update, `counting` that of the batch's words and inputs.
    """
    model = trainer.model
    handles = _time_forward(model, watch)
    plain_loss: Callable[..., Any] = trainer.compute_loss

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        with watch.part("compute_loss"):
            return plain_loss(*args, **kwargs)

    trainer.compute_loss = compute_loss  # type: ignore[method-assign]
    watch.take()
    try:
        with watch.part("step"):
            with watch.part("counting"):
                (inputs,), num_items = trainer.get_batch_samples(iter([batch]), 1, trainer.args.device)
            with watch.part("training_step"):
                trainer.training_step(model, inputs, num_items)
            with watch.part("optimizer"):
                trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
                trainer.optimizer.step()
                trainer.lr_scheduler.step()
                model.zero_grad()
    finally:
        del trainer.compute_loss  # the method of the class is back
        for handle in handles:
            handle.remove()
    seconds = watch.take()
    whole, loss = seconds.pop("training_step"), seconds.pop("compute_loss")
    inner = ("forward", "propose", "surrogate", *REWARD_PARTS)
    seconds["loss"] = loss - sum(seconds.get(name, 0.0) for name in inner)
    seconds["backward"] = whole - loss
    return seconds


def _time_forward(model: nn.Module, watch: Stopwatch) -> list[Any]:
    starts: list[float] = []

    def before(*args: Any) -> None:
        starts.append(time.perf_counter())

    def after(*args: Any) -> None:
        watch.seconds["forward"] += time.perf_counter() - starts.pop()

    return [model.register_forward_pre_hook(before), model.register_forward_hook(after)]
