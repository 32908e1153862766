"""Types of values that several specs share. Each has a validation rule and a schema for the CRD."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ome_operator.api import source_hints
from ome_operator.api.base import Rule

Open = dict[str, Any]
"""A map that is stored as the user wrote it: a part of a core/v1 type, or a block that has no effect yet."""


class _IntOrString:
    """An integer or a string, stored with the type that the user wrote."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-kubernetes-int-or-string": True}

    @staticmethod
    def _check(value: Any) -> int | str:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise PydanticCustomError("int_or_string", "must be a whole number or a string")
        return value


class _Number:
    """A number in any notation: `1`, `0.25`, `"0.25"`, `"250m"`. A CRD has no type for such numbers, so the schema
    permits any value.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-kubernetes-preserve-unknown-fields": True}

    @staticmethod
    def _check(value: Any) -> int | float | str:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise PydanticCustomError("float_type", "must be a number")
        return value


def full_match(pattern: str) -> Callable[[Any], bool]:
    """Return a function that checks whether the whole value matches the pattern, like `full_match` with `^…$` in CEL."""
    compiled = re.compile(pattern.removeprefix("^").removesuffix("$"))
    return lambda value: compiled.fullmatch(str(value)) is not None


IntOrString = Annotated[int | str, _IntOrString()]
Quantity = IntOrString
"""An amount in Kubernetes notation: `80`, `"80Gi"`, `"500m"`."""
Number = Annotated[int | float | str, _Number()]

_PERCENT = "^[0-9]{1,9}%?$"
Percent = Annotated[
    int | str,
    _IntOrString(),
    Rule(
        f"string(self).matches('{_PERCENT}')",
        'write a count such as 1, or a share such as "25%" in quotes',
        full_match(_PERCENT),
    ),
]
"""A number or a percentage."""

DURATION = "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$"
Duration = Annotated[
    str,
    Field(max_length=64),
    Rule(f"self.matches('{DURATION}')", 'write a duration such as "90s", "15m" or "1h30m"', full_match(DURATION)),
]

SCHEMES = ("hf", "s3", "gs", "az", "oci", "pvc", "local", "vendor", "github")


def _starts(schemes: tuple[str, ...], example: str, meant: Callable[[str], str] = lambda _: "") -> Rule:
    """Return the rule that a URI begins with one of `schemes`. `meant` returns the URI that a user probably means who writes
    another one; "" if that is not known.
    """
    pattern = f"^({'|'.join(schemes)})://.+$"
    words = ", ".join(f"{one}://" for one in schemes)
    message = f"start it with one of {words}, followed by the location, for example {example}"

    def compute_message(uri: str) -> str:
        return f"write {guess}" if (guess := meant(uri)) else message

    return Rule(f"self.matches('{pattern}')", message, full_match(pattern), compute_message=compute_message)


_HUB = "^hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+(@[^ @]+)?$"
_OF_A_HUB = Rule(
    f"!self.startsWith('hf://') || self.matches('{_HUB}')",
    "write hf://owner/name or hf://owner/name@revision, without spaces, for example hf://moonshotai/Kimi-K2-Instruct",
    lambda uri: not uri.startswith("hf://") or full_match(_HUB)(uri),
)
_CLAIM = "^pvc://([a-z0-9]([-a-z0-9]*[a-z0-9])?:)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/.*)?$"
_OF_A_CLAIM = Rule(
    f"!self.startsWith('pvc://') || (self.matches('{_CLAIM}') && !self.matches('/[.][.](/|$)'))",
    'write pvc://claim/path or pvc://namespace:claim/path, with a name of lowercase letters, digits and "-" and a path '
    'without "..", for example pvc://weights/kimi-k2',
    lambda uri: not uri.startswith("pvc://") or (full_match(_CLAIM)(uri) and re.search("/[.][.](/|$)", uri) is None),
)
_LOCAL = "^local:///.*$"
_OF_A_NODE = Rule(
    f"!self.startsWith('local://') || self.matches('{_LOCAL}')",
    "write an absolute path behind local://, for example local:///mnt/models/kimi-k2",
    lambda uri: not uri.startswith("local://") or uri.startswith("local:///"),
)
_OCI_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
"""A component of a repository, as the OCI distribution specification defines it: lower case, and two dots never follow each
other."""
OCI_TAG, OCI_DIGEST = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", "sha256:[0-9a-f]{64}"
OCI_ARTIFACT = (
    r"(?P<host>localhost|[A-Za-z0-9_-]+[.:][A-Za-z0-9_.:-]*|\[[0-9a-fA-F:]+\](?::[0-9]+)?)"
    f"/(?P<repository>{_OCI_PART}(?:/{_OCI_PART})*)(?::(?P<tag>{OCI_TAG}))?(?:@(?P<digest>{OCI_DIGEST}))?"
)
"""Pattern of the part behind `oci://` that names an artifact in a registry, for Python and for CEL.

