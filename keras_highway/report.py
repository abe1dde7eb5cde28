"""Measure a network with every analysis, and write an HTML page and JSON.

The page is written without a template engine: Jinja2 would be two more
dependencies. Every text from outside goes through `html.escape`.
"""

import base64
import html
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from tqdm import tqdm

from keras_highway import analysis
from keras_highway._support.files import atomic_write, atomic_write_json, read_bounded
from keras_highway.analysis.cost import adapted_weights, parameters_of
from keras_highway.analysis.gates import check_learned
from keras_highway.analysis.trace import stages
from keras_highway.gating import get_gating
from keras_highway.tasks import IMAGES

_FEWEST, _MOST = 50, 1000  # images
_MULTIPLY_ADDS = 4e11  # of all analyses: less than a minute on one core
_FREE = 0.001 + 1e-9  # a loss of accuracy that costs nothing: 0.1 point
_CLASSES = 10  # in the routing section; each class takes the memory of all gates of one sample
_DPI = 180  # sharp at the width of a page, and on a phone
_ALWAYS = {"title", "network", "gates", "lesions"}  # keys of every report's numbers
_MOST_BYTES = 256 * 2**20  # of the numbers
_MEANING = {"t": "transformed; 0 carries it unchanged", "c": "carried and added to the transform"}
_STYLE = """
body { margin: 0 auto; max-width: 42rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1b1b1b; background: #fff; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .25rem; border-top: 1px solid #ddd; padding-top: 1rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .4rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .5rem 1rem; margin: 1rem 0; }
dt { font-size: .875rem; color: #595959; }
dd { margin: 0; font-weight: 600; }
figure { margin: 1.5rem 0; }
img { display: block; width: 100%; height: auto; }
figcaption { margin-top: .25rem; font-size: .9375rem; color: #404040; }
footer { margin-top: 2rem; font-size: .875rem; color: #595959; }
@media (max-width: 42rem) { figure { margin: 1.5rem -1rem; } figcaption { padding: 0 1rem; } }
"""


class Picture(NamedTuple):
    """A picture as PNG bytes, and a caption that is also its alternative text."""

    png: bytes
    caption: str


class Section(NamedTuple):
    """A part of a report."""

    key: str  # its name in the JSON, e.g. `"lesions"`
    title: str  # its heading
    text: str  # what was done and what came out, in a few sentences
    pictures: tuple[Picture, ...]  # its pictures
    numbers: dict  # dict of plain values and lists; `{"absent": reason}` if the analysis does not apply to the network


class Report(NamedTuple):
    """A title, facts such as the accuracy, and one section per analysis."""

    title: str
    facts: dict[str, str | int | float]
    sections: tuple[Section, ...]


class ReportInput(NamedTuple):
    """A network, the images and labels to measure it on, their transform and the names of the classes."""

    model: keras.Model
    images: np.ndarray
    labels: np.ndarray
    transform: Callable | None
    classes: tuple[str, ...]

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        return self.images, self.labels

    @property
    def options(self) -> dict:
        """Arguments of every analysis: large images come in small batches."""
        return {"transform": self.transform, "batch_size": 100 if self.images[0].size <= 32 * 32 * 3 else 10}


def default_samples(model: keras.Model) -> int:
    """Return how many images take all analyses about a minute on one core, from 50 to 1000; 50 if unknown."""
    blocks, multiply_adds = len(analysis.blocks(model)), _multiply_adds(model)
    if multiply_adds is None:
        return _FEWEST
    return int(np.clip(_MULTIPLY_ADDS / (2 * blocks * multiply_adds), _FEWEST, _MOST))


