"""Stands in for the package `datasets`, 200 MB that SGLang's benchmark imports for one data set of images."""

from typing import Any, NoReturn


def load_dataset(*args: Any, **kwargs: Any) -> NoReturn:
    """There is none."""
    raise RuntimeError("this image has no package `datasets`: SGLang's own images have it")
