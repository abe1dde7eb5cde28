"""The training curve of a log.csv, as a picture."""

import csv
from pathlib import Path

CURVE = "curve.png"


def draw_curve(log: Path, path: Path, title: str, metric: str) -> None:
    """Draws losses and a metric over the epochs.

    Args:
        log: A `log.csv`: a line an epoch, columns such as `train_loss` and
            `test_accuracy`.
        path: The picture to write.
        title: Text above it.
        metric: What the columns of the metric end in, e.g. `"accuracy"`.

    Raises:
        ValueError: If the log has no epoch.
    """
    from matplotlib.figure import Figure

    with log.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(f"{log} has no epoch.")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, what, scale in zip(figure.subplots(1, 2), ("loss", metric), ("log", "linear"), strict=True):
        for column in (name for name in rows[0] if name and name.endswith(what)):
            known = [(int(row["epoch"]), float(row[column])) for row in rows if row[column]]
            axes.plot(*zip(*known, strict=True), label=column.replace("_", " "))
        axes.set(xlabel="epoch", ylabel=what, yscale=scale)
        axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=110, metadata={"Software": None})  # the same log gives the same file
