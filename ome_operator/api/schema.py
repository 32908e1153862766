"""Convert the JSON schemas that pydantic generates to structural OpenAPI v3 schemas for CRDs.

pydantic uses references, `null` alternatives, titles and defaults, which Kubernetes does not permit; these are resolved or
removed. Open maps are marked, because an API server prunes every field that the schema does not contain.
"""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ome_operator.api.base import RULES_KEY, Rule, Spec

Json = dict[str, Any]
OPEN = "x-kubernetes-preserve-unknown-fields"
_KEPT = (
    "description", "type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "pattern", "required",
)  # fmt: skip


def structural(spec: type[Spec]) -> Json:
    """Return the schema of a spec or status, with all references resolved and without defaults of fields."""
    json = spec.model_json_schema(by_alias=True)
    return _node(json, json.get("$defs", {}))


def object_schema(
    kind: str,
    spec: type[Spec],
    status: type[Spec],
    rules: tuple[Rule, ...],
    spec_required: bool,
    unseen: Mapping[str, Any] = MappingProxyType({}),
) -> Json:
    """Return the schema of a complete object. `spec_required` is true if the object must have a spec. `unseen` is the
    default of the status; empty for none.
    """
    out: Json = {
        "type": "object",
        "description": f"{kind}: {_sentence(spec)}",
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of the kind."},
            "kind": {"type": "string", "description": "Name of the kind."},
            "metadata": {"type": "object"},  # the API server does not permit a description of the field metadata
            "spec": structural(spec),
            "status": structural(status) | ({"default": copy.deepcopy(dict(unseen))} if unseen else {}),
        },
    }
    if spec_required:
        out["required"] = ["spec"]
    if rules:
        # The rules need a maximum length for their cost estimate; the server's own limit is the same.
        name = {"type": "string", "maxLength": 253}
        out["properties"]["metadata"]["properties"] = {"name": name}
        out[RULES_KEY] = [rule.schema() for rule in rules]
    return out


def _sentence(spec: type[Spec]) -> str:
    return " ".join((spec.__doc__ or "").split())


def _node(json: Json, defs: dict[str, Json]) -> Json:
    """Return a schema in which references and alternatives are resolved. `defs` maps the names of definitions to their
    schemas.
    """
    json = _resolved(json, defs)
    out: Json = {key: json[key] for key in _KEPT if key in json}
    out |= {key: value for key, value in json.items() if key.startswith("x-kubernetes-")}
    if "const" in json:
        out |= {"type": "string", "enum": [json["const"]]}
    if json.get("properties"):  # the server drops empty properties, so that each apply would be recorded as a change
        out["properties"] = {name: _node(field, defs) for name, field in json["properties"].items()}
    if "items" in json:
        out["items"] = _node(json["items"], defs)
    extra = json.get("additionalProperties")
    if extra is True:
        out[OPEN] = True
    elif isinstance(extra, dict):
        out["additionalProperties"] = _node(extra, defs)
    if not out.keys() & {"type", "x-kubernetes-int-or-string", OPEN}:
        raise ValueError(f"a field without a type cannot be in a CRD: {json}")
    return out


def _resolved(json: Json, defs: dict[str, Json]) -> Json:
    """Return the schema to which references and `X | None` lead. The description of a field takes precedence over the
    description of its type.
    """
    while True:
        if "$ref" in json:
            inner = defs[json["$ref"].removeprefix("#/$defs/")]
        elif "anyOf" in json:
            inner = _only([one for one in json["anyOf"] if one.get("type") != "null"])
        elif "allOf" in json:
            inner = _only(json["allOf"])
        else:
            return json
        outer = {key: value for key, value in json.items() if key not in ("$ref", "anyOf", "allOf")}
        rules = [*inner.get(RULES_KEY, ()), *outer.get(RULES_KEY, ())]
        json = inner | outer | ({RULES_KEY: rules} if rules else {})


def _only(choices: list[Json]) -> Json:
    if len(choices) != 1:
        raise ValueError(f"a CRD cannot have alternatives: {choices}")
    return choices[0]
