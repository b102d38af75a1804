"""CMAL on a tiny student: what a step is made of, what is logged, and resuming."""

import itertools
import json
import math

import pytest
import torch

from hf_cmal.estimators.counterfactual import Counterfactual
from hf_cmal.rewards import get_reward
from hf_cmal.training.cmal_trainer import ESTIMATOR_STATE, CmalTrainer
from tests.docs.pages import code_words, table_rows
from tests.training.given_proposals import GivenProposals
from tests.training.tiny import (
    EOS,
    MODELS,
    PAD,
    captioner,
    collator,
    decode,
    gradients_of_one_step,
    largest_difference,
    make_rows,
    make_trainer,
    translator,
)

STUDENTS = ("translator", "captioner")
GIVEN = {"trainer_options": {"estimator": GivenProposals(top_k=2, compositional_weight=0.5)}}


class Watching(Counterfactual):
    """Keeps what `propose` and `surrogate` were given."""

    def propose(self, log_probs, agent_mask, **options):
        self.proposed_from, self.agent_mask, self.options = log_probs, agent_mask, options
        self.proposals = super().propose(log_probs, agent_mask, **options)
        return self.proposals

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, **options):
        self.differentiated, self.rewards, self.num_inputs = log_probs, rewards, options["num_inputs"]
        return super().surrogate(log_probs, proposals, rewards, edit_rewards, **options)


def watched_step(model, folder, *, rows=None, **options):
    """One CMAL step on four rows; the estimator that watched it, and the trainer."""
    watching = Watching()
    trainer = make_trainer(
        CmalTrainer,
        model,
        make_rows(model, 4) if rows is None else rows,
        folder,
        trainer_options={"estimator": watching},
        max_steps=1,
        **options,
    )
    trainer.train()
    return watching, trainer


# ---- one step ---


@pytest.mark.parametrize("kind", STUDENTS)
def test_micro_batches_are_one_batch_however_the_rows_are_split(kind, tmp_path):
    """Seven rows at once, as 4 + 3, and one by one: a mean of means would weigh the three more."""
    rows = make_rows(MODELS[kind](), 7)
    whole, halves, ones = (
        gradients_of_one_step(
            CmalTrainer,
            MODELS[kind](),
            rows,
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=-(-7 // size),
            **GIVEN,
        )
        for size in (7, 4, 1)
    )
    assert largest_difference(whole, halves) < 1e-5
    assert largest_difference(whole, ones) < 1e-5
    other_rows = gradients_of_one_step(
        CmalTrainer, MODELS[kind](), rows.select(range(6)), tmp_path, per_device_train_batch_size=7, **GIVEN
    )
    assert largest_difference(whole, other_rows) > 1e-2


def test_the_gradient_is_that_of_the_surrogate_and_a_tenth_of_the_length_loss(tmp_path):
    """Written out once more without a trainer; Eq. (18) and Sec. 6.1.2."""
    model = translator()
    rows = make_rows(model, 4)
    found = gradients_of_one_step(CmalTrainer, model, rows, tmp_path, learning_rate=0.0, **GIVEN)
    batch = collator(model)(list(rows))
    model.zero_grad()
    outputs = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        target_lengths=batch["target_lengths"],
    )
    log_probs = model.suppress_tokens(outputs.logits).log_softmax(-1)
    estimator = GivenProposals(top_k=2, compositional_weight=0.5)
    proposals = estimator.propose(log_probs.detach(), outputs.agent_mask, eos_token_id=None)
    bound = get_reward("gleu").bind(batch["reference_ids"], outputs.agent_mask, eos_token_id=None)
    surrogate = estimator.surrogate(
        log_probs,
        proposals,
        bound.score(proposals.actions),
        bound.score_edits(proposals.actions, proposals.edits),
        num_inputs=4,
    )
    offsets = batch["target_lengths"] - batch["attention_mask"].sum(-1)
    length_loss = torch.nn.functional.cross_entropy(outputs.length_logits, offsets + 3)
    (surrogate.loss + 0.1 * length_loss).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert largest_difference(expected, found) < 1e-5


@pytest.mark.parametrize("kind", STUDENTS)
def test_sampling_and_differentiating_share_one_forward_pass_under_dropout(kind, tmp_path):
    model = MODELS[kind](dropout=0.5)
    passes = []
    model.model.decoder.register_forward_hook(lambda *_: passes.append(1))
    watching, _ = watched_step(model, tmp_path)
    assert len(passes) == 1
    assert torch.equal(watching.proposed_from, watching.differentiated.detach())
    assert not watching.proposed_from.requires_grad and watching.differentiated.requires_grad


