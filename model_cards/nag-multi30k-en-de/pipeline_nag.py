"""The pipeline around a translator: text in, text out, one decoder call (CMAL Sec. 4.5).

Registered as `nag-translation` where hf_cmal is imported, and carried by every saved translator, so that
`pipeline(model=DIR, trust_remote_code=True)` works where it is not. A Marian teacher runs through it as well.
It does not score or split sentences, and knows no languages: one model translates one direction.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import Pipeline


class NagTranslationPipeline(Pipeline):
    """Translates a string, a list of strings, or a dataset or generator of strings.

    Returns `[{"translation_text": ...}]` for a string, one such dict per input for a list, and an iterator of
    them for a dataset or generator (which is never read to its end at once). Options: `batch_size`,
    `num_workers`, and every option of the model's `generate`, e.g. `remove_consecutive_duplicates=True`.

    A text longer than the model takes is cut, with a warning. An empty text raises `ValueError` with its
    index: there is nothing to translate, and an invented sentence would be worse than an error.

    Example:

    ```python
    >>> import hf_cmal
    >>> from transformers import pipeline

    >>> translate = pipeline("nag-translation", model="outputs/student")
    >>> translate("A man is standing on a ladder.", remove_consecutive_duplicates=True)
    [{'translation_text': 'Ein Mann steht auf einer Leiter.'}]
    ```
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def __call__(
        self, inputs: str | Iterable[str], **kwargs: Any
    ) -> list[dict[str, str]] | Iterator[dict[str, str]]:
        if isinstance(inputs, str):
            return [super().__call__(next(_checked([inputs])), **kwargs)]
        if isinstance(inputs, Dataset) and not isinstance(inputs, IterableDataset):
            # A map-style dataset has a length and no iterator of its own.
            return super().__call__(_checked(inputs[index] for index in range(len(inputs))), **kwargs)
        if isinstance(inputs, Sequence):
            texts = list(_checked(inputs))
            return super().__call__(texts, **kwargs) if texts else []
        return super().__call__(_checked(inputs), **kwargs)

    def _sanitize_parameters(
        self, **generate_kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if generate_kwargs.get("num_return_sequences", 1) != 1:
            raise ValueError(
                f"num_return_sequences={generate_kwargs['num_return_sequences']}, but the pipeline returns "
                "one translation per text; call model.generate for several."
            )
        return {}, generate_kwargs, {}

    def preprocess(self, text: str) -> dict[str, torch.Tensor]:
        limit = min(self.tokenizer.model_max_length, self.model.config.max_position_embeddings)
        encoded = self.tokenizer(text, return_tensors="pt", return_token_type_ids=False, verbose=False)
        length = encoded["input_ids"].shape[1]
        if length > limit:
            warnings.warn(
                f"Text of {length} tokens cut to the {limit} that the model takes; split it into sentences "
                f"to keep the rest: {text[:60]!r}...",
                stacklevel=2,
            )
            encoded = self.tokenizer(
                text, return_tensors="pt", return_token_type_ids=False, truncation=True, max_length=limit
            )
        return dict(encoded)

    def _forward(
        self, model_inputs: dict[str, torch.Tensor], **generate_kwargs: Any
    ) -> dict[str, torch.Tensor]:
        sequences = self.model.generate(
            **model_inputs, **{**generate_kwargs, "return_dict_in_generate": False}
        )
        return {"sequences": sequences}

    def postprocess(self, model_outputs: dict[str, torch.Tensor]) -> dict[str, str]:
        text = self.tokenizer.decode(model_outputs["sequences"][0], skip_special_tokens=True)
        return {"translation_text": text}


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Passes texts on and stops at the first that is not one, naming its index."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"Input {index} is a {type(text).__name__}, not a string: {text!r:.80}")
        if not text.strip():
            raise ValueError(f"Input {index} is empty; drop it before translating.")
        yield text
