"""`verify`: a repository of the Hub, downloaded anew and computed again."""

from keras_highway._support.terminal import visible
from keras_highway.cli.errors import OK, SOME_FAILED, usage_errors
from keras_highway.publishing import recorded, verify
from keras_highway.tasks import is_of, measured_on


def run(arguments) -> int:
    """Prints what was verified; with data, the metric measured again."""
    with usage_errors():
        verification = verify(arguments.repository)
    weights, row, metric = verification.weights, verification.row, verification.weights.task.metric
    print(
        f"{arguments.repository}: {visible(row.name)}, sha256 {row.sha256[:12]}..., "
        "model.safetensors and check.npz are right"
    )
    print(f"largest difference from check.npz: {verification.difference:.1e}")
    if arguments.data is None:
        return OK
    with usage_errors():
        measured = weights.measure(arguments.data, arguments.batch_size)
    before = recorded(row)
    if before is not None and not is_of(row.metrics, measured.samples):
        print(
            f"{metric.name} {visible(measured.where)}: {metric.format(measured.value)}, recorded "
            f"{measured_on(row.metrics)}: {metric.format(before)}; not compared"
        )
        return OK
    if before is None:
        print(
            f"{metric.name} {visible(measured.where)}: {metric.format(measured.value)}; none is recorded: not compared"
        )
        return OK
    right = abs(measured.value - before) <= metric.agreement
    print(
        f"{metric.name} {visible(measured.where)}: {metric.format(measured.value)}, recorded: "
        f"{metric.format(before)}{'' if right else ': DIFFERENT'}"
    )
    return OK if right else SOME_FAILED
