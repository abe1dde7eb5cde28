"""All recipes by name; one module per published result."""

from types import MappingProxyType

from keras_highway.training.recipes import (
    charlm,
    cifar_20,
    cifar_20_forms,
    cifar_110,
    cifar_conv,
    cifar_fc,
    cifar_fitnets,
    imagenet,
    imagenette,
    mnist_conv,
    mnist_fc,
    rsb,
    tiny_imagenet,
)

_MODULES = (
    mnist_conv,
    mnist_fc,
    cifar_conv,
    cifar_fitnets,
    cifar_110,
    cifar_20,
    cifar_20_forms,
    cifar_fc,
    imagenet,
    imagenette,
    tiny_imagenet,
    rsb,
    charlm,
)
RECIPES = MappingProxyType({recipe.name: recipe for module in _MODULES for recipe in module.RECIPES})
