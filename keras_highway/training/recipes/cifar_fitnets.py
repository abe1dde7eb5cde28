"""Highway A, B and C on CIFAR-10, of the table that compares them with FitNets [TVDN, Table 2].

    python -m keras_highway train highway_b --data DIR --out RUN

Published: A (11 layers) 89.18 %, B (19) 92.46 (92.28 +- 0.16) %, C (32)
91.20 %. The paper names no augmentation for this table and no
hyperparameters; those here are Table 3's, without crops and mirroring. No
result of ours yet: not trained here.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes.cifar_conv import CIFAR10

_NAMES = ("highway_a", "highway_b", "highway_c")
RECIPES: tuple[Recipe, ...] = tuple(
    replace(
        CIFAR10,
        name=name,
        variant=name,
        weights=f"{name}.tvdn",
        crop_padding=0,
        flip=False,
        source="TVDN, Table 2; hyperparameters of Table 3, no augmentation",
    )
    for name in _NAMES
)
