"""What the names of a network's layers mean: `stage2_block3` is the third block of the second stage."""

import re

_STAGE = re.compile(r"(?P<stage>stage(?P<number>\d+))(?:_block(?P<block>\d+)$|_|$)")


def stage_of(name: str) -> str | None:
    """Returns the stage in a layer's name, e.g. `"stage2"` of `"stage2_block3"`; `None` where it has none."""
    match = _STAGE.match(name)
    return match["stage"] if match else None


def position_of(name: str) -> tuple[int, int] | None:
    """Returns the numbers of stage and block, from 1, of a block's name; `None` of any other name."""
    match = _STAGE.match(name)
    return (int(match["number"]), int(match["block"])) if match and match["block"] else None
