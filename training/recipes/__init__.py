"""All recipes by name; one module a published result."""

from types import MappingProxyType

from training.recipes import imagenet, mnist_conv, mnist_fc

_MODULES = (mnist_conv, mnist_fc, imagenet)
RECIPES = MappingProxyType({recipe.name: recipe for module in _MODULES for recipe in module.RECIPES})
