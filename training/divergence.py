"""Runs of searches and studies, which go on where one of their runs diverges."""

from pathlib import Path

from keras_highway._support.files import atomic_write_json
from keras_highway.training.distributed.stopping import stop_requests
from keras_highway.training.recipe import Recipe

_FILE = "diverged.json"


def has_diverged(folder: Path) -> bool:
    """Whether the run in a folder diverged."""
    return (folder / _FILE).exists()


def train_or_diverge(recipe: Recipe, data_dir, folder: Path, until: int | None = None) -> None:
    """Trains a run, or notes in its folder that it diverged.

    Args:
        recipe: The recipe.
        data_dir: As for `train`.
        folder: The run's folder.
        until: Do not go beyond this epoch now.

    Raises:
        Stopped: A `SystemExit`, if SIGTERM came, also where the run diverged
            before it could stop.
    """
    import keras

    from keras_highway.training.loop import train

    keras.utils.clear_session()
    with stop_requests() as stop, stop.honoured():
        try:
            train(recipe, data_dir, folder, until=until)
        except FloatingPointError as error:
            atomic_write_json(folder / _FILE, {"error": str(error)})
