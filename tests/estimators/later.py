"""Sketches of estimators that are not in the package: they show that the interface carries them as it is."""

from dataclasses import replace

import torch

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, sample_proposals
from hf_cmal.estimators.counterfactual import counterfactual_baseline, individual_counterfactuals
from hf_cmal.sampling import OTHER
from tests.estimators.biased import word_edits


class LeaveOneOut:
    """The mean reward of the input's other samples as baseline."""

    def propose_from_actions(self, log_probs, agent_mask, actions, *, eos_token_id, candidates=None):
        return sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        others = (rewards.sum(1, keepdim=True) - rewards) / (proposals.num_samples - 1)
        return baseline_surrogate(log_probs, proposals, rewards, others, num_inputs=num_inputs)


class AllAction:
    """Exact over a set T (top-k words, or candidates and OTHER); where u is not in T, (R - b) grad log pi(u).

    The baseline is subtracted from the rewards of T's words too, else the gradient of b * pi(T) is missing.
    """

    def __init__(self, top_k=None):
        self.top_k = top_k

    def propose_from_actions(self, log_probs, agent_mask, actions, *, eos_token_id, candidates=None):
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        if self.top_k is None:
            words = candidates[:, None].expand(-1, log_probs.shape[1], -1)
            words = torch.cat([words, torch.full_like(words[..., :1], OTHER)], -1)
        else:
            words = individual_counterfactuals(log_probs, top_k=self.top_k)[0]
        every = words[:, None].expand(-1, actions.shape[1], -1, -1)
        return replace(
            samples, edits=word_edits(every, samples.alive[..., None].expand_as(every)), state=words
        )

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        words, alive = proposals.state, proposals.alive
        values = edit_rewards.reshape(*alive.shape, -1)
        known = words != OTHER
        probs = torch.where(known, log_probs.gather(-1, words.clamp(min=0)).exp(), 0.0)
        probs = torch.where(known, probs, 1.0 - probs.sum(-1, keepdim=True))
        baseline = counterfactual_baseline(probs / probs.sum(-1, keepdim=True), values).detach()
        exact = counterfactual_baseline(probs, values - baseline[..., None])
        exact = (exact * alive).sum() / (num_inputs * proposals.num_samples)
        if self.top_k is None:
            return Surrogate(-exact, None, {})
        sampled_in_set = (proposals.actions[..., None] == words[:, None]).any(-1)
        rest = replace(proposals, alive=alive & ~sampled_in_set)
        sampled = baseline_surrogate(log_probs, rest, rewards, baseline, num_inputs=num_inputs)
        return replace(sampled, loss=sampled.loss - exact)


class JointArsm:
    """ARSM, the same pair swapped in all agents: auxiliary rows, noise as state, no mask after an eos."""

    def propose_from_noise(self, log_probs, agent_mask, log_noise, *, eos_token_id):
        """`log_noise` [B,N,V]: the logarithm of a Dirichlet(1) draw per agent."""
        size = log_probs.shape[-1]
        swap = (
            torch.arange(size).expand(size, size, size).clone()
        )  # [c,j] -> the permutation that swaps c and j
        for c in range(size):
            for j in range(size):
                swap[c, j, c], swap[c, j, j] = j, c
        swapped = log_noise[:, :, swap]  # [B,N,c,j,V]
        pseudo = (swapped - log_probs[:, :, None, None]).argmin(-1)  # [B,N,c,j]
        actions = (log_noise - log_probs).argmin(-1)[:, None]
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        auxiliary = pseudo.flatten(2).transpose(1, 2)
        return replace(samples, actions=torch.cat([actions, auxiliary], 1), state=(log_noise, agent_mask))

    def surrogate(self, log_probs, proposals, rewards, edit_rewards, *, num_inputs):
        log_noise, agent_mask = proposals.state
        size = log_probs.shape[-1]
        values = rewards[:, 1:].unflatten(1, (size, size))  # [B,c,j]
        values = values - values.mean(1, keepdim=True)
        gradient = torch.einsum("bcj,bnj->bnc", values, 1 / size - log_noise.exp())
        loss = -(log_probs * gradient * agent_mask[..., None]).sum() / num_inputs
        return Surrogate(loss, None, {})
