"""The operator's settings: an option of `ome operator` is a field that is annotated with an `Option`, declared once.

The flag, the key of a configuration file, the chart's value and the table in docs/options.md follow from that declaration.
"""

from ome_operator.settings.policy import UNEXPOSED, Exposure, Policy
from ome_operator.settings.settings import Settings

__all__ = ["UNEXPOSED", "Exposure", "Policy", "Settings"]
