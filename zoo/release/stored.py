"""Weights stored in float16: half the size, if what was measured of them holds."""

from pathlib import Path

from keras_highway.publishing import weights_class
from keras_highway.weights.info import FILE, WeightsInfo

# How far the metric may move: a hundredth of perplexity; one image of 10,000, and the rounding of such shares.
TOLERANCES = {"test_perplexity": 0.01, "test_accuracy": 0.0001 + 1e-9}


def measure(row: WeightsInfo, folder: Path, data_dir) -> float:
    """Measures the metric of a row's weights as they are stored.

    Args:
        row: The weights.
        folder: It holds `model.weights.h5`, and the vocabulary of a language
            model.
        data_dir: Folder of the data sets.
    """
    return weights_class(row.variant).open(row, folder / FILE).measure(data_dir).value


def check_stored(row: WeightsInfo, folder: Path, data_dir, result: dict) -> float:
    """Returns the metric of the stored weights.

    Raises:
        ValueError: If it is not that of the run.
    """
    actual, expected = measure(row, folder, data_dir), result["values"][0]
    if not abs(actual - expected) <= TOLERANCES[result["metric"]]:
        raise ValueError(
            f"{row.name}: stored in float16 its {result['metric']} is {actual:.5f}, in float32 {expected:.5f}. "
            "Store it in float32."
        )
    return actual
