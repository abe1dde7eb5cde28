"""Forms of the block of `highway20` at equal parameters, [BLOG]'s suggestions and [UIE, 4]'s: what a CPU can train.

    python -m training.study block_forms --data DIR --out RUNS  # rates, then three seeds
    python -m keras_highway train highway20_tied --data DIR --out RUN            # one run

`highway20` (recipes/cifar_20.py) has coupled gates as deep as the transforms.
The others differ from it in one thing each, and in widths, so that all have its
266,404 parameters to within 2 %:

| recipe                       | what differs                                                | widths     | parameters |
| `highway20_channel`          | one learned gate per channel, independent of the data       | 16, 32, 63 | 266,748    |
| `highway20_low_rank`         | gates with 8 channels between their two convolutions        | 14, 29, 58 | 264,991    |
| `highway20_tied`             | blocks of a stage but the first share one gate, which has   | 12, 25, 49 | 263,547    |
|                              | biases in place of batch normalization                      |            |            |
| `highway20_shared`           | blocks of a stage but the first share their transforms'     | 12, 25, 49 | 264,063    |
|                              | kernels; batch normalization is each block's own [Liao and  |            |            |
|                              | Poggio 2016]                                                |            |            |
| `highway20_stochastic_depth` | a sample skips a block with a probability that grows from 0 | 11, 22, 45 | 266,404    |
|                              | at the first block to 0.2 at the last                       |            |            |

All start with highway20's gate bias, -2. All else is the recipe of `highway20`:
15 epochs of one cycle, the highest rate chosen for each form from the same
three on 5,000 held-out training images. No published numbers. Ours:
docs/results.md; `highway20_channel` 87.85 ± 0.26 % (n = 3),
`highway20_low_rank` 88.70 ± 0.25 % (n = 3), `highway20_tied` 88.14 ± 0.29 %
(n = 3), `highway20_shared` 88.55 ± 0.10 % (n = 3), `highway20_stochastic_depth`
86.80 ± 0.30 % (n = 3), `highway20` 88.68 ± 0.27 %.
"""

from dataclasses import replace

from keras_highway.training.recipes import cifar_20

_FORMS: dict[str, dict[str, object]] = {
    "channel": {"gate": "channel", "widths": (16, 32, 63)},
    "low_rank": {"gate": "low_rank", "gate_rank": 8, "widths": (14, 29, 58)},
    "tied": {"gate": "tied", "widths": (12, 25, 49)},
    "shared": {"shared_transforms": True, "widths": (12, 25, 49)},
    "stochastic_depth": {"stochastic_depth": 0.2},
}
FORMS = ("coupled", *_FORMS)
_HIGHWAY20 = next(recipe for recipe in cifar_20.RECIPES if recipe.name == "highway20")


def recipe_of(form: str) -> str:
    """Returns the name of a form's recipe, e.g. `"highway20_tied"` of `"tied"`; `"coupled"` is `highway20` itself."""
    return "highway20" if form == "coupled" else f"highway20_{form}"


RECIPES = tuple(
    replace(
        _HIGHWAY20,
        name=recipe_of(form),
        weights=f"highway20.{form}",
        overrides=tuple(overrides.items()),
        source="BLOG's and UIE's suggestions in small: highway20 with another form of block, parameters matched here",
    )
    for form, overrides in _FORMS.items()
)
