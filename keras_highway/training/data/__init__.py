"""Sources of a run's batches: arrays on the device, folders, TensorFlow Datasets."""
