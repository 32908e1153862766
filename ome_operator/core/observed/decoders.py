"""The fields of pods and nodes from which `from_api` and `nodes` make facts. Watches do not decode the other fields, such as
volumes, mounts and the images of a node, which make up most of the JSON text.
"""

import msgspec

from ome_operator.util.json_limits import build_decoders, fields_type

_BOX = fields_type("name", "resources", "readinessProbe", "startupProbe", "env")
POD = build_decoders(spec=fields_type("nodeName", "priority", "initContainers", containers=list[_BOX]))  # type: ignore[valid-type]

_ENTRY = fields_type("manager", "operation", "subresource", fieldsV1=msgspec.Raw)
NODE = build_decoders(
    managed_fields=list[_ENTRY],  # type: ignore[valid-type]
    spec=fields_type("taints", "unschedulable"),
    status=fields_type("conditions", "allocatable", "capacity"),
)
"""The fields of a node. The field `fieldsV1` of each entry of `managedFields` stays JSON text, because only the `fieldsV1`
of the operator's entry is read."""
