"""The report of one network: facts, then one section per analysis."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
from tqdm import tqdm

from keras_highway import analysis
from keras_highway.analysis.cost import adapted_weights, parameters_of
from keras_highway.reporting import depth, gates
from keras_highway.reporting.section import ReportInput, Section

SECTIONS = (gates.gates, gates.routing, depth.lesions, depth.orders, depth.estimation, depth.trimming)
FEWEST, MOST = 50, 1000  # images
_MULTIPLY_ADDS = 4e11  # of all analyses together: below a minute on one core


class Report(NamedTuple):
    """A network, measured.

    Attributes:
        title: What was measured.
        facts: Dict from what to value, e.g. `"accuracy"`.
        sections: The analyses.
    """

    title: str
    facts: dict[str, str | int | float]
    sections: tuple[Section, ...]


def default_samples(model) -> int:
    """Returns how many images keep all analyses of a network below about a minute on one core: from 50 to 1000.

    50 where its cost is not known, as of a network for images of any size.

    Args:
        model: See `make_report`.

    Raises:
        ValueError: If the model has no blocks.
    """
    blocks, multiply_adds = len(analysis.blocks(model)), _multiply_adds(model)
    if multiply_adds is None:
        return FEWEST
    passes = 2 * blocks * multiply_adds
    return int(np.clip(_MULTIPLY_ADDS / passes, FEWEST, MOST))


def make_report(
    model,
    data,
    title,
    *,
    transform: Callable | None = None,
    classes: Sequence[str] | None = None,
    samples: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Measures a network on some images of a data set.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (images, labels) of arrays or the backend's tensors.
        title: What to call the report.
        transform: Function from a batch of images to the model's input.
        classes: Names of the classes. Defaults to their numbers.
        samples: Int, how many images, drawn at random. Defaults to
            `default_samples`.
        seed: Int, of the draw. Defaults to `0`.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `Report`.

    Raises:
        ValueError: If the model has no blocks, the data are empty, unlabelled
            or of another shape, or a label has no name in `classes`.
    """
    to_numpy = keras.ops.convert_to_numpy
    images, labels = (x if x is None else np.asarray(to_numpy(x) if keras.ops.is_tensor(x) else x) for x in data)
    if labels is None or not len(images) or len(images) != len(labels) or (samples is not None and samples < 1):
        raise ValueError(
            "A report needs images, a label for each, and at least one sample. Received: "
            f"{len(images)} images, {'no' if labels is None else len(labels)} labels, samples={samples}"
        )
    numbers = np.issubdtype(np.asarray(labels).dtype, np.integer)  # of others the analyses say what labels are
    if classes is not None and numbers and np.max(labels) >= len(classes):
        raise ValueError(
            f"`classes` must have a name for each label. Received: {len(classes)} names, labels up to {np.max(labels)}"
        )
    known = analysis.blocks(model)
    if np.ndim(labels) == 2 and labels.shape[1] == 1 and len(model.output_shape) == 2:
        labels = labels[:, 0]  # as Keras's CIFAR has them
    multiply_adds = _multiply_adds(model)
    samples = default_samples(model) if samples is None else samples
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:samples])
    names = tuple(map(str, range(int(np.max(labels)) + 1)) if classes is None else classes)
    inputs = ReportInput(model, images[chosen], labels[chosen], transform, names)
    with tqdm(total=1 + len(SECTIONS), unit=" sections", leave=False, disable=None if progress else True) as bar:
        bar.set_description("accuracy")
        accuracy, loss, count = analysis.score(model, [{}], inputs.data, **inputs.options)
        sections = []
        for make in SECTIONS:
            bar.update()
            bar.set_description(make.__name__)
            sections.append(make(inputs))
    weights, adapted = {id(weight): weight for weight in model.weights}, adapted_weights(model)
    facts: dict[str, str | int | float] = {
        "network": model.name,
        "gating": ", ".join(sorted({block.gating for block in known.values()})),
        "blocks": len(known),
        "parameters": parameters_of(weight for key, weight in weights.items() if key not in adapted),
        "multiply_adds": "unknown" if multiply_adds is None else multiply_adds,
        "images": count,
        "accuracy": float(accuracy[0]),
        "loss": float(loss[0]),
    }
    return Report(title, facts, tuple(sections))


def _multiply_adds(model) -> int | None:
    """Those of one image, or `None` where they cannot be counted: images of any size, layers of unknown kinds."""
    try:
        return analysis.cost(model).total.multiply_adds
    except ValueError:
        return None
