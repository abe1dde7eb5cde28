"""What trains the networks of a task: their sources, programs and runs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras_highway.tasks import LANGUAGE, Task
from keras_highway.training.runs.run import Run


class TaskTraining(NamedTuple):
    """What the training of a task's networks is made of.

    Attributes:
        open_source: Function (recipe, data_dir) to the data.
        program: Class, what a step computes.
        run: Class, what an epoch is.
        finish: Function that writes weights and result.json.
        commands: What to type after a run, with `{folder}` for its folder and
            `{data}` for the options that name its data.
    """

    open_source: Callable[..., Any]
    program: Callable[..., Any]
    run: Callable[..., Run]
    finish: Callable[..., dict]
    commands: tuple[str, ...]


def training_of(task: Task) -> TaskTraining:
    """Return what trains a task's networks; nothing of another task is imported."""
    if task is LANGUAGE:
        from keras_highway.training.language import program, results, run, source

        commands = ("lm generate --weights {folder}", "lm score FILE --weights {folder}")
        return TaskTraining(source.open_source, program.LanguageProgram, run.LanguageRun, results.finish, commands)
    from keras_highway.training import program
    from keras_highway.training.data import source as sources
    from keras_highway.training.runs import results

    commands = ("classify IMAGE --weights {folder}", "evaluate {folder}{data}")
    return TaskTraining(sources.open_source, program.Program, Run, results.finish, commands)
