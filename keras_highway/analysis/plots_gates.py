"""Pictures of the gates over a data set: arrays in, a matplotlib figure out."""

import numpy as np

from keras_highway.analysis.plots import draw_maps, draw_panels, figure_class, robust_limits, write


def plot_gate_summary(bias, activity, traces, path=None, *, sample=0, title=None):
    """Draws biases, mean gates, one sample's gates and its outputs, block by unit [TVDN, Figure 2].

    Args:
        bias: What `gate_bias(model)` returned: dict from block to `(units,)`.
        activity: What `gate_activity(model, data)` returned.
        traces: What `trace(model, x)` returned.
        path: Optional file to write.
        sample: Int, which sample of the traces. Defaults to `0`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the blocks are not fully connected, all of one width.
    """
    outputs = {name: entry.y[sample] for name, entry in traces.items()}
    gates = {name: entry.t[sample] for name, entry in traces.items()}
    tables = [_table(part) for part in (bias, activity.mean, gates, outputs)]
    limit = float(np.percentile(np.abs(tables[3]), 99)) or 1.0
    top = float(np.percentile(tables[1], 99.5))  # on a scale to 1 most means would be one colour
    panels = (
        ("gate bias", tables[0], "viridis", *robust_limits(tables[0]), "both"),
        (f"mean gate t, {activity.samples} samples", tables[1], "viridis", 0, top, "max"),
        ("gate t, one sample", tables[2], "viridis", 0, 1, "neither"),
        ("block output y, one sample", tables[3], "RdBu_r", -limit, limit, "both"),
    )
    figure = figure_class()(figsize=(13.5, 3.8), layout="constrained")
    draw_panels(figure, figure.subplots(1, 4), panels)
    return write(figure, path, title)


def plot_routing(routing, classes=None, path=None, *, title=None):
    """Draws how the gates of some classes differ from the mean over all samples [TVDN, Figure 3].

    Args:
        routing: What `gate_routing(model, data)` returned, of a fully
            connected net.
        classes: Which classes. Defaults to the first two.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If a class is not in the data, or the blocks are not fully
            connected, all of one width.
    """
    known = routing.classes.tolist()
    chosen = known[:2] if classes is None else list(classes)
    unknown = [k for k in chosen if k not in known]
    if unknown or not chosen:
        raise ValueError(f"The data have the classes {known}. Received: classes={chosen}")
    tables = {k: _table({name: d[known.index(k)] for name, d in routing.difference.items()}) for k in chosen}
    limit = float(np.percentile(np.abs(np.stack(list(tables.values()))), 99.5)) or 1.0
    panels = [
        (f"class {k}: mean t − overall mean", table, "RdBu_r", -limit, limit, "both") for k, table in tables.items()
    ]
    figure = figure_class()(figsize=(3.4 * len(chosen) + 0.6, 3.8), layout="constrained")
    draw_panels(figure, figure.subplots(1, len(chosen), squeeze=False)[0], panels)
    return write(figure, path, title)


def plot_gate_maps(activity, path=None, *, scale=None, title=None):
    """Draws where in the image the gates of a convolutional net open: the mean over samples and channels.

    Args:
        activity: What `gate_activity(model, data)` returned.
        path: Optional file to write.
        scale: Pair (lowest, highest) of the colour scale. Defaults to `None`:
            from the 1st to the 99th percentile over all blocks.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the blocks are not convolutional.
    """
    shapes = {mean.shape for mean in activity.mean.values()}
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"Maps are of convolutional nets. Received: gates of shapes {sorted(shapes)}")
    return write(draw_maps(activity.mean, "t, mean over samples and channels", scale=scale), path, title)


def _table(vectors) -> np.ndarray:
    """Rows of blocks, columns of units."""
    shapes = {np.shape(vector) for vector in vectors.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(
            "This picture has a row a block and a column a unit, so all blocks must be fully connected and of one "
            f"width (plot_gate_maps is for images). Received: shapes {sorted(shapes)}"
        )
    return np.stack(list(vectors.values()))
