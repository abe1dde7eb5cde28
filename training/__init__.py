"""In a checkout `python -m training.X` is `python -m keras_highway.training.X`, as older commands have it.

`import training.X` gives the module `keras_highway.training.X` itself, not a
second copy, whose classes would be others.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec

from keras_highway.training import __path__ as __path__

_OWN = f"{__name__}."


class _Alias:
    """Loads a module by giving the one of another name; runs its code where it is the program (`python -m`)."""

    def __init__(self, real: ModuleSpec):
        self._real = real

    def create_module(self, spec):
        module = importlib.import_module(self._real.name)
        self._real = module.__spec__  # importlib is about to replace it by the alias's
        return module

    def exec_module(self, module):
        module.__spec__ = self._real

    def get_code(self, _):
        return self._real.loader.get_code(self._real.name)


class _Finder:
    """Finds `training.X` where `keras_highway.training.X` is."""

    def find_spec(self, name, path=None, target=None):
        real = importlib.util.find_spec(f"keras_highway.{name}") if name.startswith(_OWN) else None
        if real is None:
            return None
        spec = ModuleSpec(name, _Alias(real), origin=real.origin)
        spec.submodule_search_locations, spec.has_location = real.submodule_search_locations, real.has_location
        return spec


sys.meta_path.insert(0, _Finder())