def test_the_policy_is_tempered_and_never_says_a_suppressed_word(tmp_path):
    model = translator()
    rows = make_rows(model, 4).select([0])
    batch = collator(model)(list(rows))
    with torch.no_grad():
        logits = model.eval()(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            target_lengths=batch["target_lengths"],
        ).logits
    logits[..., [EOS, PAD]] = -math.inf
    watching, _ = watched_step(model, tmp_path, rows=rows, temperature=2.0, num_samples=50)
    assert torch.allclose(watching.proposed_from, (logits / 2).log_softmax(-1), atol=1e-5)
    assert not torch.allclose(watching.proposed_from, logits.log_softmax(-1), atol=1e-2)
    actions = watching.proposals.actions
    assert actions.shape[1] == 50
    assert not torch.isin(actions, torch.tensor([EOS, PAD])).any()


def test_captions_end_at_their_eos_and_translations_at_their_length(tmp_path):
    assert watched_step(translator(), tmp_path)[0].options["eos_token_id"] is None
    watching, _ = watched_step(captioner(), tmp_path)
    assert watching.options["eos_token_id"] == EOS
    assert watching.agent_mask.all()


@pytest.mark.parametrize("kind", STUDENTS)
def test_the_loss_is_divided_by_the_inputs_of_the_whole_step(kind, tmp_path):
    model = MODELS[kind]()
    watching, _ = watched_step(
        model,
        tmp_path,
        rows=make_rows(model, 7),
        gradient_accumulation_steps=2,
        per_device_train_batch_size=4,
    )
    assert watching.num_inputs == 7


@pytest.mark.parametrize("kind", STUDENTS)
def test_pseudo_targets_play_no_part(kind, tmp_path):
    """Sec. 4.6: CMAL learns from the real references; labels of other words change nothing."""
    rows = make_rows(MODELS[kind](), 4)
    labels = [[5] * len(row) for row in rows["labels"]]
    relabeled = rows.remove_columns("labels").add_column("labels", labels)
    one, other = (
        gradients_of_one_step(CmalTrainer, MODELS[kind](), some_rows, tmp_path, **GIVEN)
        for some_rows in (rows, relabeled)
    )
    assert largest_difference(one, other) == 0.0
    references = rows.remove_columns("reference_ids").add_column("reference_ids", [[ids] for ids in labels])
    rereferenced = gradients_of_one_step(CmalTrainer, MODELS[kind](), references, tmp_path, **GIVEN)
    assert largest_difference(one, rereferenced) > 1e-2


def test_one_sample_per_input_is_enough_for_the_counterfactual_baseline(tmp_path):
    watching, trainer = watched_step(translator(), tmp_path, num_samples=1)
    assert watching.proposals.actions.shape[1] == 1
    assert math.isfinite(trainer.state.log_history[0]["grad_norm"])
    assert trainer.state.log_history[0]["grad_norm"] > 0


def test_what_is_sampled_follows_from_seed_step_and_micro_step_alone(tmp_path):
    model = translator()
    trainer = make_trainer(CmalTrainer, model, make_rows(model, 4), tmp_path)

    def drawn(*, seed: int = 42, step: int = 0, micro_step: int = 0) -> float:
        trainer.args.seed, trainer.state.global_step, trainer._micro_step = seed, step, micro_step
        return float(torch.rand(1, generator=trainer.generator(torch.device("cpu"))))

    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(2)
    assert drawn() == first
    others = {drawn(seed=43), drawn(step=1), drawn(micro_step=1), drawn(step=1, micro_step=1), first}
    assert len(others) == 5


def test_what_is_sampled_does_not_depend_on_other_random_numbers(tmp_path):
    """A model that draws one more number in its forward pass has the same sentences sampled."""
    plain, _ = watched_step(translator(), tmp_path)
    drawing = translator()
    drawing.model.decoder.register_forward_hook(lambda *_: (torch.rand(1), None)[1])
    disturbed, _ = watched_step(drawing, tmp_path)
    assert torch.equal(plain.proposals.actions, disturbed.proposals.actions)
    other_seed, _ = watched_step(translator(), tmp_path, seed=1, data_seed=42)
    assert not torch.equal(plain.proposals.actions, other_seed.proposals.actions)


# ---- rewards on strings ---


def shares_a_word(prompts, completions, *, references, **columns):
    """1 for a sentence with a word of its first reference, plus 10 where the source has four words."""
    return [
        float(bool(set(text.split()) & set(reference[0].split()))) + 10 * (len(prompt.split()) == 4)
        for prompt, text, reference in zip(prompts, completions, references, strict=True)
    ]


