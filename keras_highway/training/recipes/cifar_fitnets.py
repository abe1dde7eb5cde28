"""Highway A, B and C on CIFAR-10, of the table that compares them with FitNets [TVDN, Table 2].

    python -m keras_highway train highway_b --data DIR --out RUN

Published: A (11 layers) 89.18 %, B (19) 92.46 (92.28 +- 0.16) %, C (32)
91.20 %. The paper names no augmentation for this table and no
hyperparameters; those here are Table 3's, without crops and mirroring. Not
trained for 400 epochs here.

    python -m training.study fitnets --data DIR --out RUNS  # the `_fast` three: rates, three seeds
    python -m keras_highway train highway_b_fast --data DIR --out RUN           # one run

The `_fast` recipes are that of `cifar10_19layer_fast`, AdamW with translations by up
to 4 pixels and mirroring, for 24 epochs instead of 30 and with products in
bfloat16 (docs/results.md has what they take and what came of it); the
study chooses each net's peak rate from the same three on 5,000 held-out training
images: 0.004, the largest, for A (65.18 % after 5 epochs), 0.002 for B
(73.74 %; 73.40 % at 0.004) and for C (69.16 %; 69.08 % at 0.004).
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes.cifar_conv import CIFAR10, CIFAR10_FAST

NETS = ("highway_a", "highway_b", "highway_c")
RATES = (0.001, 0.002, 0.004)
_CHOSEN = {"highway_a": 0.004, "highway_b": 0.002, "highway_c": 0.002}


def fast(net: str) -> str:
    """Returns the name of a net's short recipe."""
    return f"{net}_fast"


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
        name=fast(name),
        variant=name,
        weights=f"{name}.fast",
        epochs=24,
        learning_rate=_CHOSEN[name],
        precision="mixed_bfloat16",
        source="TVDN, Table 2's net; the recipe is ours",
    )
    for name in NETS
)
RECIPES: tuple[Recipe, ...] = (*_PUBLISHED, *_FAST)
