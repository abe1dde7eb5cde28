"""Trained weights, loaded, with the parts of publishing that depend on their task: check, test metric, gate report."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import keras
import numpy as np

from keras_highway._support.files import read_npz
from keras_highway._support.keras_models import channels_last
from keras_highway._support.schema import refuse, reworded
from keras_highway.analysis import Tracer, blocks
from keras_highway.analysis.scores import check_images, measure
from keras_highway.analysis.trace import Moments, kept_state
from keras_highway.applications import build_with, create_model, get_spec
from keras_highway.data.datasets import DATA_VARIABLE, DATASETS, FOLDERS, load_dataset
from keras_highway.data.ptb import load_corpus
from keras_highway.data.transforms import TRANSFORMS, Transform
from keras_highway.data.vocabulary import END_OF_SENTENCE
from keras_highway.gating import get_gating
from keras_highway.language import CharLM
from keras_highway.layers.blocks import channel_axis
from keras_highway.models.char_lm import reset_state, word_part
from keras_highway.tasks import IMAGES, LANGUAGE, Task, value_of_file
from keras_highway.weights.card import CORPORA, classes_of
from keras_highway.weights.describe import image_shape
from keras_highway.weights.info import WeightsInfo
from keras_highway.weights.load import stated_overrides
from keras_highway.weights.registry import language_row
from keras_highway.weights.sources import resolve

if TYPE_CHECKING:
    from keras_highway.data.photographs import PhotographSet

CHECK = "check.npz"
TOLERANCE = 1e-4
_LARGEST = 2**26  # bytes of all arrays of a check.npz
_MOST_SAMPLES = 256
_PHOTOGRAPHS = 50  # at once
_WORDS, _CALLS, _BATCH = 8, 2, 500


class Measured(NamedTuple):
    """A metric, measured."""

    value: float  # the number
    where: str  # in words, e.g. `"on the 10000 test images of mnist"`
    samples: int  # number of images or words


class TaskWeights:
    """Trained weights of a task, loaded."""

    task: ClassVar[Task]
    inputs: ClassVar[tuple[str, ...]]

    def __init__(self, row: WeightsInfo, network: keras.Model):
        self.row, self.network = row, network

    def traced(self, inputs: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the network's logits for an input, and the mean by channel of each gate that a block learns."""
        try:
            traces = Tracer(self.network)(inputs, carry=True)
        except ValueError:  # the nets of 1000 layers run them in a scan and have no blocks
            return np.asarray(keras.ops.convert_to_numpy(self.network(inputs, training=False))), {}
        gates, known = {}, blocks(self.network)
        for name, entry in traces.items():
            for which in get_gating(known[name.split(":")[0]].gating).learned_gates:
                gate = np.broadcast_to(getattr(entry, which), entry.x.shape)
                channels = channel_axis(keras.config.image_data_format()) % gate.ndim if gate.ndim == 4 else -1
                others = tuple(axis for axis in range(gate.ndim) if axis != channels % gate.ndim)
                gates[f"gate/{name}/{which}"] = gate.mean(axis=others).astype("float32")
        return np.asarray(traces.output), gates


