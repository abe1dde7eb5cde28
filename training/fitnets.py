"""`python -m training.fitnets`: Highway A, B and C of [TVDN, Table 2] by the short recipe.

For each net a rate is chosen from the same three by short runs that are tested
on held-out training images, `OUT/rates/RECIPE_RATE`; then every seed is trained
whole and tested on the test set, `OUT/RECIPE/SEED`. Started again it resumes
where it stopped; SIGTERM saves the state (exit code 75). Several processes may
share OUT if each trains nets of its own. With `--table` nothing is trained.
"""

import sys

from keras_highway.training.recipes.cifar_fitnets import NETS, RATES, fast
from training.study import Study, study_main

STUDY = Study(
    nets=tuple(map(fast, NETS)),
    base=fast("highway_b"),
    rates=RATES,
    held_out=5_000,  # of CIFAR-10's 50,000 training images
)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    return study_main(STUDY, "fitnets", __doc__ or "", "nets", {name: fast(name) for name in NETS}, argv)


if __name__ == "__main__":
    sys.exit(main())
