"""The fully connected 50-layer net on CIFAR-100 [TVDN, 4; Figures 2-4].

    python -m keras_highway train highway_fc50_cifar100 --data DIR --out RUN

50 layers of 50 tanh units, gate bias -4, SGD with momentum, exponential decay
of the rate. The paper analyzes its gates, prints no accuracy and no rates: the
rates here are ours.
"""

from keras_highway.training.recipe import Recipe

TANH50 = Recipe(
    name="highway_fc50_cifar100",
    variant="highway_fc50_cifar100",
    weights="highway_fc50_cifar100.tvdn",
    data="cifar100",
    transform="cifar100",
    epochs=50,
    learning_rate=0.05,
    schedule="exponential",
    decay=0.94,
    nesterov=False,
    seed=1,
    source="TVDN, 4: 50 layers, tanh, gate bias -4, SGD with momentum, exponential decay; rates chosen here",
)
RECIPES = (TANH50,)
