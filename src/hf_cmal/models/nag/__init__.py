"""Non-autoregressive generators (CMAL Secs. 3.3 and 4.1) and the captioning teacher they learn from.

Import the classes from their own files or from `hf_cmal`; nothing is imported here, so that reading the
tensor helpers of `sequences_nag` does not load the models.
"""
