"""What completes after a package's name: what it re-exports, without the modules that it is made of."""

import sys
from types import ModuleType


def only_public(package: str, modules: tuple[str, ...] = (), lazy: tuple[str, ...] = ()) -> None:
    """Limits `dir()`, `help()` and `import *` of a package to its public names; every other one can still be asked for.

    To be called at the end of its `__init__.py`. Python makes each submodule
    that is imported an attribute of its package.

    Args:
        package: Its `__name__`.
        modules: Names of its public submodules.
        lazy: Names that its `__getattr__` imports.
    """
    namespace = vars(sys.modules[package])
    ours = {name for name, value in namespace.items() if name[0] != "_" and not isinstance(value, ModuleType)}
    public = sorted(ours | {name for name in modules if name in namespace} | set(lazy))
    namespace["__all__"] = public

    def listed() -> list[str]:
        return sorted(public + [name for name in namespace if name.startswith("__")])

    namespace["__dir__"] = listed
