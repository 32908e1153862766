"""The settings of operator and agent. Each option of `ome operator` (`settings.py`) and of `ome agent` (`agent.py`) is
declared once, as a field that is annotated with an `Option`.

The flag, the key of the configuration file, the chart value and the row in docs/options.md are derived from the declaration.
"""

from ome_operator.settings.policy import UNEXPOSED, Exposure, Policy
from ome_operator.settings.settings import Settings

__all__ = ["UNEXPOSED", "Exposure", "Policy", "Settings"]
