"""The fields of pods and nodes from which `from_api` and `nodes` make facts. Watches decode no other fields, which are most
of the text: volumes and mounts, images of a node, and managed fields.
"""

import msgspec

from ome_operator.util.json_limits import decoders, fields

_BOX = fields("name", "resources", "readinessProbe", "startupProbe", "env")
POD = decoders(spec=fields("nodeName", "priority", "initContainers", containers=list[_BOX]))  # type: ignore[valid-type]

_ENTRY = fields("manager", "operation", "subresource", fieldsV1=msgspec.Raw)
NODE = decoders(
    managed_fields=list[_ENTRY],  # type: ignore[valid-type]
    spec=fields("taints", "unschedulable"),
    status=fields("conditions", "allocatable", "capacity"),
)
"""The fields of a node. A set of managed fields remains text, because only the set of the operator is read."""
