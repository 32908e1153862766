"""What the labels of nodes say about models."""

from collections.abc import Iterable

from ome_operator import keys, names
from ome_operator.core.observed.objects import Node, Ref


def concerns(label: str, ref: Ref) -> bool:
    """Whether a node label is about this model, or about one of its revisions."""
    directory = label.rpartition(".")[2]
    return label in (names.model_label(*ref), names.revision_label(*ref, directory))


def about_models(node: Node | None) -> set[tuple[str, str, bool]]:
    """What a node says about models: label, value, and whether the node is ready."""
    if node is None:
        return set()
    return {(name, value, node.ready) for name, value in node.labels.items() if name.startswith(keys.MODEL_LABEL_PREFIX)}


def holders(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    """Label -> names of the nodes where it says Ready."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        for name, value in node.labels.items():
            if value == keys.MODEL_READY and name.startswith(keys.MODEL_LABEL_PREFIX):
                found.setdefault(name, set()).add(node.name)
    return {name: frozenset(members) for name, members in found.items()}
