"""Repeated augmentation: an epoch sees several crops of fewer images [Hoffer et al. 2020; RSB]."""

import numpy as np

_ROUND = 256  # timm's sampler: an epoch is a multiple of this many samples, where there are as many images


def epoch_samples(images: int, copies: int) -> int:
    """Returns the samples of an epoch.

    Args:
        images: Number of training images.
        copies: Of an image in an epoch; 1 for no repeated augmentation.

    Returns:
        `images`; with several copies rounded down to a multiple of 256, as
        timm's `RepeatAugSampler` does, unless there are fewer images.
    """
    if copies == 1 or images < _ROUND:
        return images
    return images // _ROUND * _ROUND


def runs(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where runs of equal samples begin, and how long they are.

    Args:
        samples: Integers, one axis, not empty.
    """
    first = np.flatnonzero(np.concatenate([[True], samples[1:] != samples[:-1]]))
    return first, np.diff(first, append=len(samples))


def repeated(order: np.ndarray, copies: int) -> np.ndarray:
    """Returns an epoch's samples in their global order: every image's copies follow one another.

    An epoch has as many samples as without repetition, and so sees one image
    in `copies` of them; the next epoch's order brings others. Of r replicas,
    timm's `RepeatAugSampler` gives replica i the samples i, i + r, ...; the
    samples of a step, over all of its replicas, are those of a step here.

    Args:
        order: Integers `(images,)`, an epoch's permutation of the images.
        copies: Of an image in an epoch.

    Returns:
        Integers `(epoch_samples(images, copies),)`.
    """
    samples = epoch_samples(len(order), copies)
    return np.repeat(order[: -(-samples // copies)], copies)[:samples]
