"""Fully connected nets on MNIST [TVDN, 3.1 and 4].

    python -m keras_highway train highway_fc50_tanh --data DIR --out RUN

`highway_fc50_tanh` is the net of Figures 2-4. The paper picked its
hyperparameters by random search and does not print them; SGD with momentum
and exponential decay are its words, the values ours. The plain and highway
nets of 10 to 100 layers share them as the base of the random search of Figure 1
(`python -m training.search figure1`); 1000 layers have their own.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

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
# Baselines beside it in Figure 4, of about as many parameters: 71 units, as the plain nets of [TVDN, 3.1]. Rates: the
# least training loss after 4 epochs at 0.2 (the highway net's), 0.05, 0.0125 and 0.003; the plain net of 50 layers
# stays at chance at all but the last. That of 10 layers was tried at 0.2, where it stays at chance, and 0.05.
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
    TANH50,
    RESIDUAL50,
    PLAIN50,
    PLAIN10,
    *(replace(TANH50, name=name, variant=name, weights=f"{name}.tvdn") for name in _OTHERS),
    HIGHWAY1000,
    replace(HIGHWAY1000, name="plain_fc1000", variant="plain_fc1000", weights="plain_fc1000.tvdn", overrides=()),
)
