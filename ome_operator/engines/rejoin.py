"""Determine whether an engine keeps serving after it has lost a rank, until a new pod joins as that rank."""

from collections.abc import Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.engines import images
from ome_operator.engines.routers import parts, value
from ome_operator.engines.servers import server

WITHOUT = (0, 5, 23)
"""The newest version of SGLang that is known not to let a recreated pod join its group again. A process of this version can
rejoin only if it is started with other arguments (--elastic-ep-join-mode)."""


def why_not(container: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Return the reason why the engine of a container does not keep serving after it has lost a rank. Return "" if the
    engine may keep serving, or if the engine is unknown. `annotations` are the annotations of the pod.
    """
    engine = server(container)
    if engine is None or engine.name != "sglang":
        return ""
    words = [word for part in parts(container) for word in part.split()]
    if value(words, "--moe-a2a-backend") in ("deepep", "deepep_v2") or "--enable-deepep-moe" in words:
        return "DeepEP waits for the lost rank, and then ends the engine"
    if value(words, "--elastic-ep-backend") in (None, "", "none"):
        return "without --elastic-ep-backend all ranks end with the lost rank"
    version = images.version(str(container.get("image", "")), annotations, engine.name)
    parts_of_version = (quantity.whole_number(part) for part in version.split(".")[:3])
    number = tuple(part for part in parts_of_version if part is not None)
    if version and number <= WITHOUT:
        return f"in SGLang {version}, a recreated pod cannot join its group again"
    return ""
