"""The part of docs/results.md with the papers' figures and claims for the convolutional nets of CIFAR."""

import json
from pathlib import Path

from training.analysis_tables import CONV, NUMBERS, conv_claims_table
from zoo.release.commits import short

# The beginnings of the names of a net's pictures; the part's name is the end.
PICTURES = {
    "tvdn_figure2": "TVDN, Figure 2",
    "tvdn_figure3": "TVDN, Figure 3",
    "tvdn_figure4": "TVDN, Figure 4",
    "estimation": "UIE, Figure 3",
    "guided": "UIE, Figure 4",
    "patches": "UIE, Figure 4, patches",
    "gate_maps": "where gates open",
    "reshuffle": "blocks in another order",
    "drop": "several blocks lesioned",
}


def section(numbers: Path = NUMBERS) -> list[str]:
    """Return the lines: the claims, the pictures of each net, where they were made; none as long as there is no net.

    Args:
        numbers: What the figures measured.
    """
    table = conv_claims_table(numbers)
    if not table:
        return []
    known = json.loads(numbers.read_text("utf-8"))
    lines = ["", "## What the papers' figures claim, of the convolutional nets of CIFAR", "", table, ""]
    for part, weights in CONV.items():
        if weights in known:
            links = ", ".join(f"[{title}](analysis/{name}_{part}.png)" for name, title in PICTURES.items())
            made = known[weights]["made"][part]
            lines.append(f"- `{weights}`: {links}. Made on {made['hardware']}, `{short(made['commit'])}`.")
    command = "python -m training.figures --data DIR --only"
    return [*lines, "", f"`{command} {' '.join(CONV)}` makes them anew."]
