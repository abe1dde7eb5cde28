"""The model card: the README.md of a repository, its header for machines and its text for readers."""

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.files import read_log
from keras_highway._support.terminal import in_code_span, in_markdown, python_string
from keras_highway.analysis.plots import Curve, draw_training, training_axes, write
from keras_highway.applications import get_spec
from keras_highway.data.transforms import CLASSES, Transform, imagenet_classes
from keras_highway.data.vocabulary import VOCABULARY
from keras_highway.gating import GATINGS
from keras_highway.tasks import LANGUAGE, format_metric, format_validation, metric_name
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights import registry
from keras_highway.weights.hub import client
from keras_highway.weights.info import RESULT, WeightsInfo, format_epochs

CARD = "README.md"
CURVE = "curve.png"
_BEGIN = "<!-- keras_highway writes from here: put your own text before this line or after the last one -->"
_END = "<!-- keras_highway writes to here -->"
_FIELDS = (  # of the header, which are generated
    *("library_name", "pipeline_tag", "license", "license_name", "language", "datasets", "metrics", "tags"),
    "model-index",
    "model_name",
)
# The header's licence is one of the Hub's identifiers or `other`: the Hub refuses any other word.
OTHER = "other"
# https://huggingface.co/docs/hub/repositories-licenses, in its order. huggingface_hub has no such list: the Hub checks.
_LIST = """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0
cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0
cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0
eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research
lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1
ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license fair-noncommercial-research-license
llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 grok2-community gemma unknown other
"""
_IDENTIFIERS = frozenset(_LIST.split())
# The Hub's names of the data sets.
DATA_SETS = {
    "mnist": "ylecun/mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "imagenet": "ILSVRC/imagenet-1k",
}
_IMAGE_EXAMPLE = """weights = {loaded_by}
model = kh.load(weights)
probabilities = model.predict(kh.preprocess_input(images, weights=weights))   # uint8 (n, {height}, {width}, {channels})
print(kh.decode_predictions(probabilities, weights=weights))"""
# The Hub's name of a corpus, its name in words, and its language.
CORPORA = {"ptb": ("ptb-text-only/ptb_text_only", "Penn Treebank", "en")}
_TEXT_EXAMPLE = """lm = kh.CharLM({loaded_by})
print(lm.score("the company said it expects growth").perplexity)
print(lm.generate("the company", words=20, temperature=0.7))
print(lm.neighbours("looooook"))         # of any word, seen or unseen"""
_ALONE = f"""Inputs: `characters`, int32 (words, length), how each distinct word is
spelled, and `positions`, int32 (texts, steps), the index of the word at each position; output: probabilities of each
next word.
`kh.Vocabulary.from_json` reads the text of `{VOCABULARY}`, and its `spell` gives `characters`. The state of the LSTMs
is not part of the weights: it starts at zero and is carried from call to call, for as many texts at once as
`model.input_shape` states, until `keras_highway.models.char_lm.reset_state(model)`."""
_INPUT = """words separated by whitespace, upper and lower case kept; each is read by its characters (a start mark, \
the characters, an end mark, padding). A word outside the vocabulary is read by its spelling and predicted as `<unk>`. \
An unknown character is read as `<unk>`'s character. A word that is too long loses its last characters"""
_PAPERS = {
    "TVDN": """@inproceedings{srivastava2015training,
  title = {Training Very Deep Networks},
  author = {Srivastava, Rupesh Kumar and Greff, Klaus and Schmidhuber, J{\\"u}rgen},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2015}
}""",
    "UIE": """@inproceedings{greff2017highway,
  title = {Highway and Residual Networks learn Unrolled Iterative Estimation},
  author = {Greff, Klaus and Srivastava, Rupesh Kumar and Schmidhuber, J{\\"u}rgen},
  booktitle = {International Conference on Learning Representations},
  year = {2017}
}""",
    "BLOG": """@misc{srivastava2025weighted,
  title = {Weighted Skip Connections are Not Harmful for Deep Nets},
  author = {Srivastava, Rupesh Kumar},
  year = {2025}
}""",
    "Kim et al.": """@inproceedings{kim2016character,
  title = {Character-Aware Neural Language Models},
  author = {Kim, Yoon and Jernite, Yacine and Sontag, David and Rush, Alexander M.},
  booktitle = {AAAI Conference on Artificial Intelligence},
  year = {2016}
}""",
}
_SHIPPED = "A checkout of keras_highway has these weights, too: {by_name}.\n"
_SETTINGS = (
    *("epochs", "batch_size", "steps", "learning_rate", "precision"),
    *("init", "freeze", "train_images", "test_images", "holdout_images", "train_tokens", "test_tokens"),
)  # of a recipe, where it may not be the published one
_MORE = {"top5": ("test top-5 accuracy", "test"), "valid_perplexity": ("validation perplexity", "validation")}
_OF_ALL_SEEDS = ("top5",)  # the others are the first run's
_CONDITIONS = ("n", "seeds", "std", "precision", "holdout_images", "test_images")  # of a measurement
_HIGHWAY = "y = H(x)·T(x) + x·C(x)"
_OWN_TERMS = "see the data set's own terms"
_TRAINING = "| trained on | {} |\n| recipe | {} |\n"
_FOLDER = "path/of/this/folder"
_UNRECORDED = "that was not recorded"
_CURVE = """The file is the run with seed {seed}; its epochs are in `log.csv`.

![Training curve]({curve})
"""
_VERIFY = """: {command}
downloads everything again, compares the hashes and repeats the measurement"""
_TEXT = """
# {name}

A {kind}, `{formula}`{trained}.

```python
import keras_highway as kh

{example}
```

{shipped}Or with Keras alone, after `import keras_highway` (which registers the layers):
{by_keras}. {alone}
`model.safetensors` has the same weights with {named_by} names.

| | |
|---|---|
| variant | `{variant}`{changes}, gating `{gating}` ({source}) |
{data}| {knows} | {known} |
| metric | {metric} |
{details}{training}| input | {input} |
{licence}| sha256 of `model.weights.h5` | `{sha256}` |

{curve}{gates}
`check.npz` holds inputs, their logits and the means of the gates that blocks learn{verify}.

## Citation

```bibtex
{citation}
```
"""


