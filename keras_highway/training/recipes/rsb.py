"""Procedures A1, A2, A3 of "ResNet strikes back" [RSB] for the ImageNet nets [BLOG, Evidence 3].

    python -m keras_highway train highway50_a2 --data DIR --out RUN

LAMB, RandAugment, Mixup, CutMix, crops, repeated augmentation and the schedule
are timm's, see `tests/test_rsb_oracle.py`; crops and RandAugment resample
bicubically, where timm's default draws bilinear or bicubic anew each time. The rate
changes once an epoch, as timm's did when the paper was written, and its
cosine counts the epochs of the warm-up. timm's clips LAMB's gradients to a norm of
1: `clip_norm`. On g GPUs timm draws one Mixup or CutMix for each one's part of a
batch, here a batch has one. A1
has no target threshold, which would undo its label smoothing. A3 trains at
160 and tests at the transform's 224, with a network built for any size.
Published top-1 (A2): Highway50 80.3 %, ResNet50 79.8 %. No result of ours.
"""

from dataclasses import replace

from keras_highway.training.recipe import Recipe

_NETS = ("highway50", "highway101", "highway152", "resnet50", "resnet101", "resnet152")


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


RECIPES: tuple[Recipe, ...] = tuple(procedure(net) for procedure in (_a1, _a2, _a3) for net in _NETS)
