"""The 19-layer convolutional highway nets on CIFAR [TVDN, Table 3].

    python -m keras_highway train cifar10_19layer --data DIR --out RUN
    python -m keras_highway train cifar100_19layer --data DIR --out RUN

Published: 92.40 (92.31 +- 0.12) % on CIFAR-10, 67.76 (67.61 +- 0.15) % on
CIFAR-100: global contrast normalization, translations (pad 8, crop 32) and
mirroring; 400 epochs (200,000 steps of 100), Nesterov 0.9, rate 0.025 divided
by 10 at 100,000, 150,000 and 175,000 steps, weight decay 1e-3 on kernels,
biases at twice the rate, the last dense layer's decay tenfold. First epochs
beside the authors' log: docs/results.md. Not trained for 400 epochs here.

    python -m keras_highway train cifar10_19layer_fast --data DIR --out RUN
    python -m keras_highway train cifar100_19layer_fast --data DIR --out RUN

Ours: docs/results.md. The `_fast` recipes take 30 epochs at the same architecture,
with AdamW and half of its dropout, in float32: without matrix units for bfloat16 a
CPU is slower in it. Tried on CIFAR-10, 15,000 training images, 4 epochs (600 steps)
of a cosine in float32, seed 1, accuracy on 2,500 of 5,000 held-out training images
after epochs 1, 2, 3, 4:

    SGD, rate 0.025     26.9  37.5  (stopped)
    SGD, rate 0.05      27.4  38.4  46.6  48.6
    SGD, rate 0.1       27.0  34.8  (stopped)
    AdamW, rate 0.001   34.4  42.0  (stopped)
    AdamW, rate 0.002   32.7  (stopped)

Chosen was AdamW at 0.001, ahead after two epochs. Also unlike the paper, and not
searched for: translations of 4 pixels, label smoothing 0.1, gradients of norm 2 at
most, weight decay 0.05, a cosine after an epoch of warm-up.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

CIFAR10 = Recipe(
    name="cifar10_19layer",
    variant="cifar10_19layer",
    weights="cifar10_19layer.tvdn",
    data="cifar10",
    transform="cifar10_contrast",
    crop_padding=8,
    flip=True,
    epochs=400,
    learning_rate=0.025,
    milestones=(1 / 2, 3 / 4, 7 / 8),
    weight_decay=1e-3,
    decay_multipliers=(("head/kernel", 10.0),),
    bias_multiplier=2.0,
    seed=1,
    source="TVDN, Table 3",
)
CIFAR10_FAST = replace(
    CIFAR10,
    name="cifar10_19layer_fast",
    weights="cifar10_19layer.fast",
    crop_padding=4,
    alternating_flip=True,
    train_sizes=((0.4, 16), (0.7, 24)),
    whiten_stem=True,
    dropout_from=2 / 3,
    epochs=52,
    optimizer="muon",
    learning_rate=0.03,
    schedule="cosine",
    warmup_epochs=2,
    weight_decay=0.02,
    decay_multipliers=(),
    bias_multiplier=1.0,
    clip_norm=2.0,
    label_smoothing=0.1,
    precision="mixed_bfloat16",
    source="TVDN, Table 3's net; the recipe is ours",
)
RECIPES = (
    CIFAR10,
    CIFAR10_FAST,
    replace(
        CIFAR10_FAST,
        name="cifar100_19layer_fast",
        variant="cifar100_19layer",
        weights="cifar100_19layer.fast",
        data="cifar100",
        transform="cifar100_contrast",
    ),
    replace(
        CIFAR10,
        name="cifar100_19layer",
        variant="cifar100_19layer",
        weights="cifar100_19layer.tvdn",
        data="cifar100",
        transform="cifar100_contrast",
    ),
)
