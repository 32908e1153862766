"""Models as an agent's watches show them: read with care, for whoever writes them is not trusted."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ome_operator.agent.record import Held
from ome_operator.api import FineTunedWeight, Invalid, Model
from ome_operator.core.observed import from_api
from ome_operator.machinery.quota import Entry

logger = logging.getLogger(__name__)

PARSE: Mapping[str, Callable[[Mapping[str, Any]], Held | Invalid]] = {
    "ClusterBaseModel": Model.parse,
    "BaseModel": Model.parse,
    "FineTunedWeight": FineTunedWeight.parse,
}
_RANKS = {"ClusterBaseModel": 0, "FineTunedWeight": 1, "BaseModel": 2}


def read(kind: str, body: Mapping[str, Any]) -> tuple[str, Held | Invalid]:
    """A model and its UID. A body that breaks us is one lost model, not a dead watch."""
    try:
        return uid_of(body), PARSE[kind]({**body, "kind": kind})
    except Exception as error:
        logger.exception("cannot read a %s", kind)
        return uid_of(body), Invalid(repr(error))


def uid_of(body: Mapping[str, Any]) -> str:
    """The UID of a body; "" where its metadata is none."""
    return from_api.uid(body) if isinstance(body.get("metadata"), dict) else ""


def place(uid: str, body: Mapping[str, Any]) -> tuple[str, Entry]:
    """The namespace of a model and its place there."""
    found = body.get("metadata")
    metadata = found if isinstance(found, Mapping) else {}
    namespace, created, name = (str(metadata.get(key) or "") for key in ("namespace", "creationTimestamp", "name"))
    return namespace, Entry(created, name, uid)


def rank(model: Held) -> tuple[int, str, str, str]:
    """Of models that want a path the first has it: those of the cluster's administrator, then the older."""
    return _RANKS[model.kind], model.created, model.namespace, model.name
