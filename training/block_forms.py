"""`python -m training.block_forms`: six forms of highway20's block at equal parameters.

Coupled gates as deep as the transforms, gates that do not depend on the data,
low-rank gates, gates and transforms shared by the blocks of a stage, layer
dropout. For each form a rate is chosen from the same three by short runs that
are tested on held-out training images, `OUT/rates/RECIPE_RATE`; then every
seed is trained whole and tested on the test set, `OUT/RECIPE/SEED`. The form
`coupled` is `highway20`, so that with the OUT of
`training.designs` its runs there serve here. Started
again it resumes where it stopped; SIGTERM saves the state (exit code 75).
Several processes may share OUT if each trains forms of its own. With `--table`
nothing is trained.
"""

import sys

from keras_highway.training.recipes.cifar_20 import RATES
from keras_highway.training.recipes.cifar_20_forms import FORMS, recipe_of
from training.study import Study, study_main

STUDY = Study(
    nets=tuple(map(recipe_of, FORMS)),
    base=recipe_of("coupled"),
    rates=RATES,
    held_out=5_000,  # of CIFAR-10's 50,000 training images
)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    return study_main(STUDY, "block_forms", __doc__ or "", "forms", {name: recipe_of(name) for name in FORMS}, argv)


if __name__ == "__main__":
    sys.exit(main())
