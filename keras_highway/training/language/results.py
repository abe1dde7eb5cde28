"""What a finished run of a language model leaves: weights with their vocabulary, and result.json."""

import sys

from keras_highway._support.files import atomic_write_json
from keras_highway.tasks import LANGUAGE
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.language.program import LanguageProgram
from keras_highway.training.runs.results import epochs
from keras_highway.training.runs.run_folder import RunFolder


def finish(program: LanguageProgram, strategy: Strategy, folder: RunFolder, rows: list[dict]) -> dict:
    """Measures the test perplexity; writes weights, vocabulary and result.

    Args:
        program: Its variables.
        strategy: Its devices.
        folder: Its folder.
        rows: Its log.

    Returns:
        The result: metric, n, mean, std, seeds, and where it was measured.

    Raises:
        FloatingPointError: As `checked_perplexity`; nothing is written then.
    """
    recipe, last = program.recipe, {key: float(value) for key, value in rows[-1].items()}
    strategy.finish(program.net)
    perplexity = checked_perplexity(program.test_perplexity(sys.stderr.isatty()), "test")
    result = {
        "weights": recipe.weights,
        "variant": recipe.variant,
        "data": program.corpus,
        "metric": "test_perplexity",
        "n": 1,
        "mean": perplexity,
        "std": None,
        "seeds": [recipe.seed],
        "values": [perplexity],
        **epochs(recipe, rows),
        "epoch_reported": "last",
        "test_tokens": program.test_tokens,
        "valid_perplexity": last["valid_perplexity"],
        "train_perplexity": last["train_perplexity"],
        "precision": recipe.precision,
        "tokens_per_second": last["tokens_per_second"],
        "waiting": last["waiting"],
        **folder.environment(),
    }
    folder.drop_result()  # written last: where it is, the weights beside it are its own
    program.trained_lm().save(folder.path)
    atomic_write_json(folder.result, result)
    return result


def checked_perplexity(perplexity: float, split: str) -> float:
    """Return the perplexity of a split.

    Raises:
        FloatingPointError: If it is beyond what a result may hold.
    """
    least, largest = LANGUAGE.metric.bounds
    if not least <= perplexity <= largest:
        raise FloatingPointError(f"The {split} perplexity became {perplexity:g}.")
    return perplexity
