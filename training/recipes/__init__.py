"""All recipes by name; one module a published result."""

from types import MappingProxyType

from training.recipes import mnist_conv, mnist_fc

RECIPES = MappingProxyType({recipe.name: recipe for module in (mnist_conv, mnist_fc) for recipe in module.RECIPES})
