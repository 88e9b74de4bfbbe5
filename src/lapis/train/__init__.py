"""Training: recipes, objective, loop, evaluation, ablations."""
