"""What of `zoo/weights/` goes into a wheel: every folder, of those too large for it all but the weights.

A source distribution holds the same, at its place in the checkout, so that the
wheel made of it is the wheel made of the checkout.
"""

import json
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEIGHTS = "model.weights.h5"


class ZooHook(BuildHookInterface):
    """Adds the folders of trained weights; a checkout that is installed in place has them already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version != "editable":
            files = wheel_files(Path(self.root))
            if self.target_name == "sdist":
                files = {path: str(Path(path).relative_to(self.root)) for path in files}
            build_data["force_include"].update(files)


def wheel_files(root: Path) -> dict[str, str]:
    """Returns the files of the zoo that go into a wheel, and where they lie in it.

    Args:
        root: The checkout.
    """
    files = {}
    for row in sorted((root / "zoo" / "weights").glob("[!.]*/weights.json")):
        whole = json.loads(row.read_text("utf-8"))["wheel"]
        for path in sorted(row.parent.iterdir()):
            if whole or path.name != WEIGHTS:
                files[str(path)] = f"keras_highway/zoo/weights/{row.parent.name}/{path.name}"
    return files
