"""A result as people read it."""


def shown(result: dict) -> str:
    """Returns `99.43 % (n = 1)` of one run, `99.43 ± 0.03 % (n = 3)` of several; perplexities without `%`.

    Args:
        result: What a result.json holds.
    """
    accuracy = result["metric"].endswith("accuracy")
    scale, unit = (100, " %") if accuracy else (1, "")
    spread = f" ± {scale * result['std']:.2f}" if result["n"] > 1 else ""
    return f"{scale * result['mean']:.2f}{spread}{unit} (n = {result['n']})"


def shown_epochs(result: dict) -> str:
    """Returns how many epochs a result is after, e.g. `"25"`, or `"18 of 25"` of a run that was ended early."""
    return f"{result['epochs']} of {result['of_epochs']}" if "of_epochs" in result else str(result["epochs"])
