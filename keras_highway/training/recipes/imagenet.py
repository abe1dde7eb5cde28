"""The ImageNet nets under He et al.'s schedule, as [UIE, 5.1] trained them.

    python -m keras_highway train highway50 --data DIR --out RUN

DIR holds train/CLASS/* and val/CLASS/*. 90 epochs, batch 256, SGD with
momentum 0.9, rate 0.1 divided by 10 at epochs 30 and 60, weight decay 1e-4
(here on kernels alone). Crops are random resized ones of 8 to 100 % of the
area, where He et al. resize the shorter side to 256-480 and shift colours. The
test crop is theirs, 0.875 of the shorter side. Published top-5 errors with it
are those of the `_uie` nets; [BLOG]'s Highway50 and similar nets were trained
by the procedures of "ResNet strikes back" instead. No result of ours yet: none
of these has been trained here.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

HIGHWAY50 = Recipe(
    name="highway50",
    variant="highway50",
    weights="highway50.uie",
    data="imagenet",
    transform="imagenet_875",
    epochs=90,
    batch_size=256,
    learning_rate=0.1,
    weight_decay=1e-4,
    nesterov=False,
    source="UIE, 5.1 (He et al. 2015)",
)
_OTHERS = (
    "highway101 highway152 resnet50 resnet101 resnet152 highway50_uie highway50_uie_nobn highway_full50_uie "
    "highway_full50_uie_nobn resnet50_uie resnet50_uie_nobn highway_resnet50 highway_resnet101 highway_resnet152"
)
RECIPES = (
    HIGHWAY50,
    *(replace(HIGHWAY50, name=name, variant=name, weights=f"{name}.uie") for name in _OTHERS.split()),
)
