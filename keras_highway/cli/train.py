"""`keras-highway train RECIPE`: the training code's own command line."""

import argparse

from keras_highway.training import train


def run(arguments: argparse.Namespace) -> int:
    """Trains a recipe, or resumes its run.

    Raises:
        SystemExit: With the exit codes of `keras_highway.training.train`.
    """
    train.main(arguments.arguments)
    return 0
