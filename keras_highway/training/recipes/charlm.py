"""The character-aware language model in six gatings, large and small, on the Penn Treebank [UIE, 5.2, Table 1a].

python -m keras_highway train charlm_small_coupled --data DIR --out RUN
python -m training.table1a --data DIR --out RUNS        # all six large ones, side by side
"""

from keras_highway.training.recipe import LanguageRecipe
from keras_highway.variants import LM_VARIANTS

PUBLISHED_PERPLEXITIES = {
    name: spec.published_perplexity for name, spec in LM_VARIANTS.items() if spec.published_perplexity
}
# The large ones as `charlm_large_coupled`, the first that was trained, so that their table compares gatings alone. Of
# the small ones only that which was trained so: compare them with one `--set precision` for all. A
# processor with neither AMX nor AVX-512's bfloat16 is faster in float32.
_IN_BFLOAT16 = (*(name for name in LM_VARIANTS if "_large_" in name), "charlm_small_coupled")


def _recipe(variant) -> LanguageRecipe:
    in_bfloat16 = variant in _IN_BFLOAT16
    return LanguageRecipe(
        name=variant,
        variant=variant,
        weights=f"{variant}.ptb",
        precision="mixed_bfloat16" if in_bfloat16 else "float32",
        seed=1,
        source="UIE, 5.2, after Kim et al. 2015: SGD at 1.0, halved on a plateau of the validation perplexity, "
        + ("25 epochs; products in bfloat16 here" if in_bfloat16 else "25 epochs"),
    )


RECIPES = tuple(map(_recipe, LM_VARIANTS))
