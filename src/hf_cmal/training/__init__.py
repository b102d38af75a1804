"""The only room that knows the Trainer and accelerate: from a recipe to a trained folder."""
