"""The fields of pods and nodes from which `from_api` and `nodes` make facts. Watches do not decode the other fields, such as
volumes, mounts and the images of a node, which make up most of the JSON text.
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
"""The fields of a node. The field `fieldsV1` of each entry of `managedFields` stays JSON text, because only the `fieldsV1`
of the operator's entry is read."""
