"""An exponential moving average of the weights: the noise that sampled gradients leave in them cancels out.

The optimizer goes on from the weights themselves; the average follows them and is what is evaluated and, at
the end, kept. It knows no trainer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

AVERAGE = "averaged_weights.safetensors"


class WeightAverage:
    """Follows the trainable weights of a model.

    After t updates the average moves by 1 - min(decay, (1 + t) / (10 + t)) of the way, so that it does not
    cling to where the training began.

    Args:
        model: its parameters are followed; tied ones once.
        decay: in (0, 1); about 1 / (1 - decay) updates are averaged.
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.model, self.decay, self.updates = model, decay, 0
        self.weights = {name: value.detach().clone().float() for name, value in self._followed()}

    def _followed(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, value) for name, value in self.model.named_parameters() if value.requires_grad)

    @torch.no_grad()
    def update(self) -> None:
        """Takes the weights after an optimizer step into the average."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        for name, value in self._followed():
            self.weights[name].lerp_(value.float(), 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again."""
        own = {name: value.detach().clone() for name, value in self._followed()}
        self._write(self.weights)
        try:
            yield
        finally:
            self._write(own)

    @torch.no_grad()
    def _write(self, weights: dict[str, torch.Tensor]) -> None:
        for name, value in self._followed():
            value.copy_(weights[name])

    def save(self, folder: str | Path) -> None:
        """Writes the average beside the other files of a checkpoint."""
        counted = {"updates": torch.tensor(self.updates)}
        save_file({**self.weights, **counted}, Path(folder) / AVERAGE)

    def load(self, folder: str | Path) -> None:
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: the checkpoint has none: it is of a run without an average.
        """
        path = Path(folder) / AVERAGE
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: the run was begun without average_decay; go on without it, or "
                "begin anew in another folder"
            )
        stored = load_file(path)
        self.updates = int(stored.pop("updates"))
        self.weights = {name: stored[name].to(value.device) for name, value in self.weights.items()}
