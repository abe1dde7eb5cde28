"""The tiny form of a recipe: the same way through the program in seconds, on any machine, without data."""

from dataclasses import replace
from typing import overload

from keras_highway.specs import ConvNetSpec, ConvStackSpec, DenseStackSpec, NetSpec
from keras_highway.variants import VARIANTS
from training.data.synthetic import PREFIX, SYNTHETIC_CORPUS
from training.language_recipe import LanguageRecipe
from training.recipe import Recipe


@overload
def tiny(recipe: Recipe) -> Recipe: ...
@overload
def tiny(recipe: LanguageRecipe) -> LanguageRecipe: ...
def tiny(recipe):
    """Returns a recipe's tiny form: a small net of the same kind on a synthetic data set.

    Two epochs of six steps, batch 8; of a language model 30 steps of 4
    streams. What the recipe does (augmentation, schedule, optimizer, loss)
    stays; what needs a large net or batch shrinks.
    """
    if isinstance(recipe, LanguageRecipe):
        return _tiny_language_model(recipe)
    spec = VARIANTS[recipe.variant]
    data = recipe.data.split(":")[0]
    return replace(
        recipe,
        name=f"{recipe.name}_tiny",
        weights=f"{recipe.name}.tiny",
        data=PREFIX + ("imagenet" if data == "tfds" else data),
        overrides=tuple({**dict(recipe.overrides), **_small(spec)}.items()),
        train_size=None,  # its images are in memory
        train_images=52,
        test_images=20,
        epochs=2,
        batch_size=8,
        micro_batches=min(recipe.micro_batches, 2),
        warmup_epochs=min(recipe.warmup_epochs, 1),
        source=f"The tiny form of {recipe.name}, for tests: no result",
    )


def _tiny_language_model(recipe: LanguageRecipe) -> LanguageRecipe:
    small = {"kernels": (1, 2), "filters": (6, 10), "char_units": 4, "units": 12, "streams": 4}
    return replace(
        recipe,
        name=f"{recipe.name}_tiny",
        weights=f"{recipe.name}.tiny",
        data=SYNTHETIC_CORPUS,
        overrides=tuple({**dict(recipe.overrides), **small}.items()),
        epochs=2,
        steps=20,
        test_tokens=400,
        source=f"The tiny form of {recipe.name}, for tests: no result",
    )


def _small(spec: NetSpec) -> dict:
    if isinstance(spec, ConvNetSpec):
        return {
            "input_shape": (min(spec.input_shape[0], 64), min(spec.input_shape[1], 64), 3),
            "blocks": (2,) * len(spec.blocks),
            "widths": tuple(4 + 2 * i for i in range(len(spec.widths))),
            "stem_width": 4,
            "neck_width": spec.neck_width and 12,
        }
    if isinstance(spec, ConvStackSpec):
        return {
            "stages": tuple(
                replace(stage, filters=stage.filters and 4 + 2 * i, highways=stage.highways[:1])
                for i, stage in enumerate(spec.stages)
            ),
            "neck_width": spec.neck_width and 8,
            "hidden_units": spec.hidden_units and 12,
        }
    if isinstance(spec, DenseStackSpec):
        return {"depth": 4, "units": 8}
    raise ValueError(f"No tiny form of {type(spec).__name__} is known.")
