"""What is learned: the model families, one folder each, and all that a pushed checkpoint carries.

Every family is a flat folder whose files import one another with a single dot, so that `save_pretrained` can
copy them beside the weights and the folder loads where hf_cmal is not installed.
"""
