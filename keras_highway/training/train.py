"""`python -m keras_highway train RECIPE`: trains a recipe, or resumes its run.

Without a checkout, too; DIR holds train/CLASS/* and val/CLASS/* for recipes of
photographs, whose classes are then those of the folders, or mnist.npz, ...

  python -m keras_highway train resnet50 --data DIR --init resnet50.a1 --freeze body

The line of an epoch ends in "waiting for data": the share of its time in which
nothing was computed because the next images were not decoded yet. Above a few
hundredths, more cores or a faster disk would make training faster.

Before the first step on a CPU its memory is estimated: a note says if it may not
fit, and an error if it needs 1.5 times the free memory or more.
KERAS_HIGHWAY_MEMORY_CHECK=off disables the check.

Exit codes: 0 finished; 75 stopped by SIGTERM, its state saved: start it again
and it resumes; 2 an error, named; 1 one that may pass, e.g. of a file system
that was away for a while; 141 the reader of its output closed it.
"""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from keras_highway._support.backend import explained
from keras_highway._support.files import may_pass
from keras_highway._support.schema import positive
from keras_highway._support.terminal import CLOSED_PIPE, did_you_mean, drop_output, is_closed, visible_lines
from keras_highway.training.distributed.stopping import USAGE_ERROR, is_one_of_several
from keras_highway.training.recipe import Recipe, with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.summary import summary
from keras_highway.training.tiny import tiny

_MAY_PASS = 1  # what a supervisor begins again after it may go on


def main(argv=None) -> None:
    """Parse the command line and trains."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help=", ".join(RECIPES))
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the data (default: KERAS_HIGHWAY_DATA; of MNIST and CIFAR else TensorFlow Datasets, else what "
        "Keras downloads once)",
    )
    parser.add_argument("--out", help="the run's folder (default: runs/RECIPE)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the recipe, or net.FIELD of its net",
    )
    parser.add_argument("--init", metavar="WEIGHTS", help="start from these: a name, a file, a folder or hf://org/name")
    parser.add_argument("--freeze", metavar="STAGE", help="with --init: train what is after this stage; body: the head")
    parser.add_argument("--strategy", default="auto", help="auto, none, mirrored, multiworker or jax (default: auto)")
    parser.add_argument("--tiny", action="store_true", help="a small net and made-up data: seconds, to try the way")
    parser.add_argument(
        "--save-steps", type=positive, help="number of steps of an epoch after which the state is saved, too"
    )
    parser.add_argument("--until", type=positive, metavar="EPOCH", help="do not go beyond this epoch now")
    parser.add_argument("--log-steps", action="store_true", help="write the loss of every step to steps.csv, too")
    parser.add_argument(
        "--finish", action="store_true", help="after --until, write weights and result although epochs are left"
    )
    args = parser.parse_args(argv)
    try:
        _check_given(args)
        start = [f"{name}={value!r}" for name, value in _start(args).items()]
        recipe = choose(args.recipe, [*args.set, *start], args.tiny)
    except ValueError as error:
        parser.error(visible_lines(str(error)))

    out = args.out or f"runs/{recipe.name}"
    with errors_in_a_line():
        result = _train()(
            recipe,
            args.data,
            out,
            args.strategy,
            save_steps=args.save_steps,
            until=args.until,
            log_steps=args.log_steps,
            finish=args.finish,
        )
    if result is None:
        print(f"{recipe.name}: {_trained(out)} of {recipe.epochs} epochs; run it again to resume")
        return
    print(summary(recipe, result, out, args.data))


def _check_given(args: argparse.Namespace) -> None:
    """Raise a ValueError if an option is empty, as a variable of a shell that is not set: another would be meant."""
    options = {"init": "what to start from", "freeze": "a stage", "data": "a folder", "out": "a folder"}
    for name, what in options.items():
        if getattr(args, name) == "":
            raise ValueError(f"--{name} is empty: name {what}, or leave it out. Received: --{name} ''")


def _start(args: argparse.Namespace) -> dict[str, str]:
    """Return the values of `--init` and `--freeze`."""
    return {name: value for name in ("init", "freeze") if (value := getattr(args, name)) is not None}


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Within it an error with a name ends the process: a line on stderr, and its exit code, as stated above.

    Raises:
        SystemExit: In the error's place.
    """
    try:
        yield
    except (ValueError, OSError, ImportError, FloatingPointError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and is_closed():  # not another pipe
            drop_output()
            _end(CLOSED_PIPE)
        print(f"error: {visible_lines(str(error))}", file=sys.stderr)
        _end(_MAY_PASS if may_pass(error) else USAGE_ERROR)
    except Exception:
        if not is_one_of_several():
            raise
        traceback.print_exc()
        _end(_MAY_PASS)


def _end(code: int) -> NoReturn:
    """End the process; one of several without JAX's farewell, in which it would wait minutes for the others.

    These wait for it, too, until a supervisor ends them.
    """
    if is_one_of_several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _train() -> Callable[..., dict | None]:
    """Return what trains: Keras takes seconds to import, and --help need not wait."""
    try:
        from keras_highway.training.loop import train
    except ModuleNotFoundError as error:
        raise explained(error) from error
    return train


def _trained(out: str) -> int:
    """How many epochs the run in a folder is after: more than `--until`, where an earlier call went further."""
    from keras_highway.training.runs.checkpoint import epochs_of

    return epochs_of(Path(out) / "checkpoint.npz")


def choose(name: str, settings: list[str], small: bool) -> Recipe:
    """Return a recipe by name, with settings.

    Raises:
        ValueError: For an unknown name or setting, with suggestions.
    """
    if name not in RECIPES:
        raise ValueError(f"Unknown recipe {name!r}.{did_you_mean(name, RECIPES)} Known: {', '.join(RECIPES)}.")
    recipe = tiny(RECIPES[name]) if small else RECIPES[name]
    return with_settings(recipe, settings)


if __name__ == "__main__":
    main()
