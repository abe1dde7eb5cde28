"""`python -m training.train RECIPE --data DIR --out RUN`: trains a recipe, or goes on with its run."""

import argparse
import dataclasses

from keras_highway.near import did_you_mean
from training.recipes import RECIPES


def main(argv=None) -> None:
    """Parses the command line and trains."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("recipe", help=", ".join(RECIPES))
    parser.add_argument("--data", help="folder of mnist.npz, ... (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--out", help="the run's folder (default: runs/RECIPE)")
    parser.add_argument("--seed", type=int, help="default: the recipe's")
    parser.add_argument("--epochs", type=int, help="default: the recipe's")
    args = parser.parse_args(argv)
    if args.recipe not in RECIPES:
        parser.error(f"unknown recipe {args.recipe!r}.{did_you_mean(args.recipe, RECIPES)} Known: {', '.join(RECIPES)}")
    changes = {name: getattr(args, name) for name in ("seed", "epochs") if getattr(args, name) is not None}
    recipe = dataclasses.replace(RECIPES[args.recipe], **changes)

    from training.loop import train  # Keras takes seconds to import; --help need not wait

    result = train(recipe, args.data, args.out or f"runs/{recipe.name}")
    print(f"{result['weights']}: {100 * result['mean']:.2f} % test accuracy after {recipe.epochs} epochs")


if __name__ == "__main__":
    main()
