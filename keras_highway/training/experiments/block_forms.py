"""`python -m keras_highway.training.experiments.block_forms`: six forms of highway20's block at equal parameters.

Coupled gates as deep as the transforms, gates that do not look at the data,
low-rank gates, gates and transforms shared by the blocks of a stage, layer
dropout. For each form a rate is chosen from the same three by short runs that
are tested on held-out training images, `OUT/rates/RECIPE_RATE`; then every
seed is trained whole and tested on the test set, `OUT/RECIPE/SEED`. The form
`coupled` is `highway20`, so that with the OUT of `keras_highway.training.experiments.designs`
its runs there serve here. Started again it goes on where it stopped; SIGTERM
saves the state (exit code 75). Several processes may share OUT if each is
given forms of its own. With `--table` nothing is trained.
"""

import argparse
import sys

from keras_highway.training.experiments.study import Study, add_arguments, run_and_print
from keras_highway.training.recipes.cifar_20 import RATES
from keras_highway.training.recipes.cifar_20_forms import FORMS, recipe_of

STUDY = Study(
    nets=tuple(map(recipe_of, FORMS)),
    base=recipe_of("coupled"),
    rates=RATES,
    held_out=5_000,  # of CIFAR-10's 50,000 training images
)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway.training.experiments.block_forms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder of cifar10.npz (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, help="default: all six")
    add_arguments(parser, "runs/block_forms")
    args = parser.parse_args(argv)
    run_and_print(STUDY, tuple(map(recipe_of, args.forms)), args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
