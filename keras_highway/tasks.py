"""The tasks of networks, images and language, and the text form of their results.

A spec and a recipe name their task (`spec.task`, `recipe.task`). `variants.task_of_variant` returns it for a variant's
name. `weights.trained.weights_class` and `training.loop.task_code` select the code of a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


def plus_minus(mean: str, spread: str = "") -> str:
    """Return numbers as text, e.g. `99.43 ± 0.03`, or the mean alone without a spread."""
    return f"{mean} ± {spread}" if spread else mean


class Metric(NamedTuple):
    """The measured metric of a network."""

    name: str  # its name in the Hub's list of metrics; columns of a `log.csv` end in it
    scale: float  # factor on a value in texts
    unit: str  # the unit behind it in texts
    agreement: float  # largest difference that another processor's rounding may make
    rounding: float  # largest difference that storing weights in float16 may make
    bounds: tuple[float, float]  # the least and the largest possible value
    column: str  # its column in `list_weights(details=True)`

    def format(self, value: float, std: float | None = None) -> str:
        """Return a value as text, e.g. `99.43 ± 0.03 %`."""
        spread = "" if std is None else f"{self.scale * std:.2f}"
        return f"{plus_minus(f'{self.scale * value:.2f}', spread)}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of networks."""

    name: str  # its name
    inputs: str  # the inputs of a network, in the plural
    unit: str  # the counted unit of training, in the plural
    metric: Metric  # the metric on the test set
    files: tuple[str, ...] = ()  # names of files that a weight file needs
    divides: bool = True  # whether a batch can be divided among replicas


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


def task_of(result: Mapping[str, Any]) -> Task:
    """Return the task of a result.json."""
    return LANGUAGE if result["metric"].endswith(LANGUAGE.metric.name) else IMAGES


def measured_on(result: Mapping[str, Any]) -> str:
    """Return `on 5000 held-out training images` or `on 20 of the test images`; `""` for the whole test set."""
    held_out, tested = result.get("holdout_images"), result.get("test_images")
    if held_out:
        return f"on {tested or held_out} held-out training images"
    return f"on {tested} of the test images" if tested else ""


def metric_name(result: Mapping[str, Any], metric: str | None = None) -> str:
    """Return a metric of a result in words, e.g. `test accuracy`, `accuracy on 5000 held-out training images`."""
    name = str(result.get("metric", "")).replace("_", " ") if metric is None else metric
    on = measured_on(result)
    return f"{name.removeprefix('test ') if result.get('holdout_images') else name} {on}".rstrip()


def is_of(result: Mapping[str, Any], images: int) -> bool:
    """Whether a result is of all images of a test set of that many images, so that it can be compared."""
    return not result.get("holdout_images") and (result.get("test_images") or images) >= images


def format_metric(result: Mapping[str, Any] | None, named: bool = False) -> str:
    """Return a result as text: `99.43 % (n = 1)`, `99.43 ± 0.03 % (n = 3)` or `not measured`."""
    if not result or not result.get("n"):
        return "not measured"
    metric = task_of(result).metric
    name = f"{metric.name} " if named else ""
    return f"{name}{metric.format(result['mean'], result['std'])} (n = {result['n']})"


def format_validation(result: Mapping[str, Any]) -> str:
    """Return a language model's validation perplexity as text; of several runs, the first one gave the file."""
    text = f"{result['valid_perplexity']:.2f}"
    if result.get("n", 1) == 1:
        return text
    return f"{text} (seed {result['seeds'][0]})" if result.get("seeds") else f"{text} (the first run)"


def value_of_file(result: Mapping[str, Any]) -> float | None:
    """Return the metric of the very file of a result, of the first of several runs; `None` if it was not measured."""
    stored = result.get("stored", {}).get(result.get("metric"))
    return stored if stored is not None else (result.get("values") or [result.get("mean")])[0]


def of_this_file(result: Mapping[str, Any]) -> dict[str, float]:
    """Return `value_of_file` as `this_file` if a result is of several runs and it is known, else `{}`."""
    own = value_of_file(result) if result.get("n", 1) > 1 and result.get("values") else None
    return {} if own is None else {"this_file": own}


def format_recorded(recorded: Mapping[str, Any]) -> tuple[str, float]:
    """Return a result as text, and the number in it to compare with a measurement of its file."""
    if "this_file" not in recorded:
        return format_metric(recorded), recorded["mean"]
    own = recorded["this_file"]
    return f"{format_metric(recorded)}, this file {task_of(recorded).metric.format(own)}", own
