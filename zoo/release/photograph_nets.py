"""The part of docs/results.md with what Highway50 and ResNet50 do on photographs: numbers and pictures."""

import json
from pathlib import Path

from training.analysis_tables import NUMBERS, PHOTOGRAPHS, photographs_table
from zoo.release.commits import short

PICTURES = {
    "highway50": {
        "estimation_imagenette_highway50": "UIE, Figure 3",
        "guided_imagenette_highway50": "UIE, Figure 4",
        "patches_imagenette_highway50": "UIE, Figure 4, patches",
        "gate_maps_imagenette_highway50": "where gates open",
    },
    "resnet50": {
        "estimation_imagenette_resnet50": "UIE, Figure 3",
        "guided_imagenette_resnet50": "UIE, Figure 4",
        "patches_imagenette_resnet50": "UIE, Figure 4, patches",
    },
    "both": {
        "lesions_imagenette": "one block lesioned, of those that do not change the width",
        "trim_imagenette": "blocks taken out",
    },
}


def section(numbers: Path = NUMBERS) -> list[str]:
    """Return the lines: what both nets do, the pictures, where they were made; none before they were measured.

    Args:
        numbers: What the figures measured.
    """
    table = photographs_table(numbers)
    if not table:
        return []
    lines = ["", "## Highway50 and ResNet50 on photographs, looked into", "", table, ""]
    for net, pictures in PICTURES.items():
        name = net if net == "both" else f"`{net}.imagenette`"
        lines.append(f"- {name}: {', '.join(f'[{title}](analysis/{file}.png)' for file, title in pictures.items())}.")
    made = json.loads(numbers.read_text("utf-8"))[PHOTOGRAPHS]["made"]["imagenette"]
    command = "python -m training.figures --data DIR --only imagenette"
    return [*lines, "", f"Made on {made['hardware']}, `{short(made['commit'])}`; `{command}` makes them anew."]
