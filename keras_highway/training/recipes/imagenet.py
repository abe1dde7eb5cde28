"""Photographs: ImageNet, and Imagenette and Tiny ImageNet, which a CPU can train on.

DIR holds train/CLASS/* and val/CLASS/*. Results: docs/results.md.

    python -m keras_highway train highway50 --data DIR --out RUN

`highway50`, `resnet50` and others: He et al.'s schedule, as in [UIE, 5.1]. 90 epochs, batch
256, SGD with momentum 0.9, rate 0.1 divided by 10 at epochs 30 and 60, weight decay 1e-4
(here on kernels only). Random resized crops of 8 to 100 % of the area, where He et al. resize
the shorter side to 256-480 and shift colours. The test crop is theirs, 0.875 of the shorter
side. The published top-5 errors belong to the `_uie` nets; [BLOG]'s nets were trained by the
procedures of "ResNet strikes back". None of these is trained here.

    python -m keras_highway train highway50_a2 --data DIR --out RUN

`_a1`, `_a2`, `_a3`: the procedures of "ResNet strikes back" [RSB; BLOG, Evidence 3]. LAMB,
RandAugment, Mixup, CutMix, crops, repeated augmentation and the schedule are timm's
(`tests/test_rsb_oracle.py`). Crops and RandAugment resample bicubically, where timm draws
bilinear or bicubic each time. The rate changes once an epoch, as timm's did when the paper was
written, and its cosine counts the epochs of the warm-up. timm's LAMB clips gradients to a norm of
1, here `clip_norm`. On g GPUs timm draws one Mixup or CutMix for each GPU's part of a batch, here a
batch has one. A1 has no target threshold, which would undo its label smoothing. A3 trains at 160
and tests at 224 pixels, with a network built for any size. Published top-1 (A2): Highway50 80.3 %,
ResNet50 79.8 %. None of these is trained here.

    python -m training.study imagenette_pair --data DIR --out RUNS

`highway50_imagenette`, `resnet50_imagenette`: Imagenette, 9,469 and 3,925 photographs of ten
classes, 20 epochs at 128 pixels; `_imagenette_5` is 5 epochs. The best of the data set's authors'
board at 128 pixels, means of 5 runs by other nets: 85.77 % after 5 epochs by a "mini net" (87.43 %
on the newest board), 91.57 % after 20 by an SE-ResNeXt50 with Mish, self-attention and blurred
pooling. Crops of 35 to 100 % of the area, mirroring, label smoothing 0.1 and weight decay 0.01 are
from the authors' program (`train_imagenette.py`), which crops photographs of at least 320 pixels
and uses Ranger in batches of 64. Here AdamW's rate rises for a fifth of the epochs and falls along a
cosine. The highest rate is chosen for each net from the same three, by 5 epochs and 1,000 held-out
training images. Accuracy on these, in %:

                5e-4    1.5e-3    4.5e-3
    Highway50   73.2    75.2      76.4
    ResNet50    72.3    73.2      72.1

ResNet50 at 1.5e-3 in batches of 32 with beta_2 0.99 had 72.5, with crops of at least 75 % of the area
73.6 (one seed each, `zoo/runs/imagenette` and `zoo/runs/imagenette_settings`; the standard error of a
share of 1,000 is 1.4 points; a higher rate might be better for Highway50). Neither twice the steps
nor milder crops help. SGD at 0.05 had 49.2 % after the third epoch, AdamW 59.5 %, and was ended (its
log was not kept). PyTorch's ResNet50 by the same recipe had 74.1 %
(`tests/oracles/imagenette_resnet50.py`), so the limit is the net's, not our program's.

`_imagenette_a3`: procedure A3 in small. 20 epochs, trained at 96 and tested at 128 pixels, batch 128,
an epoch of warm-up, a rate for each step. The test crop is 0.875 of the side (A3: 0.95). A3's 8e-3
times the square root of 128 / 2048 would be 2e-3. LAMB moves each kernel by its norm times the rate,
and 1,460 steps at that rate would add up to 1.5 norms, where A3's 62,500 steps add up to 240. So the
rates are higher. Accuracy on 1,000 held-out images after 5 epochs, in %:

                5e-3    1e-2    2e-2
    Highway50   62.1    61.0    54.8
    ResNet50    59.4    54.1    51.3

Both took the lowest; a lower rate might be better still.

`_64`: [UIE], Table 1b, in small. Its three nets with and without batch normalization at 64 pixels, 20
epochs, by the same recipe without label smoothing, so that training losses compare with [UIE, Figure
5]. A net without normalization needs smaller rates, and its loss may jump. So the three rates of all
six nets are lower and further apart, and the norm of the gradient is at most 1. Accuracy on the 1,000
held-out images, in %:

                              2e-4    8e-4    3.2e-3
    highway50_uie             47.2    66.4    55.0
    highway50_uie_nobn        53.8    62.9    57.7
    highway_full50_uie        49.9    70.3    66.3
    highway_full50_uie_nobn   51.9    59.6    56.5
    resnet50_uie              45.5    67.7    55.4
    resnet50_uie_nobn         57.1    57.6    48.6

Products are in bfloat16, for GPUs and processors with AMX or AVX-512's bfloat16. On other processors
float32 is faster (`--set precision=float32`). Images per second of one core, a step of batch 64 at 128
pixels, ResNet50 and Highway50: Intel Xeon with AVX-512 only, 11.8 and 10.0 in float32, 7.8 and 6.7 in
bfloat16; AMD EPYC with AVX-512's bfloat16, 21.2 and 17.9 in float32, 34.0 and 28.1 in bfloat16 (five
steps each). Whole runs of 5 epochs, one on each core of an Intel Xeon with AMX: 24 and 19 in bfloat16.

The photographs may be stored at any size. Ours are squared to 224 x 224 before; the board's keep their
proportions.

    python -m training.study tiny_imagenet --data DIR --out RUNS

`_tiny_imagenet`: 200 classes, 100,000 and 10,000 photographs of 64 x 64 pixels, a start for fine-tuning.
DIR is the unpacked archive of Stanford's CS231n, `tiny-imagenet-200`: train/CLASS/images/*, val/images/*
and val/val_annotations.txt; or `tiny_imagenet` in KERAS_HIGHWAY_DATA. The validation set is the test
set: the archive's test set has no labels. The recipe is `highway50_imagenette` for 15 epochs in
batches of 128. The nets are as for ImageNet: the stem leaves 16 x 16, the last stage 2 x 2. The highest
rate is chosen for each from the same three, by 5 epochs on 25,000 training images tested on 5,000
held-out ones. No published numbers, and none of ours yet.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

# --- ImageNet ---

_HIGHWAY50 = Recipe(
    name="highway50",
    variant="highway50",
    weights="highway50.uie",
    data="imagenet",
    transform="imagenet_875",
    epochs=90,
    batch_size=256,
    learning_rate=0.1,
    weight_decay=1e-4,
    nesterov=False,
    source="UIE, 5.1 (He et al. 2015)",
)
_OTHERS = (
    "highway101 highway152 resnet50 resnet101 resnet152 highway50_uie highway50_uie_nobn highway_full50_uie "
    "highway_full50_uie_nobn resnet50_uie resnet50_uie_nobn highway_resnet50 highway_resnet101 highway_resnet152"
)
_UIE = (_HIGHWAY50, *(replace(_HIGHWAY50, name=name, variant=name, weights=f"{name}.uie") for name in _OTHERS.split()))


_RSB_NETS = ("highway50", "highway101", "highway152", "resnet50", "resnet101", "resnet152")


def _a2(variant: str) -> Recipe:
    return Recipe(
        name=f"{variant}_a2",
        variant=variant,
        weights=f"{variant}.rsb_a2",
        overrides=(("stochastic_depth", 0.05),),
        data="imagenet",
        transform="imagenet",
        epochs=300,
        batch_size=2048,
        micro_batches=8,
        optimizer="lamb",
        learning_rate=5e-3,
        schedule="epoch_cosine",
        final_rate=1e-6,
        warmup_epochs=5,
        warmup_rate=1e-4,
        weight_decay=0.02,
        clip_norm=1.0,
        loss="bce",
        target_threshold=0.2,
        precision="mixed_bfloat16",
        rand_augment="m7-mstd0.5-inc1",
        mixup=0.1,
        cutmix=1.0,
        repeated_augmentation=3,
        source="RSB, A2 (Wightman et al. 2021, arXiv 2110.00476)",
    )


def _a1(variant: str) -> Recipe:
    return replace(
        _a2(variant),
        name=f"{variant}_a1",
        weights=f"{variant}.rsb_a1",
        epochs=600,
        weight_decay=0.01,
        label_smoothing=0.1,
        target_threshold=None,
        mixup=0.2,
        source="RSB, A1 (Wightman et al. 2021, arXiv 2110.00476)",
    )


def _a3(variant: str) -> Recipe:
    return replace(
        _a2(variant),
        name=f"{variant}_a3",
        weights=f"{variant}.rsb_a3",
        overrides=(),
        train_size=160,
        epochs=100,
        learning_rate=8e-3,
        rand_augment="m6-mstd0.5-inc1",
        repeated_augmentation=1,
        source="RSB, A3 (Wightman et al. 2021, arXiv 2110.00476): trained at 160, tested at 224",
    )


_RSB = tuple(procedure(net) for procedure in (_a1, _a2, _a3) for net in _RSB_NETS)

# --- Imagenette ---

RATES = (5e-4, 1.5e-3, 4.5e-3)
CHOSEN = {"highway50": RATES[2], "resnet50": RATES[1]}
A3_RATES = (5e-3, 1e-2, 2e-2)
UIE_RATES = (2e-4, 8e-4, 3.2e-3)
PAIR = ("highway50", "resnet50")
UIE_NETS = tuple(f"{net}_uie{rest}" for rest in ("", "_nobn") for net in ("highway50", "highway_full50", "resnet50"))

IMAGENETTE = Recipe(
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
    long = replace(IMAGENETTE, name=name, variant=net, weights=f"{net}.imagenette", learning_rate=rate)
    short = replace(long, name=f"{net}_imagenette_5", weights=f"{net}.imagenette_5", epochs=5, warmup_epochs=1)
    return long, short


def _imagenette_a3(net: str) -> Recipe:
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


def _imagenette_uie(variant: str) -> Recipe:
    return replace(
        IMAGENETTE,
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


_A3 = {recipe.name: recipe for recipe in _RSB}
_IMAGENETTE = (
    *(recipe for net in PAIR for recipe in _of_both_lengths(net)),
    *map(_imagenette_a3, PAIR),
    *map(_imagenette_uie, UIE_NETS),
)

# --- Tiny ImageNet ---


def tiny_imagenet_of(net: str) -> str:
    """Return the name of a net's recipe."""
    return f"{net}_tiny_imagenet"


_TINY_IMAGENET = tuple(
    replace(
        IMAGENETTE,
        name=tiny_imagenet_of(net),
        variant=net,
        weights=f"{net}.tiny_imagenet",
        overrides=(("input_shape", (64, 64, 3)),),
        data="tiny_imagenet",
        transform="tiny_imagenet",
        epochs=15,
        batch_size=128,
        learning_rate=RATES[1],
        warmup_epochs=3,
        source="Tiny ImageNet (Stanford CS231n); the recipe is `highway50_imagenette`'s",
    )
    for net in PAIR
)

RECIPES: tuple[Recipe, ...] = (*_UIE, *_IMAGENETTE, *_TINY_IMAGENET, *_RSB)
