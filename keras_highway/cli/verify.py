"""`verify`: a repository of the Hub, downloaded anew and computed again."""

from keras_highway.cli.errors import OK, SOME_FAILED, usage_errors
from keras_highway.cli.evaluate import measure
from keras_highway.cli.sources import Source
from keras_highway.cli.tables import percent
from keras_highway.data import load_dataset
from keras_highway.publishing import verify

_AGREEMENT = 5e-4  # of accuracy: 5 of 10,000 images may fall on the other side with another processor's rounding


def run(arguments) -> int:
    """Prints what was found right; with data, the metric measured again."""
    with usage_errors():
        found = verify(arguments.repository)
    row = found.row
    print(f"{arguments.repository}: {row.name}, sha256 {row.sha256[:12]}..., twin and check.npz are right")
    print(f"largest difference from check.npz: {found.difference:.1e}")
    if arguments.data is None:
        return OK
    with usage_errors():
        data = load_dataset(row.data, arguments.data)
    source = Source(arguments.repository, row.data, row.images, (), {})
    accuracy, _ = measure(source, data.x_test, data.y_test, arguments.batch_size, found.model)
    values = row.metrics.get("values") or [row.metrics.get("mean")]
    right = values[0] is not None and abs(accuracy - values[0]) <= _AGREEMENT
    print(
        f"accuracy on the {len(data.x_test)} test images of {row.data}: {percent(accuracy)}, recorded: "
        f"{percent(values[0]) if values[0] is not None else 'nothing'}{'' if right else ': DIFFERENT'}"
    )
    return OK if right else SOME_FAILED
