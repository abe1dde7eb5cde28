"""`python -m training.designs`: six designs of gated blocks at 20 layers, compared fairly.

[BLOG], Evidence 1 and "More Comparisons", in small. For each design a rate is
chosen from the same three by short runs that are tested on held-out training
images, `OUT/rates/VARIANT_RATE`; then every seed is trained whole and tested
on the test set, `OUT/VARIANT/SEED`. Started again it resumes where it stopped;
SIGTERM saves the state (exit code 75). Several processes may share OUT if each
trains designs of its own. With `--table` nothing is trained.
"""

import sys

from keras_highway.training.recipes.cifar_20 import DESIGNS, RATES, variant_of
from training.study import Study, study_main

STUDY = Study(
    nets=tuple(map(variant_of, DESIGNS)),
    base=variant_of("resnet"),
    rates=RATES,
    held_out=5_000,  # of CIFAR-10's 50,000 training images
)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    return study_main(STUDY, "designs", __doc__ or "", "designs", {name: variant_of(name) for name in DESIGNS}, argv)


if __name__ == "__main__":
    sys.exit(main())
