"""What a finished run leaves: weights, and result.json."""

from typing import Any

from keras_highway._support.files import atomic_write_json
from keras_highway.weights import file as weights_file
from training.distributed.strategy import Strategy
from training.program import Program
from training.runs.run_folder import RunFolder


def finish(program: Program, strategy: Strategy, folder: RunFolder, rows: list[dict]) -> dict:
    """Writes the weights and the result of a finished run.

    Args:
        program: Its variables.
        strategy: Its devices; the chief writes.
        folder: Its folder.
        rows: Its log.

    Returns:
        The result: metric, n, mean, std, seeds, and where it was measured.
    """
    recipe, last = program.recipe, {key: float(value) for key, value in rows[-1].items()}
    result = {
        "weights": recipe.weights,
        "variant": recipe.variant,
        "data": recipe.data,
        "metric": "test_accuracy",
        "n": 1,
        "mean": last["test_accuracy"],
        "std": None,
        "seeds": [recipe.seed],
        "values": [last["test_accuracy"]],
        **epochs(recipe, rows),
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
            folder.drop_result()  # written last, it says that the weights are its own
            weights_file.save(
                program.net,
                folder.path / "model.weights.h5",
                recipe.variant,
                program.classes,
                transform=recipe.transform,
            )
            atomic_write_json(folder.result, result)
    return result


def epochs(recipe, rows: list[dict]) -> dict[str, Any]:
    """Returns how many epochs a result is after; of a run that was ended early, also how many it should have had."""
    early = {"of_epochs": recipe.epochs} if len(rows) < recipe.epochs else {}
    return {"epochs": len(rows), **early}