def make_report(
    model: keras.Model,
    data,
    title: str,
    *,
    transform: Callable | None = None,
    classes: Sequence[str] | None = None,
    samples: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Measure a network on randomly drawn images of a data set."""
    to_numpy = keras.ops.convert_to_numpy
    images, labels = (x if x is None else np.asarray(to_numpy(x) if keras.ops.is_tensor(x) else x) for x in data)
    few = labels is None or not len(images) or len(images) != len(labels) or (samples is not None and samples < 1)
    if few or (classes is not None and np.issubdtype(labels.dtype, np.integer) and np.max(labels) >= len(classes)):
        raise ValueError(
            "A report needs images, a label for each, a name for each class, and at least one sample. "
            f"Received: {len(images)} images, {'no' if labels is None else len(labels)} labels, {classes=}, {samples=}"
        )
    known = analysis.blocks(model)
    if np.ndim(labels) == 2 and labels.shape[1] == 1 and len(model.output_shape) == 2:
        labels = labels[:, 0]  # the form of Keras's CIFAR
    samples = default_samples(model) if samples is None else samples
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:samples])
    names = tuple(map(str, range(int(np.max(labels)) + 1)) if classes is None else classes)
    inputs = ReportInput(model, images[chosen], labels[chosen], transform, names)
    with tqdm(total=1 + len(SECTIONS), unit=" sections", leave=False, disable=None if progress else True) as bar:
        bar.set_description("accuracy")
        accuracy, loss, count = analysis.score(model, [{}], inputs.data, **inputs.options)
        sections = []
        for key, title_of_section, measure in SECTIONS:
            bar.update()
            bar.set_description(key)
            try:
                sections.append(Section(key, title_of_section, *measure(inputs)))
            except ValueError as error:  # the analysis does not apply to the network
                reason = str(error).split(" Received:")[0]
                sections.append(Section(key, title_of_section, reason, (), {"absent": reason}))
    weights, adapted = {id(weight): weight for weight in model.weights}, adapted_weights(model)
    multiply_adds = _multiply_adds(model)
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


def _multiply_adds(model: keras.Model) -> int | None:
    """Return the cost of one image, or `None` for images of any size and unknown layers."""
    try:
        return analysis.cost(model).total.multiply_adds
    except ValueError:
        return None


# --- Sections: each returns its text, pictures and numbers. -----------------------------------


def _picture(figure, caption: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})  # equal numbers give equal bytes
    return Picture(file.getvalue(), caption)


def _gates(inputs: ReportInput):
    which = _learned_gate(inputs.model)
    bias, without_bias = None, ""
    try:
        bias = analysis.gate_bias(inputs.model, which)
    except ValueError as error:
        without_bias = f" Their biases are left out. {error}".split(" Received:")[0]
    activity = analysis.gate_activity(inputs.model, inputs.images, gate=which, **inputs.options)
    blocks = {
        name: {
            **({} if bias is None else {"bias": float(bias[name.split(":")[0]].mean())}),
            "mean": float(activity.mean[name].mean()),
            "variance": float(activity.variance[name].mean()),
            "open_for_one_image": float(activity.open_share[name].mean()),
            "open_for_some_image": float((activity.highest[name] > activity.threshold).mean()),
        }
        for name in activity.mean
    }
    mean, one, some = (
        float(np.mean([row[key] for row in blocks.values()]))
        for key in ("mean", "open_for_one_image", "open_for_some_image")
    )
    text = (
        f"The gate {which} decides how much of a block's input is {_MEANING[which]}. Its mean over "
        f"{activity.samples} images is {mean:.3f}. In a block, {100 * one:.1f} % of the gates are above one half for "
        f"one image, and {100 * some:.1f} % for at least one image (means over blocks).{without_bias}"
    )
    numbers = {
        "gate": which,
        "images": activity.samples,
        "threshold": activity.threshold,
        "mean_gate": mean,
        "open_for_one_image": one,
        "open_for_some_image": some,
        "blocks": blocks,
    }
    return text, _gate_pictures(inputs, which, bias, activity), numbers


def _learned_gate(model: keras.Model) -> str:
    """Return `"t"`, or `"c"` if only that gate is learned; raise a ValueError without learned gates."""
    known = analysis.blocks(model)
    learned = {gate for block in known.values() for gate in get_gating(block.gating).learned_gates}
    if learned == {"c"}:
        return "c"
    check_learned(known, "t")
    return "t"


def _gate_pictures(inputs: ReportInput, which: str, bias, activity) -> tuple[Picture, ...]:
    caption = (
        "For each block: the mean gate, the share of gates above one half for one image (the mean over images) and "
        "for any image"
    )
    if bias is not None:
        caption += ", and the gate biases; the band reaches from a block's lowest to its highest"
    pictures = [_picture(analysis.plot_gate_profile(activity, bias), caption)]
    shapes = {mean.shape for mean in activity.mean.values()}
    if all(len(shape) == 3 for shape in shapes):
        caption = "Open gates in each part of the image: mean over images and channels, 0 closed and 1 open"
        pictures.append(_picture(analysis.plot_gate_maps(activity), caption))
    elif bias is not None and which == "t" and [len(shape) for shape in shapes] == [1]:
        x = inputs.images[:1] if inputs.transform is None else inputs.transform(inputs.images[:1])
        # Blocks without this gate may stand next to those with it.
        traces = analysis.trace(inputs.model, x, blocks={name.split(":")[0] for name in activity.mean})
        caption = (
            "Every unit of every block: gate bias, mean gate, and for one image the gate and the output "
            "[TVDN, Figure 2]. Colours of gates follow the square root; an arrow on a bar marks values beyond it"
        )
        pictures.append(_picture(analysis.plot_gate_summary(bias, activity, traces), caption))
    return tuple(pictures)


def _routing(inputs: ReportInput):
    shown = np.unique(inputs.labels)[:_CLASSES]
    among = np.isin(inputs.labels, shown).reshape(len(inputs.labels), -1).any(1)
    data = inputs.images[among], inputs.labels[among]
    which = _learned_gate(inputs.model)
    routes = analysis.gate_routing(inputs.model, data, gate=which, **inputs.options)
    names = [inputs.classes[k] for k in routes.classes]
    table = {block: np.abs(d).reshape(len(names), -1).mean(1) for block, d in routes.difference.items()}
    total = np.sum(list(table.values()), 0)
    block = max(table, key=lambda name: table[name].mean())
    text = (
        "If gates route information, they open differently for different classes. Shown: a class's mean gates minus "
        f"the mean over all {int(routes.samples.sum())} images of {len(names)} classes [TVDN, Figure 3]. The class "
        f"that differs most is {names[int(total.argmax())]}. The gates of {block} differ most between classes."
    )
    caption = "One row per class, one column per block: the difference of the class's mean gates from the overall mean"
    numbers = {
        "gate": which,
        "classes": names,
        "images": routes.samples.tolist(),
        "mean_absolute_difference": {name: row.tolist() for name, row in table.items()},
    }
    return text, (_picture(analysis.plot_routing_profile(routes, names), caption),), numbers


def _lesions(inputs: ReportInput):
    curve = analysis.lesion_curve(inputs.model, inputs.data, **inputs.options)
    cost = curve.intact_accuracy - curve.accuracy
    free = int((cost <= _FREE).sum())
    text = (
        "Each block in turn is reduced to its skip connection (T = 0) [TVDN, Figure 4]. The dashed line is the intact "
        f"network. {free} of {len(curve.blocks)} blocks cost at most 0.1 point each. "
        f"{curve.blocks[int(cost.argmax())]} costs most, {100 * cost.max():.1f} points."
    )
    if curve.transitions:
        text += f" Not lesioned, because they change the shape: {', '.join(curve.transitions)}."
    numbers = {
        "images": curve.samples,
        "intact_accuracy": curve.intact_accuracy,
        "intact_loss": curve.intact_loss,
        "blocks": list(curve.blocks),
        "accuracy": curve.accuracy.tolist(),
        "loss": curve.loss.tolist(),
        "free_blocks": free,
        "transitions": list(curve.transitions),
    }
    caption = "Error with one block lesioned; dashed: the intact network"
    return text, (_picture(analysis.plot_lesion_curve(curve), caption),), numbers


def _orders(inputs: ReportInput):
    curves, reasons = {}, {}
    for stage in stages(analysis.blocks(inputs.model)):
        try:
            curves[stage] = analysis.reshuffle_curve(inputs.model, inputs.data, stage, **inputs.options)
        except ValueError as error:
            reasons[stage] = str(error).split(" Received:")[0]
    if not curves:
        raise ValueError(f"No stage can be shuffled. {next(iter(reasons.values()))}")
    worst = ", ".join(f"{stage} {100 * curve.accuracy.min():.1f} %" for stage, curve in curves.items())
    text = (
        "The blocks of a stage swap positions, one pair at a time. Kendall's tau is 1 for the trained order and 0 for "
        "a random one [UIE, 4]. A network whose blocks refine one representation degrades slowly. Lowest accuracy "
        f"by stage: {worst}."
    ) + "".join(f" {stage} is left out: {reason}" for stage, reason in reasons.items())
    numbers: dict = {
        stage: {
            "images": curve.samples,
            "blocks": list(curve.blocks),
            "intact_accuracy": curve.intact_accuracy,
            **{name: getattr(curve, name).tolist() for name in ("orders", "swaps", "seeds", "tau", "accuracy", "loss")},
        }
        for stage, curve in curves.items()
    }
    caption = "Error against Kendall's tau of the order, one point per order; dashed: the trained order"
    return text, (_picture(analysis.plot_reshuffle_curve(curves), caption),), numbers


def _estimation(inputs: ReportInput):
    errors = analysis.estimation_error(inputs.model, inputs.images, **inputs.options)
    # The last block's error is zero by definition: its step carries no information.
    shares = {stage: (np.diff(e.std[:-1]) < 0).mean() for stage, e in errors.items() if len(e.blocks) > 2}
    text = (
        "The difference of each block's output from the last output of its stage. If the blocks refine one estimate "
        "step by step, the difference is zero on average, and its spread shrinks from block to block [UIE, Figure 3]."
    )
    if shares:
        listed = ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in shares.items())
        text += f" Steps at which the spread shrinks: {listed}."
    caption = (
        "Estimation error a − A: a is a block's output, A the last output of its stage. Points are means over images "
        "and units, bars reach one standard deviation up and down. σ(A), the standard deviation of A, is the scale"
    )
    numbers: dict = {
        stage: {
            "images": error.samples,
            "blocks": list(error.blocks),
            "mean": error.mean.tolist(),
            "std": error.std.tolist(),
            "scale": error.scale,
        }
        for stage, error in errors.items()
    }
    return text, (_picture(analysis.plot_estimation_error(errors), caption),), numbers


def _trimming(inputs: ReportInput):
    curve = analysis.trim_curve(inputs.model, inputs.data, order="lesion", **inputs.options)
    most = int(np.flatnonzero(curve.accuracy >= curve.accuracy[0] - _FREE).max())
    text = (
        "Blocks are removed for good, first the one whose lesion costs the least loss. "
        f"{most} of {curve.depth[0]} blocks can go at a loss of at most 0.1 point. That removes "
        f"{curve.parameters[0] - curve.parameters[most]:,} of {curve.parameters[0]:,} parameters (with the statistics "
        f"of batch normalization). Order and accuracy are of the same {curve.samples} images: check the number on "
        "other images."
    )
    numbers = {
        "images": curve.samples,
        "removed": list(curve.removed),
        "removable": most,
        **{name: getattr(curve, name).tolist() for name in ("depth", "accuracy", "loss", "parameters")},
    }
    caption = "Error and size against the number of remaining blocks"
    return text, (_picture(analysis.plot_trim_curve(curve), caption),), numbers


SECTIONS = (
    ("gates", "Gates", _gates),
    ("routing", "Routing", _routing),
    ("lesions", "Lesions", _lesions),
    ("orders", "Orders", _orders),
    ("estimation", "Iterative estimation", _estimation),
    ("trim", "Depth", _trimming),
)


# --- The page and its numbers. ----------------------------------------------------------------


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page, and the numbers as JSON next to it."""
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"A report is a .html file. Received: path={str(path)!r}")
    numbers = numbers_path(path)
    atomic_write(path, lambda p: p.write_text(_page(report, numbers.name), "utf-8", "replace"))  # no lone surrogates
    atomic_write_json(numbers, {"title": report.title, **report.facts, **{s.key: s.numbers for s in report.sections}})
    return numbers


