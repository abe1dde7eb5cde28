"""Images to try things with, a few kilobytes that travel in the package."""

from pathlib import Path

# In a wheel beside the package's modules, in a checkout beside the package.
_FOLDERS = tuple(Path(__file__).parents[up] / "samples" for up in (1, 2))


def sample_digits() -> tuple[Path, ...]:
    """Return the files of ten handwritten digits, 0 to 9: 28x28 pixels, PNG, from MNIST's test set.

    ```python
    pixels = np.stack([load_image(path, kh.get_transform("mnist")) for path in sample_digits()])
    ```

    Raises:
        FileNotFoundError: If they were left out of the installation.
    """
    for folder in _FOLDERS:
        paths = tuple(folder / f"digit_{k}.png" for k in range(10))
        if all(path.is_file() for path in paths):
            return paths
    raise FileNotFoundError(
        f"The sample digits are missing: install the package anew. Looked in: {', '.join(map(str, _FOLDERS))}"
    )
