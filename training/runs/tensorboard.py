"""TensorBoard's event files, of the epochs' log; TensorFlow writes them, TensorBoard itself need not be installed."""

from pathlib import Path

import keras


def write_scalars(folder: Path, row: dict) -> None:
    """Adds an epoch's numbers to `folder`; on other backends than TensorFlow nothing is written.

    Args:
        folder: Where event files go; every call writes one of its own, so
            that a run which is killed and resumed loses none.
        row: A row of the log; `step` is the step of its numbers.
    """
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    v1 = tf.compat.v1
    plugin = v1.SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = v1.SummaryMetadata(plugin_data=plugin, data_class=1)  # 1: a scalar, in TensorBoard's terms
    writer = tf.summary.create_file_writer(str(folder), filename_suffix=f".epoch{row['epoch']}")
    with writer.as_default():
        for name, value in row.items():
            if name not in ("epoch", "step"):
                # The step is where lines of a resumed run meet those it had written before it was killed.
                tf.summary.write(name, tf.constant(value, tf.float32), step=int(row["step"]), metadata=metadata)
    writer.close()
