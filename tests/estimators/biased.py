"""Estimators that look right and are not: what the exactness tests must be able to find."""

from dataclasses import replace

import torch

from hf_cmal.estimators.arsm_joint import JointArsm
from hf_cmal.estimators.arsm_local import Arsm
from hf_cmal.estimators.base import Surrogate, baseline_surrogate, policy_gradient_loss, sample_proposals
from hf_cmal.estimators.counterfactual import Counterfactual, existing_pairs, individual_counterfactuals
from hf_cmal.sampling import Edits


def word_edits(words, mask):
    """Edits of every agent to words [B,S,N,K], masked [B,S,N,K]."""
    flat = words.flatten(-2)
    position = torch.arange(words.shape[2]).repeat_interleave(words.shape[3]).expand(flat.shape)
    return Edits(position, torch.stack([flat, flat], -1), torch.ones_like(flat), mask.flatten(-2))


class SampledWordAdded:
    """Counterfactual top-k whose set also holds the sampled word: the baseline depends on the action."""

    def __init__(self, top_k):
        self.top_k = top_k

    def propose_from_actions(self, log_probs, agent_mask, actions, *, eos_token_id, candidates=None):
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        top = individual_counterfactuals(log_probs, top_k=self.top_k)[0][:, None]
        top = top.expand(-1, actions.shape[1], -1, -1)
        words = torch.cat([top, actions[..., None]], -1)
        chosen = log_probs[:, None].expand(-1, actions.shape[1], -1, -1).gather(-1, words)
        twice = (top == actions[..., None]).any(-1)
        chosen[..., -1] = chosen[..., -1].masked_fill(twice, -torch.inf)
        weights = chosen.softmax(-1)
        mask = samples.alive[..., None].expand_as(words)
        return replace(samples, edits=word_edits(words, mask), state=weights)

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        baseline = (proposals.state * edit_rewards.reshape(proposals.state.shape)).sum(-1)
        return baseline_surrogate(log_probs, proposals, rewards, baseline, num_inputs=num_inputs)


class AllActionRenormalised:
    """All-action over the top-k words, their probabilities renormalised: ignores what others would earn."""

    def __init__(self, top_k):
        self.top_k = top_k

    def propose_from_actions(self, log_probs, agent_mask, actions, *, eos_token_id, candidates=None):
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        top = individual_counterfactuals(log_probs, top_k=self.top_k)[0]
        words = top[:, None].expand(-1, actions.shape[1], -1, -1)
        return replace(samples, edits=word_edits(words, samples.alive[..., None].expand_as(words)), state=top)

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        probs = log_probs.gather(-1, proposals.state).softmax(-1)[:, None]
        values = edit_rewards.reshape(*edit_rewards.shape[:2], *proposals.state.shape[1:])
        values = values * proposals.alive[..., None]
        return Surrogate(-(probs * values).sum() / (num_inputs * proposals.num_samples), None, {})


class EosMaskedOut:
    """A sound estimator whose eos agents get no gradient."""

    def __init__(self, estimator, eos_token_id):
        self.estimator, self.eos_token_id = estimator, eos_token_id

    def propose_from_actions(self, log_probs, agent_mask, actions, **kwargs):
        proposals = self.estimator.propose_from_actions(log_probs, agent_mask, actions, **kwargs)
        samples = proposals.actions[:, : proposals.num_samples]
        return replace(proposals, alive=proposals.alive & (samples != self.eos_token_id))

    def surrogate(self, *args, **kwargs):
        return self.estimator.surrogate(*args, **kwargs)


class LengthNormalised:
    """A sound estimator whose loss is divided by the length of each sampled sentence."""

    def __init__(self, estimator):
        self.estimator = estimator

    def propose_from_actions(self, *args, **kwargs):
        return self.estimator.propose_from_actions(*args, **kwargs)

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        sound = self.estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=num_inputs)
        advantages = sound.advantages / proposals.alive.sum(-1, keepdim=True)
        actions = proposals.actions[:, : proposals.num_samples]
        loss = policy_gradient_loss(log_probs, actions, advantages, proposals.alive, num_inputs=num_inputs)
        return replace(sound, loss=loss)


class PairsOfTheAlive:
    """Compositional baseline whose pairs exist iff both agents are alive: that depends on the action."""

    def __init__(self, top_k):
        self.estimator = Counterfactual(top_k=top_k, compositional_weight=0.5)

    def propose_from_actions(self, *args, **kwargs):
        proposals = self.estimator.propose_from_actions(*args, **kwargs)
        alive_pairs = existing_pairs(proposals.alive[:, 0])  # one sample per input
        return replace(proposals, state=replace(proposals.state, pair_exists=alive_pairs))

    def surrogate(self, *args, **kwargs):
        return self.estimator.surrogate(*args, **kwargs)


class JointArsmMaskedAfterEos(JointArsm):
    """Joint ARSM whose agents after the first eos get no gradient, though a swap may bring them back."""

    def propose(self, *args, **kwargs):
        proposals = super().propose(*args, **kwargs)
        return replace(proposals, state=replace(proposals.state, counts=proposals.alive))


class ArsmOutsideTopK(Arsm):
    """Local ARSM that saves rewards: a pseudo action outside the k likeliest earns the true one's."""

    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        top = individual_counterfactuals(log_probs, top_k=self.top_k)[0]
        inputs = torch.arange(len(top))[:, None, None]
        likely = (top[inputs, proposals.edits.position] == proposals.edits.words[..., :1]).any(-1)
        saved = torch.where(likely, edit_rewards, rewards[..., None])
        return super().surrogate(log_probs, proposals, rewards, saved, num_inputs=num_inputs)
