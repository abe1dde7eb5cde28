"""The tiny form of a recipe: the same way through the program in seconds, on any machine, without data."""

from dataclasses import replace
from functools import singledispatch
from typing import TypeVar

from keras_highway.specs import CharLMSpec, ConvNetSpec, ConvStackSpec, DenseStackSpec, NetSpec
from keras_highway.training.data.synthetic import PREFIX, SYNTHETIC_CORPUS
from keras_highway.training.language_recipe import LanguageRecipe
from keras_highway.training.recipe import DECODED, Recipe
from keras_highway.variants import ALL_VARIANTS

RecipeT = TypeVar("RecipeT", Recipe, LanguageRecipe)


def tiny(recipe: RecipeT) -> RecipeT:
    """Return a recipe's tiny form: a small net of the same kind on a synthetic data set.

    Two epochs of six steps, batch 8; where a batch is computed in parts or its
    samples are mixed, of three steps, in a batch that eight devices divide; of
    a language model 30 steps of 4 streams. What the recipe does (augmentation, schedule, optimizer, loss)
    stays; what needs a large net or batch shrinks.
    """
    return replace(
        recipe,
        name=f"{recipe.name}_tiny",
        weights=f"{recipe.name}.tiny",
        overrides=tuple({**dict(recipe.overrides), **_small(_spec(recipe))}.items()),
        epochs=2,
        source=f"The tiny form of {recipe.name}, for tests: no result",
        **_short(recipe),
    )


def _spec(recipe) -> NetSpec:
    return ALL_VARIANTS[recipe.variant]


@singledispatch
def _short(recipe: Recipe) -> dict:
    """Fields of a recipe's tiny form that its class alone has, and its data."""
    data = recipe.data.split(":")[0]
    normalized = getattr(_spec(recipe), "batch_norm", True)
    micro_batches = min(recipe.micro_batches, 2)
    batch = _batch_of_eight(replace(recipe, micro_batches=micro_batches))
    return {
        # Without normalization a batch of 8 and two epochs bear no rate that is made for 256 and ninety.
        "learning_rate": recipe.learning_rate * (1 if normalized else 0.01),
        "data": PREFIX + ("imagenet" if data in DECODED else data),
        "train_size": None,  # its images are in memory
        "train_sizes": () if data in DECODED else recipe.train_sizes,
        "crop_scale": Recipe.crop_scale,
        "train_images": (6 if batch == 8 else 3) * batch + 4,
        "test_images": 20,
        "batch_size": batch,
        "micro_batches": micro_batches,
        "warmup_epochs": min(recipe.warmup_epochs, 1),
    }


def _batch_of_eight(recipe: Recipe) -> int:
    """Return the smallest batch that eight devices divide, as `Strategy.check` has it."""
    return 8 * recipe.micro_batches * recipe.mixed_samples


@_short.register
def _(recipe: LanguageRecipe) -> dict:
    return {"data": SYNTHETIC_CORPUS, "steps": 20, "test_tokens": 400}


@singledispatch
def _small(spec: NetSpec) -> dict:
    """Fields of the spec of a tiny net."""
    raise ValueError(f"No tiny form of {type(spec).__name__} is known.")


@_small.register
def _(spec: ConvNetSpec) -> dict:
    return {
        "input_shape": (min(spec.input_shape[0], 64), min(spec.input_shape[1], 64), 3),
        "blocks": (2,) * len(spec.blocks),
        "widths": tuple(4 + 2 * i for i in range(len(spec.widths))),
        "stem_width": 4,
        "neck_width": spec.neck_width and 12,
    }


@_small.register
def _(spec: ConvStackSpec) -> dict:
    stages = tuple(
        replace(stage, filters=stage.filters and 4 + 2 * i, highways=stage.highways[:1])
        for i, stage in enumerate(spec.stages)
    )
    return {
        "stages": stages,
        "neck_width": spec.neck_width and 8,
        "hidden_units": spec.hidden_units and 12,
    }


@_small.register
def _(spec: DenseStackSpec) -> dict:
    return {"depth": 4, "units": 8}


@_small.register
def _(spec: CharLMSpec) -> dict:
    return {"kernels": (1, 2), "filters": (6, 10), "char_units": 4, "units": 12, "streams": 4}
