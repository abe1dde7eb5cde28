"""What Keras, NumPy and the standard library lack: suggestions, atomic files, sums and gradients, event files."""
