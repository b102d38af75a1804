"""Placeholder until measured."""

def evaluate_systems(recipe, task, split):
    raise NotImplementedError
