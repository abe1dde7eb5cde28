"""A result as people read it."""

from keras_highway.weights.info import format_epochs as format_epochs


def format_metric(result: dict) -> str:
    """Returns `99.43 % (n = 1)` of one run, `99.43 ± 0.03 % (n = 3)` of several; perplexities without `%`.

    Args:
        result: What a result.json holds.
    """
    accuracy = result["metric"].endswith("accuracy")
    scale, unit = (100, " %") if accuracy else (1, "")
    spread = f" ± {scale * result['std']:.2f}" if result["n"] > 1 else ""
    return f"{scale * result['mean']:.2f}{spread}{unit} (n = {result['n']})"
