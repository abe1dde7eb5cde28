"""The training curve of a log.csv, as a picture."""

import re
from pathlib import Path

from keras_highway._support.files import read_log
from keras_highway.analysis.plots import Curve, draw_training, training_axes, write

CURVE = "curve.png"


def draw_curve(log: Path, path: Path, title: str, metric: str, tested: str = "test") -> None:
    """Draws losses and a metric over the epochs.

    Args:
        log: A `log.csv`: one line per epoch, columns such as `train_loss` and
            `test_accuracy`.
        path: The picture to write.
        title: Text above it.
        metric: What the columns of the metric end in, e.g. `"accuracy"`.
        tested: What the columns named after the test set are of. Defaults to
            `"test"`.

    Raises:
        ValueError: If the log has no epoch, or is not a table of numbers.
    """
    rows = read_log(log)
    if not rows or not all("epoch" in row for row in rows):
        raise ValueError(f"{log} has no epoch, or lines without one.")
    figure, axes = training_axes(2, 5.6)
    for axis, what, scale in zip(axes, ("loss", metric), ("log", "linear"), strict=True):
        columns = [name for name in rows[0] if name.endswith(what)]
        draw_training(axis, [_curve(rows, column, tested) for column in columns], ylabel=what, scale=scale)
    write(figure, path, title)


def _curve(rows, column, tested) -> Curve:
    known = [row for row in rows if column in row]
    label = re.sub("^test ", f"{tested} ", column.replace("_", " "))
    return Curve([row["epoch"] for row in known], [row[column] for row in known], label)
