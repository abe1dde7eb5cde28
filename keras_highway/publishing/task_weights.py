"""What publishing requires of trained weights, whatever their task; `by_task.py` names the class that answers."""

import abc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import keras
import numpy as np

from keras_highway.analysis import Tracer, blocks
from keras_highway.applications import get_spec
from keras_highway.gating import get_gating
from keras_highway.layers.blocks import channel_axis
from keras_highway.tasks import Task, value_of_file
from keras_highway.weights.info import WeightsInfo

_GATE = "gate/"


class Measured(NamedTuple):
    """A metric, measured.

    Attributes:
        value: The number.
        where: In words, e.g. `"on the 10000 test images of mnist"`.
        samples: How many images or words these are.
    """

    value: float
    where: str
    samples: int


class CardParts(NamedTuple):
    """The parts of a model card that depend on the task.

    Attributes:
        task: The Hub's name of the task.
        task_name: The same in words, `None` where the Hub's name suffices.
        data: The Hub's name of the data set, `""` where it has none.
        data_name: The same in words.
        language: Of the text, `None` of images.
        kind: What the network is, e.g. `"highway network"`.
        example: How to use it, as Python.
        by_name: The call that loads weights of the table.
        alone: What to know of the network that Keras loads by itself.
        knows: A row of the table: a label, and what classes or words it knows.
        input: What goes into it.
        details: More rows of the table: labels and texts.
        conditions: Of the measurement, for machines.
    """

    task: str
    task_name: str | None
    data: str
    data_name: str
    language: str | None
    kind: str
    example: str
    by_name: str
    alone: str
    knows: tuple[str, str]
    input: str
    details: tuple[tuple[str, str], ...]
    conditions: dict[str, Any]


def gating_of(row: WeightsInfo) -> str:
    """Return the gating of weights: the variant's, or the one that replaced it."""
    return row.overrides.get("gating", get_spec(row.variant).gating)


def kind_of(row: WeightsInfo) -> str:
    """Return what a network with this gating is called: `"plain"`, `"residual"` or, with gates, `"highway"`."""
    gating = gating_of(row)
    return gating if gating in ("plain", "residual") else "highway"


def details_of(metrics: Mapping[str, Any], in_words: Callable[[float], str]) -> Iterator[tuple[str, str]]:
    """Yield rows of a card's table: how the network was computed in training, and what its file gives by itself.

    Args:
        metrics: What was measured.
        in_words: Function from the metric's value to a phrase, `"test accuracy 99.38 %"`.
    """
    if "precision" in metrics:
        products = metrics["precision"].removeprefix("mixed_")
        yield "precision", f"trained with products in {products}, gates and what is carried on in float32"
    stored = metrics.get("stored", {})
    if (value := stored.get(metrics.get("metric"))) is not None:
        yield "this file", f"weights in {stored.get('dtype', 'another precision')}: {in_words(value)}"
    elif not stored and metrics.get("n", 1) > 1 and metrics.get("seeds") and metrics.get("values"):
        yield "this file", f"the run with seed {metrics['seeds'][0]}: {in_words(metrics['values'][0])}"


class TaskWeights(abc.ABC):
    """Trained weights, loaded, and all that publishing does differently by task.

    Args:
        row: The weights.
        network: Their network; it gives logits.

    Attributes:
        task: Their task.
        inputs: The arrays of a `check.npz` that the network is run on.
    """

    task: ClassVar[Task]
    inputs: ClassVar[tuple[str, ...]]

    def __init__(self, row: WeightsInfo, network: keras.Model):
        self.row, self.network = row, network

    @classmethod
    @abc.abstractmethod
    def open(cls, row: WeightsInfo, path: Path) -> Self:
        """Load the weights of a row from a file, with the files that must lie beside it.

        Raises:
            ValueError: If the file does not fit the row's variant.
        """

    @classmethod
    @abc.abstractmethod
    def new_row(cls, result: dict[str, Any], stamp: dict[str, Any]) -> WeightsInfo:
        """Return the row of weights that are not in the table.

        Args:
            result: What their result.json holds.
            stamp: The metadata in their file.

        Raises:
            ValueError: If the data set is unknown.
        """

    @classmethod
    @abc.abstractmethod
    def card(cls, row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
        """Return the parts of a row's card.

        Args:
            row: The weights.
            loaded_by: What `kh.load` takes: `hf://org/name`, or a folder.
            recipe: What trained them, as JSON values.
        """

    @abc.abstractmethod
    def with_softmax(self) -> keras.Model:
        """Return a network that gives probabilities, with random weights: what Keras's `config.json` describes."""

    @abc.abstractmethod
    def example(self) -> dict[str, np.ndarray]:
        """Return some input for a `check.npz`, the same each time."""

    @abc.abstractmethod
    def computed(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what a `check.npz` records of an input: `"logits"`, and by channel the mean of each learned gate.

        Raises:
            ValueError: If it is not an input of the network.
        """

    @abc.abstractmethod
    def measure(self, data_dir=None, batch_size: int = 500) -> Measured:
        """Measures the metric on the test set.

        Args:
            data_dir: Folder of the data sets. Defaults to the value of
                `KERAS_HIGHWAY_DATA`.
            batch_size: Images at once. Defaults to `500`.

        Raises:
            FileNotFoundError: If the data are missing.
            ValueError: If they are not what the weights were trained on.
        """

    @abc.abstractmethod
    def gate_report(self, data_dir=None) -> dict[str, Any]:
        """Measures how far the gates open: what a `gates.json` holds.

        Args:
            data_dir: Folder of the data sets, for those that need one.

        Returns:
            `{"samples": n, "of": what they are, "blocks": {block name:
            {"t" or "c": {"mean": ..., "variance": ...}}}}`, the gates that
            are learned; without `"of"` they are test samples.

        Raises:
            FileNotFoundError: If the data are needed and missing.
            ValueError: If no block learns a gate.
        """

    def traced(self, inputs) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the network's logits for an input, and the mean by channel of each gate that a block learns."""
        try:
            traces = Tracer(self.network)(inputs, carry=True)
        except ValueError:  # the nets of 1000 layers run them in a scan and have no blocks
            return np.asarray(keras.ops.convert_to_numpy(self.network(inputs, training=False))), {}
        gates, known = {}, blocks(self.network)
        for name, entry in traces.items():
            for which in get_gating(known[name.split(":")[0]].gating).learned_gates:
                gates[f"{_GATE}{name}/{which}"] = _by_channel(np.broadcast_to(getattr(entry, which), entry.x.shape))
        return np.asarray(traces.output), gates


def _by_channel(gate: np.ndarray) -> np.ndarray:
    channels = channel_axis(keras.config.image_data_format()) % gate.ndim if gate.ndim == 4 else gate.ndim - 1
    return gate.mean(axis=tuple(k for k in range(gate.ndim) if k != channels)).astype("float32")


def recorded(row: WeightsInfo) -> float | None:
    """Return what was measured of the very file of a row, `None` if nothing was (`value_of_file`)."""
    return value_of_file(dict(row.metrics))