def numbers_path(path: Path) -> Path:
    """Return the path of a page's numbers; a file there that is not a report's raises a FileExistsError."""
    numbers = path.with_suffix(".json")
    try:
        content = json.loads(read_bounded(numbers, _MOST_BYTES)) if numbers.exists() else dict.fromkeys(_ALWAYS)
        if isinstance(content, dict) and content.keys() >= _ALWAYS:
            return numbers
    except (OSError, ValueError, RecursionError):
        pass
    raise FileExistsError(f"{numbers} is not a report's and is not replaced: choose another name. Received: {path}")


def _page(report: Report, numbers: str) -> str:
    title = html.escape(report.title)
    links = "".join(f'<a href="#{html.escape(s.key)}">{html.escape(s.title)}</a>' for s in report.sections)
    facts = "".join(
        f"<div><dt>{html.escape(key.replace('_', '-'))}</dt><dd>{_value(key, value)}</dd></div>"
        for key, value in report.facts.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1></header>\n<dl>{facts}</dl>\n<nav>{links}</nav>\n<main>\n"
        + "\n".join(map(_section, report.sections))
        + f"\n</main>\n<footer>All numbers are in {html.escape(numbers)}. [TVDN]: Training Very Deep Networks, 2015. "
        "[UIE]: Highway and Residual Networks learn Unrolled Iterative Estimation, 2017. "
        f"Keras {keras.__version__} on {keras.backend.backend()}.</footer>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    figures = ""
    for picture in section.pictures:
        data, caption = base64.b64encode(picture.png).decode("ascii"), html.escape(picture.caption)
        image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
        figures += f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    heading = f"<h2>{html.escape(section.title)}</h2>"
    return f'<section id="{html.escape(section.key)}">{heading}<p>{html.escape(section.text)}</p>{figures}</section>'


def _value(key: str, value) -> str:
    if key == "accuracy":
        return IMAGES.metric.format(value)
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))
