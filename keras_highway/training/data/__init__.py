"""Where a run's batches come from: arrays on the device, folders, TensorFlow Datasets."""
