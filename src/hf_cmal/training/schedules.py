"""Learning-rate rules of the paper, as factors of the base learning rate.

Sec. 5.1.2 gives the two captioning rules by epoch (counted from 1), Sec. 6.1.2 the translation rule by
step: the Transformer's inverse square root with warm-up for XE, and a fixed rate for CMAL. Each rule is a
plain function of an epoch or a step; `learning_rate_factor` is what a `LambdaLR` calls. Nothing here knows
a Trainer or an optimizer.
"""

import math
from collections.abc import Callable


def captioning_xe_factor(epoch: int) -> float:
    """Sec. 5.1.2, XE: min(t x 1e-4, 3e-4) over the base rate 3e-4; after 6 epochs halved every 3 epochs.

    Args:
        epoch: the epoch t, counted from 1.
    """
    warmup = min(epoch / 3, 1.0)
    return warmup * 0.5 ** max(0, (epoch - 1 - 6) // 3)


def captioning_cmal_factor(epoch: int) -> float:
    """Sec. 5.1.2, CMAL: times 0.8 every 10 epochs, over the base rate 7.5e-5. `epoch` counts from 1."""
    return 0.8 ** ((epoch - 1) // 10)


def inverse_square_root_factor(step: int, *, warmup_steps: int = 4000) -> float:
    """Sec. 6.1.2 ("the Transformer's training settings"): linear warm-up, then 1/sqrt(step); 1 at the peak.

    Args:
        step: the update, counted from 1.
        warmup_steps: updates until the peak.
    """
    return min(step / warmup_steps, math.sqrt(warmup_steps / step))


EPOCH_RULES: dict[str, Callable[[int], float]] = {
    "captioning_xe": captioning_xe_factor,
    "captioning_cmal": captioning_cmal_factor,
}
LEARNING_RATE_RULES = ("captioning_xe", "captioning_cmal", "inverse_square_root")


def learning_rate_factor(rule: str, update: int, *, updates_per_epoch: int, warmup_steps: int) -> float:
    """The factor of the base learning rate for one update.

    Args:
        rule: one of `LEARNING_RATE_RULES`.
        update: the number of updates already done, as `LambdaLR` counts (0 for the first update).
        updates_per_epoch: turns updates into epochs for the rules by epoch.
        warmup_steps: for `inverse_square_root`.

    Raises:
        ValueError: for an unknown rule; the message lists the legal names.
    """
    if rule in EPOCH_RULES:
        return EPOCH_RULES[rule](update // updates_per_epoch + 1)
    if rule == "inverse_square_root":
        return inverse_square_root_factor(update + 1, warmup_steps=warmup_steps)
    raise ValueError(
        f"learning_rate_rule is {rule!r}; legal values: {', '.join(LEARNING_RATE_RULES)} or None"
    )
