"""Replaces the package `datasets` of 200 MB, which SGLang's benchmark imports for one data set of images."""

from typing import Any, NoReturn


def load_dataset(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error, because this image has no data sets."""
    raise RuntimeError("this image has no package `datasets`: SGLang's own images have it")
