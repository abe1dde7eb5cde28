"""The card of a weight: what it is, how good, how made, how to use it."""

from keras_highway.applications import get_spec
from keras_highway.transforms import Transform
from keras_highway.weights import WeightsRow
from training.shown import shown, shown_epochs

_CARD = """# {name}

{sentence}

```python
import keras_highway as kh

{usage}
```

| | |
|---|---|
| variant | `{variant}` ({source}) |
| data | {data}; {data_licence} |
| metric | {what} of the last epoch: **{metric}** |
| seeds | {seeds} |
| trained on | {hardware}, {backend} backend, {epochs} epochs, commit `{commit}` |
| input | {input} |
| licence of the weights | {licence} |
| recipe | `python -m training.train {recipe} --data DIR` ({recipe_source}) |

The shipped file is the run with seed {seed}; its epochs are in `log.csv`.
"""


_IMAGES = """model = kh.load("{name}")
probabilities = model.predict(kh.preprocess_input(images, weights="{name}"))   # uint8 (n, {shape})"""
_TEXT = """model = kh.CharLM("{name}")
print(model.score("the company said it expects higher sales").perplexity)"""


def card(row: WeightsRow, result: dict, recipe: dict) -> str:
    """Returns the text of a card.

    Args:
        row: The weights.
        result: Their result.
        recipe: The recipe that trained them, as JSON values.
    """
    spec = get_spec(row.variant)
    return _CARD.format(
        name=row.name,
        sentence=f"`{row.variant}`, gating `{spec.gating}`, trained on {row.data}.",
        usage=_usage(row),
        what=result["metric"].replace("_", " "),
        variant=row.variant,
        source=spec.source,
        data=row.data,
        data_licence=row.data_licence,
        metric=shown(result),
        seeds=f"{result['n']} ({', '.join(map(str, result['seeds']))})",
        hardware=result["hardware"],
        backend=result["backend"],
        epochs=shown_epochs(result),
        commit=result["commit"],
        input=_input(row),
        licence=row.licence,
        recipe=row.recipe,
        recipe_source=recipe["source"],
        seed=result["seeds"][0],
    )


def _usage(row: WeightsRow) -> str:
    if row.transform is None:
        return _TEXT.format(name=row.name)
    (height, width), channels = row.transform.size, row.transform.channels
    return _IMAGES.format(name=row.name, shape=f"{height}, {width}, {channels}")


def _input(row: WeightsRow) -> str:
    return "words, read by their characters" if row.transform is None else described(row.transform)


def described(transform: Transform) -> str:
    """Returns in words how pixels become a network's input."""
    height, width = transform.size
    text = f"pixels in [0, 255] of {height}x{width}, {'greyscale' if transform.channels == 1 else 'RGB'}"
    if transform.contrast:
        return f"{text}; each image minus its mean, over its standard deviation"
    text += f", times 1/{round(1 / transform.scale)}"
    if any(transform.mean):
        text += f", minus {transform.mean}, over {transform.std}"
    return text
