"""Fully connected nets on MNIST [TVDN, 3.1 and 4].

    python -m training.train highway_fc50_tanh --data DIR --out RUN

`highway_fc50_tanh` is the net of Figures 2-4. The paper picked its
hyperparameters by random search and does not print them; SGD with momentum
and exponential decay are its words, the values ours. The plain and highway
nets of 10 to 1000 layers share them.
"""

from dataclasses import replace

from training.recipe import Recipe

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
_OTHERS = tuple(f"{kind}_fc{depth}" for kind in ("highway", "plain") for depth in (10, 20, 50, 100, 1000))
RECIPES = (TANH50, *(replace(TANH50, name=name, variant=name, weights=f"{name}.tvdn") for name in _OTHERS))