class CardParts(NamedTuple):
    """The parts of a model card that depend on the task."""

    task: str  # the Hub's name of the task
    task_name: str | None  # the same in words, `None` where the Hub's name suffices
    data: str  # the Hub's name of the data set, `""` where it has none
    data_name: str  # the same in words
    language: str | None  # language of the text, `None` of images
    kind: str  # the kind of network, e.g. `"highway network"`
    example: str  # python code that uses it
    by_name: str  # the call that loads weights of the table
    alone: str  # use of the network that Keras loads by itself
    knows: tuple[str, str]  # a row of the table: a label, and the classes or words
    input: str  # the input of the network
    details: tuple[tuple[str, str], ...]  # more rows of the table: labels and texts
    conditions: dict[str, Any]  # conditions of the measurement, for machines


def with_own_text(card: str, old: str) -> str:
    """Return a card between markers, with what a person wrote outside of the markers of an old one."""
    import yaml  # huggingface_hub needs it, too

    header, text = _divided(card)
    old_header, own = _divided(old)
    before, begin, rest = own.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    before, after = (before, after) if begin and end else ("", own)
    with contextlib.suppress(yaml.YAMLError, AttributeError):  # a person's header may be anything
        fields = yaml.safe_load(old_header) or {}
        if more := {name: value for name, value in fields.items() if name not in _FIELDS}:
            header += yaml.safe_dump(more, sort_keys=False, allow_unicode=True)
    text = text.replace(_BEGIN, "").replace(_END, "").strip()
    parts = (before.strip(), f"{_BEGIN}\n\n{text}\n\n{_END}", after.strip())
    return f"---\n{header}---\n" + "\n\n".join(part for part in parts if part) + "\n"


def _divided(card: str) -> tuple[str, str]:
    """Return the YAML header of a card, `""` if it has none, and its text."""
    match = re.match(r"---\r?\n(.*?\n)?---[ \t]*(?:\r?\n|\Z)", card, re.DOTALL)
    return (match[1] or "", card[match.end() :]) if match else ("", card)


