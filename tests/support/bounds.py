"""Enumerates the bounds and the CEL rules of the CRDs, with values that meet them and values that violate them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]
RULES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+": (("90s", "1h30m", "1.5h"), ("90", "1d", "", "5 m", "-5s")),
    "string(self).matches('^[0-9]{1,9}%?$')": ((1, "25%", 0), ("25 %", "a", "-1", "1234567890", 1.5)),
    "minReplicas <= self.maxReplicas": (
        ({"minReplicas": 1, "maxReplicas": 2}, {"minReplicas": 1, "maxReplicas": 0}, {"minReplicas": 3}),
        ({"minReplicas": 3, "maxReplicas": 1},),
    ),
    "has(self.minAvailable) && has(self.maxUnavailable)": (
        ({"minAvailable": 1}, {"maxUnavailable": "5%"}),
        ({"minAvailable": 1, "maxUnavailable": 1},),
    ),
    "self.class != 'KEDA'": (({"class": "HPA"},), ({"class": "KEDA"},)),
    "self.startsWith('/')": (("/a", "/a/..b", "/a/b/"), ("a", "/", "/./", "/a/../b", "/..", "")),
    "^(hf|s3|gs|az|oci|pvc|local|vendor|github)://.+$": (
        ("hf://a/b", "s3://b/p", "local:///p", "pvc://c/p"), ("s3:/b/p", "huggingface://a/b", "a/b", "hf://", "HF://a/b"),
    ),
    "https|http": (("https://a/b.jsonl", "hf://a/b"), ("ftp://a/b", "a")),
    "^hf://[A-Za-z0-9._-]+/": (
        ("hf://a/b@main", "hf://a.b/c-d_e", "s3://x"), ("hf://a", "hf://a/b/c", "hf://a/b c", "hf://a/b@", "hf://a/b@x@y"),
    ),
    "startsWith('pvc://')": (
        ("pvc://c", "pvc://a:c.d/p", "pvc://c/a..b"),
        ("pvc://Weights_1/x", "pvc://weights/../x", "pvc:///x", "pvc://a:b:c/x", "pvc://c/.."),
    ),
    "matches('^local:///.*$')": (("local:///p",), ("local://p", "local://./p")),
    "|| !self.storageUri.matches(": (
        ({"storageUri": "local:///p/..a/b.."}, {"storageUri": "local:///p.."}),
        ({"storageUri": "local:///p/../q"}, {"storageUri": "local:///p/.."}, {"storageUri": "local:///.."}),
    ),
    "^s3://": (
        ({"storageUri": "s3://Old_Bucket"}, {"storageUri": "s3://b@eu-west-1/p"}),
        ({"storageUri": "s3:///p"}, {"storageUri": "s3://b@EU/p"}, {"storageUri": "s3://a b/p"}),
    ),
    "^gs://": (({"storageUri": "gs://b.c_d/P"},), ({"storageUri": "gs://UPPER/p"}, {"storageUri": "gs:///p"})),
    "^az://": (({"storageUri": "az://c-1/P"},), ({"storageUri": "az://UPPER/p"}, {"storageUri": "az:///p"})),
    "^oci://": (
        (
            {"storageUri": "oci://r.example/a/b-c:V1"}, {"storageUri": "oci://[::1]:5000/a"},
            {"storageUri": "oci://n/N/b/Bucket/o/P"}, {"storageUri": f"oci://localhost/a@sha256:{'0' * 64}"},
        ),
        (
            {"storageUri": "oci://UPPER/x"}, {"storageUri": "oci://r.example/UPPER"}, {"storageUri": "oci://r.example"},
            {"storageUri": "oci://n/N/b/Bucket"}, {"storageUri": "oci://r.example/a..b"},
        ),
    ),
    "^https?://": (({"storageUri": "hf://a/b"},), ({"storageUri": "https:///f"}, {"storageUri": "https://a b"})),
    "'local://' + self.path": (
        (
            {"storageUri": "local:///p", "path": "/p"}, {"storageUri": "local:///p/", "path": "/p"},
            {"storageUri": "local:///p", "path": "/p/"}, {"storageUri": "hf://a/b", "path": "/q"},
        ),
        ({"storageUri": "local:///p", "path": "/q"},),
    ),
    "[KMBTkmbt]?": (("7B", " 1.04 T", "1030000000"), ("7 Billion", "B", "-1B", "1,5B")),
    "^([01][0-9]|2[0-3]):[0-5][0-9]$": (("08:00", "23:59", "00:00"), ("24:00", "8:00", "08:60", "08:00:00", "")),
    "self.autoSync": (({"name": "m", "autoSync": False, "revision": "1"}, {"name": "m"}), ({"name": "m", "revision": "1"},)),
    "oldSelf.hasValue()": ((), ()),  # the name of a service has cases of its own
    "!has(self.decoder)": (({"engine": {}, "decoder": {}},), ({"decoder": {}},)),
    "has(self.endpoint) || has(self.inferenceService)": (
        ({"inferenceService": {"name": "a", "namespace": "b"}},), ({"inferenceService": None},),
    ),
    "has(self.groups), has(self.blueGreen)": (({"blueGreen": {}}, {}), ({"blueGreen": {}, "recreate": {}},)),
    "has(self.canary), has(self.blueGreen)": (
        ({"components": ["engine"], "blueGreen": {}},), ({"components": ["engine"], "blueGreen": {}, "recreate": {}},),
    ),
}  # fmt: skip
"""Part of a CEL rule -> values that it accepts, and values that it refuses."""
_WRONG: dict[str, tuple[Any, ...]] = {
    "string": (1, []),
    "integer": ("1", 1.5, True),
    "number": ("1", True),
    "boolean": ("true", 1),
    "array": ({}, "a"),
    "object": ([], "a"),
}
"""Type -> values of other types."""


class Case(NamedTuple):
    """A value at one place of an otherwise valid object, which meets or violates a bound there."""

    path: tuple[str | int, ...]
    bound: str
    """Which bound the value tests."""
    value: Any


def cases(schema: Json) -> Iterator[Case]:
    """Yield the cases of the spec of a kind, from its schema."""
    yield from _below(schema["properties"]["spec"], ("spec",))


def _below(schema: Json, path: tuple[str | int, ...]) -> Iterator[Case]:
    yield from (Case(path, bound, value) for bound, value in _own(schema))
    for name, inner in schema.get("properties", {}).items():
        yield from _below(inner, (*path, name))
    if isinstance(inner := schema.get("items"), dict):
        yield from _below(inner, (*path, 0))
    if isinstance(inner := schema.get("additionalProperties"), dict):
        yield from _below(inner, (*path, "some-key"))


def _own(schema: Json) -> Iterator[tuple[str, Any]]:
    """Yield (name of the bound, value) for values that meet or violate each bound of one node of a schema."""
    fine = sample(schema)
    yield "fine", fine
    if schema.get("x-kubernetes-int-or-string"):
        yield from (("type", value) for value in (True, 1.5, [], {}))
    for value in _WRONG.get(schema.get("type", ""), ()):
        yield "type", value
    if "enum" in schema:
        yield from (("enum", value) for value in (*schema["enum"], "no such word"))
    for name, step in (("minimum", -1), ("maximum", 1)):
        if name in schema:
            yield from ((name, schema[name]), (name, schema[name] + step))
    if schema.get("type") == "string":
        if "maxLength" in schema:
            yield from (("maxLength", "a" * (schema["maxLength"] + 1)), ("maxLength", "ä" * schema["maxLength"]))
        if schema.get("minLength"):
            yield "minLength", ""
    for name, step in (("minItems", -1), ("maxItems", 1)):
        if name in schema:
            item = sample(schema["items"])
            yield from ((name, [item] * schema[name]), (name, [item] * (schema[name] + step)))
    for name in schema.get("required", ()):
        yield "required", {key: value for key, value in fine.items() if key != name}
        yield "required", {**fine, name: None}
    if schema.get("properties"):
        yield "unknown", {**fine, "noSuchField": 1}
    for entry in schema.get("x-kubernetes-validations", ()):
        for value in (value for values in of_rule(entry["rule"]) for value in values):
            yield "rule", {**fine, **value} if isinstance(value, dict) else value


def of_rule(rule: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the values for a CEL rule. Raises KeyError for a rule without values."""
    found = [values for part, values in RULES.items() if part in rule]
    if len(found) != 1:
        raise KeyError(f"{len(found)} entries of RULES for {rule}")
    return found[0]


