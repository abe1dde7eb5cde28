"""RandAugment policies by name, as timm writes them."""

import re
from dataclasses import dataclass

LARGEST = 10.0  # magnitudes are in [0, 10]
_FORM = re.compile(r"m(?P<magnitude>\d+)-mstd(?P<deviation>\d+(\.\d+)?)-inc1")


@dataclass(frozen=True)
class Policy:
    """The parameters in a policy's name.

    Attributes:
        magnitude: Mean strength of an operation, in [0, 10].
        deviation: Standard deviation of the strength.
        operations: Operations drawn for an image, with replacement.
        probability: That a drawn operation is done.
    """

    magnitude: float
    deviation: float
    operations: int = 2
    probability: float = 0.5


def parse_policy(name: str) -> Policy:
    """Returns the policy of a name in timm's language, `"mM-mstdS-inc1"`.

    Raises:
        ValueError: If it is not such a name.
    """
    match = _FORM.fullmatch(name)
    if not match or float(match["magnitude"]) > LARGEST:
        raise ValueError(
            "A RandAugment policy is mM-mstdS-inc1: magnitude M of 0 to 10, its standard deviation S, operations that "
            f"grow stronger with the magnitude. Received: rand_augment={name!r}"
        )
    return Policy(float(match["magnitude"]), float(match["deviation"]))
