"""Files of a wheel beside the code: samples, the zoo's table of results and its weights (of large ones all else).

A source distribution holds the same, at its place in the checkout, so that the
wheel made of it is the wheel made of the checkout.
"""

import json
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEIGHTS = "model.weights.h5"
RESULTS = "results.csv"


class ZooHook(BuildHookInterface):
    """Adds samples and trained weights to a wheel; a checkout that is installed in place has them already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files before hatchling builds."""
        if version != "editable":
            files = wheel_files(Path(self.root))
            if self.target_name == "sdist":
                files = {path: str(Path(path).relative_to(self.root)) for path in files}
            build_data["force_include"].update(files)


def wheel_files(root: Path) -> dict[str, str]:
    """Return the files of the zoo and the samples that go into a wheel, and where they lie in it.

    Args:
        root: The checkout.
    """
    files = {str(path): f"keras_highway/samples/{path.name}" for path in sorted((root / "samples").glob("[!.]*"))}
    table = root / "zoo" / RESULTS
    files |= {str(table): f"keras_highway/zoo/{RESULTS}"} if table.exists() else {}
    for row in sorted((root / "zoo" / "weights").glob("[!.]*/weights.json")):
        whole = json.loads(row.read_text("utf-8"))["wheel"]
        for path in sorted(row.parent.iterdir()):
            if whole or path.name != WEIGHTS:
                files[str(path)] = f"keras_highway/zoo/weights/{row.parent.name}/{path.name}"
    return files
