"""Training a network from a recipe: the objective, the loop and evaluation."""

from lapis.train.distillation import distill
from lapis.train.loop import train
from lapis.train.recipe import Recipe
from lapis.train.recipes import load as load_recipe
from lapis.train.recipes import names as recipe_names

__all__ = ["Recipe", "distill", "load_recipe", "recipe_names", "train"]
