"""LiteRT files, ready to be timed."""


def interpreted(path, shape, threads=None):
    """Returns a function from images of a shape to what a file computes of them."""
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(path), num_threads=threads)
    (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(inputs["index"], shape)
    interpreter.allocate_tensors()

    def run(images):
        interpreter.set_tensor(inputs["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(outputs["index"])

    return run
