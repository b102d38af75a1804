"""Sketches of estimators that are not in the package: they show that the interface carries them as it is."""

from dataclasses import replace

import torch

from hf_cmal.estimators.base import Surrogate, sample_proposals


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
