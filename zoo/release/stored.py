"""Weights stored in float16: half the size, if what was measured of them holds."""

from pathlib import Path

from keras_highway.variants import task_of_variant
from keras_highway.weights.info import FILE, WeightsInfo
from keras_highway.weights.trained import weights_class


def measure(row: WeightsInfo, folder: Path, data_dir) -> float:
    """Measures the metric of a row's weights as they are stored.

    Args:
        row: The weights.
        folder: It holds `model.weights.h5`, and the vocabulary of a language
            model.
        data_dir: Folder of the data sets.
    """
    return weights_class(row.variant).open(row, folder / FILE).measure(data_dir).value


def check_stored(row: WeightsInfo, folder: Path, data_dir, expected: float) -> float:
    """Return the metric of the stored weights.

    Args:
        row: The weights.
        folder: As in `measure`.
        data_dir: As in `measure`.
        expected: The metric of the same weights in float32.

    Raises:
        ValueError: If it is another one.
    """
    actual, metric = measure(row, folder, data_dir), task_of_variant(row.variant).metric
    if not abs(actual - expected) <= metric.rounding:
        raise ValueError(
            f"{row.name}: stored in float16 its test {metric.name} is {actual:.5f}, in float32 {expected:.5f}. "
            "Store it in float32."
        )
    return actual