class ClassifierWeights(TaskWeights):
    """Weights of an image network."""

    task = IMAGES
    inputs = ("pixels",)

    @classmethod
    def open(cls, row: WeightsInfo, path: Path) -> "ClassifierWeights":
        """Load the weights of a row from a file."""
        head = {"classes": len(row.classes), "classifier_activation": None}
        return cls(row, create_model(row.variant, str(path), dtype="float32", **head))  # whatever the global policy

    @classmethod
    def new_row(cls, result: dict[str, Any], stamp: dict[str, Any]) -> WeightsInfo:
        """Return the record of a run's weights; classes are numbered where neither result nor data set names them."""
        data, classes = result.get("data", ""), stamp["classes"]
        transform = stamp.get("transform") or data
        if transform not in TRANSFORMS:
            raise ValueError(f"The preprocessing of the training images is unknown. Received: data {data!r}")
        known = (tuple(result.get("class_names", ())), classes_of(data))
        return WeightsInfo(
            name=result["weights"],
            variant=result["variant"],
            data=data,
            recipe=result["weights"].split(".")[0],
            classes=next((names for names in known if len(names) == classes), tuple(map(str, range(classes)))),
            transform=TRANSFORMS[transform],
            overrides=stamp.get("overrides", {}),
            removed=tuple(stamp.get("removed", ())),
            activation=stamp.get("activation", "softmax"),
        )

    def blank(self) -> keras.Model:
        """Return the network with random weights, and its own activation: the one in Keras's `config.json`."""
        form = dict(self.row.overrides)
        form.pop("input_shape", None)  # the inputs have it
        shape = image_shape(self.network)
        with channels_last():  # as the card has it
            inputs = keras.Input(shape, name="images", dtype="float32")  # Keras would number it
            form |= {"input_tensor": inputs, "classes": len(self.row.classes), "dtype": "float32"}
            form["classifier_activation"] = self.row.activation
            return build_with(self.row.variant, None, tuple(self.row.removed), **form)

    def example(self) -> dict[str, np.ndarray]:
        """Return a smooth picture and its mirror image: noise would look alike to every pooling layer."""
        transform = self.row.images
        height, width = transform.size
        y, x = np.mgrid[0:height, 0:width] / max(height, width)
        waves = [127.5 * (1 + np.sin(9 * x * (c + 1) + 7 * y)) for c in range(transform.channels)]
        picture = np.stack(waves, axis=-1).astype("uint8")
        return {"pixels": np.stack([picture, picture[:, ::-1]])}

    def computed(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the logits of an input, and by channel the mean of each learned gate."""
        images = self.row.images.apply(inputs["pixels"])
        logits, gates = self.traced(np.moveaxis(images, -1, channel_axis(keras.config.image_data_format())))
        return {"logits": logits, **gates}

    def measure(self, data_dir: Any = None, batch_size: int = 500) -> Measured:
        """Measure the accuracy on the test set."""
        if self.row.data not in DATASETS:
            return self._measure_photographs(data_dir, min(batch_size, _PHOTOGRAPHS))
        from keras_highway.data.photographs import relabelled  # Pillow: importing the package does without

        data = relabelled(f"{self.row.data}.npz", load_dataset(self.row.data, data_dir), self.row.classes)
        check_images(self.network, data.x_test, self.row.data)
        accuracy, _ = measure(
            self.network,
            (data.x_test, data.y_test),
            batch_size=batch_size,
            transform=self.row.images.apply,
            progress=sys.stderr.isatty(),
        )
        images = len(data.x_test)
        return Measured(accuracy, f"on the {images} test images of {self.row.data}", images)

    def gate_report(self, data_dir: Any = None) -> dict[str, Any]:
        """Measure mean and variance of the learned gates over the test set, for a `gates.json`."""
        transform = self.row.images
        if self.row.data in DATASETS:
            return gate_report(self.network, transform, load_dataset(self.row.data, data_dir).x_test)
        from keras_highway.data.photographs import read_all  # Pillow: importing the package does without

        photographs = self._photographs(data_dir)
        batches = (transform.apply(batch.pixels) for batch in read_all(photographs, transform, _PHOTOGRAPHS))
        return {"samples": photographs.images, "blocks": gate_moments(self.network, batches)}

    def _photographs(self, data_dir: Any) -> "PhotographSet":
        from keras_highway.data.photographs import data_test_set, folder_test_set, holds_photographs

        folder, classes = data_dir or os.environ.get(DATA_VARIABLE), self.row.classes
        if self.row.data in FOLDERS:
            return data_test_set(self.row.data, data_dir, len(classes), classes)
        if not holds_photographs(folder):
            raise ValueError(
                "The weights name no known data set: pass the folder of their test photographs, DIR/val/CLASS/* or "
                f"DIR/CLASS/*. Received: data_dir={folder!r}, data={self.row.data!r}"
            )
        sigmoid = self.row.scores(len(classes)) == "sigmoid"
        return folder_test_set(folder, len(classes), class_names=classes, sigmoid=sigmoid)

    def _measure_photographs(self, data_dir: Any, batch_size: int) -> Measured:
        from keras_highway.analysis.scores import measure_photographs
        from keras_highway.data.images import ImageError

        photographs = self._photographs(data_dir)
        scores = measure_photographs(self.network, self.row.images, photographs, batch_size)
        if scores.broken:
            raise ImageError(f"{photographs.name}: {scores.broken} photographs cannot be read.")
        where = f"on the {scores.images} test photographs of {self.row.data or photographs.name}"
        return Measured(scores.top1 / scores.images, where, scores.images)


class LanguageModel(TaskWeights):
    """Weights of a character-aware language model, with its words. It has the methods of `ClassifierWeights`."""

    task = LANGUAGE
    inputs = ("words", "positions")

    def __init__(self, row: WeightsInfo, lm: CharLM, overrides: dict[str, Any]):
        super().__init__(row, lm.network)
        self.lm, self._overrides = lm, overrides

    @classmethod
    def open(cls, row: WeightsInfo, path: Path) -> "LanguageModel":
        """Load the weights of a row from a file."""
        file = resolve(path, row.variant)
        return cls(row, CharLM(file, dtype="float32"), stated_overrides(file, row.variant))

    @classmethod
    def new_row(cls, result: dict[str, Any], stamp: dict[str, Any]) -> WeightsInfo:
        """Return the record of a run's weights. A corpus may be any folder: the record has the folder's name."""
        name = Path(result["data"]).name
        if name in CORPORA and name != result["data"]:
            name = f"a folder named {name}"
        return language_row(result["weights"], result["variant"], name)

    def blank(self) -> keras.Model:
        """Return a network that gives probabilities, with random weights."""
        return create_model(self.row.variant, dtype="float32", **self.lm.vocabulary.sizes, **self._overrides)

    def example(self) -> dict[str, np.ndarray]:
        """Return words from all over the vocabulary and one never seen; every text begins with another of them."""
        words = self.lm.vocabulary.words
        spread = [words[i] for i in np.linspace(2, len(words) - 1, _WORDS - 2).astype(int)]
        chosen = np.array([END_OF_SENTENCE, *spread, spread[-1][::-1] + spread[0]])
        texts = self.network.input_shape[1][0]
        positions = (np.arange(_WORDS) + np.arange(texts)[:, None]) % _WORDS
        return {"words": chosen, "positions": positions.astype(np.int32)}

    def computed(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the logits after the last word, read in two calls: the state is carried from one to the next."""
        words, positions = inputs["words"], inputs["positions"]
        texts = self.network.input_shape[1][0]
        is_right = words.dtype.kind == "U" and 0 <= positions.min() <= positions.max() < len(words)
        refuse((not is_right or len(positions) != texts, f"positions that are not of its words in {texts} texts"))
        characters = self.lm.vocabulary.spell(words.tolist())
        reset_state(self.network)
        try:
            calls = [self.traced([characters, steps]) for steps in np.array_split(positions, _CALLS, axis=1)]
        finally:
            reset_state(self.network)
        logits, gates = calls[-1]
        return {"characters": characters, "logits": logits[:, -1], **gates}

    def measure(self, data_dir: Any = None, batch_size: int = 500) -> Measured:
        """Measure the perplexity of the test text."""
        corpus = load_corpus(data_dir)
        if corpus.vocabulary.padded(self.lm.vocabulary.word_length) != self.lm.vocabulary:  # as in training
            raise ValueError(f"The corpus in {data_dir} has other words than the training of {self.row.name!r}.")
        test = corpus.test[: self.row.metrics.get("test_tokens")]  # as many as the recorded number is over
        perplexity = self.lm.perplexity(test, progress=sys.stderr.isatty())
        return Measured(perplexity, f"on the {len(test)} test words of {self.row.data}", len(test))

    def gate_report(self, data_dir: Any = None) -> dict[str, Any]:
        """Measure the gates over the words of the vocabulary, each once."""
        table = self.lm.vocabulary.table
        batches = (table[first : first + _BATCH] for first in range(0, len(table), _BATCH))
        return {
            "samples": len(table),
            "of": "words of the vocabulary",
            "blocks": gate_moments(word_part(self.network), batches),
        }


def weights_class(variant: str) -> type[ClassifierWeights] | type[LanguageModel]:
    """Return the class that opens weights of a variant."""
    return LanguageModel if get_spec(variant).task is LANGUAGE else ClassifierWeights


def recorded(row: WeightsInfo) -> float | None:
    """Return the metric that was measured of the very file of a row, or `None` (`value_of_file`)."""
    return value_of_file(dict(row.metrics))


def write_check(weights: TaskWeights, path: Path) -> None:
    """Write a `check.npz`: inputs, their logits and by channel the mean of each learned gate."""
    inputs = weights.example()
    np.savez(path, **inputs, **weights.computed(inputs))


def compare_check(weights: TaskWeights, path: Path) -> float:
    """Compute everything in a `check.npz` again; return the largest difference."""
    with reworded(f"{path} is not a {CHECK}", (ValueError, KeyError, TypeError, IndexError, ArithmeticError)):
        recorded = read_npz(path, most=_LARGEST)
        inputs = {name: recorded.pop(name) for name in weights.inputs}
        few = all(values.ndim and len(values) <= _MOST_SAMPLES for values in inputs.values())
        computed = weights.computed(inputs) if few else {}
        same = recorded.keys() == computed.keys() and all(recorded[k].shape == v.shape for k, v in computed.items())
        sound = same and all(v.dtype.kind in "fiu" and np.isfinite(v).all() for v in recorded.values())
        refuse((not sound, f"{sorted(recorded)} are not finite numbers of the shapes of the network"))
    scale = max(1.0, float(np.abs(recorded["logits"]).max()))
    worst, where = max((float(np.abs(recorded[name] - value).max()) / scale, name) for name, value in computed.items())
    text = f"The network does not compute the numbers in {path.name}: {where} differs by {worst:.2g}."
    refuse((not worst <= TOLERANCE, text))  # NaN is not an agreement
    return worst


def gate_report(model: keras.Model, transform: Transform, images: np.ndarray, batch_size: int = 200) -> dict[str, Any]:
    """Measure the learned gates of every block over images, positions and channels."""
    starts = range(0, len(images), batch_size)
    batches = (transform.apply(images[start : start + batch_size]) for start in starts)
    return {"samples": len(images), "blocks": gate_moments(model, batches)}


def gate_moments(model: keras.Model, batches: Iterable) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean and variance of the learned gates of every block over all samples, positions and channels."""
    learned = {name: get_gating(block.gating).learned_gates for name, block in blocks(model).items()}
    learned = {name: gates for name, gates in learned.items() if gates}
    if not learned:
        raise ValueError("A gate report needs blocks that learn a gate. Received: a network without any")
    tracer = Tracer(model, list(learned))
    moments: dict[str, dict[str, Moments]] = {}
    with kept_state(model):
        for batch in batches:
            for name, entry in tracer(batch, carry=True).items():
                gates = learned.get(name) or learned[name.rpartition(":")[0]]  # `name:2`: the second call of a block
                for gate, one in moments.setdefault(name, {gate: Moments() for gate in gates}).items():
                    one.add(np.broadcast_to(getattr(entry, gate), entry.x.shape).ravel())
    return {name: {gate: _rounded(one) for gate, one in gates.items()} for name, gates in moments.items()}


def _rounded(one: Moments) -> dict[str, float]:
    return {"mean": round(float(one.mean), 6), "variance": round(float(one.variance), 6)}
