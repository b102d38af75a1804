"""Training arguments: Seq2SeqTrainingArguments plus the few options of this package.

`SequenceTrainingArguments` holds what all trainings share, `XeTrainingArguments` adds glancing to
word-by-word (XE) training, `CmalTrainingArguments` the options of Sec. 4. Defaults are the paper's and name
their section. Every error names the legal values.
"""

from dataclasses import dataclass, field
from typing import Any

from transformers import Seq2SeqTrainingArguments

from hf_cmal.training.document_frequencies import check_document_frequencies
from hf_cmal.training.schedules import LEARNING_RATE_RULES


@dataclass
class SequenceTrainingArguments(Seq2SeqTrainingArguments):
    """Options shared by XE and CMAL training, on top of `Seq2SeqTrainingArguments`.

    Columns are never dropped (the references must reach the reward), evaluation decodes by default.
    """

    remove_unused_columns: bool = field(
        default=False, metadata={"help": "must stay False: rewards need references"}
    )
    predict_with_generate: bool = field(default=True, metadata={"help": "evaluation decodes and scores"})
    report_to: Any = field(default="none", metadata={"help": "trackers, as in TrainingArguments"})
    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "token budget of a batch on one rank, either side; None: per_device_train_batch_size rows"
        },
    )
    learning_rate_rule: str | None = field(
        default=None,
        metadata={"help": f"Secs. 5.1.2, 6.1.2: {', '.join(LEARNING_RATE_RULES)}; None: lr_scheduler_type"},
    )

    average_decay: float | None = field(
        default=None,
        metadata={
            "help": "evaluate and keep an exponential moving average of the weights, e.g. 0.995; None: the "
            "weights themselves (Sec. 6.1.2 averages none)"
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average_decay is not None and not 0.0 < self.average_decay < 1.0:
            raise ValueError(
                f"average_decay is {self.average_decay}; give a number between 0 and 1, e.g. 0.995, or None"
            )
        if self.average_decay is not None and self.load_best_model_at_end:
            raise ValueError(
                "average_decay and load_best_model_at_end are both set; the average at the end is kept: set "
                "load_best_model_at_end to false"
            )
        if self.remove_unused_columns:
            raise ValueError(
                "remove_unused_columns=True would drop the references before the reward; leave it False"
            )
        if self.learning_rate_rule is not None and self.learning_rate_rule not in LEARNING_RATE_RULES:
            raise ValueError(
                f"learning_rate_rule is {self.learning_rate_rule!r}; "
                f"legal values: {', '.join(LEARNING_RATE_RULES)} or None"
            )
        if self.learning_rate_rule == "inverse_square_root" and not self.warmup_steps:
            raise ValueError(
                "learning_rate_rule inverse_square_root needs warmup_steps, the update where the rate is "
                "highest; the paper's is 4000 (Sec. 6.1.2)"
            )
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 1:
            raise ValueError(
                f"max_tokens_per_batch is {self.max_tokens_per_batch}; give a positive number or None"
            )


@dataclass
class XeTrainingArguments(SequenceTrainingArguments):
    """Options of word-by-word training, on top of [`SequenceTrainingArguments`]."""

    glancing_ratio: float | None = field(
        default=None,
        metadata={
            "help": "share of a student's wrong words that is shown to it, at the first update (Qian et al. "
            "2021: 0.5); None: no glancing, as in the paper"
        },
    )
    glancing_ratio_end: float = field(
        default=0.3, metadata={"help": "and at the last update (Qian et al. 2021), on a straight line"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("glancing_ratio", "glancing_ratio_end"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; give a number from 0 to 1, e.g. 0.5")


@dataclass
class CmalTrainingArguments(SequenceTrainingArguments):
    """Options of CMAL (Sec. 4), on top of [`SequenceTrainingArguments`]."""

    learning_rate: float = field(default=7.5e-5, metadata={"help": "Sec. 5.1.2: 7.5e-5; Sec. 6.1.2: 1e-5"})
    reward: str = field(
        default="gleu", metadata={"help": "a name of REWARDS, or a dotted path to a callable"}
    )
    document_frequencies: str | None = field(
        default=None,
        metadata={
            "help": "file of cider-d's document frequencies (`hf-cmal document-frequencies` makes it); None: "
            "counted on the training references, and kept in output_dir"
        },
    )
    estimator: str = field(
        default="counterfactual", metadata={"help": "a name of ESTIMATORS, or a dotted path"}
    )
    top_k: int | None = field(
        default=None,
        metadata={"help": "k of Eq. (13); Sec. 5.1.2: 2, Sec. 6.1.2: 1; None: the estimator's own default"},
    )
    compositional_weight: float = field(
        default=0.0, metadata={"help": "lambda of Eq. (17): 0 is Eq. (11), 0.5 is the paper's Eq. (18)"}
    )
    estimator_options: Any = field(
        default=None,
        metadata={"help": "further options of the estimator by name, e.g. {exact: true}; None: its defaults"},
    )
    num_samples: int = field(
        default=5, metadata={"help": "sentences sampled per input, Secs. 5.1.2 and 6.1.2"}
    )
    temperature: float = field(
        default=1.0, metadata={"help": "of the policy that is sampled and differentiated"}
    )
    predicted_lengths: bool = field(
        default=False,
        metadata={
            "help": "as many agents as the length predictor says, as in decoding; False: as the first "
            "reference has words (Sec. 6.1.2)"
        },
    )
    log_completions_steps: int | None = field(
        default=None, metadata={"help": "log a few decoded samples with their rewards every so many steps"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator_options is not None and not isinstance(self.estimator_options, dict):
            raise ValueError(
                f"estimator_options is {self.estimator_options!r}; give names and values, e.g. "
                "{exact: true}"
            )
        check_document_frequencies(self.document_frequencies, reward=self.reward)
        if self.num_samples < 1:
            raise ValueError(f"num_samples is {self.num_samples}; give 1 or more (the paper: 5)")
        if not self.temperature > 0:
            raise ValueError(
                f"temperature is {self.temperature}; give a positive number (1 is the paper's policy)"
            )
        if self.log_completions_steps is not None and self.log_completions_steps < 1:
            raise ValueError(
                f"log_completions_steps is {self.log_completions_steps}; give 1 or more, or None"
            )
