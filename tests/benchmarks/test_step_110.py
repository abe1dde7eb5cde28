"""A training step of Highway110 against one of ResNet110, which has 1.53 times fewer multiply-adds."""

import dataclasses

import numpy as np
from comparison import compare

from keras_highway.training.data.shard import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import Program
from keras_highway.training.recipes import RECIPES

BATCH = 32


def step_of(name):
    """A function that takes a step of a recipe and waits for it."""
    recipe = dataclasses.replace(RECIPES[name], data="synthetic_cifar10", batch_size=BATCH, train_images=BATCH)
    source = open_source(recipe, None)
    program = Program(recipe, source, source.on_device())
    engine = Strategy().engine(program)
    batch = next(source.batches(0, 0, Shard()))
    return lambda: np.asarray(engine.train(batch))


def test_highway110_against_resnet110(benchmark):
    result = compare(
        benchmark,
        f"highway110 / resnet110, train, batch {BATCH}",
        step_of("highway110"),
        step_of("resnet110"),
        rounds=9,
    )
    result.check_at_most(2.2)
    result.check_goal(1.7)
