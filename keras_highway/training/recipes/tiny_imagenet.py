"""ImageNet's nets on Tiny ImageNet: 200 of its classes, 100,000 and 10,000 photographs of 64 x 64 pixels.

    python -m keras_highway train highway50_tiny_imagenet --data DIR --out RUN                # one run
    python -m training.study tiny_imagenet --data DIR --out RUNS  # rates, then a seed

DIR is the unpacked archive of Stanford's CS231n, `tiny-imagenet-200`: train/CLASS/images/*,
val/images/* and val/val_annotations.txt; or `tiny_imagenet` in KERAS_HIGHWAY_DATA. The
validation set is the test set: that of the archive has no labels. A start for
fine-tuning that has seen more classes than Imagenette's ten, on small pictures.

The recipe is that of `highway50_imagenette` (recipes/imagenette.py), AdamW with
products in bfloat16, for 15 epochs in batches of 128. The nets are as ImageNet's: of
64 pixels their stem leaves 16 x 16, their last stage 2 x 2. One recipe for both
but for the highest rate, which is chosen for each from the same three by 5 epochs on
25,000 of the training images, tested on 5,000 held-out ones. No published numbers: the
question is whether Highway50 matches ResNet50, and what both are worth as a start.
No result of ours yet.
"""

from dataclasses import replace

from keras_highway.training.recipes.imagenette import HIGHWAY50, PAIR, RATES


def recipe_of(net: str) -> str:
    """Returns the name of a net's recipe."""
    return f"{net}_tiny_imagenet"


RECIPES = tuple(
    replace(
        HIGHWAY50,
        name=recipe_of(net),
        variant=net,
        weights=f"{net}.tiny_imagenet",
        overrides=(("input_shape", (64, 64, 3)),),
        data="tiny_imagenet",
        transform="tiny_imagenet",
        epochs=15,
        batch_size=128,
        learning_rate=RATES[1],
        warmup_epochs=3,
        source="Tiny ImageNet (Stanford CS231n); the recipe is that of `highway50_imagenette`",
    )
    for net in PAIR
)
