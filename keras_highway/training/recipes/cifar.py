"""CIFAR: the highway nets of [TVDN], the 110-layer nets of [BLOG], and their designs at 20 layers.

    python -m keras_highway train cifar10_19layer_fast --data DIR --out RUN

Results: docs/results.md.

`cifar10_19layer`, `cifar100_19layer` [TVDN, Table 3]. Published: 92.40 (92.31 +- 0.12) %
on CIFAR-10, 67.76 (67.61 +- 0.15) % on CIFAR-100. Global contrast normalization,
translations (pad 8, crop 32) and mirroring. 400 epochs (200,000 steps of 100), Nesterov
0.9, rate 0.025 divided by 10 at 100,000, 150,000 and 175,000 steps, weight decay 1e-3 on
kernels, biases at twice the rate, the last dense layer's decay tenfold. Not trained for
400 epochs here. Before training, the test loss on 500 test images is 2.9 +- 0.6 and
8.5 +- 2.5 (8 seeds); the authors' logs have 2.497 and 5.719.

`highway_a`, `highway_b`, `highway_c` [TVDN, Table 2]. Published: A (11 layers) 89.18 %,
B (19) 92.46 (92.28 +- 0.16) %, C (32) 91.20 %. The paper names no augmentation and no
hyperparameters for this table. Ours are as for Table 3, without crops and mirroring.
Not trained for 400 epochs here.

`_fast` recipes of these five keep the architecture. They train for 52 epochs, which cost
29.7 epochs at 32 pixels: 16 pixels until 40 % of the epochs, 24 until 70 %; `highway_a`
trains for 100. Muon trains the kernels [Jordan et al. 2024], AdamW the stem, the head and
the biases. The stem starts with whitening filters, and images are mirrored in every
second epoch [Jordan 2024, arXiv 2404.00498]. Translations of 4 pixels, label smoothing
0.1, gradients of norm 2 at most, products in bfloat16. There is no dropout: with 20 epochs
(11.4 at 32 pixels) of 45,000 training images, one seed, the CIFAR-10 net is right about
92.1 % of 5,000 held-out images without it and about 86.3 % with dropout in the last third;
with weight decay 0.05 instead of 0.02, about 91.9 %. The CIFAR-100 net is right about 65.2 %
after as many epochs (`zoo/runs/cifar_fast`).

`highway110`, `resnet110` and others [BLOG, Evidence 1, "More Comparisons", "Further
Reducing Parameters"]. 200 epochs, batch 128, SGD with momentum 0.9, rate 0.1 divided by 10
at epochs 100 and 150, weight decay 1e-4 on all parameters (PyTorch's, as the authors used
it), crops of the image padded by 4, mirroring. ResNet110 has rate 0.01 in its first epoch.
Authors' logs: Highway110 93.96 % (last epoch), ResNet110 93.75 %. The last 80 of each
epoch's 50,000 images are left out, others each time. Not trained for 200 epochs here.

`highway110_fast`, `resnet110_fast`: 10 epochs of one cycle, two of them rising from 0, at
the same highest rate. They show first epochs and are no comparison: neither the rate nor
the gate bias, -6, was chosen for so short a time, and `highway110` has 1.5 times the
parameters of `resnet110`. ResNet110 reached 86.45 %, Highway110 76.05 % (n = 1 each, last
epoch). After ten epochs the authors' logs, of 200 epochs, have 75.66 and 77.9 %.

    python -m training.study designs --data DIR --out RUNS

`resnet20`, `highway20`, `exclusive20`, `preact20`, `postact20`, `postact20_zerobn`: the
designs of [BLOG] with blocks 3-3-3, small enough to train several times on a CPU.
`highway20` and the `postact20` nets have widths 11/22/45, so that they have the parameters
of `resnet20` (266,404 and 269,722 where gates are as deep as transforms). Their gates start
at -2, which [TVDN, 2.2] names for 20 layers; -6 is the authors' for 110. After 5 epochs at
rate 0.1, `highway20` is right about 75.5 % of the held-out images with -2 and 52.0 % with
-6 (`zoo/runs/highway20_bias_6`), `resnet20` about 78.9 % (one seed each). 15 epochs of one
cycle, three of them rising from 0, batch 128. The rest is the recipe of the 110-layer nets.
The highest rate, 0.4 for all six, is chosen from three on 5,000 held-out training images.

    python -m training.study block_forms --data DIR --out RUNS

`highway20_channel` and so on: other forms of the block of `highway20`, suggested by [BLOG]
and [UIE, 4]. Each differs in one thing, and in widths, so that all have 266,404 parameters
to within 2 %:

| recipe                       | difference from `highway20`                            | widths     | parameters |
| `highway20_channel`          | one learned gate per channel, independent of the data  | 16, 32, 63 | 266,748    |
| `highway20_low_rank`         | gates with 8 channels between their two convolutions   | 14, 29, 58 | 264,991    |
| `highway20_tied`             | the blocks of a stage after the first share one gate,  | 12, 25, 49 | 263,547    |
|                              | which has biases instead of batch normalization        |            |            |
| `highway20_shared`           | the blocks of a stage after the first share the        | 12, 25, 49 | 264,063    |
|                              | kernels of their transforms [Liao and Poggio 2016]     |            |            |
| `highway20_stochastic_depth` | a sample skips a block with a probability of 0 at the  | 11, 22, 45 | 266,404    |
|                              | first block, growing to 0.2 at the last                |            |            |

Test accuracy (n = 3): `highway20_channel` 87.85 ± 0.26 %, `highway20_low_rank` 88.70 ±
0.25 %, `highway20_tied` 88.14 ± 0.29 %, `highway20_shared` 88.55 ± 0.10 %,
`highway20_stochastic_depth` 86.80 ± 0.30 %, `highway20` 88.68 ± 0.27 %.

`highway_fc50_cifar100` [TVDN, 4; Figures 2 to 4]: 50 layers of 50 tanh units, gate bias -4,
SGD with momentum, exponential decay of the rate. The paper analyzes its gates and prints
neither accuracy nor rates. The rates are ours.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

# --- [TVDN], Table 3 ---

CIFAR10 = Recipe(
    name="cifar10_19layer",
    variant="cifar10_19layer",
    weights="cifar10_19layer.tvdn",
    data="cifar10",
    transform="cifar10_contrast",
    crop_padding=8,
    flip=True,
    epochs=400,
    learning_rate=0.025,
    milestones=(1 / 2, 3 / 4, 7 / 8),
    weight_decay=1e-3,
    decay_multipliers=(("head/kernel", 10.0),),
    bias_multiplier=2.0,
    seed=1,
    source="TVDN, Table 3",
)
CIFAR10_FAST = replace(
    CIFAR10,
    name="cifar10_19layer_fast",
    weights="cifar10_19layer.fast",
    crop_padding=4,
    alternating_flip=True,
    train_sizes=((0.4, 16), (0.7, 24)),
    whiten_stem=True,
    dropout_from=1.0,
    epochs=52,
    optimizer="muon",
    learning_rate=0.03,
    schedule="cosine",
    warmup_epochs=2,
    weight_decay=0.02,
    decay_multipliers=(),
    bias_multiplier=1.0,
    clip_norm=2.0,
    label_smoothing=0.1,
    precision="mixed_bfloat16",
    source="TVDN, Table 3's net; the recipe is ours",
)
_TABLE3 = (
    CIFAR10,
    CIFAR10_FAST,
    replace(
        CIFAR10_FAST,
        name="cifar100_19layer_fast",
        variant="cifar100_19layer",
        weights="cifar100_19layer.fast",
        data="cifar100",
        transform="cifar100_contrast",
    ),
    replace(
        CIFAR10,
        name="cifar100_19layer",
        variant="cifar100_19layer",
        weights="cifar100_19layer.tvdn",
        data="cifar100",
        transform="cifar100_contrast",
    ),
)

# --- [TVDN], Table 2 ---

_TABLE2 = ("highway_a", "highway_b", "highway_c")

_TABLE2_PUBLISHED = tuple(
    replace(
        CIFAR10,
        name=name,
        variant=name,
        weights=f"{name}.tvdn",
        crop_padding=0,
        flip=False,
        source="TVDN, Table 2; hyperparameters of Table 3, no augmentation",
    )
    for name in _TABLE2
)
_TABLE2_FAST = tuple(
    replace(
        CIFAR10_FAST,
        name=f"{name}_fast",
        variant=name,
        weights=f"{name}.fast",
        epochs=100 if name == "highway_a" else CIFAR10_FAST.epochs,
        source="TVDN, Table 2's net; the recipe is ours",
    )
    for name in _TABLE2
)

# --- [BLOG], 110 layers ---

HIGHWAY110 = Recipe(
    name="highway110",
    variant="highway110",
    weights="highway110.blog",
    data="cifar10",
    transform="cifar10",
    crop_padding=4,
    flip=True,
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    milestones=(1 / 2, 3 / 4),
    nesterov=False,
    weight_decay=1e-4,
    decay_vectors=True,
    seed=1,
    source="BLOG, Evidence 1",
)
_COMPARISONS = ("exclusive110", "preact110", "postact110", "postact110_zerobn")
_OTHERS = {"highway111": "BLOG, Further Reducing Parameters", **dict.fromkeys(_COMPARISONS, "BLOG, More Comparisons")}
_110_FAST = tuple(
    replace(
        HIGHWAY110,
        name=f"{net}_fast",
        variant=net,
        weights=f"{net}.fast",
        epochs=10,
        schedule="one_cycle",
        warmup_epochs=2,
        warmup_rate=0.0,
        source="BLOG, Evidence 1's nets; the recipe is ours: 10 epochs of one cycle",
    )
    for net in ("highway110", "resnet110")
)
_110 = (
    HIGHWAY110,
    replace(
        HIGHWAY110, name="resnet110", variant="resnet110", weights="resnet110.blog", warmup_epochs=1, warmup_rate=0.01
    ),
    *(
        replace(HIGHWAY110, name=name, variant=name, weights=f"{name}.blog", source=source)
        for name, source in _OTHERS.items()
    ),
    *_110_FAST,
)

# --- [BLOG], designs at 20 layers ---

DESIGNS = ("resnet", "highway", "exclusive", "preact", "postact", "postact_zerobn")
RATES = (0.1, 0.2, 0.4)


def variant_of(design: str) -> str:
    """Return the variant of a design, e.g. `"postact20_zerobn"` of `"postact_zerobn"`."""
    first, _, rest = design.partition("_")
    return f"{first}20{'_' if rest else ''}{rest}"


_20 = tuple(
    replace(
        HIGHWAY110,
        name=variant_of(design),
        variant=variant_of(design),
        weights=f"{variant_of(design)}.blog",
        epochs=15,
        learning_rate=0.4,
        schedule="one_cycle",
        warmup_epochs=3,
        warmup_rate=0.0,
        precision="mixed_bfloat16",
        source="BLOG, Evidence 1 and More Comparisons, at 20 layers: 15 epochs of one cycle, rate chosen from three",
    )
    for design in DESIGNS
)

# --- Forms of the block of highway20 ---

_FORMS: dict[str, dict[str, object]] = {
    "channel": {"gate": "channel", "widths": (16, 32, 63)},
    "low_rank": {"gate": "low_rank", "gate_rank": 8, "widths": (14, 29, 58)},
    "tied": {"gate": "tied", "widths": (12, 25, 49)},
    "shared": {"shared_transforms": True, "widths": (12, 25, 49)},
    "stochastic_depth": {"stochastic_depth": 0.2},
}
FORMS = ("coupled", *_FORMS)
_HIGHWAY20 = next(recipe for recipe in _20 if recipe.name == "highway20")


def form_of(form: str) -> str:
    """Return the name of a form's recipe, e.g. `"highway20_tied"` of `"tied"`; `"coupled"` is `highway20` itself."""
    return "highway20" if form == "coupled" else f"highway20_{form}"


_20_FORMS = tuple(
    replace(
        _HIGHWAY20,
        name=form_of(form),
        weights=f"highway20.{form}",
        overrides=tuple(overrides.items()),
        source="BLOG's and UIE's suggestions in small: highway20 with another form of block, parameters matched here",
    )
    for form, overrides in _FORMS.items()
)

# --- [TVDN], 4 ---

_FC50 = Recipe(
    name="highway_fc50_cifar100",
    variant="highway_fc50_cifar100",
    weights="highway_fc50_cifar100.tvdn",
    data="cifar100",
    transform="cifar100",
    epochs=50,
    learning_rate=0.05,
    schedule="exponential",
    decay=0.94,
    nesterov=False,
    seed=1,
    source="TVDN, 4: 50 layers, tanh, gate bias -4, SGD with momentum, exponential decay; rates chosen here",
)
RECIPES: tuple[Recipe, ...] = (*_TABLE3, *_TABLE2_PUBLISHED, *_TABLE2_FAST, *_110, *_20, *_20_FORMS, _FC50)
