"""`summary`: what a network costs, stage by stage."""

from keras_highway._support.schema import parse_setting
from keras_highway._support.terminal import json_text
from keras_highway.analysis import cost
from keras_highway.applications import create_model, get_spec
from keras_highway.cli.errors import OK, UsageError, usage_errors
from keras_highway.cli.tables import size, table
from keras_highway.tasks import IMAGES

_HEADERS = ("stage", "parameters", "multiply-adds", "activation memory")


def run(arguments) -> int:
    """Prints a table, or JSON."""
    with usage_errors():
        overrides = dict(map(parse_setting, arguments.overrides))
        if (task := get_spec(arguments.variant).task) is not IMAGES:
            raise UsageError(f"{arguments.variant} reads {task.inputs}, not images: `list` shows its parameters.")
        shape = tuple(arguments.input_shape) if arguments.input_shape else None
        model = create_model(arguments.variant, input_shape=shape, **overrides)
    costs = cost(model)
    if arguments.json:
        report = {"variant": arguments.variant, "input_shape": model.input_shape[1:]}
        print(json_text({**report, "stages": [row._asdict() for row in (*costs, costs.total)]}))
        return OK
    rows = [
        (row.stage, f"{row.parameters:,}", f"{row.multiply_adds:,}", f"{row.activation_bytes / 2**20:,.2f} MiB")
        for row in (*costs, costs.total)
    ]
    print(f"{arguments.variant}, one image of {size(model.input_shape[1:])}\n")
    print(table(_HEADERS, rows, right=_HEADERS[1:]))
    return OK
