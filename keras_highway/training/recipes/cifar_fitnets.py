"""Highway A, B and C on CIFAR-10, of the table that compares them with FitNets [TVDN, Table 2].

    python -m keras_highway train highway_b --data DIR --out RUN

Published: A (11 layers) 89.18 %, B (19) 92.46 (92.28 +- 0.16) %, C (32)
91.20 %. The paper names no augmentation for this table and no
hyperparameters; those here are Table 3's, without crops and mirroring. Not
trained for 400 epochs here.

    python -m keras_highway train highway_b_fast --data DIR --out RUN

The `_fast` recipes are that of `cifar10_19layer_fast`; `highway_a` trains for 100
epochs.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes.cifar_conv import CIFAR10, CIFAR10_FAST

NETS = ("highway_a", "highway_b", "highway_c")

_PUBLISHED = tuple(
    replace(
        CIFAR10,
        name=name,
        variant=name,
        weights=f"{name}.tvdn",
        crop_padding=0,
        flip=False,
        source="TVDN, Table 2; hyperparameters of Table 3, no augmentation",
    )
    for name in NETS
)
_FAST = tuple(
    replace(
        CIFAR10_FAST,
        name=f"{name}_fast",
        variant=name,
        weights=f"{name}.fast",
        epochs=100 if name == "highway_a" else CIFAR10_FAST.epochs,
        source="TVDN, Table 2's net; the recipe is ours",
    )
    for name in NETS
)
RECIPES: tuple[Recipe, ...] = (*_PUBLISHED, *_FAST)
