"""All recipes by name, and their tiny forms."""

from dataclasses import replace
from types import MappingProxyType

from keras_highway.specs import CharLMSpec, ConvNetSpec, ConvStackSpec, NetSpec
from keras_highway.training.data.synthetic import PREFIX, SYNTHETIC_CORPUS
from keras_highway.training.recipe import DECODED, LanguageRecipe, Recipe, RecipeT
from keras_highway.training.recipes import charlm, cifar, imagenet, mnist
from keras_highway.variants import ALL_VARIANTS

RECIPES = MappingProxyType({row.name: row for module in (mnist, cifar, imagenet, charlm) for row in module.RECIPES})


def tiny(recipe: RecipeT) -> RecipeT:
    """Return a recipe's tiny form: a small net of the same kind on made-up data, which trains in seconds.

    It has two epochs of six steps of batch 8. With micro-batches or mixed
    samples it has three steps, of a batch that eight devices divide. A language
    model has 30 steps of 4 streams. Augmentation, schedule, optimizer and loss
    stay.
    """
    spec = ALL_VARIANTS[recipe.variant]
    if isinstance(recipe, LanguageRecipe):
        short = {"data": SYNTHETIC_CORPUS, "steps": 20, "test_tokens": 400}
    else:
        short = _short(recipe, getattr(spec, "batch_norm", False))
    return replace(
        recipe,
        name=f"{recipe.name}_tiny",
        weights=f"{recipe.name}.tiny",
        overrides=tuple({**dict(recipe.overrides), **_small(spec)}.items()),
        epochs=2,
        source=f"The tiny form of {recipe.name}, for tests: no result",
        **short,
    )


def _short(recipe: Recipe, normalized: bool) -> dict:
    """Return the data and batches of a tiny recipe of images."""
    data = recipe.data.split(":")[0]
    micro_batches = min(recipe.micro_batches, 2)
    batch = 8 * micro_batches * replace(recipe, micro_batches=micro_batches).mixed_samples  # eight devices divide it
    return {
        # Without normalization, rates made for batches of 256 and ninety epochs diverge.
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


def _small(spec: NetSpec) -> dict:
    """Return the fields of the spec of a tiny net."""
    if isinstance(spec, ConvNetSpec):
        return {
            "input_shape": (min(spec.input_shape[0], 64), min(spec.input_shape[1], 64), 3),
            "blocks": (2,) * len(spec.blocks),
            "widths": tuple(4 + 2 * i for i in range(len(spec.widths))),
            "stem_width": 4,
            "neck_width": spec.neck_width and 12,
        }
    if isinstance(spec, ConvStackSpec):
        stages = tuple(
            replace(stage, filters=stage.filters and 4 + 2 * i, highways=stage.highways[:1])
            for i, stage in enumerate(spec.stages)
        )
        return {"stages": stages, "neck_width": spec.neck_width and 8, "hidden_units": spec.hidden_units and 12}
    if isinstance(spec, CharLMSpec):
        return {"kernels": (1, 2), "filters": (6, 10), "char_units": 4, "units": 12, "streams": 4}
    return {"depth": 4, "units": 8}
