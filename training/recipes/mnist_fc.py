"""The 50-layer tanh highway net on MNIST, for Figures 2-4 of [TVDN, 4].

    python -m training.train highway_fc50_tanh --data DIR --out RUN

The paper picked its hyperparameters by random search and does not print them;
SGD with momentum and exponential decay are its words, the values ours.
"""

from training.recipe import Recipe

TANH50 = Recipe(
    name="highway_fc50_tanh",
    variant="highway_fc50_tanh",
    weights="highway_fc50_tanh.tvdn",
    data="mnist",
    transform="mnist",
    epochs=60,
    learning_rate=0.02,
    schedule="exponential",
    decay=0.94,
    nesterov=False,
    seed=1,
    source="TVDN, 4: 50 layers, tanh, gate bias -2, SGD with momentum, exponential decay; rates chosen here",
)
RECIPES = (TANH50,)
