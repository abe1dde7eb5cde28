"""Networks for other programs: TensorFlow's SavedModel, ONNX and LiteRT, each compared with the Keras network."""

from keras_highway.exporting.export import FORMATS, export
from keras_highway.exporting.fold import fold_batch_norm
from keras_highway.exporting.part import Part, part_of

__all__ = ["FORMATS", "Part", "export", "fold_batch_norm", "part_of"]
