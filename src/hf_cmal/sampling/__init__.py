"""Log-probs to joint actions and edits (CMAL Sec. 4.2 and 4.4: actions, counterfactual replacements).

Reading order: `proposals.py` (what is handed to a reward), `sample.py` (how it is drawn and written out).
No rewards and no gradients here.
"""

from hf_cmal.sampling.proposals import OTHER, Edits, Proposals
from hf_cmal.sampling.sample import greedy_actions, sample_actions, write_out_edits

__all__ = ["OTHER", "Edits", "Proposals", "greedy_actions", "sample_actions", "write_out_edits"]
