"""What a finished run leaves: weights, and result.json."""

from typing import Any

from keras_highway._support.files import atomic_write_json
from keras_highway.data.datasets import FOLDERS, OWN_CLASSES
from keras_highway.data.photographs import in_words
from keras_highway.data.transforms import TRANSFORMS, imagenet_classes
from keras_highway.models.origin import origin_of
from keras_highway.specs import override
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import Program
from keras_highway.training.runs.run_folder import RunFolder
from keras_highway.variants import VARIANTS
from keras_highway.weights import file as weights_file
from keras_highway.weights.overrides import to_json_values


def finish(program: Program, strategy: Strategy, folder: RunFolder, rows: list[dict]) -> dict:
    """Write the weights and the result of a finished run.

    Args:
        program: Its variables.
        strategy: Its devices; the chief writes.
        folder: Its folder.
        rows: Its log.

    Returns:
        The result: metric, n, mean, std, seeds, and where it was measured.
    """
    recipe, last = program.recipe, {key: float(value) for key, value in rows[-1].items()}
    data, names = _data_and_names(recipe, program.class_names)
    result = {
        "weights": recipe.weights,
        "variant": recipe.variant,
        "data": data,
        **({"class_names": names} if names else {}),
        "metric": "test_accuracy",
        "n": 1,
        "mean": last["test_accuracy"],
        "std": None,
        "seeds": [recipe.seed],
        "values": [last["test_accuracy"]],
        **_tested_images(program),
        **epochs(recipe, rows),
        **_cost(recipe, len(rows)),
        "epoch_reported": "last",
        **({"top5": last["test_top5"]} if "test_top5" in last else {}),
        "precision": recipe.precision,
        "train_loss": last["train_loss"],
        "images_per_second": last["images_per_second"],
        "waiting": last["waiting"],
        **folder.environment(),
    }
    with program.averages_in_place(strategy.to_numpy):
        strategy.finish(program.net)
        if strategy.is_chief:
            folder.drop_result()  # written last: where it is, the weights beside it are its own
            weights_file.save(
                program.net,
                folder.path / "model.weights.h5",
                recipe.variant,
                program.classes,
                transform=recipe.transform,
                **_form(program.net),
            )
            atomic_write_json(folder.result, result)
    return result


def _cost(recipe, epochs: int) -> dict[str, float]:
    """Epochs at the test images' size that would cost as much, where training images are of several sizes."""
    size = TRANSFORMS[recipe.transform].size
    return {"equivalents": round(recipe.equivalents(size, epochs), 2)} if recipe.train_sizes else {}


def _tested_images(program: Program) -> dict[str, int]:
    """Return the numbers of images that `test_accuracy` is of, where they are not the whole test set."""
    held_out, tested = program.recipe.holdout_images, program.recipe.test_images
    numbers = {} if held_out is None else {"holdout_images": held_out}
    # More than there are is no limit.
    return numbers | ({"test_images": tested} if tested is not None and tested == program.test_images else {})


def _data_and_names(recipe, folders: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the data set, `""` where the folders are one's own, and the names of its classes where it brought them.

    A recipe for ImageNet trains on any folder: it is ImageNet's where all
    classes have WordNet's identifiers, which are named in words then. Of
    Imagenette and Imagewoof the identifiers are their own; all of them are
    theirs under any recipe.
    """
    names, found = in_words(folders), set(folders)
    if whole := next((data for data, own in OWN_CLASSES.items() if found == own), ""):
        return (whole if recipe.data in FOLDERS else recipe.data), names
    if recipe.data not in FOLDERS or found <= OWN_CLASSES.get(recipe.data, dict(imagenet_classes()).keys()):
        return recipe.data, names
    return next((data for data, own in OWN_CLASSES.items() if found <= own), ""), names


def _form(net) -> dict[str, Any]:
    """Return the fields of the weight file that describe how a network differs from its variant."""
    origin = origin_of(net)
    if origin is None:
        return {}
    row = VARIANTS[origin.variant]
    form = {"overrides": to_json_values(override(row, **origin.overrides), row), "removed": list(origin.removed)}
    return {name: value for name, value in form.items() if value}


def epochs(recipe, rows: list[dict]) -> dict[str, Any]:
    """Return how many epochs a result is after; of a run that was ended early, also how many it should have had."""
    early = {"of_epochs": recipe.epochs} if len(rows) < recipe.epochs else {}
    return {"epochs": len(rows), **early}
