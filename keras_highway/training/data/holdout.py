"""Which images of a folder are held out of training, the same for every recipe, seed and machine."""

import numpy as np

_SEED = 20_090_620  # of the shuffle, fixed: what is held out must not change with a run's own seed


def split_off(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of the images to train on and of those held out, both ascending.

    Each class is shuffled, and the shuffled classes are interleaved in
    proportion to their sizes; the last `count` of that order are held out. So
    every class loses the same share of its images, to one image, and a larger
    hold-out contains a smaller one.

    Args:
        labels: Integers `(images,)`, the class of every image.
        count: Images to hold out.

    Raises:
        ValueError: If no image would be left to train on.
    """
    if count >= len(labels):
        raise ValueError(
            f"There are {len(labels)} training images, and some must be left to train on. "
            f"Received: holdout_images={count}"
        )
    share = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = np.random.default_rng((_SEED, int(label))).permutation(len(members))
        share[members] = (order + 0.5) / len(members)
    order = np.lexsort((labels, share))
    return np.sort(order[:-count]), np.sort(order[-count:])
