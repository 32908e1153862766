"""The times of the stages of a pod's start."""

from typing import NamedTuple


class Times(NamedTuple):
    """The times when a pod last reached each stage, in RFC 3339; "" for a stage that the pod has not reached."""

    created: str = ""
    scheduled: str = ""
    began: str = ""
    """Time when the main container last started."""
    ready: str = ""
    network: str = ""
    """Time when the pod had its volumes and its network."""
    initialized: str = ""
    """Time when the last init container ended; "" for a pod without init containers."""
    unready: str = ""
    """Time since which the pod is not ready; "" if it is ready."""


NO_TIMES = Times()