def card_parts(row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
    """Return the parts of a row's card."""
    return (_text_parts if get_spec(row.variant).task is LANGUAGE else _image_parts)(row, loaded_by, recipe)


def _image_parts(row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
    images, data = row.images, DATA_SETS.get(row.data, "")
    known = (classes_of(row.data), tuple(map(str, range(len(row.classes)))))  # numbers: the names are unknown
    own = bool(data) and row.classes not in known  # a user's own arrays or folders in that form
    (height, width), channels = images.size, images.channels
    words = metric_name(row.metrics, "test accuracy")
    return CardParts(
        task="image-classification",
        task_name=None,
        data="" if own else data,
        data_name=f"other classes than {row.data}" if own else data or row.data,
        language=None,
        kind=f"{kind_of(row)} network",
        example=_IMAGE_EXAMPLE.format(
            loaded_by=python_string(loaded_by), height=height, width=width, channels=channels
        ),
        by_name=f"kh.load({python_string(row.name)})",
        alone=f"Input: what `preprocess_input` gives, float32 (n, {height}, {width}, {channels}); output: "
        f"{'logits' if row.activation == 'linear' else 'probabilities'}.",
        knows=(
            "classes",
            f"{len(row.classes)}: {', '.join(row.classes[:10])}{', ...' if len(row.classes) > 10 else ''}",
        ),
        input=f"{described(images)}; central crop {images.crop}, {images.interpolation}",
        details=(*_head(row), *_details(row.metrics, lambda value: f"{words} {100 * value:.2f} %")),
        conditions={},
    )


def _head(row: WeightsInfo) -> Iterator[tuple[str, str]]:
    """Yield the row of a card's table about a head that does not end in a softmax."""
    if row.activation == "linear":
        yield "head", f"logits; a {row.scores(len(row.classes))} gives probabilities"
    elif row.activation == "sigmoid" and len(row.classes) == 1:
        yield "head", f"a sigmoid: the probability of {row.classes[0]}"
    elif row.activation == "sigmoid":
        yield "head", "a sigmoid for each class: an image has any number of labels; an image is right if all labels are"


def _text_parts(row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
    """Return the parts of a language model; the published number belongs to one net and text."""
    data, data_name, language = CORPORA.get(row.data, ("", row.data, None))
    same = row.data in CORPORA and not any(recipe.get(f) for f in ("overrides", "train_tokens", "test_tokens"))
    published = LM_VARIANTS[row.variant].published_perplexity if same else ""
    details = [("published", f"test perplexity {published}")] if published else []
    if "valid_perplexity" in row.metrics:
        details.append(("validation", f"perplexity {format_validation(dict(row.metrics))}"))
    return CardParts(
        task="text-generation",
        task_name="Language modelling",
        data=data,
        data_name=data_name,
        language=language,
        kind=f"character-aware language model with {kind_of(row)} layers",
        example=_TEXT_EXAMPLE.format(loaded_by=python_string(loaded_by)),
        by_name=f"kh.CharLM({python_string(row.name)})",
        alone=_ALONE,
        knows=("words and characters", f"all of the training text, in `{VOCABULARY}`"),
        input=_INPUT,
        details=(*details, *_details(row.metrics, lambda value: f"test perplexity {value:.2f}")),
        conditions={"published": published} if published else {},
    )


def gating_of(row: WeightsInfo) -> str:
    """Return the gating of weights: the variant's, or the one that replaced it."""
    return row.overrides.get("gating", get_spec(row.variant).gating)


def kind_of(row: WeightsInfo) -> str:
    """Return the name of networks with a gating: `"plain"`, `"residual"` or, with gates, `"highway"`."""
    gating = gating_of(row)
    return gating if gating in ("plain", "residual") else "highway"


def classes_of(data: str) -> tuple[str, ...]:
    """Return the names of a data set's classes, none where it is unknown."""
    return tuple(name for _, name in imagenet_classes()) if data == "imagenet" else CLASSES.get(data, ())


def _details(metrics: Mapping[str, Any], in_words: Callable[[float], str]) -> Iterator[tuple[str, str]]:
    """Yield rows of a card's table: the precision of the training, and the metric of the file by itself."""
    if "precision" in metrics:
        products = metrics["precision"].removeprefix("mixed_")
        yield "precision", f"trained with products in {products}, gates and what is carried on in float32"
    stored = metrics.get("stored", {})
    if (value := stored.get(metrics.get("metric"))) is not None:
        yield "this file", f"weights in {stored.get('dtype', 'another precision')}: {in_words(value)}"
    elif not stored and metrics.get("n", 1) > 1 and metrics.get("seeds") and metrics.get("values"):
        yield "this file", f"the run with seed {metrics['seeds'][0]}: {in_words(metrics['values'][0])}"


def model_card(row: WeightsInfo, repository: str, recipe: dict, torch_names: bool, shipped: bool | None = None) -> str:
    """Return the text of a model card."""
    known = registry.WEIGHTS.get(row.name)
    shipped = known is not None and known.sha256 == row.sha256 if shipped is None else shipped
    # A folder has a path, which only its owner knows. Weights of the zoo have a name.
    loaded_by = f"hf://{repository}" if repository else row.name if shipped else _FOLDER
    code = card_parts(row, loaded_by, recipe)
    header = _header(row, repository, code)
    texts = {field.name: in_markdown(getattr(row, field.name)) for field in dataclasses.fields(row)}
    shown = dataclasses.replace(row, **texts)
    return header + _text(row, shown, code, loaded_by, repository, recipe, torch_names, shipped)


def _text(row, shown, code, loaded_by, repository, recipe, torch_names, shipped) -> str:
    """Return the texts of a card: `shown` is escaped for Markdown, `row` and `code` are not."""
    spec, metrics = get_spec(row.variant), shown.metrics
    parts = card_parts(shown, loaded_by, in_markdown(recipe))
    data = shown.data if parts.data else parts.data_name
    licence = shown.data_licence if data == shown.data else ""
    return _TEXT.format(
        name=shown.name,
        kind=parts.kind,
        formula=_HIGHWAY if kind_of(row) == "highway" else f"y = {GATINGS[gating_of(row)].formula}",
        example=code.example,
        shipped=_SHIPPED.format(by_name=in_code_span(code.by_name)) if shipped else "",
        by_keras=in_code_span(f"keras.saving.load_model({python_string(loaded_by)})"),
        alone=parts.alone,
        named_by="PyTorch's" if torch_names else "Keras's",
        variant=row.variant,
        changes=_changes(shown),
        gating=gating_of(shown),
        source=spec.source,
        trained=f", trained on {data}" if row.data else "",
        data=f"| data | {data}; {licence or _OWN_TERMS} |\n" if row.data else "",
        knows=parts.knows[0],
        known=parts.knows[1],
        metric=_metric(metrics),
        details="".join(f"| {label} | {text} |\n" for label, text in parts.details),
        training=_TRAINING.format(_trained_on(row.metrics), _recipe(row, recipe, shipped)) if recipe else "",
        input=parts.input,
        licence=f"| licence of the weights | {shown.licence} |\n" if row.licence else "",
        sha256=row.sha256,
        curve=_CURVE.format(seed=next(iter(metrics.get("seeds", ())), _UNRECORDED), curve=CURVE) if recipe else "",
        verify=_VERIFY.format(command=in_code_span(f"python -m keras_highway verify {repository}"))
        if repository
        else "",
        gates=_gates(shown.gate_report),
        citation="\n\n".join(text for key, text in _PAPERS.items() if key == "TVDN" or key in spec.source),
    )


def _header(row: WeightsInfo, repository: str, parts: CardParts) -> str:
    """Return the YAML header of a card, with its `model-index` where something was measured."""
    hub, metrics, metric = client(), row.metrics, get_spec(row.variant).task.metric.name
    licence = row.licence.lower() if not row.licence or row.licence.lower() in _IDENTIFIERS else OTHER
    tested = "train" if metrics.get("holdout_images") else "test"
    conditions = {key: metrics[key] for key in _CONDITIONS if metrics.get(key)} | parts.conditions
    alike = {name: value for name, value in conditions.items() if name not in ("published", "std")}
    measured = []
    if metrics.get("mean") is not None and (parts.data or parts.data_name):
        name = metric_name(metrics) if metrics.get("metric") else None
        measured = [(name, metrics["mean"], tested, conditions)]
        for key, (name, split) in _MORE.items():
            if metrics.get(key) is None or not (key in _OF_ALL_SEEDS or metrics.get("n") == 1):
                continue
            own = {} if metrics.get(f"{key}_std") is None else {"std": metrics[f"{key}_std"]}
            name, split = (metric_name(metrics, name), tested) if split == "test" else (name, split)
            measured.append((name, metrics[key], split, alike | own))
    page = f"https://huggingface.co/{repository}/blob/main/{RESULT}" if repository else None
    results = [
        hub.EvalResult(
            task_type=parts.task,
            task_name=parts.task_name,
            dataset_type=parts.data or parts.data_name,
            dataset_name=parts.data_name or parts.data,
            dataset_split=split,
            metric_type=metric,
            metric_name=name,
            metric_value=value,
            metric_args=dict(arguments) or None,
            source_name=RESULT if page else None,
            source_url=page,
        )
        for name, value, split, arguments in measured
    ]
    data = hub.ModelCardData(
        library_name="keras",
        pipeline_tag=parts.task,
        license=licence or None,
        license_name=row.licence if licence == OTHER and row.licence.lower() != OTHER else None,
        language=parts.language,
        datasets=[parts.data] if parts.data else None,
        metrics=[metric] if results else None,
        tags=["keras", "keras-highway", parts.task, f"{kind_of(row)}-network"],
        model_name=row.name,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _changes(row) -> str:
    """Return how the network differs from its variant."""
    changes = [f"{name} {value}" for name, value in row.overrides.items()]
    if row.removed:
        changes.append(f"without {', '.join(row.removed)}")
    return f" with {'; '.join(changes)}" if changes else ""


def _recipe(row, recipe, shipped) -> str:
    """Return the command; for weights that are not the zoo's also what was set, which `--set` may have changed."""
    name = recipe.get("name", row.recipe)
    command = in_code_span(f"python -m keras_highway train {shlex.quote(name)} --data DIR")
    command += f" ({in_markdown(recipe.get('source', name))})"
    if shipped:
        return f"{command}; as it was set then: `recipe.json`"
    settings = [f"{field} {in_markdown(recipe[field])}" for field in _SETTINGS if recipe.get(field) is not None]
    settings += [f"{field} {value}" for field, value in in_markdown(recipe.get("overrides", ()))]
    return f"{command}, here with {', '.join(settings)}: all settings are in `recipe.json`" if settings else command


def _metric(metrics) -> str:
    if not metrics.get("n"):
        return format_metric(None)
    what = metric_name(metrics)
    if metrics.get("epoch_reported"):
        what += f" of the {metrics['epoch_reported']} epoch"
    seeds = ", ".join(map(str, metrics.get("seeds", ())))
    return f"{what}: **{format_metric(metrics)}**; seeds {seeds}"


def _trained_on(metrics) -> str:
    known = [in_markdown(metrics["hardware"])] if "hardware" in metrics else []
    known += [f"{in_markdown(metrics['backend'])} backend"] if "backend" in metrics else []
    known += [f"{format_epochs(metrics)} epochs"] if "epochs" in metrics else []
    known += [_program(commit) for commit in metrics.get("commit_changes", [metrics.get("commit")]) if commit]
    return ", ".join(known) or "not recorded"


def _program(commit: str) -> str:
    """Return the commit that trained the weights, or the version of an installed package."""
    return in_markdown(commit) if commit.startswith("keras-highway ") else f"commit {in_code_span(commit)}"


def _gates(report) -> str:
    """Return a table of how far every block's gates open."""
    if not report:
        return ""
    present = [g for g in ("t", "c") if any(g in block for block in report["blocks"].values())]
    titles = [f"{measure} of {gate.upper()}" for gate in present for measure in ("mean", "variance")]
    lines = [f"| {' | '.join(['block', *titles])} |", "|---" * (len(titles) + 1) + "|"]
    for name, block in report["blocks"].items():
        cells = [f"{block[g]['mean']:.3f} | {block[g]['variance']:.4f}" if g in block else " | " for g in present]
        lines.append(f"| {' | '.join([name, *cells])} |")
    kinds = " and ".join({"t": "transform", "c": "carry"}[g] for g in present).capitalize()
    return f"\n{kinds} gates over {report['samples']} {report.get('of', 'test samples')}:\n\n" + "\n".join(lines) + "\n"


def described(transform: Transform) -> str:
    """Return in words how pixels become a network's input."""
    height, width = transform.size
    text = f"pixels in [0, 255] of {height}x{width}, {'greyscale' if transform.channels == 1 else 'RGB'}"
    if transform.contrast:
        text += "; each image minus its mean, over its standard deviation"
        return f"{text}; then minus the mean image of {transform.mean_image}" if transform.mean_image else text
    text += f", times {transform.scale:g}" if transform.scale >= 1 else f", times 1/{1 / transform.scale:g}"
    if any(transform.mean) or any(std != 1 for std in transform.std):
        text += f", minus {transform.mean}, over {transform.std}"
    return text


def draw_curve(log: Path, path: Path, title: str, metric: str, tested: str = "test") -> None:
    """Draw losses and a metric over the epochs."""
    rows = read_log(log)
    if not rows or not all("epoch" in row for row in rows):
        raise ValueError(f"{log} has no epoch, or lines without one.")
    figure, axes = training_axes(2, 5.6)
    for axis, what, scale in zip(axes, ("loss", metric), ("log", "linear"), strict=True):
        columns = [name for name in rows[0] if name.endswith(what)]
        draw_training(axis, [_curve(rows, column, tested) for column in columns], ylabel=what, scale=scale)
    write(figure, path, title)


def _curve(rows, column, tested) -> Curve:
    known = [row for row in rows if column in row]
    label = re.sub("^test ", f"{tested} ", column.replace("_", " "))
    return Curve([row["epoch"] for row in known], [row[column] for row in known], label)
