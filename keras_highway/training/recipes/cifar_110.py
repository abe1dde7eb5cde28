"""The 110-layer nets on CIFAR-10 and others [BLOG, Evidence 1, "More Comparisons", "Further Reducing Parameters"].

    python -m keras_highway train highway110 --data DIR --out RUN
    python -m keras_highway train resnet110 --data DIR --out RUN

200 epochs, batch 128, SGD with momentum 0.9, rate 0.1 divided by 10 at epochs
100 and 150, weight decay 1e-4 on all parameters (PyTorch's, as the authors
used it), crops of the image padded by 4 and mirroring. ResNet110 has rate 0.01
in its first epoch. Authors' logs: Highway110 93.96 % (last epoch), ResNet110
93.75 %. The last 80 of each epoch's 50,000 images, drawn anew, are left out.
Not trained for 200 epochs here.

    python -m keras_highway train highway110_fast --data DIR --out RUN
    python -m keras_highway train resnet110_fast --data DIR --out RUN

The `_fast` recipes take 10 epochs of one cycle, two of them rising from 0, at the
same highest rate, 0.1. They show first epochs, and are no comparison: neither the
rate nor the gate bias, -6, was chosen for so short a time (recipes/cifar_20.py tells what
the bias did at 20 layers), and highway110 has 1.5 times resnet110's parameters.
ResNet110 reached 86.45 %, Highway110 76.05 % (n = 1 each, last epoch; at the same
epoch the authors' logs, of 200 epochs, have 75.66 and 77.9 %).
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

HIGHWAY110 = Recipe(
    name="highway110",
    variant="highway110",
    weights="highway110.blog",
    data="cifar10",
    transform="cifar10",
    crop_padding=4,
    flip=True,
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    milestones=(1 / 2, 3 / 4),
    nesterov=False,
    weight_decay=1e-4,
    decay_vectors=True,
    seed=1,
    source="BLOG, Evidence 1",
)
_COMPARISONS = ("exclusive110", "preact110", "postact110", "postact110_zerobn")
_OTHERS = {"highway111": "BLOG, Further Reducing Parameters", **dict.fromkeys(_COMPARISONS, "BLOG, More Comparisons")}
_FAST = tuple(
    replace(
        HIGHWAY110,
        name=f"{net}_fast",
        variant=net,
        weights=f"{net}.fast",
        epochs=10,
        schedule="one_cycle",
        warmup_epochs=2,
        warmup_rate=0.0,
        source="BLOG, Evidence 1's nets; the recipe is ours: 10 epochs of one cycle",
    )
    for net in ("highway110", "resnet110")
)
RECIPES = (
    HIGHWAY110,
    replace(
        HIGHWAY110, name="resnet110", variant="resnet110", weights="resnet110.blog", warmup_epochs=1, warmup_rate=0.01
    ),
    *(
        replace(HIGHWAY110, name=name, variant=name, weights=f"{name}.blog", source=source)
        for name, source in _OTHERS.items()
    ),
    *_FAST,
)