As in the names of images, a host contains a dot or a port, or is `localhost`. The `n` of Oracle object storage (`oci://n/…`)
is therefore never a host."""
_STORES = {
    "s3": (
        "[^/@ ]+(@[a-z0-9-]+)?(/.*)?",
        "s3://bucket/path or s3://bucket@region/path, for example s3://models@eu-west-1/kimi-k2",
    ),
    "gs": (
        "[a-z0-9][a-z0-9._-]*(/.*)?",
        "gs://bucket/path, with the name of the bucket in lower case, for example gs://models/kimi-k2",
    ),
    "az": (
        "[a-z0-9$][a-z0-9.-]*(/.*)?",
        "az://container/path, with the name of the container in lower case, for example az://models/kimi-k2",
    ),
    "oci": (
        f"(n/[^/]+/b/[^/]+/o(/.*)?|{OCI_ARTIFACT})",
        "oci://registry/repository[:tag][@sha256:digest], with a dot or a port in the name of the registry and the "
        "repository in lower case, for example oci://registry.example.com/models/kimi-k2:1, or "
        "oci://n/namespace/b/bucket/o/path for Oracle object storage",
    ),
    "https?": ("[^/?# ]+([/?#].*)?", "the URL of a file with a host, for example https://example.com/questions.jsonl"),
}
"""Scheme -> pattern of the part behind `://`, and the form to write."""


def _stored_in(scheme: str, pattern: str, form: str) -> Rule:
    """Return the rule for `storageUri` of an object of class Storage."""
    mine, whole = re.compile(f"{scheme}://"), f"^{scheme}://{pattern}$"
    return Rule(
        f"!self.storageUri.matches('^{scheme}://') || self.storageUri.matches(r'{whole}')",
        f"storageUri is not valid: write {form}",
        lambda storage: mine.match(storage.storage_uri) is None or full_match(whole)(storage.storage_uri),
        new_only=True,
    )


STORE_RULES = tuple(_stored_in(scheme, pattern, form) for scheme, (pattern, form) in _STORES.items())
"""Rules for the URIs of stores and registries. Objects that were stored before these rules existed may violate them: a
service of which the nodes have the files works."""
StorageUri = Annotated[
    str,
    Field(max_length=2048),
    _starts(SCHEMES, "hf://moonshotai/Kimi-K2-Instruct", source_hints.meant),
    _OF_A_HUB,
    _OF_A_CLAIM,
    _OF_A_NODE,
]
FileUri = Annotated[str, Field(max_length=2048), _starts((*SCHEMES, "https", "http"), "https://example.com/questions.jsonl")]
"""Source of a file. In addition to storage URIs, http and https URLs are permitted."""

ABOVE = "(^|/)[.][.](/|$)"
"""Pattern of paths with a part `..`."""
NodePath = Annotated[
    str,
    Field(max_length=2048),
    Rule(
        f"self.startsWith('/') && !self.matches('^[/.]*$') && !self.matches('{ABOVE}')",
        'write a directory below the root, as an absolute path without "..", for example /mnt/models/kimi-k2',
        lambda path: path.startswith("/") and not full_match("^[/.]*$")(path) and re.search(ABOVE, path) is None,
    ),
]
"""A directory on a node. The root directory is rejected, because pods mount the directory and would get the complete file
system."""

_SIZE = "^ *[0-9]+([.][0-9]+)? *[KMBTkmbt]?$"
ParameterCount = Annotated[
    str,
    Field(max_length=32),
    Rule(
        f"self.matches('{_SIZE}')",
        'write a number with K, M, B or T for thousand to trillion, for example "7B" or "1.04T"',
        full_match(_SIZE),
    ),
]
"""Number of parameters of a model."""

Name = Annotated[str, Field(min_length=1, max_length=253)]
"""Name of an object."""
Count = Annotated[int, Field(ge=0)]
LARGEST = 1000
"""Maximum number of groups of a component, and of workers of a group. Each group is a StatefulSet, each worker is a pod,
and one reconciliation plans all of them."""
Replicas = Annotated[int, Field(ge=0, le=LARGEST)]
ReleaseNumber = Annotated[str, Field(max_length=253)]
"""A version such as "4.51.0" or "9.0". Versions are compared by their numeric parts."""
Labels = dict[str, str]
