"""Labels that OME sets on pods in addition to `ome.io/inferenceservice` and `component`, because users' selectors and
dashboards refer to them.

They are not part of a revision's inputs: if the vendor of a model changes, no pod restarts, and running pods keep their
labels.
"""

import re
from collections.abc import Mapping, Sequence

from ome_operator import keys, names
from ome_operator.api import FineTunedWeight, Model, Runtime
from ome_operator.core.resolve.finetuned import is_merged

CATEGORY = f"{keys.MODEL_LABEL_PREFIX}category"
"""Annotation of a model that contains its size class. The size class becomes the value of the label `base-model-size`."""
SMALL = "SMALL"
"""Size class of a model that has no annotation."""
KEYS = (
    "base-model-name", "base-model-size", "base-model-type", "base-model-vendor", "serving-runtime", "fine-tuned-serving",
    "fine-tuned-serving-with-merged-weights", "fine-tuned-weight-ft-strategy",
)  # fmt: skip
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def ome_labels(model: Model, runtime: Runtime, trained: Sequence[FineTunedWeight]) -> dict[str, str]:
    """Return OME's labels for the pods of a service. Values that are not valid as values of a label are left out."""
    strategy = (trained[0].spec.hyper_parameters or {}).get("strategy") if trained else None
    values = (
        names.shorten_with_digest(model.name, names.LABEL),
        model.annotations.get(CATEGORY) or SMALL,
        "Serving",
        model.spec.vendor,
        names.shorten_with_digest(runtime.name, names.LABEL),
        _truth(bool(trained)),
        _truth(any(map(is_merged, trained))) if trained else None,
        strategy if isinstance(strategy, str) else None,
    )
    return {key: value for key, value in zip(KEYS, values, strict=True) if value and _VALUE.fullmatch(value)}


def labels_of_template(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return OME's labels in the labels of a stored pod template, as (key, value). The routers of the revision get them."""
    return tuple((key, labels[key]) for key in KEYS if key in labels)


def _truth(value: bool) -> str:
    return "true" if value else "false"
