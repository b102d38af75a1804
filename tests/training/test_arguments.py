"""What the training arguments refuse, and that their defaults are the paper's."""

import pytest

from hf_cmal.estimators import ESTIMATORS
from hf_cmal.rewards import REWARDS
from hf_cmal.training.arguments import CmalTrainingArguments, XeTrainingArguments
from hf_cmal.training.cmal_trainer import CmalTrainer, estimator_from_arguments
from tests.training.tiny import captioner, make_rows, make_trainer, teacher, translator


def arguments(folder, **options) -> CmalTrainingArguments:
    return CmalTrainingArguments(output_dir=str(folder), use_cpu=True, **options)


def test_the_defaults_are_those_of_the_paper(tmp_path):
    """Sec. 5.1.2: 7.5e-5, 5 sentences, k = 2; Sec. 6.1.2: GLEU; Eq. (11): no compositional agents."""
    defaults = arguments(tmp_path)
    assert defaults.learning_rate == 7.5e-5
    assert (defaults.num_samples, defaults.top_k, defaults.compositional_weight) == (5, None, 0.0)
    assert estimator_from_arguments(defaults).top_k == 2
    assert (defaults.estimator, defaults.reward, defaults.temperature) == ("counterfactual", "gleu", 1.0)


def test_dropping_columns_is_refused_because_rewards_need_the_references(tmp_path):
    assert XeTrainingArguments(output_dir=str(tmp_path), use_cpu=True).remove_unused_columns is False
    with pytest.raises(ValueError, match="remove_unused_columns=True would drop the references"):
        XeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, remove_unused_columns=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples is 0; give 1 or more"),
        ({"temperature": 0.0}, "temperature is 0.0; give a positive number"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"log_completions_steps": 0}, "log_completions_steps is 0; give 1 or more, or None"),
        ({"max_tokens_per_batch": 0}, "max_tokens_per_batch is 0; give a positive number or None"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_legal_ones(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)


def test_the_options_of_the_counterfactual_estimator_reach_it(tmp_path):
    estimator = estimator_from_arguments(arguments(tmp_path, top_k=3, compositional_weight=0.5))
    assert (estimator.top_k, estimator.compositional_weight) == (3, 0.5)


def test_an_option_that_the_estimator_does_not_have_is_refused(tmp_path):
    assert estimator_from_arguments(arguments(tmp_path, estimator="all_action")).top_k is None
    with pytest.raises(ValueError, match="'self_critical' has no option 'top_k'"):
        estimator_from_arguments(arguments(tmp_path, estimator="self_critical", top_k=2))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:estimator 'none'")
def test_every_estimator_is_made_from_its_name(name, tmp_path):
    assert type(estimator_from_arguments(arguments(tmp_path, estimator=name))) is ESTIMATORS[name]


def cmal_trainer(model, folder, **options):
    return make_trainer(CmalTrainer, model, make_rows(model, 4), folder, **options)


def test_an_unknown_estimator_is_refused_before_training_with_the_legal_names(tmp_path):
    with pytest.raises(ValueError, match="'critic'") as error:
        cmal_trainer(translator(), tmp_path, estimator="critic")
    assert all(name in str(error.value) for name in ESTIMATORS)


def test_an_unknown_reward_is_refused_before_training_with_the_legal_names(tmp_path):
    with pytest.raises(ValueError, match="'meteor'") as error:
        cmal_trainer(translator(), tmp_path, reward="meteor")
    assert all(name in str(error.value) for name in REWARDS)


@pytest.mark.parametrize("name", REWARDS)
def test_every_reward_is_made_from_its_name(name, tmp_path):
    assert cmal_trainer(captioner(), tmp_path, reward=name).reward.name == name


def test_cider_d_counts_its_document_frequencies_in_the_training_references_by_itself(tmp_path):
    """Four rows, of which eos is a word where it ends a sentence (fixed mode)."""
    fixed = cmal_trainer(captioner(), tmp_path, reward="cider-d").reward
    assert fixed.document_frequencies.num_documents == 4
    assert fixed.document_frequencies.eos_token_id == 0
    assert (
        cmal_trainer(translator(), tmp_path, reward="cider-d").reward.document_frequencies.eos_token_id
        is None
    )


def test_a_teacher_given_as_student_is_refused_by_its_model_type(tmp_path):
    with pytest.raises(ValueError, match="'marian'.*init_student_from_teacher"):
        cmal_trainer(teacher(), tmp_path)


def test_logged_sentences_need_a_decoder(tmp_path):
    with pytest.raises(ValueError, match="log_completions_steps needs `decode`"):
        cmal_trainer(translator(), tmp_path, log_completions_steps=1)


def test_a_budget_needs_a_training_dataset(tmp_path):
    trainer = make_trainer(CmalTrainer, translator(), None, tmp_path, max_tokens_per_batch=9)
    with pytest.raises(ValueError, match="training needs a train_dataset"):
        trainer.get_train_dataloader()
