"""The six designs of [BLOG], Evidence 1 and "More Comparisons", at 20 layers: what a CPU can train several times.

    python -m training.study designs --data DIR --out RUNS  # all six: rates, then three seeds each
    python -m keras_highway train highway20 --data DIR --out RUN           # one run

Blocks 3-3-3 instead of 18-18-18; `highway20` and the `postact20` nets have
widths 11/22/45 (multiplier 0.71), so that they have the parameters of
`resnet20` (266,404 and 269,722 where gates are as deep as transforms). Their
gates start at -2, which [TVDN, 2.2] names for 20 layers: -6 is the authors' for
110. At rate 0.1, after the five epochs by which rates are chosen, one seed each,
`highway20` is right about 75.5 % of the held-out images with -2 and about 52.0 %
with -6 (`--set net.gate_bias=-6`, `zoo/runs/highway20_bias_6`), `resnet20` about
78.9 %. 15 epochs of one cycle, three of them rising from 0, batch 128; all else
is the recipe of the 110-layer nets, the same for all six but for the highest
rate, which is chosen for each design from the same three on 5,000 held-out
training images: 0.4, the highest, for all six (docs/results.md). Products in
bfloat16, which AMX makes faster (docs/speed.md), AVX-512's bfloat16, too
(recipes/imagenette.py, of other nets); on processors with neither `--set
precision=float32` is. No published numbers: the question is whether the
order at 110 layers holds at 20.
"""

from dataclasses import replace

from keras_highway.training.recipes.cifar_110 import HIGHWAY110

DESIGNS = ("resnet", "highway", "exclusive", "preact", "postact", "postact_zerobn")
RATES = (0.1, 0.2, 0.4)


def variant_of(design: str) -> str:
    """Returns the variant of a design, e.g. `"postact20_zerobn"` of `"postact_zerobn"`."""
    first, _, rest = design.partition("_")
    return f"{first}20{'_' if rest else ''}{rest}"


RECIPES = tuple(
    replace(
        HIGHWAY110,
        name=variant_of(design),
        variant=variant_of(design),
        weights=f"{variant_of(design)}.blog",
        epochs=15,
        learning_rate=0.4,
        schedule="one_cycle",
        warmup_epochs=3,
        warmup_rate=0.0,
        precision="mixed_bfloat16",
        source="BLOG, Evidence 1 and More Comparisons, at 20 layers: 15 epochs of one cycle, rate chosen from three",
    )
    for design in DESIGNS
)
