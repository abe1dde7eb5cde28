"""ImageNet's nets on Imagenette, compared fairly.

    python -m training.imagenette STUDY --data DIR

`pair`: Highway50 and ResNet50 at 128 pixels, 20 epochs; `pair_5`: the same, 5
epochs, with the rates of `pair`; `a3`: both by procedure A3 of "ResNet strikes
back" in small, 20 epochs; `uie`: the six nets of [UIE], Table 1b, at 64
pixels, 20 epochs. For each net a rate is chosen from the study's three by runs of
5 epochs tested on 1,000 held-out training images, `OUT/rates/RECIPE_RATE`;
then every seed is trained whole and tested on the test set, `OUT/RECIPE/SEED`:
one seed, but of `pair_5` three.
Started again it resumes where it stopped; SIGTERM saves the state (exit code
75). Several processes may share OUT if each trains nets of its own. With
`--table` nothing is trained.
"""

import argparse
import sys

from keras_highway.training.recipes.imagenette import A3_RATES, PAIR, RATES, UIE_NETS, UIE_RATES
from keras_highway.training.train import errors_in_a_line
from training.study import Study, add_arguments, run_and_print

_HELD_OUT = 1_000  # of 9,469
_PAIR = Study(
    nets=tuple(f"{net}_imagenette" for net in PAIR),
    base="resnet50_imagenette",
    rates=RATES,
    held_out=_HELD_OUT,
    seeds=(1,),
)
STUDIES = {
    "pair": _PAIR,
    "pair_5": Study(nets=_PAIR.nets, base=_PAIR.base, rates=RATES, held_out=_HELD_OUT, suffix="_5"),
    "a3": Study(
        nets=tuple(f"{net}_imagenette_a3" for net in PAIR),
        base="resnet50_imagenette_a3",
        rates=A3_RATES,
        held_out=_HELD_OUT,
        seeds=(1,),
    ),
    "uie": Study(
        nets=tuple(f"{net}_64" for net in UIE_NETS),
        base="resnet50_uie_64",
        rates=UIE_RATES,
        held_out=_HELD_OUT,
        seeds=(1,),
    ),
}


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.imagenette",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", help="folder of Imagenette: DIR/train/CLASS/*, DIR/val/CLASS/*, or shards of it")
    parser.add_argument("--nets", nargs="+", metavar="RECIPE", help="some of the study's (default: all)")
    add_arguments(parser, "runs/imagenette")
    args = parser.parse_args(argv)
    study = STUDIES[args.study]
    unknown = sorted(set(args.nets or ()) - set(study.nets))
    if unknown:
        parser.error(f"--nets are of {', '.join(study.nets)}. Received: {', '.join(unknown)}")
    with errors_in_a_line():
        run_and_print(study, args.nets or study.nets, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
