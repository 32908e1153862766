"""Determine the version of an engine or router in an image."""

import re
from collections.abc import Mapping

from ome_operator import keys
from ome_operator.engines.routers import SGLANG_ROUTER, SMG, WITH_CONTROL_KEYS

_NUMBER = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|a|b|dev)\d+)?)(?=$|[-_+])"
_VERSION = re.compile(rf"(?:^|[-_]){_NUMBER}")
"""Pattern of a version in an image's tag, such as 0.5.23, v0.5.23-cu129, 0.5.23-p3 or team-0.4.9.post2."""


def image_name(image: str) -> str:
    """Return the last part of an image's name, without its registry and tag."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def is_exact(image: str, version: str) -> bool:
    """Return whether an image contains exactly this version, as the engine's project published it.

    This is the case if the tag is the version, followed only by the CUDA version and the architecture. It is also the case
    if the tag contains no version, so that the version comes from the annotation. `0.5.23-p3` is a modified image.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return bool(re.fullmatch(rf"v?{re.escape(version)}(-cu\d+)?(-(amd64|arm64))?", tag)) or not _VERSION.search(tag)


def version(image: str, annotations: Mapping[str, str], program: str) -> str:
    """Return the version of a program in an image. The version is taken from the image's tag, otherwise from the
    annotation; "" if neither contains a version.

    The tag of an engine's image does not state the version of the router in the image. sglang-router and its successor smg
    have independent version numbers, so their versions are taken only from the tags of their own images.
    """
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    qualified = re.search(rf"(?:^|[-_]){re.escape(program)}[-_]{_NUMBER}", tag)  # 1.2.0-sglang-v0.5.9 contains two versions
    if qualified is not None:
        return qualified[1]
    match = _VERSION.search(tag)
    if match is not None and _states_version(image_name(image), program):
        return match[1]
    return annotations.get(keys.ENGINE_VERSION, "").strip().removeprefix("v")


def _states_version(name: str, program: str) -> bool:
    """Return whether the tag of an image with this name states the version of the program."""
    if program == SMG:
        return name == SMG
    return program != SGLANG_ROUTER or WITH_CONTROL_KEYS.get(name, ())[:1] == (0,)
