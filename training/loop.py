"""The training loop: an epoch is one `fit`, its data order a function of (seed, epoch)."""

import time

import keras
import numpy as np

from keras_highway import weights_file
from keras_highway.applications import create_model
from training.optimizers import PaperSGD
from training.recipe import Recipe
from training.run_folder import RunFolder, write_json, write_whole
from training.sources import open_source


def train(recipe: Recipe, data_dir, out) -> dict:
    """Trains a recipe, resuming the run in `out` if there is one.

    Args:
        recipe: What to train.
        data_dir: Folder of data sets, see `load_dataset`.
        out: The run's folder.

    Returns:
        The result, as written to result.json.
    """
    source = open_source(recipe, data_dir)
    folder = RunFolder(out, recipe.to_dict())
    steps = -(-source.images // recipe.batch_size)
    model, rows = _restore(folder, steps) if folder.checkpoint.exists() else (_new_model(recipe, source, steps), [])
    for epoch in range(len(rows), recipe.epochs):
        _seed_dropout(model, recipe.seed, epoch)
        start = time.perf_counter()
        history = model.fit(**source.epoch(epoch), verbose=0).history
        seconds = time.perf_counter() - start
        test = model.evaluate(**source.test(), verbose=0, return_dict=True)
        rows.append(_row(epoch + 1, model, history, test, seconds, source.images))
        _check_finite(rows[-1], recipe, folder)
        # The log first: a line ahead of its checkpoint is dropped on resume, a missing line could not be made up.
        folder.write_rows(rows)
        write_whole(folder.checkpoint, model.save)
        print(_line(rows[-1], recipe.epochs), flush=True)
    return _finish(recipe, folder, model, rows)


def _new_model(recipe, source, steps) -> keras.Model:
    keras.utils.set_random_seed(recipe.seed)
    model = create_model(recipe.variant, classes=source.classes, classifier_activation=None, **dict(recipe.overrides))
    model.compile(
        PaperSGD(
            _schedule(recipe, steps),
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            l2=recipe.weight_decay,
            bias_multiplier=recipe.bias_multiplier,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def _schedule(recipe, steps):
    if recipe.schedule == "exponential":
        return keras.optimizers.schedules.ExponentialDecay(recipe.learning_rate, steps, recipe.decay, staircase=True)
    boundaries = [round(share * recipe.epochs) * steps for share in recipe.milestones]
    return keras.optimizers.schedules.PiecewiseConstantDecay(
        boundaries, [recipe.learning_rate * 0.1**i for i in range(len(boundaries) + 1)]
    )


def _restore(folder, steps_per_epoch):
    """Returns the last epoch's model, dropout seeds and optimizer included, and the log up to it."""
    model = keras.saving.load_model(folder.checkpoint)
    return model, folder.rows()[: _iterations(model) // steps_per_epoch]


def _seed_dropout(model, seed, epoch) -> None:
    """Makes an epoch's dropout a function of (seed, epoch): Keras does not save the state of its generators."""
    draw = np.random.default_rng((seed, epoch, 1))
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign(np.array([draw.integers(2**31), 0], variable.dtype))


def _iterations(model) -> int:
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def _check_finite(row, recipe, folder) -> None:
    if not np.isfinite(row["train_loss"]):
        raise FloatingPointError(
            f"The loss of {recipe.name} became {row['train_loss']} in epoch {row['epoch']}. The last good epoch is in "
            f"{folder.checkpoint}; a smaller learning rate may help."
        )


def _row(epoch, model, history, test, seconds, images) -> dict:
    return {
        "epoch": epoch,
        "step": _iterations(model),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
        "train_loss": history["loss"][0],
        "train_accuracy": history["accuracy"][0],
        "test_loss": test["loss"],
        "test_accuracy": test["accuracy"],
        "seconds": round(seconds, 2),
        "images_per_second": round(images / seconds, 1),
    }


def _line(row, epochs) -> str:
    return (
        f"epoch {row['epoch']:3d}/{epochs}  loss {row['train_loss']:.4f}  train {100 * row['train_accuracy']:.2f} %  "
        f"test {100 * row['test_accuracy']:.2f} %  rate {row['learning_rate']:.2g}  "
        f"{row['images_per_second']:.0f} images/s  {row['seconds'] * (epochs - row['epoch']) / 60:.0f} min left"
    )


def _finish(recipe, folder, model, rows) -> dict:
    last = {key: float(value) for key, value in rows[-1].items()}
    weights_file.save(model, folder.path / "model.weights.h5", recipe.variant, model.output_shape[-1])
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
        "epochs": recipe.epochs,
        "epoch_reported": "last",
        "train_loss": last["train_loss"],
        **folder.environment(),
    }
    write_json(folder.path / "result.json", result)
    return result
