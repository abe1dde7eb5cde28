"""`python -m training.tiny_imagenet`: Highway50 and ResNet50 on Tiny ImageNet's 200 classes.

For each net a rate is chosen from the same three by short runs on a quarter
of the training images, tested on held-out ones, `OUT/rates/RECIPE_RATE`; then it is trained
whole and tested on the validation set, `OUT/RECIPE/SEED`. Started again it resumes
where it stopped; SIGTERM saves the state (exit code 75). Two processes may
share OUT if each trains a net of its own. With `--table` nothing is trained.
"""

import sys

from keras_highway.training.recipes.imagenette import PAIR, RATES
from keras_highway.training.recipes.tiny_imagenet import recipe_of
from training.study import Study, study_main

STUDY = Study(
    nets=tuple(map(recipe_of, PAIR)),
    base=recipe_of("resnet50"),
    rates=RATES,
    held_out=5_000,  # of 100,000
    rate_images=25_000,
    seeds=(1,),
)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    names = {net: recipe_of(net) for net in PAIR}
    data = "folder of tiny-imagenet-200: DIR/train, DIR/val, or shards of it (default: tiny_imagenet in "
    return study_main(STUDY, "tiny_imagenet", __doc__ or "", "nets", names, argv, f"{data}KERAS_HIGHWAY_DATA)")


if __name__ == "__main__":
    sys.exit(main())
