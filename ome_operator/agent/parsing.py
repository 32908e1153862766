"""Parse the models that an agent's watches deliver. The input is untrusted, because any user may write a model."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ome_operator.api import FineTunedWeight, Invalid, Model
from ome_operator.core.observed import from_api
from ome_operator.core.weights.mount import AnyModel
from ome_operator.machinery.quota import Entry
from ome_operator.util import large_objects

logger = logging.getLogger(__name__)

PARSE: Mapping[str, Callable[[Mapping[str, Any]], AnyModel | Invalid]] = {
    "ClusterBaseModel": Model.parse,
    "BaseModel": Model.parse,
    "FineTunedWeight": FineTunedWeight.parse,
}
_RANKS = {"ClusterBaseModel": 0, "FineTunedWeight": 1, "BaseModel": 2}


def parse_model(kind: str, body: Mapping[str, Any]) -> tuple[str, AnyModel | Invalid]:
    """Return the UID of a model and the parsed model. A body that cannot be parsed results in Invalid instead of an
    exception, so that the watch continues.
    """
    try:
        small = large_objects.reduce(body)
        why = large_objects.refusal(small)
        return uid_of(body), Invalid(why) if why else PARSE[kind]({**body, "kind": kind})
    except Exception as error:
        logger.exception("cannot parse a %s", kind)
        return uid_of(body), Invalid(repr(error))


def uid_of(body: Mapping[str, Any]) -> str:
    """Return the UID of an object, or "" if the object has no valid metadata."""
    return from_api.uid(body) if isinstance(body.get("metadata"), dict) else ""


def quota_entry(uid: str, body: Mapping[str, Any]) -> tuple[str, Entry]:
    """Return the namespace of a model and the model's entry in the quota of that namespace."""
    raw = body.get("metadata")
    metadata = raw if isinstance(raw, Mapping) else {}
    namespace, created, name = (str(metadata.get(key) or "") for key in ("namespace", "creationTimestamp", "name"))
    return namespace, Entry(created, name, uid)


def path_priority(model: AnyModel) -> tuple[int, str, str, str]:
    """Return the sort key that decides which of several models with the same path may use the path: the first in this
    order. Cluster-scoped models come before namespaced models, and older models before newer models.
    """
    return _RANKS[model.kind], model.created, model.namespace, model.name