def test_a_function_of_strings_is_a_reward_by_its_dotted_path(tmp_path):
    model = translator()
    rows = make_rows(model, 4)
    trainer = make_trainer(
        CmalTrainer,
        model,
        rows,
        tmp_path,
        trainer_options={"decode": decode},
        reward="tests.training.test_cmal_trainer.shares_a_word",
        max_steps=1,
    )
    trainer.train()
    long_sources = sum(len(source.split()) == 4 for source in rows["source"]) / 4
    assert 0 < long_sources < 1
    assert 10 * long_sources < trainer.state.log_history[0]["reward"] < 10 * long_sources + 1


# ---- what is logged ---

OF_THE_TRAINER = {"loss", "grad_norm", "learning_rate", "epoch", "step"}


@pytest.mark.parametrize("kind", STUDENTS)
def test_the_promised_metrics_are_logged_and_all_that_is_logged_is_defined(kind, tmp_path):
    _, trainer = watched_step(MODELS[kind](), tmp_path)
    logged = trainer.state.log_history[0].keys() - OF_THE_TRAINER
    promised = {
        "reward",
        "reward_std",
        "rewards/gleu/mean",
        "advantage_mean",
        "entropy",
        "completions/mean_length",
        "repetition_rate",
        "step_time",
    }
    if kind == "translator":
        promised |= {"length_accuracy"}
    assert promised <= logged
    defined = {word for row in table_rows("concepts.md", "Metric") for word in code_words(row[0])}
    assert {name.replace("/gleu/", "/<name>/") for name in logged} <= defined


def test_the_logged_numbers_are_means_over_the_samples(tmp_path):
    model = translator()
    rows = make_rows(model, 8)
    watching, trainer = watched_step(model, tmp_path, rows=rows, per_device_train_batch_size=8)
    log = trainer.state.log_history[0]
    rewards = watching.rewards.flatten().tolist()
    mean = sum(rewards) / len(rewards)
    assert len(rewards) == 40 and max(rewards) > 0
    assert log["reward"] == log["rewards/gleu/mean"] == pytest.approx(mean)
    assert log["reward_std"] == pytest.approx(math.sqrt(sum((r - mean) ** 2 for r in rewards) / 40))
    lengths = [len(row[0]) for row in rows["reference_ids"]]
    assert log["completions/mean_length"] == pytest.approx(sum(lengths) / 8)
    sentences = [
        ids[alive].tolist()
        for ids, alive in zip(
            watching.proposals.actions.flatten(0, 1), watching.proposals.alive.flatten(0, 1), strict=True
        )
    ]
    repeats = sum(a == b for ids in sentences for a, b in itertools.pairwise(ids))
    assert log["repetition_rate"] == pytest.approx(repeats / sum(map(len, sentences)))
    surprises = [
        -watching.proposed_from[b, agent, word].item()
        for b, rows in enumerate(watching.proposals.actions)
        for row in rows
        for agent, word in enumerate(row.tolist())
        if watching.agent_mask[b, agent]
    ]
    assert log["entropy"] == pytest.approx(sum(surprises) / len(surprises), rel=1e-5)


@pytest.mark.parametrize("predicted", [False, True])
def test_there_are_as_many_agents_as_the_reference_has_words_or_as_are_predicted(predicted, tmp_path):
    """The predictor is made to say offset 1: one agent more than the source has positions, eos included."""
    model = translator()
    model.model.length_predictor.weight.data.zero_()
    model.model.length_predictor.bias.data.zero_()
    model.model.length_predictor.bias.data[4] = 1.0
    rows = make_rows(model, 6)
    watching, trainer = watched_step(
        model, tmp_path, rows=rows, per_device_train_batch_size=6, predicted_lengths=predicted
    )
    references = sorted(len(row[0]) for row in rows["reference_ids"])
    sources = sorted(len(ids) + 1 for ids in rows["input_ids"])
    assert sorted(watching.agent_mask.sum(-1).tolist()) == (sources if predicted else references)
    assert trainer.state.log_history[0]["length_accuracy"] == 0.0  # still that of the predictor
    assert sources != references


def test_length_accuracy_is_the_share_of_inputs_whose_length_the_predictor_gets_right(tmp_path):
    """The predictor is made to say offset 0: right for targets as long as the source with its eos."""
    model = translator()
    model.model.length_predictor.weight.data.zero_()
    model.model.length_predictor.bias.data.zero_()
    model.model.length_predictor.bias.data[3] = 1.0
    rows = make_rows(model, 6)
    right = [
        len(ids) == len(row[0]) for ids, row in zip(rows["input_ids"], rows["reference_ids"], strict=True)
    ]
    assert sum(right) == 3
    _, trainer = watched_step(model, tmp_path, rows=rows, per_device_train_batch_size=6)
    assert trainer.state.log_history[0]["length_accuracy"] == 0.5


