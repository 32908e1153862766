"""Stands in for sgl_kernel, SGLang's compiled kernels, which exist for GPUs and for CPUs with AMX only.

SGLang imports many names from it on every machine and calls none of them on the plain torch paths. So every name exists,
here and in every module below, and calling one says which it was.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

__version__ = "0.4.10"


class _Constants:
    """For `scalar_types`, whose members are values and not functions."""

    def __getattr__(self, name: str) -> "_Constants":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Constants()


def _stand_in(name: str) -> Any:
    if name.endswith(".scalar_types"):
        return _Constants()

    def kernel(*args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"{name} was called, and no such kernel exists on this machine")

    kernel.__name__ = kernel.__qualname__ = name.rpartition(".")[2]
    return kernel


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _stand_in(f"{self.__name__}.{name}")
        setattr(self, name, found)  # the same object every time: some are compared
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every module below this one."""

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
