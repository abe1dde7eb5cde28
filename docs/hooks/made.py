"""For the reference: what the package makes while it is imported, with the signature and the text that a user sees.

`Highway50 = _application(...)` is only an assignment in the source, and a
block's docstring is completed after its class; this asks the imported module
for what it made.
"""

import importlib
import inspect
import os
import re
import textwrap

import griffe

os.environ.setdefault("KERAS_BACKEND", "jax")
_MAKERS = ("keras_highway.applications", "keras_highway.layers.blocks")
_EXAMPLE = re.compile(r"^Example:\n\n((?:>>> .*\n?|[^\n]+\n?)+)", re.M)
_RETURNS = re.compile(r"^(Returns|Yields):\n((?:[ ]+.*\n?|\n)+)", re.M)


class Made(griffe.Extension):
    """Puts functions in the place of attributes whose values are functions, and completed docstrings in their place."""

    def on_package(self, *, pkg: griffe.Module, **kwargs) -> None:
        """Complete what the package's source does not state."""
        _rewrite(pkg)
        for path in _MAKERS:
            place, module = pkg[path.removeprefix(f"{pkg.path}.")], importlib.import_module(path)
            for name, member in list(place.members.items()):
                if member.is_alias:
                    continue
                value = getattr(module, name, None)
                if member.is_attribute and inspect.isfunction(value) and not name.startswith("_"):
                    place.set_member(name, _function(name, value, member))
                elif member.is_class and member.docstring:
                    member.docstring.value = inspect.getdoc(value)


def _indented(match) -> str:
    return "Examples:\n" + textwrap.indent(match[1], "    ")


def _as_text(match) -> str:
    return f"**{match[1]}:**\n\n{textwrap.dedent(match[2])}"


def _rewrite(place) -> None:
    """Docstrings as griffe reads them: Example is an indented Examples; what returns are is text, no type and name."""
    for member in place.members.values():
        if member.is_alias:
            continue
        if member.docstring:
            member.docstring.value = _RETURNS.sub(_as_text, _EXAMPLE.sub(_indented, member.docstring.value))
        _rewrite(member)


def _function(name, value, attribute) -> griffe.Function:
    parameters = [
        griffe.Parameter(
            parameter.name,
            kind=getattr(griffe.ParameterKind, parameter.kind.name.lower()),
            default=None if parameter.default is parameter.empty else repr(parameter.default),
        )
        for parameter in inspect.signature(value).parameters.values()
    ]
    function = griffe.Function(
        name, lineno=attribute.lineno, endlineno=attribute.endlineno, parameters=griffe.Parameters(*parameters)
    )
    function.docstring = griffe.Docstring(inspect.getdoc(value), parent=function)
    return function
