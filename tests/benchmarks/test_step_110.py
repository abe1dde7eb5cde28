"""Training steps of CIFAR's nets of 110 and 20 layers: Highway110 has 1.53 times ResNet110's multiply-adds."""

import dataclasses

import numpy as np
import pytest
from comparison import compare, processor

from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import ImageProgram
from keras_highway.training.recipes import RECIPES

BATCH = 32


def step_of(name, batch=BATCH, **changes):
    """A function that takes a step of a recipe and waits for it."""
    recipe = dataclasses.replace(
        RECIPES[name], data="synthetic_cifar10", batch_size=batch, train_images=batch, **changes
    )
    source = open_source(recipe, None)
    program = ImageProgram(recipe, source, source.on_device())
    engine = Strategy().engine(program)
    images = next(source.batches(0, 0, Shard()))
    return lambda: np.asarray(engine.train(images))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_highway110_against_resnet110(benchmark, precision):
    subject, reference = (step_of(name, precision=precision) for name in ("highway110", "resnet110"))
    name = f"highway110 / resnet110, train, batch {BATCH}, {precision}"
    result = compare(benchmark, name, subject, reference, rounds=9)
    result.check_at_most(2.2)
    result.check_goal(1.7)


def test_widths_of_16_cost_no_more_than_those_of_14(benchmark):
    subject, reference = step_of("highway110", overrides=(("widths", (16, 32, 64)),)), step_of("highway110")
    name = f"highway110 with widths 16, 32, 64 / highway110 (14, 28, 56), train, batch {BATCH}, float32"
    compare(benchmark, name, subject, reference, rounds=9).check_at_most(1.1)


@pytest.mark.parametrize("name", ["resnet20", "highway20"])
def test_products_in_bfloat16(benchmark, name):
    """Their recipes' precision is chosen for processors that have a matrix unit."""
    if "with AMX" not in processor():
        pytest.skip(f"the processor has no AMX: {processor()}")
    subject, reference = (step_of(name, 128, precision=precision) for precision in ("mixed_bfloat16", "float32"))
    title = f"{name}, mixed_bfloat16 / float32, train, batch 128"
    compare(benchmark, title, subject, reference).check_at_most(0.9)


def test_muon_costs_at_most_three_percent_of_a_step(benchmark):
    """For the CIFAR nets of [TVDN] at 32 pixels and the recipe's batch."""
    recipe = "cifar10_19layer_fast"
    subject, reference = (step_of(recipe, 100, train_sizes=(), **changes) for changes in ({}, {"optimizer": "sgd"}))
    compare(benchmark, "cifar10_19layer, Muon / SGD, train, batch 100", subject, reference).check_at_most(1.03)
