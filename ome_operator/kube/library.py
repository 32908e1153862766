"""The package `kubernetes`, without what we need nothing of.

Its `__init__` loads the whole of it, and with it requests, urllib3 and oauthlib: a fifth of the start of a command. It runs
when somebody asks the package for something that is not loaded; what stands in modules below it is found without.
"""

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A package whose `__init__` has not run."""

    def __getattr__(self, name: str) -> Any:
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def spare(package: str) -> None:
    """Let the `__init__` of this package wait, unless it has run."""
    if package not in sys.modules and (spec := find_spec(package)) is not None:
        module = module_from_spec(spec)
        module.__class__ = _Later
        sys.modules[package] = module
        above, _, name = package.rpartition(".")
        if above:
            setattr(sys.modules[above], name, module)
