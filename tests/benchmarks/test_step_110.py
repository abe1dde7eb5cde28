"""A training step of Highway110 against one of ResNet110, which has 1.53 times fewer multiply-adds."""

import dataclasses

import keras
import numpy as np
import pytest
from comparison import compare

import keras_highway as kh
from keras_highway.training.data.shard import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import Program
from keras_highway.training.recipes import RECIPES

BATCH = 32


def step_of(name, precision):
    """A function that takes a step of a recipe and waits for it."""
    recipe = dataclasses.replace(
        RECIPES[name], data="synthetic_cifar10", batch_size=BATCH, train_images=BATCH, precision=precision
    )
    source = open_source(recipe, None)
    program = Program(recipe, source, source.on_device())
    engine = Strategy().engine(program)
    batch = next(source.batches(0, 0, Shard()))
    return lambda: np.asarray(engine.train(batch))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_highway110_against_resnet110(benchmark, precision):
    result = compare(
        benchmark,
        f"highway110 / resnet110, train, batch {BATCH}, {precision}",
        step_of("highway110", precision),
        step_of("resnet110", precision),
        rounds=9,
    )
    result.check_at_most(2.2)
    result.check_goal(1.7)


def test_widths_of_16_cost_no_more_than_those_of_14(benchmark):
    """Processors compute 16 channels at a time: 14, 28, 56 (highway110) take as long as 16, 32, 64 (resnet110)."""
    subject, reference = (keras_step(kh.create_model("highway110", **w)) for w in ({"widths": (16, 32, 64)}, {}))
    name = f"highway110 with widths 16, 32, 64 / highway110 (14, 28, 56), train, batch {BATCH}"
    compare(benchmark, name, subject, reference, rounds=9).check_at_most(1.1)


def keras_step(model):
    """A function that takes a step of Keras's own training loop."""
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, *model.input_shape[1:]), "float32"), rng.integers(0, 10, BATCH)
    return lambda: model.train_on_batch(x, y)
