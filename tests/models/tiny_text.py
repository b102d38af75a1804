"""A word-level tokenizer of ten entries, so that models in tests can read and write text."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = ("a", "man", "dog", "on", "ladder", "ein", "mann")
VOCABULARY = ("</s>", "<unk>", *WORDS, "<pad>")
EOS, UNK, PAD = 0, 1, len(VOCABULARY) - 1


def tiny_tokenizer(model_max_length: int = 12) -> PreTrainedTokenizerFast:
    """Appends `</s>`; the padding comes last, as in the package's own tokenizers."""
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(VOCABULARY)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=model_max_length,
    )