def test_sentences_with_their_rewards_are_written_every_so_many_steps(tmp_path):
    model = translator()
    rows = make_rows(model, 4)
    trainer = make_trainer(
        CmalTrainer,
        model,
        rows,
        tmp_path,
        trainer_options={"decode": decode},
        max_steps=5,
        num_samples=3,
        log_completions_steps=2,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=2,
    )
    trainer.train()
    entries = [json.loads(line) for line in (tmp_path / "completions.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [0, 2, 4]
    for entry in entries:
        (reference,) = entry["references"]
        assert [reference] in rows["references"]
        assert len(entry["completions"]) == 3
        reference_ids = [int(word[1:]) for word in reference.split()]
        for completion in entry["completions"]:
            ids = [int(word[1:]) for word in completion["text"].split()]
            assert len(ids) == len(reference_ids)
            bound = get_reward("gleu").bind(
                [[reference_ids]], torch.ones(1, len(ids), dtype=torch.bool), eos_token_id=None
            )
            assert completion["reward"] == pytest.approx(bound.score(torch.tensor([[ids]])).item())


def test_nothing_is_written_unless_asked_for(tmp_path):
    watched_step(translator(), tmp_path)
    assert not (tmp_path / "completions.jsonl").exists()


# ---- resuming ---


def rewards_of(trainer) -> dict[int, float]:
    return {entry["step"]: entry["reward"] for entry in trainer.state.log_history if "reward" in entry}


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def all_equal(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [("translator", "counterfactual"), ("translator", "moving_average"), ("captioner", "counterfactual")],
)
def test_resuming_in_the_middle_of_an_epoch_equals_never_having_stopped(kind, estimator, tmp_path):
    """With dropout, token-budget batches and accumulation; weights bit by bit, and every reward."""
    rows = make_rows(MODELS[kind](), 24)

    def trainer_in(folder, **more):
        options = {"max_tokens_per_batch": 24, "gradient_accumulation_steps": 2, "num_samples": 2, **more}
        return make_trainer(
            CmalTrainer,
            MODELS[kind](dropout=0.3),
            rows,
            tmp_path / folder,
            num_train_epochs=3,
            estimator=estimator,
            **options,
        )

    updates = -(-len(trainer_in("whole").get_train_dataloader()) // 2)
    stop = updates + 1
    assert updates < stop < 2 * updates
    whole = trainer_in("whole", save_strategy="steps", save_steps=stop)
    whole.train()
    checkpoint = tmp_path / "whole" / f"checkpoint-{stop}"
    resumed = trainer_in("resumed")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert all_equal(weights(whole), weights(resumed))
    assert rewards_of(whole) == rewards_of(resumed)
    assert len(rewards_of(resumed)) == 3 * updates

    if estimator == "moving_average":
        (checkpoint / ESTIMATOR_STATE).write_text(json.dumps({"baseline": 0.0}))
        forgetful = trainer_in("forgetful")
        forgetful.train(resume_from_checkpoint=str(checkpoint))
        assert not all_equal(weights(whole), weights(forgetful))


def test_the_moving_average_is_updated_once_per_optimizer_step_and_saved_with_the_checkpoint(tmp_path):
    """b <- 0.9 b + 0.1 mean reward, of both micro-batches, from b = 0."""
    model = translator()
    rows = make_rows(model, 8)
    trainer = make_trainer(
        CmalTrainer,
        model,
        rows,
        tmp_path,
        estimator="moving_average",
        max_steps=3,
        gradient_accumulation_steps=2,
        save_strategy="steps",
        save_steps=2,
    )
    trainer.train()
    first, second, _ = rewards_of(trainer).values()
    baseline = 0.9 * (0.1 * first) + 0.1 * second
    saved = json.loads((tmp_path / "checkpoint-2" / ESTIMATOR_STATE).read_text())
    assert saved == {"baseline": pytest.approx(baseline, rel=1e-9)}
    assert baseline > 0


def test_an_estimator_without_a_state_saves_none(tmp_path):
    watched_step(translator(), tmp_path, save_strategy="steps", save_steps=1)
    assert (tmp_path / "checkpoint-1").is_dir()
    assert not (tmp_path / "checkpoint-1" / ESTIMATOR_STATE).exists()
