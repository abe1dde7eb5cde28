"""The comparisons whose runs are kept in zoo/runs: what was done, and what the papers claim of it."""

from dataclasses import dataclass
from typing import Any, Literal

from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar import form_of as _form
from training.study import RATE_EPOCHS, STUDIES, Study

MARGIN = 0.5  # points by which a network may be behind another that it matches
TRAINS = 20.0  # % of the test images right: twice chance, of ten classes

Kind = Literal["ahead", "matches", "fits", "diverges", "trains"]


@dataclass(frozen=True)
class Claim:
    """What is said of two networks.

    Attributes:
        text: The claim.
        first: Name of a recipe.
        second: Name of the other.
        kind: `"ahead"`: the first is better; `"matches"`: it is at most
            `MARGIN` behind; `"fits"`: its training loss is lower;
            `"diverges"`: runs of the second diverge, those of the first do
            not; `"trains"`, of one network, which is both: no run diverges,
            and all end above `TRAINS`.
    """

    text: str
    first: str
    second: str
    kind: Kind


@dataclass(frozen=True)
class Comparison:
    """A study whose runs are kept.

    Attributes:
        name: Of its picture.
        folder: Of its runs, in `zoo/runs`.
        title: Of its section.
        intro: What was done.
        study: What is compared.
        claims: Of the paper.
        goal: Test accuracy that was to be reached, %. Defaults to `None`.
        beside: Name of a comparison of the same networks, in the same order,
            whose accuracy is told beside. Defaults to `""`.
        epochs: After which losses and accuracies are told. Defaults to none.
        base_of_another: Whether the base's runs are another comparison's, and
            those of the other nets alone make it one. Defaults to `False`.
    """

    name: str
    folder: str
    title: str
    intro: str
    study: Study
    claims: tuple[Claim, ...]
    goal: float | None = None
    beside: str = ""
    epochs: tuple[int, ...] = ()
    base_of_another: bool = False


_DESIGNS, _FORMS, _TINY = (STUDIES[name] for name in ("designs", "block_forms", "tiny_imagenet"))
_RECIPE = RECIPES[_DESIGNS.base]
DESIGNS = Comparison(
    name="designs",
    folder="designs",
    title="[BLOG] Evidence 1 and More Comparisons in small: six designs at 20 layers, CIFAR-10",
    intro="`highway20` and `resnet20` have about as many parameters, as the blog matches its own; "
    "`exclusive20` and `preact20` have ResNet's widths and 1x1 gates. Gates start at -2, the bias of this depth "
    "[TVDN, 2.2], after -6, that of 110, had held `highway20` back on held-out images (52.0 against 75.5 %: "
    "one seed, 5 epochs, rate 0.1; not tried for the other designs). "
    f"{_RECIPE.epochs} epochs in which the rate rises once and falls again (one cycle); "
    f"per design a rate chosen from {', '.join(map(str, _DESIGNS.rates))} "
    f"on {_DESIGNS.held_out:,} held-out training images. Epochs are equal, not hours: a step of a gated net takes "
    "longer. Test accuracy of the last epoch, mean ± standard deviation over seeds; differences are between runs of "
    f"the same seed, with the 95 % interval of their mean. To match is to be at most {MARGIN} points behind "
    "(`python -m training.study designs --data DIR`).",
    study=_DESIGNS,
    claims=(
        Claim("highway nets match ResNets or beat them, in test accuracy", "highway20", "resnet20", "matches"),
        Claim(
            "exclusive gating (a 1x1 gate, post-activation) is behind ResNets",
            "resnet20",
            "exclusive20",
            "ahead",
        ),
        Claim('pre-activation with a 1x1 gate is behind, too ("trains very poorly")', "resnet20", "preact20", "ahead"),
        Claim(
            "post-activation with gates of two 3x3 and zeroBN matches them", "postact20_zerobn", "resnet20", "matches"
        ),
        Claim("without zeroBN it is unstable: some run diverges", "postact20_zerobn", "postact20", "diverges"),
    ),
)

FORMS = Comparison(
    name="block_forms",
    folder="designs",
    base_of_another=True,
    title="Forms of `highway20`'s block at equal parameters, CIFAR-10",
    intro="What [BLOG] and [UIE, 4] suggest to try: gates that do not depend on the data (one per channel), gates of "
    "low rank, gates and transforms shared by the blocks of a stage, layer dropout (stochastic depth); `highway20` has "
    f"gates as deep as the transforms. Widths are chosen for equal parameters. {_RECIPE.epochs} epochs of one cycle; "
    f"per form a rate chosen from {', '.join(map(str, _FORMS.rates))} on "
    f"{_FORMS.held_out:,} held-out training images. Test accuracy of the last epoch, mean ± standard "
    "deviation over seeds; differences are between runs of the same seed, with the 95 % interval of their mean. To "
    f"match is to be at most {MARGIN} points behind. No paper has these numbers: the lines below are questions "
    "(`python -m training.study block_forms --data DIR`).",
    study=_FORMS,
    claims=(
        Claim("gates that look at the data are ahead of those that do not", "highway20", _form("channel"), "ahead"),
        Claim("gates of low rank match those as deep as the transforms", _form("low_rank"), "highway20", "matches"),
        Claim("gates shared by the blocks of a stage match gates of their own", _form("tied"), "highway20", "matches"),
        Claim("transforms shared by the blocks of a stage match, too", _form("shared"), "highway20", "matches"),
        Claim("layer dropout is ahead of training whole", _form("stochastic_depth"), "highway20", "ahead"),
    ),
)


