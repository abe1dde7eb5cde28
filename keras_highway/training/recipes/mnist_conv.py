"""MNIST convolutional highway nets [TVDN, Table 1].

    python -m keras_highway train mnist10_w16 --data DIR --out RUN
    python -m keras_highway train mnist10_w32 --data DIR --out RUN

Published: 99.43 % (w 16), 99.55 % (w 32) after 300 epochs, batch 100, Nesterov
0.9, rate 0.01 divided by 10 at 1/3 and 2/3, weight decay 1e-3 on kernels,
biases at twice the rate. Here w 16 takes 200 epochs: its first 100 as published,
then 60 and 40 instead of 100 and 100 at the lower rates. w 32 takes 75 epochs at
rate 0.03, its decays at the published shares.

Products are in bfloat16 (`--set precision=float32`: as published). Images per
second of w 32 on one core of an AMD EPYC with AVX-512's bfloat16, two short
runs each: 462 and 464 in float32, 735 and 584 in bfloat16. Other processors
were not measured with it; recipes/imagenette.py has some, of other nets.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

W16 = Recipe(
    name="mnist10_w16",
    variant="mnist10_w16",
    weights="mnist10_w16.tvdn",
    data="mnist",
    transform="mnist",
    epochs=200,
    learning_rate=0.01,
    milestones=(0.5, 0.8),
    weight_decay=1e-3,
    decay_multipliers=(("head/kernel", 10.0),),
    bias_multiplier=2.0,
    precision="mixed_bfloat16",
    seed=1,
    source="TVDN, Table 1; 60 and 40 epochs at the lower rates instead of 100 and 100, in bfloat16",
)
W32 = replace(
    W16,
    name="mnist10_w32",
    variant="mnist10_w32",
    weights="mnist10_w32.tvdn",
    epochs=75,
    learning_rate=0.03,
    milestones=(1 / 3, 2 / 3),
    source="TVDN, Table 1; 75 epochs at rate 0.03 instead of 300 at 0.01, in bfloat16",
)
RECIPES = (W16, W32)
