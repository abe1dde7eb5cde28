"""The model card: the README.md of a repository, its header for machines and its text for people."""

from keras_highway import weights as zoo
from keras_highway.hub import ModelFacts, card_header
from keras_highway.publishing.curve import CURVE
from keras_highway.variants import VARIANTS
from keras_highway.weights_row import WeightsRow

# The Hub's names of the data sets.
_DATA_SETS = {
    "mnist": "ylecun/mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "imagenet": "ILSVRC/imagenet-1k",
}
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
}
_TEXT = """
# {name}

{sentence}

```python
import keras_highway as kh

weights = "hf://{repository}"
model = kh.load(weights)
probabilities = model.predict(kh.preprocess_input(images, weights=weights))   # uint8 (n, {height}, {width}, {channels})
print(kh.decode_predictions(probabilities, weights=weights))
```

Or with Keras alone, after `import keras_highway` (which registers the layers): `keras.saving.load_model("{hub}")`.
`model.safetensors` has the same weights with {twin} names.

| | |
|---|---|
| variant | `{variant}`, gating `{gating}` ({source}) |
| data | {data}; {data_licence} |
| classes | {classes} |
| metric | {metric} |
| trained on | {hardware} |
| recipe | {recipe} |
| input | {size}, pixels in [0, 255] times {scale:.6g}, minus {mean}, over {std}; central crop {crop}, {interpolation} |
| licence of the weights | {licence} |
| sha256 of `model.weights.h5` | `{sha256}` |

![Training curve]({curve})
{gates}
`check.npz` holds an input, its logits and every block's mean gates: `python -m keras_highway verify {repository}`
downloads everything anew, compares the hashes and computes it again.

## Citation

```bibtex
{citation}
```
"""


def model_card(row: WeightsRow, repository: str, recipe: dict, torch_names: bool) -> str:
    """Returns the text of a model card.

    Args:
        row: The weights, with what was measured.
        repository: `org/name` on the Hub.
        recipe: The recipe that trained them, as JSON values.
        torch_names: Bool, whether the safetensors twin has PyTorch's names.
    """
    spec, metrics = VARIANTS[row.variant], row.metrics
    kind = "residual network" if spec.gating == "residual" else "highway network"
    facts = ModelFacts(
        name=row.name,
        licence=row.licence.lower(),
        data=_DATA_SETS.get(row.data, row.data),
        metric="accuracy",
        value=metrics.get("mean"),
        tags=("keras", "keras-highway", "image-classification", kind.replace(" ", "-")),
    )
    return card_header(facts) + _TEXT.format(
        name=row.name,
        sentence=f"A {kind}, `y = H(x)·T(x) + x·C(x)`, trained on {row.data}.",
        repository=repository,
        hub=f"hf://{repository}",
        height=row.images.size[0],
        width=row.images.size[1],
        channels=row.images.channels,
        twin="PyTorch's" if torch_names else "Keras's",
        variant=row.variant,
        gating=spec.gating,
        source=spec.source,
        data=row.data,
        data_licence=row.data_licence or "see the data set's own terms",
        classes=f"{len(row.classes)}: {', '.join(row.classes[:10])}{', ...' if len(row.classes) > 10 else ''}",
        metric=_metric(metrics),
        hardware=f"{metrics.get('hardware', 'not recorded')}, commit `{metrics.get('commit', 'not recorded')}`",
        recipe=_recipe(row, recipe),
        size=f"{row.images.size[0]}x{row.images.size[1]} {'grey' if row.images.channels == 1 else 'RGB'}",
        scale=row.images.scale,
        mean=list(row.images.mean),
        std=list(row.images.std),
        crop=row.images.crop,
        interpolation=row.images.interpolation,
        licence=row.licence,
        sha256=row.sha256,
        curve=CURVE,
        gates=_gates(row.gate_report),
        citation="\n\n".join(text for key, text in _PAPERS.items() if key == "TVDN" or key in spec.source),
    )


def _recipe(row, recipe) -> str:
    """The command; for weights that are not the zoo's also what was set, which `--set` may have changed."""
    name = recipe.get("name", row.recipe)
    command = f"`python -m training.train {name} --data DIR` ({recipe.get('source', name)})"
    if row.name in zoo.WEIGHTS:
        return command
    fields = ("epochs", "batch_size", "learning_rate", "train_images")
    told = [f"{field} {recipe[field]}" for field in fields if recipe.get(field) is not None]
    return f"{command}, here with {', '.join(told)}: all settings are in `recipe.json`" if told else command


def _metric(metrics) -> str:
    if not metrics.get("n"):
        return "not measured"
    spread = "" if metrics.get("std") is None else f" ± {100 * metrics['std']:.2f}"
    seeds = ", ".join(map(str, metrics.get("seeds", ())))
    what = str(metrics.get("metric", "")).replace("_", " ")
    return f"{what}: **{100 * metrics['mean']:.2f}{spread} %** (n = {metrics['n']}; seeds {seeds})"


def _gates(report) -> str:
    """A table of how far every block's gates open."""
    if not report:
        return ""
    lines = [f"| {name} | {g['mean']:.3f} | {g['variance']:.4f} |" for name, g in report["blocks"].items()]
    head = f"\nTransform gates over {report['samples']} test samples:\n\n"
    return head + "| block | mean of T | variance of T |\n|---|---|---|\n" + "\n".join(lines) + "\n"
