"""ImageNet's nets on photographs that a CPU can take: Imagenette, ten of ImageNet's classes.

    python -m keras_highway train highway50_imagenette --data DIR --out RUN                       # one run
    python -m training.study imagenette_pair --data DIR --out RUNS  # rates, then seeds

DIR holds train/CLASS/* and val/CLASS/*: 9,469 and 3,925 photographs. The data
set's authors rank what reaches most after 5, 20, 80 and 200 epochs at 128, 192
and 256 pixels; `_imagenette` is 20 epochs at 128 pixels, `_imagenette_5` is 5.
The best at 128 pixels, each the mean of 5 runs, by nets with other means than
ResNet50's: 85.77 % after 5 epochs by a "mini net" (87.43 % on the newest board), 91.57 %
after 20 by an SE-ResNeXt50 with Mish, self-attention and blurred pooling. Crops
of 35 to 100 % of the area, mirroring, label smoothing 0.1 and weight decay 0.01
are those of the authors' program (`train_imagenette.py`), which crops
photographs of at least 320 pixels and has Ranger in batches of 64; the optimizer
here is AdamW, its rate rises for a fifth of the epochs and falls along a cosine.
The same recipe for both nets but for the highest rate, which is chosen for
each from the same three by 5 epochs on 1,000 held-out training images. Of these
had right, in %, at rates of

                5e-4    1.5e-3    4.5e-3
    Highway50   73.2    75.2      76.4
    ResNet50    72.3    73.2      72.1

and ResNet50 at 1.5e-3 in batches of 32 with beta_2 0.99 72.5, with crops of at
least 75 % of the area 73.6 (one seed each, `zoo/runs/imagenette` and `zoo/runs/imagenette_settings`; the standard
error of a share of 1,000 is 1.4 points; for Highway50 a higher rate might be better
still): neither twice the steps nor milder crops help, batch and crops stay. SGD at
0.05 had 49.2 % after the third epoch, AdamW 59.5 %, and was ended (its log was not
kept). PyTorch's ResNet50 by the same recipe had 74.1 %
(`tests/oracles/imagenette_resnet50.py`): so much is the net's, not our program's.

`_imagenette_a3` is procedure A3 of "ResNet strikes back" in small, 20 epochs:
LAMB, RandAugment, Mixup, CutMix and the sigmoid's cross-entropy; trained at 96
and tested at 128 pixels, where A3 has 160 and 224 and a larger part of the photograph (0.95
of its side; here 0.875); batch 128, an epoch of warm-up, a rate for each step, not for
each epoch, of which there are few. A3's 8e-3 times the square root of 128 / 2048 would
be 2e-3: LAMB moves each kernel by its norm times the rate, and 1,460 steps at that would
add up to 1.5 norms, where A3's 62,500 steps add up to 240. The rates are higher. Of
1,000 held-out images had right, in %, after 5 epochs,

                5e-3    1e-2    2e-2
    Highway50   62.1    61.0    54.8
    ResNet50    59.4    54.1    51.3

so that both took the lowest; a lower one might be better still.

`_64` is [UIE], Table 1b, in small: its three nets with and without batch
normalization at 64 pixels, 20 epochs, by the same recipe without label
smoothing, so that training losses are those of [UIE, Figure 5]: which of them
trains without batch normalization, which fits the training set best, which
generalizes. Without normalization a net takes smaller rates, and so the three
that all six choose from are lower and further apart; and its loss may jump: for all six
the norm of the gradient is at most 1. Of the 1,000 held-out images had right, in %,

                              2e-4    8e-4    3.2e-3
    highway50_uie             47.2    66.4    55.0
    highway50_uie_nobn        53.8    62.9    57.7
    highway_full50_uie        49.9    70.3    66.3
    highway_full50_uie_nobn   51.9    59.6    56.5
    resnet50_uie              45.5    67.7    55.4
    resnet50_uie_nobn         57.1    57.6    48.6

Products are in bfloat16, for GPUs and processors with AMX or AVX-512's bfloat16. On others float32 is faster (`--set
precision=float32`). Images per second of one core, a step of batch 64 at 128 pixels, ResNet50 and Highway50: on an
Intel Xeon with AVX-512 alone 11.8 and 10.0 in float32, 7.8 and 6.7 in bfloat16; on an AMD EPYC with its bfloat16
21.2 and 17.9 in float32, 34.0 and 28.1 in bfloat16 (five steps each). Whole runs of 5 epochs, one on each core, on
an Intel Xeon with AMX: 24 and 19 in bfloat16.

Results of whole runs, as far as there are any: docs/results.md. The photographs may
be stored at any size; those that we measure on were squared to 224 x 224 before,
where that board's keep their own aspect.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes import rsb

RATES = (5e-4, 1.5e-3, 4.5e-3)
CHOSEN = {"highway50": RATES[2], "resnet50": RATES[1]}
A3_RATES = (5e-3, 1e-2, 2e-2)
UIE_RATES = (2e-4, 8e-4, 3.2e-3)
PAIR = ("highway50", "resnet50")
UIE_NETS = tuple(f"{net}_uie{rest}" for rest in ("", "_nobn") for net in ("highway50", "highway_full50", "resnet50"))

HIGHWAY50 = Recipe(
    name="highway50_imagenette",
    variant="highway50",
    overrides=(("input_shape", (128, 128, 3)),),
    weights="highway50.imagenette",
    data="imagenette",
    transform="imagenet_128",
    crop_scale=0.35,
    epochs=20,
    batch_size=64,
    optimizer="adamw",
    learning_rate=CHOSEN["highway50"],
    schedule="cosine",
    warmup_epochs=4,
    weight_decay=0.01,
    label_smoothing=0.1,
    precision="mixed_bfloat16",
    seed=1,
    source="github.com/fastai/imagenette, 128 pixels; AdamW and the rates chosen here",
)


def _of_both_lengths(net: str) -> tuple[Recipe, Recipe]:
    name, rate = f"{net}_imagenette", CHOSEN[net]
    long = replace(HIGHWAY50, name=name, variant=net, weights=f"{net}.imagenette", learning_rate=rate)
    short = replace(long, name=f"{net}_imagenette_5", weights=f"{net}.imagenette_5", epochs=5, warmup_epochs=1)
    return long, short


def _a3(net: str) -> Recipe:
    return replace(
        _A3[f"{net}_a3"],
        name=f"{net}_imagenette_a3",
        weights=f"{net}.imagenette_a3",
        data="imagenette",
        transform="imagenet_128",
        train_size=96,
        epochs=20,
        batch_size=128,
        micro_batches=1,
        learning_rate=A3_RATES[0],
        schedule="cosine",
        warmup_epochs=1,
        seed=1,
        source="RSB, A3, in small: Imagenette, trained at 96 and tested at 128 pixels, batch 128, a rate per step, "
        "one epoch of warm-up; rates chosen here",
    )


def _uie(variant: str) -> Recipe:
    return replace(
        HIGHWAY50,
        name=f"{variant}_64",
        variant=variant,
        weights=f"{variant}.imagenette_64",
        overrides=(("input_shape", (64, 64, 3)),),
        transform="imagenet_64",
        learning_rate=UIE_RATES[1],
        label_smoothing=0.0,
        clip_norm=1.0,
        source="UIE, Table 1b and Figure 5, in small: Imagenette at 64 pixels; optimizer and rates chosen here",
    )


_A3 = {recipe.name: recipe for recipe in rsb.RECIPES}
RECIPES = (
    *(recipe for net in PAIR for recipe in _of_both_lengths(net)),
    *map(_a3, PAIR),
    *map(_uie, UIE_NETS),
)
