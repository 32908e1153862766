"""Replaces sgl_kernel, SGLang's compiled kernels, which exist only for GPUs and for CPUs with AMX.

SGLang imports many names from sgl_kernel on every machine, but calls none of them when it uses plain torch. Therefore every
name exists, in this module and every submodule, and calling one raises an error with its name.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

__version__ = "0.4.10"


class _Constants:
    """Replaces `scalar_types`, whose members are values instead of functions."""

    def __getattr__(self, name: str) -> "_Constants":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Constants()


def _stand_in(name: str) -> Any:
    if name.endswith(".scalar_types"):
        return _Constants()

    def kernel(*args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"{name} was called, but this kernel does not exist on this machine")

    kernel.__name__ = kernel.__qualname__ = name.rpartition(".")[2]
    return kernel


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _stand_in(f"{self.__name__}.{name}")
        setattr(self, name, found)  # the same object every time, because some objects are compared
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates every submodule of this module on import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{__name__}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())
sys.modules[__name__].__class__ = _Module
