"""CIDEr-D's document frequencies in a training: counted and kept, or those of a file that is named."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from hf_cmal.rewards import DocumentFrequencies
from hf_cmal.rewards.document_frequencies import vocabulary_fingerprint
from hf_cmal.training.arguments import CmalTrainingArguments
from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.recipe import Recipe, load_recipe
from hf_cmal.training.stages import recipe_document_frequencies, run_stage
from tests.evaluation.tiny_ladder import CAPTIONING_DATA, save_captioners
from tests.training.tiny import captioner, make_rows, make_trainer, translator

KEPT = "document_frequencies.safetensors"
NUM_IMAGES = CAPTIONING_DATA.toy_rows[0]

pytestmark = pytest.mark.filterwarnings("ignore:.*were cut", "ignore:.*unknown tokens")


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Path:
    return save_captioners(tmp_path_factory.mktemp("captioners")) / "student"


@pytest.fixture
def recipe(student, tmp_path):
    """A recipe of two steps of CMAL; options are those of the training."""

    def recipe(output: str = "made", **options) -> Recipe:
        path = tmp_path / "cmal.yaml"
        path.write_text(
            f"stage: cmal\ntask: captioning\nroot: {tmp_path}\noutput_dir: {tmp_path / output}\n"
            f"student: {student}\ndata: {{toy_rows: [{NUM_IMAGES}, 2, 2], max_target_length: 20}}\n"
            "training: {max_steps: 2, per_device_train_batch_size: 6, num_samples: 2, learning_rate: 0.01, "
            "eval_strategy: no, save_strategy: steps, save_steps: 1, disable_tqdm: true}\n"
        )
        return load_recipe(path, [f"training.{name}={value}" for name, value in options.items()])

    return recipe


@pytest.fixture
def trained(monkeypatch) -> list[CmalTrainer]:
    """The trainers that were started, in order."""
    started, train = [], CmalTrainer.train

    def recorded(trainer, *args, **kwargs):
        started.append(trainer)
        return train(trainer, *args, **kwargs)

    monkeypatch.setattr(CmalTrainer, "train", recorded)
    return started


def same(one: DocumentFrequencies, other: DocumentFrequencies) -> bool:
    names = ("num_documents", "eos_token_id", "vocabulary", "name")
    return np.array_equal(one.counts, other.counts) and all(
        getattr(one, name) == getattr(other, name) for name in names
    )


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_training_counts_them_on_its_references_and_keeps_them_beside_the_model(recipe, student, tmp_path):
    run_stage(recipe())
    kept = DocumentFrequencies.load(tmp_path / "made" / KEPT)
    tokenizer = AutoTokenizer.from_pretrained(student)
    assert kept.num_documents == NUM_IMAGES
    assert kept.eos_token_id == tokenizer.eos_token_id
    assert kept.vocabulary == vocabulary_fingerprint(tokenizer.get_vocab())
    assert same(kept, recipe_document_frequencies(recipe()))
    assert not (tmp_path / "made" / "checkpoint-2" / KEPT).exists()
    assert (tmp_path / "made" / "model.safetensors").is_file()


def test_a_training_with_a_named_file_is_the_one_that_counts_the_same_by_itself(recipe, tmp_path):
    run_stage(recipe("itself"))
    file = recipe_document_frequencies(recipe()).save(tmp_path / "df.safetensors")
    run_stage(recipe("named", document_frequencies=file))
    assert weights(tmp_path / "named") == weights(tmp_path / "itself")
    assert not (tmp_path / "named" / KEPT).exists()
    # with those of three of the images another one
    some = DocumentFrequencies.load(file)
    references = [[[1, 2, 3]], [[3, 4]], [[5]]]
    other = DocumentFrequencies.from_references(
        references, eos_token_id=some.eos_token_id, vocabulary=some.vocabulary
    )
    run_stage(recipe("other", document_frequencies=other.save(tmp_path / "other.safetensors")))
    assert weights(tmp_path / "other") != weights(tmp_path / "itself")


def test_a_run_that_goes_on_has_the_frequencies_that_it_began_with(recipe, trained, tmp_path):
    run_stage(recipe())
    kept = DocumentFrequencies.load(tmp_path / "made" / KEPT)
    dataclasses.replace(kept, num_documents=77).save(tmp_path / "made" / KEPT)
    run_stage(recipe())  # two checkpoints are there
    assert [t.reward.document_frequencies.num_documents for t in trained] == [NUM_IMAGES, 77]


def test_a_run_that_begins_counts_anew_whatever_lies_in_its_folder(recipe, trained, tmp_path):
    stale = DocumentFrequencies.from_references([[[1]], [[2]]], eos_token_id=5)
    stale.save(tmp_path / "made" / KEPT)
    run_stage(recipe())
    assert trained[0].reward.document_frequencies.num_documents == NUM_IMAGES
    assert DocumentFrequencies.load(tmp_path / "made" / KEPT).num_documents == NUM_IMAGES


def test_a_missing_or_torn_file_is_found_before_data_and_model_are_looked_for(recipe, tmp_path):
    missing = tmp_path / "nowhere.safetensors"
    wrong = dataclasses.replace(recipe(document_frequencies=missing), student="no/student")
    with pytest.raises(
        FileNotFoundError, match=f"document-frequencies RECIPE --output {tmp_path}/nowhere.safetensors"
    ):
        run_stage(wrong)
    assert not (tmp_path / "made").exists()
    missing.write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"nowhere\.safetensors is no file of document frequencies"):
        run_stage(wrong)
    assert not (tmp_path / "made").exists()
    recipe_document_frequencies(recipe()).save(missing)
    with pytest.raises(FileNotFoundError, match="no/student"):
        run_stage(wrong)


def test_a_file_of_another_vocabulary_is_refused_before_the_first_step(recipe, trained, tmp_path):
    counted = recipe_document_frequencies(recipe())
    file = dataclasses.replace(counted, vocabulary="0123456789abcdef").save(tmp_path / "df.safetensors")
    with pytest.raises(ValueError, match=r"df\.safetensors was counted with another vocabulary \(0123"):
        run_stage(recipe(document_frequencies=file))
    assert trained == []


@pytest.mark.parametrize(("model", "eos"), [(captioner, None), (captioner, 3), (translator, 0)])
def test_a_file_of_another_eos_is_refused_when_the_trainer_is_made(model, eos, tmp_path):
    """Eos is word 0 of a captioner, and no word of a translator, whose number of agents is predicted."""
    right = 0 if model is captioner else None
    student = model()
    rows = make_rows(student, 4)

    def trainer(counted_with: int | None) -> CmalTrainer:
        path = tmp_path / "df.safetensors"
        DocumentFrequencies.from_references([[[4]], [[5]]], eos_token_id=counted_with).save(path)
        reward = "cider-d + 0.5 * repetition"
        return make_trainer(
            CmalTrainer, student, rows, tmp_path, reward=reward, document_frequencies=str(path)
        )

    assert "df:train(2)" in trainer(right).reward.signature
    with pytest.raises(ValueError, match=r"was counted with (no )?eos.*but this model writes (no )?eos"):
        trainer(eos)


def test_the_option_beside_a_reward_without_frequencies_is_an_error(recipe, tmp_path):
    message = r"document_frequencies is 'df', but the reward 'gleu' has none; remove it, or choose .* cider-d"
    with pytest.raises(ValueError, match=rf"cmal\.yaml: training\.{message}"):
        recipe(document_frequencies="df", reward="gleu")
    with pytest.raises(ValueError, match=message):
        CmalTrainingArguments(output_dir=str(tmp_path), use_cpu=True, document_frequencies="df")
    with pytest.raises(ValueError, match="document_frequencies is 5; give the path of a file, or null"):
        recipe(document_frequencies=5)
    assert recipe(document_frequencies="null", reward="gleu").training["document_frequencies"] is None
    # a captioner's reward is cider-d where none is named; the file is looked for when the stage is run
    assert recipe(document_frequencies="df").training["document_frequencies"] == "df"
    assert recipe(document_frequencies="df", reward="gleu+cider-d").training["document_frequencies"] == "df"


def test_making_a_trainer_writes_nothing(tmp_path):
    model = captioner()
    trainer = make_trainer(CmalTrainer, model, make_rows(model, 4), tmp_path / "new", reward="cider-d")
    assert trainer.reward.document_frequencies.num_documents == 4
    assert not (tmp_path / "new" / KEPT).exists()
