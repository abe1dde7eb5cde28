"""All recipes by name."""

from types import MappingProxyType

from keras_highway.training.recipes import charlm, cifar, imagenet, mnist

RECIPES = MappingProxyType({row.name: row for module in (mnist, cifar, imagenet, charlm) for row in module.RECIPES})
