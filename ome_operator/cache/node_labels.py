"""Map node labels about model weights to models, and detect changes of these labels."""

from collections.abc import Iterator

from ome_operator import keys, names
from ome_operator.core.observed.nodes import differing_keys
from ome_operator.core.observed.objects import Node, Ref

_CUT = 8
"""Length of the digest that ends a revision's label name if the model's own name is too long for a label."""

_ASKED = 10_000
"""Maximum number of labels whose models are remembered. Nodes of a pool share labels, but other clients can set an unbounded
number of labels."""


def label_names_model(label: str, ref: Ref) -> bool:
    """Return whether a node label states that the node has this model, or one of its revisions."""
    directory = label.rpartition(".")[2]
    return label in (names.model_label(*ref), names.revision_label(*ref, directory))


def label_changes(former: Node | None, now: Node | None) -> Iterator[tuple[str, bool]]:
    """Yield (label, True) for each model or revision that a node has gained, and (label, False) for each that it has lost.
    `former` and `now` are the node before and after the change; `former` is None for a new node, and `now` is None for a
    node that is gone.
    """
    had, has = (node.labels if node is not None else {} for node in (former, now))
    for label in differing_keys(had, has):
        if label.startswith(keys.MODEL_LABEL_PREFIX):
            before, after = (labels.get(label) == keys.MODEL_READY for labels in (had, has))
            if before != after:
                yield label, after


class LabelIndex:
    """Index of models by their node labels. The label and the digest of each model are computed only once."""

    def __init__(self) -> None:
        self._ends: dict[Ref, tuple[str, str]] = {}
        self._models: dict[str, dict[Ref, None]] = {}
        self._found: dict[str, list[Ref]] = {}

    def add(self, ref: Ref) -> None:
        """Add a model."""
        if ref in self._ends:
            return
        self._found.clear()
        label = names.model_label(*ref)
        self._ends[ref] = label, names.digest(label.removeprefix(keys.MODEL_LABEL_PREFIX), _CUT)
        for end in self._ends[ref]:
            self._models.setdefault(end, {})[ref] = None

    def remove(self, ref: Ref) -> None:
        """Remove a model."""
        self._found.clear()
        for end in self._ends.pop(ref, ()):
            del self._models[end][ref]
            if not self._models[end]:
                del self._models[end]

    def models_of_label(self, label: str) -> list[Ref]:
        """Return the models that have this node label as their own label or as the label of one of their revisions."""
        if label not in self._found:
            if len(self._found) >= _ASKED:
                self._found.clear()
            whole = label.rpartition(".")[0]
            near = {ref: None for end in (label, whole, whole[-_CUT:]) for ref in self._models.get(end, ())}
            self._found[label] = [ref for ref in near if self._ends[ref][0] == label or label_names_model(label, ref)]
        return self._found[label]
