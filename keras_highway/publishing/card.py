"""The model card: the README.md of a repository, its header for machines and its text for readers."""

import dataclasses
import shlex

from keras_highway._support.terminal import in_code_span, in_markdown, python_string
from keras_highway.applications import get_spec
from keras_highway.gating import GATINGS
from keras_highway.hub import CardMetric, ModelFacts, card_header
from keras_highway.publishing.by_task import weights_class
from keras_highway.publishing.curve import CURVE
from keras_highway.publishing.licences import OTHER, identifier_of
from keras_highway.publishing.task_weights import gating_of, kind_of
from keras_highway.tasks import format_metric, metric_name
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo, format_epochs

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
downloads everything anew, compares the hashes and computes it again"""
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


def model_card(row: WeightsInfo, repository: str, recipe: dict, torch_names: bool, shipped: bool | None = None) -> str:
    """Return the text of a model card.

    Args:
        row: The weights, with what was measured.
        repository: `org/name` on the Hub, `""` of a folder.
        recipe: The recipe that trained them, as JSON values; `{}` where
            none did.
        torch_names: Bool, whether `model.safetensors` has PyTorch's names.
        shipped: Bool, whether the package has these weights. Defaults to
            whether the registry has them: this name and this file.
    """
    known = registry.WEIGHTS.get(row.name)
    shipped = known is not None and known.sha256 == row.sha256 if shipped is None else shipped
    # Of a folder a path, which only its owner knows; the zoo's have a name.
    loaded_by = f"hf://{repository}" if repository else row.name if shipped else _FOLDER
    code = weights_class(row.variant).card(row, loaded_by, recipe)
    header = _header(row, repository, get_spec(row.variant), code)
    texts = {field.name: in_markdown(getattr(row, field.name)) for field in dataclasses.fields(row)}
    shown = dataclasses.replace(row, **texts)
    return header + _text(row, shown, code, loaded_by, repository, recipe, torch_names, shipped)


def _text(row, shown, code, loaded_by, repository, recipe, torch_names, shipped) -> str:
    """Return the texts of a card: `shown` is escaped for Markdown, `row` and `code` are not."""
    spec, metrics = get_spec(row.variant), shown.metrics
    parts = weights_class(row.variant).card(shown, loaded_by, in_markdown(recipe))
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


def _header(row, repository, spec, parts) -> str:
    facts = ModelFacts(
        name=row.name,
        licence=(licence := identifier_of(row.licence)),
        licence_name=row.licence if licence == OTHER and row.licence.lower() != OTHER else None,
        task=parts.task,
        task_name=parts.task_name,
        data=parts.data,
        data_name=parts.data_name,
        language=parts.language,
        metric=spec.task.metric.name,
        metric_name=metric_name(row.metrics) if row.metrics.get("metric") else None,
        value=row.metrics.get("mean"),
        more=[
            _measured(row.metrics, key, name, spec.task.metric.name, split)
            for key, (name, split) in _MORE.items()
            if row.metrics.get(key) is not None and (key in _OF_ALL_SEEDS or row.metrics.get("n") == 1)
        ],
        split=_split(row.metrics),
        repository=repository if row.metrics else "",
        conditions={key: row.metrics[key] for key in _CONDITIONS if row.metrics.get(key)} | parts.conditions,
        tags=("keras", "keras-highway", parts.task, f"{kind_of(row)}-network"),
    )
    return card_header(facts)


def _measured(metrics, key, name, metric, split) -> CardMetric:
    """Return the other measured values."""
    name, split = (metric_name(metrics, name), _split(metrics)) if split == "test" else (name, split)
    return CardMetric(name, metric, metrics[key], split, metrics.get(f"{key}_std"))


def _split(metrics) -> str:
    """Return the part of the data set that was tested on."""
    return "train" if metrics.get("holdout_images") else "test"


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
