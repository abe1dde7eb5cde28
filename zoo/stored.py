"""Weights stored in float16: half the size, if what was measured of them holds."""

from pathlib import Path

import numpy as np

import keras_highway as kh
from keras_highway.data import load_dataset
from keras_highway.data.ptb import load_corpus
from keras_highway.weights_row import FILE, WeightsRow

# How far the metric may move: a hundredth of perplexity; one image of 10,000, and the rounding of such shares.
TOLERANCES = {"test_perplexity": 0.01, "test_accuracy": 0.0001 + 1e-9}


def measure(row: WeightsRow, folder: Path, data_dir) -> float:
    """Measures the metric of a row's weights as they are stored.

    Args:
        row: The weights.
        folder: It holds `model.weights.h5`, and the vocabulary of a language
            model.
        data_dir: Folder of the data sets.
    """
    if row.transform is None:
        model, corpus = kh.CharLM(weights=folder), load_corpus(data_dir)
        if corpus.vocabulary != model.vocabulary:
            raise ValueError(f"The corpus in {data_dir} is not the one that {row.name!r} was trained on: other words.")
        return model.perplexity(corpus.test)
    data = load_dataset(row.data, data_dir)
    model = kh.create_model(row.variant, weights=str(folder / FILE), classes=len(row.classes))
    hits = 0
    for first in range(0, len(data.x_test), 500):
        images, labels = (split[first : first + 500] for split in (data.x_test, data.y_test))
        hits += int(np.sum(model.predict_on_batch(row.transform.apply(images)).argmax(axis=1) == labels))
    return hits / len(data.x_test)


def check_stored(row: WeightsRow, folder: Path, data_dir, result: dict) -> float:
    """Returns the metric of the stored weights.

    Raises:
        ValueError: If it is not that of the run.
    """
    found, wanted = measure(row, folder, data_dir), result["values"][0]
    if not abs(found - wanted) <= TOLERANCES[result["metric"]]:
        raise ValueError(
            f"{row.name}: stored in float16 its {result['metric']} is {found:.5f}, in float32 {wanted:.5f}. "
            "Store it in float32."
        )
    return found