def sample(schema: Json) -> Any:
    """Return a valid value with as few fields as possible."""
    rules = [entry["rule"] for entry in schema.get("x-kubernetes-validations", ())]
    kind = schema.get("type", "")
    if kind != "object" and rules:
        good = [value for rule in rules for value in of_rule(rule)[0]]
        return next((value for value in good if str(value).startswith("hf://")), good[0])
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        made = {name: sample(schema["properties"][name]) for name in schema.get("required", ())}
        if any("has(self.endpoint)" in rule for rule in rules):
            made |= {"inferenceService": sample(schema["properties"]["inferenceService"])}
        return made
    if kind == "array":
        return [sample(schema["items"])] * schema.get("minItems", 0)
    return {"string": "a", "integer": schema.get("minimum", 1), "number": 1.5, "boolean": True}.get(kind, 1)


def placed(spec: Any, path: tuple[str | int, ...], value: Any, schema: Json) -> Any:
    """Return `spec`, a part of an object, with `value` at `path`. Parts that are missing along the path are created with
    their required fields.
    """
    if not path:
        return value
    head, rest = path[0], path[1:]
    if head == 0:
        return [placed(sample(schema["items"]), rest, value, schema["items"])] * max(1, schema.get("minItems", 0))
    inner = schema.get("properties", {}).get(head) or schema.get("additionalProperties")
    before = spec.get(head) if isinstance(spec, dict) else None
    return {**spec, head: placed(sample(inner) if before is None else before, rest, value, inner)}