def _photographs(name: str, title: str, what: str, *claims: Claim, **more: Any) -> Comparison:
    """Return a study of Imagenette."""
    study = STUDIES[f"imagenette_{name}"]
    recipe = RECIPES[study.run_name(study.base)]
    seeds = "one seed: no spread, no interval"
    if len(study.seeds) > 1:
        seeds = (
            "mean ± standard deviation over seeds; differences are between runs of the same seed, with the 95 % "
            "interval of their mean"
        )
    intro = (
        "Imagenette, ten classes, photographs squared to 224 x 224 before, as github.com/thunderInfy/imagenette has "
        f"them (its authors' board: in their own proportions). {what} {recipe.epochs} epochs; "
        f"per net a rate chosen from {', '.join(map(str, study.rates))} "
        f"by {RATE_EPOCHS} epochs tested on {study.held_out:,} held-out training photographs. Test accuracy of the "
        f"last epoch on 3,925 photographs, {seeds}. To match is to be at most {MARGIN} points behind. "
        "Parameters are those with a head for 1,000 classes "
        f"(`python -m training.study imagenette_{name} --data DIR`)."
    )
    return Comparison(
        name=f"imagenette_{name}", folder="imagenette", title=title, intro=intro, study=study, claims=claims, **more
    )


_IN_SMALL = "[BLOG] Evidence 3 in small: Highway50 and ResNet50 on photographs"
_OF_THE_BLOG = "Highway50 matches ResNet50 or beats it, in test accuracy"
_PAIR = Claim(_OF_THE_BLOG, "highway50_imagenette", "resnet50_imagenette", "matches")
_BOARD = (
    '128 pixels, one recipe for both. That board had 85.77 % after 5 epochs (87.43 % on its newest), by a "mini net", '
    "and 91.57 % after 20, by an SE-ResNeXt50 with Mish, self-attention and blurred pooling, each the mean of 5 runs."
)

A3 = _photographs(
    "a3",
    '[BLOG] Evidence 3 in small: procedure A3 of "ResNet strikes back" on photographs',
    "Trained at 96 pixels and tested at 128, batch 128: LAMB, RandAugment, Mixup, CutMix.",
    Claim(_OF_THE_BLOG, "highway50_imagenette_a3", "resnet50_imagenette_a3", "matches"),
    beside="imagenette_pair",
    epochs=(1, 5, 10),
)

TINY_IMAGENET = Comparison(
    name="tiny_imagenet",
    folder="tiny_imagenet",
    title="[BLOG] Evidence 3 in small: Highway50 and ResNet50 on Tiny ImageNet",
    intro="200 of ImageNet's classes, 100,000 photographs of 64 x 64 pixels. One recipe for both, "
    f"{RECIPES[_TINY.base].epochs} epochs; per net a rate chosen from {', '.join(map(str, _TINY.rates))} by "
    f"{RATE_EPOCHS} epochs on {_TINY.rate_images:,} training photographs, tested on "
    f"{_TINY.held_out:,} held-out ones. Test accuracy of the last epoch on the 10,000 of its validation "
    f"set, one seed: no spread, no interval. To match is to be at most {MARGIN} points behind. Parameters are those "
    "with a head for 1,000 classes (`python -m training.study tiny_imagenet --data DIR`).",
    study=_TINY,
    claims=(Claim(_OF_THE_BLOG, *_TINY.nets, "matches"),),
)


def _of_uie(text: str, first: str, second: str, kind: Kind) -> Claim:
    return Claim(text, f"{first}_64", f"{second}_64", kind)


def _trains(net: str, what: str) -> Claim:
    return _of_uie(f"without it {what} trains", f"{net}_uie_nobn", f"{net}_uie_nobn", "trains")


COMPARISONS = (
    DESIGNS,
    FORMS,
    _photographs("pair", f"{_IN_SMALL}, 20 epochs", _BOARD, _PAIR, goal=91.6),
    _photographs("pair_5", f"{_IN_SMALL}, 5 epochs", _BOARD, _PAIR, goal=85.8),
    A3,
    TINY_IMAGENET,
    _photographs(
        "uie",
        "[UIE] Table 1b in small: with and without batch normalization",
        "64 pixels, the same recipe for all six nets. To fit the training set better is to have the lower training "
        "loss in the last epoch, over augmented photographs; rates were chosen by accuracy on held-out ones. To train "
        f"is to end with more than {TRAINS:.0f} % of the test photographs right, in every run.",
        _trains("highway50", "Highway"),
        _trains("highway_full50", "Highway-Full"),
        _trains("resnet50", "ResNet"),
        _of_uie("with it ResNet fits the training set better", "resnet50_uie", "highway50_uie", "fits"),
        _of_uie("with it Highway matches ResNet", "highway50_uie", "resnet50_uie", "matches"),
        _of_uie("with it Highway-Full matches ResNet", "highway_full50_uie", "resnet50_uie", "matches"),
        _of_uie("without it Highway fits better than ResNet", "highway50_uie_nobn", "resnet50_uie_nobn", "fits"),
        _of_uie("without it ResNet generalizes better", "resnet50_uie_nobn", "highway50_uie_nobn", "ahead"),
        _of_uie("Highway fits better without it than with it", "highway50_uie_nobn", "highway50_uie", "fits"),
        _of_uie("ResNet fits better without it than with it", "resnet50_uie_nobn", "resnet50_uie", "fits"),
        _of_uie("Highway generalizes better with it than without it", "highway50_uie", "highway50_uie_nobn", "ahead"),
        _of_uie("ResNet generalizes better with it than without it", "resnet50_uie", "resnet50_uie_nobn", "ahead"),
    ),
)
