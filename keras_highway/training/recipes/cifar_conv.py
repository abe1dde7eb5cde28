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

The `_fast` recipes keep the architecture. They train for 52 epochs, which cost 29.7
epochs at 32 pixels: 16 pixels until 40 % of the epochs, 24 until 70 %. Muon trains
the kernels [Jordan et al. 2024], AdamW the stem, the head and the biases. The stem
starts with whitening filters, and images are mirrored in every second epoch [Jordan
2024, arXiv 2404.00498]. Translations of 4 pixels, label smoothing 0.1, gradients of
norm 2 at most, products in bfloat16.

One core of a Zen 4 processor, 45,000 training images, accuracy on 5,000 held-out
ones, seed 1, an earlier program with the same procedure and no dropout: CIFAR-10
88.74 % after 10 epochs (5.7 at 32 pixels), CIFAR-100 59.24 % after 9 (5.1).
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
