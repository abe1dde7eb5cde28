"""`evaluate`: accuracy and loss on a test set, beside what was recorded."""

import json

import numpy as np
from tqdm import tqdm

from keras_highway.cli.errors import OK
from keras_highway.cli.sources import Source, find_source_and_data
from keras_highway.cli.tables import measured, percent


def run(arguments) -> int:
    """Prints a line, or JSON; a progress bar on a terminal."""
    source, data = find_source_and_data(arguments.weights, arguments.data_set, arguments.data)
    model = source.model(classifier_activation=None)
    accuracy, loss = measure(source, data.x_test, data.y_test, arguments.batch_size, model)
    same_data = source.result.get("data", source.data) == source.data
    recorded = (
        {key: source.result[key] for key in ("metric", "mean", "std", "n")} if source.result and same_data else None
    )
    if arguments.json:
        report = {"weights": source.weights, "data": source.data, "images": len(data.x_test)}
        print(json.dumps({**report, "accuracy": accuracy, "loss": loss, "recorded": recorded}, indent=2))
        return OK
    where = f"{source.weights} on the {len(data.x_test)} test images of {source.data}"
    print(f"{where}: accuracy {percent(accuracy)}, loss {loss:.4f}")
    if recorded:
        difference = 100 * (accuracy - recorded["mean"])
        print(f"recorded: {measured(recorded)}; here {difference:+.2f} points")
    return OK


def measure(source: Source, images, labels, batch_size: int, model) -> tuple[float, float]:
    """Returns accuracy and mean cross-entropy.

    Args:
        source: The weights; their transform is applied.
        images: Pixels of the test set.
        labels: Their classes.
        batch_size: Images at once.
        model: The weights' network, giving logits.
    """
    hits, loss = 0, 0.0
    with tqdm(total=len(images), unit=" images", disable=None, leave=False) as bar:
        for start in range(0, len(images), batch_size):
            batch, truth = images[start : start + batch_size], labels[start : start + batch_size]
            logits = model.predict_on_batch(source.transform.apply(batch)).astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            log_likelihood = logits[np.arange(len(truth)), truth] - np.log(np.exp(logits).sum(axis=1))
            hits += int((logits.argmax(axis=1) == truth).sum())
            loss -= float(log_likelihood.sum())
            bar.update(len(truth))
    return hits / len(images), loss / len(images)
