"""Which version of a program an image has."""

import re
from collections.abc import Mapping

from ome_operator import keys
from ome_operator.engines.routers import KEYED

_NUMBER = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|a|b|dev)\d+)?)(?=$|[-_+])"
_VERSION = re.compile(rf"(?:^|[-_]){_NUMBER}")
"""In a tag: 0.5.23, v0.5.23-cu129, 0.5.23-p3, team-0.4.9.post2."""
_ROUTER = "sglang-router"


def name(image: str) -> str:
    """The last part of an image's name."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def exact(image: str, version: str) -> bool:
    """Whether an image has exactly this version, as its makers built it.

    Its tag is the version, with nothing behind it but the CUDA and the architecture, or names no version at all, so that the
    annotation says it. `0.5.23-p3` is somebody's own.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return bool(re.fullmatch(rf"v?{re.escape(version)}(-cu\d+)?(-(amd64|arm64))?", tag)) or not _VERSION.search(tag)


def version(image: str, annotations: Mapping[str, str], program: str) -> str:
    """The version that an image has of a program: by its tag, else by the annotation; "" where neither says it.

    The tag of an engine's image says nothing about the router in it, and that of a router of another name (smg) counts
    otherwise.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    named = re.search(rf"(?:^|[-_]){re.escape(program)}[-_]{_NUMBER}", tag)  # 1.2.0-sglang-v0.5.9 has two
    if named is not None:
        return named[1]
    found = _VERSION.search(tag)
    if found is not None and (program != _ROUTER or KEYED.get(name(image), ())[:1] == (0,)):
        return found[1]
    return annotations.get(keys.ENGINE_VERSION, "").strip().removeprefix("v")
