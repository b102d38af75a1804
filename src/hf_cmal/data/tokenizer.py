"""The subword vocabulary that source and target share (CMAL Sec. 6.1.1: one BPE for both languages).

Byte-level BPE: every text can be written, nothing is ever unknown, and decoding gives the text back exactly.
A word has the same ids at the start of a sentence and inside it. `<pad>` is the last id, as in Marian
checkpoints, because CTranslate2's Marian loader drops the last row. The result is a plain tokenizer of
`transformers`.
"""

import json
from collections.abc import Iterable

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

EOS_TOKEN = "</s>"
UNK_TOKEN = "<unk>"
PAD_TOKEN = "<pad>"

_SMALLEST_VOCABULARY = len(pre_tokenizers.ByteLevel.alphabet()) + 3  # the bytes, eos, unk and pad


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, model_max_length: int
) -> PreTrainedTokenizerFast:
    """Train a shared byte-level BPE tokenizer.

    Args:
        texts: sentences of the source and of the target side.
        vocab_size: size of the vocabulary with all special tokens (the paper: 40,000). A small corpus may
            yield fewer; `len(tokenizer)` is what was reached.
        model_max_length: longest sequence in ids, `</s>` included; `truncation=True` cuts to it.

    Returns:
        A tokenizer with `</s>` = 0, `<unk>` = 1 and `<pad>` last. `tokenizer(text)` appends `</s>`;
        `decode(..., skip_special_tokens=True)` returns the text exactly. Special tokens written in a text
        (the five characters `<pad>`) are ordinary characters.

    Raises:
        ValueError: if `vocab_size` cannot hold the 256 bytes and the three special tokens.
    """
    if vocab_size < _SMALLEST_VOCABULARY:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: the 256 bytes and {EOS_TOKEN}, {UNK_TOKEN}, {PAD_TOKEN} "
            f"alone take {_SMALLEST_VOCABULARY}. Choose at least {_SMALLEST_VOCABULARY}."
        )
    bpe = Tokenizer(models.BPE())
    _add_text_rules(bpe)
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size - 1,  # <pad> comes after training, else it would not be last
            special_tokens=[EOS_TOKEN, UNK_TOKEN],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=_with_pad_last(bpe),
        eos_token=EOS_TOKEN,
        unk_token=UNK_TOKEN,
        pad_token=PAD_TOKEN,
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # "</s>" in a text must not end the sentence
    )


def _add_text_rules(tokenizer: Tokenizer) -> None:
    # The space is always prepended and always taken away again: that is exact also for texts that begin with
    # a space, where ByteLevel(add_prefix_space=True) is not.
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])


def _with_pad_last(trained: Tokenizer) -> Tokenizer:
    """Rebuild the trained tokenizer with `<pad>` as the last entry of the model's own vocabulary."""
    model = json.loads(trained.to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    vocabulary[PAD_TOKEN] = len(vocabulary)
    merges = [(left, right) for left, right in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=UNK_TOKEN))
    _add_text_rules(tokenizer)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in (EOS_TOKEN, UNK_TOKEN, PAD_TOKEN)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS_TOKEN}",
        pair=f"$A $B {EOS_TOKEN}",
        special_tokens=[(EOS_TOKEN, vocabulary[EOS_TOKEN])],
    )
    return tokenizer
