"""Data files that come with a package."""

from importlib import resources


def text(package: str, name: str) -> str:
    """The text of a file in the folder `data` of a package. Raises FileNotFoundError."""
    return (resources.files(package) / "data" / name).read_text(encoding="utf-8")
