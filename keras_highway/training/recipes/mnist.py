"""MNIST: the convolutional nets of [TVDN, Table 1] and the fully connected nets of [TVDN, 3.1 and 4].

    python -m keras_highway train mnist10_w16 --data DIR --out RUN
    python -m keras_highway train mnist10_w32 --data DIR --out RUN
    python -m keras_highway train highway_fc50_tanh --data DIR --out RUN

Published for `mnist10_w16` 99.43 %, for `mnist10_w32` 99.55 %, after 300 epochs in
batches of 100: Nesterov 0.9, rate 0.01 divided by 10 at 1/3 and 2/3, weight decay 1e-3
on kernels, biases at twice the rate. Ours is shorter. `mnist10_w16` trains for 200
epochs, the first 100 as published, then 60 and 40 instead of 100 and 100.
`mnist10_w32` trains for 75 epochs at rate 0.03, with decays at the published shares.
Products are in bfloat16 (`--set precision=float32` for the published precision).
`mnist10_w32` on one core of an AMD EPYC with AVX-512's bfloat16, two short runs each:
462 and 464 images/s in float32, 735 and 584 in bfloat16.

`highway_fc50_tanh` is the net of Figures 2 to 4. The paper chose its hyperparameters by
a random search and does not print them. SGD with momentum and an exponential decay are
the paper's, the values ours. The nets of 10 to 100 layers share them as the base of the
search of Figure 1 (`python -m training.search figure1`); 1000 layers have their own.
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
TANH50 = Recipe(
    name="highway_fc50_tanh",
    variant="highway_fc50_tanh",
    weights="highway_fc50_tanh.tvdn",
    data="mnist",
    transform="mnist",
    epochs=50,
    learning_rate=0.2,
    schedule="exponential",
    decay=0.92,
    nesterov=False,
    seed=1,
    source="TVDN, 4: 50 layers, tanh, gate bias -2, SGD with momentum, exponential decay; rates chosen here",
)
_OTHERS = tuple(f"{kind}_fc{depth}" for kind in ("highway", "plain") for depth in (10, 20, 50, 100))
# 1000 gates of bias -2 would leave 0.88 ** 1000 of the input; a bias of -8 leaves 0.71 of it.
HIGHWAY1000 = replace(
    TANH50,
    name="highway_fc1000",
    variant="highway_fc1000",
    weights="highway_fc1000.tvdn",
    overrides=(("gate_bias", -8.0),),
    learning_rate=0.1,
    epochs=3,
    source="TVDN, 3.1: SGD did not stall beyond 1000 layers; rates and gate bias chosen here",
)
# Baselines of Figure 4 with about as many parameters: 71 units, as the plain nets of [TVDN, 3.1]. Their rates have the
# lowest training loss after 4 epochs of 0.2 (the highway net's), 0.05, 0.0125 and 0.003. The plain net of 50 layers
# stays at chance at all but the last. The plain net of 10 layers stays at chance at 0.2; 0.05 was tried next.
RESIDUAL50 = replace(
    TANH50,
    name="residual_fc50_tanh",
    weights="residual_fc50_tanh.tvdn",
    overrides=(("gating", "residual"), ("units", 71)),
    learning_rate=0.003,
    source="the residual baseline of highway_fc50_tanh: its recipe, the best of four rates",
)
PLAIN50 = replace(
    TANH50,
    name="plain_fc50_tanh",
    variant="plain_fc50",
    weights="plain_fc50_tanh.tvdn",
    overrides=(("activation", "tanh"),),
    learning_rate=0.003,
    source="the plain baseline of highway_fc50_tanh: its recipe, the best of four rates",
)
PLAIN10 = replace(
    PLAIN50,
    name="plain_fc10_tanh",
    variant="plain_fc10",
    weights="plain_fc10_tanh.tvdn",
    learning_rate=0.05,
    source="plain_fc50_tanh of 10 layers; rate chosen here",
)
RECIPES = (
    W16,
    W32,
    TANH50,
    RESIDUAL50,
    PLAIN50,
    PLAIN10,
    *(replace(TANH50, name=name, variant=name, weights=f"{name}.tvdn") for name in _OTHERS),
    HIGHWAY1000,
    replace(HIGHWAY1000, name="plain_fc1000", variant="plain_fc1000", weights="plain_fc1000.tvdn", overrides=()),
)
