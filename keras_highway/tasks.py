"""What networks are for, images or language: one row per task, and how its results are written.

What differs between the two depends on these rows. A spec and a recipe name their
task (`spec.task`, `recipe.task`), and `variants.task_of_variant` returns that of a
variant's name; `publishing.weights_class` and
`keras_highway.training.loop.task_code` select the larger parts of a task's code by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


def plus_minus(mean: str, spread: str = "") -> str:
    """Return numbers as text, e.g. `99.43 ± 0.03`, or the mean alone where there is no spread."""
    return f"{mean} ± {spread}" if spread else mean


class Metric(NamedTuple):
    """What is measured of a network, and how it is written.

    Attributes:
        name: Of the Hub's list of metrics; columns of a `log.csv` end in it.
        scale: What a value is multiplied by to be written.
        unit: What stands behind it then.
        agreement: How far another processor's rounding may move it.
        rounding: How far storing weights in float16 may move it.
        bounds: The least and the largest value that it can have.
        column: Where `list_weights(details=True)` has it.
    """

    name: str
    scale: float
    unit: str
    agreement: float
    rounding: float
    bounds: tuple[float, float]
    column: str

    def format(self, value: float, std: float | None = None) -> str:
        """Return a value as text, e.g. `99.43 ± 0.03 %`."""
        spread = "" if std is None else f"{self.scale * std:.2f}"
        return f"{plus_minus(f'{self.scale * value:.2f}', spread)}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What networks are for.

    Attributes:
        name: Its name.
        inputs: What a network takes, in the plural.
        unit: What is counted in training, in the plural.
        metric: What is measured on the test set.
        files: Names of the files without which a weight file is of no use.
        divides: Whether a batch can be divided among replicas.
    """

    name: str
    inputs: str
    unit: str
    metric: Metric
    files: tuple[str, ...] = ()
    divides: bool = True


IMAGES = Task(
    name="images",
    inputs="images",
    unit="images",
    metric=Metric(
        "accuracy",
        100.0,
        " %",
        agreement=5e-4,  # 5 of 10,000 images may fall on the other side
        rounding=3e-4 + 1e-9,  # one image of 3,925 or three of 10,000, and the rounding of such shares
        bounds=(0, 1),
        column="top1",
    ),
)
LANGUAGE = Task(
    name="language",
    inputs="words",
    unit="tokens",
    metric=Metric("perplexity", 1.0, "", agreement=0.01, rounding=0.01, bounds=(1, 1e12), column="perplexity"),
    files=("vocabulary.json",),
    divides=False,  # the state of its LSTMs goes from step to step
)


def task_of(result: dict[str, Any]) -> Task:
    """Return the task that a result is of.

    Args:
        result: What a result.json holds.
    """
    return LANGUAGE if result["metric"].endswith(LANGUAGE.metric.name) else IMAGES


def measured_on(result: Mapping[str, Any]) -> str:
    """Return what a result was measured on where that is not the whole test set, else `""`.

    `on 5000 held-out training images`, `on 20 of the test images`.

    Args:
        result: What a result.json holds.
    """
    held_out, tested = result.get("holdout_images"), result.get("test_images")
    if held_out:
        return f"on {tested or held_out} held-out training images"
    return f"on {tested} of the test images" if tested else ""


def metric_name(result: Mapping[str, Any], metric: str | None = None) -> str:
    """Return a metric of a result in words, e.g. `test accuracy`, `accuracy on 5000 held-out training images`.

    Args:
        result: What a result.json holds.
        metric: In words as it is of the test set. Defaults to the result's.
    """
    name = str(result.get("metric", "")).replace("_", " ") if metric is None else metric
    on = measured_on(result)
    return f"{name.removeprefix('test ') if result.get('holdout_images') else name} {on}".rstrip()


def is_of(result: Mapping[str, Any], images: int) -> bool:
    """Whether a result is of all images of a test set, so that what is measured on it may be compared.

    Args:
        result: What a result.json holds.
        images: How many images the test set has.
    """
    return not result.get("holdout_images") and (result.get("test_images") or images) >= images


def format_metric(result: dict[str, Any] | None, named: bool = False) -> str:
    """Return a result as text, the same everywhere.

    `99.43 % (n = 1)` of one run, `99.43 ± 0.03 % (n = 3)` of several; a
    perplexity has no unit, and nothing is `not measured`.

    Args:
        result: What a result.json holds, or at least its `metric`, `mean`,
            `std` and `n`.
        named: Bool, whether the metric's name stands before it. Defaults to
            `False`.
    """
    if not result or not result.get("n"):
        return "not measured"
    metric = task_of(result).metric
    name = f"{metric.name} " if named else ""
    return f"{name}{metric.format(result['mean'], result['std'])} (n = {result['n']})"


def format_validation(result: dict[str, Any]) -> str:
    """Return a language model's validation perplexity as text; of several runs it is the first's, whose file this is.

    Args:
        result: What a result.json holds, with `valid_perplexity`.
    """
    text = f"{result['valid_perplexity']:.2f}"
    if result.get("n", 1) == 1:
        return text
    return f"{text} (seed {result['seeds'][0]})" if result.get("seeds") else f"{text} (the first run)"


def value_of_file(result: dict[str, Any]) -> float | None:
    """Return what was measured of the very file that a result is of, `None` if nothing was.

    Of several runs the first gave the file; where it is stored in half
    precision, it was measured once more.

    Args:
        result: What a result.json holds, or some of it.
    """
    stored = result.get("stored", {}).get(result.get("metric"))
    return stored if stored is not None else (result.get("values") or [result.get("mean")])[0]


def of_this_file(result: dict[str, Any]) -> dict[str, float]:
    """Return `value_of_file` as `this_file` where a result is of several runs and it is known, else `{}`."""
    own = value_of_file(result) if result.get("n", 1) > 1 and result.get("values") else None
    return {} if own is None else {"this_file": own}


def format_recorded(recorded: dict[str, Any]) -> tuple[str, float]:
    """Return a result as text, and the number in it with which a measurement of its file is to be compared.

    That is the mean; of several runs the one that gave the file, if it is
    known: the text names it then.

    Args:
        recorded: What `format_metric` takes, and `this_file`, if it has one.
    """
    if "this_file" not in recorded:
        return format_metric(recorded), recorded["mean"]
    own = recorded["this_file"]
    return f"{format_metric(recorded)}, this file {task_of(recorded).metric.format(own)}", own
