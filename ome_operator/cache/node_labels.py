"""What the labels of nodes say about models."""

from collections.abc import Callable, Iterable

from ome_operator import keys, names
from ome_operator.core.observed.objects import Node, Ref


def concerned(labels: Iterable[str]) -> Callable[[Ref], bool]:
    """Whether any of these node labels is about a model, or about a revision of it.

    Each model is looked at once, however many labels there are: of a revision's label only the length of the digest decides
    how the rest is cut.
    """
    plain = frozenset(labels)
    parted = [label.rpartition(".")[::2] for label in plain]
    stems = {(stem, len(directory)) for stem, directory in parted}
    samples = {len(directory): directory for _, directory in parted}

    def found(ref: Ref) -> bool:
        label = names.model_label(*ref)
        whole = ((names.whole_label(label, sample), length) for length, sample in samples.items())
        return label in plain or any((name[: -length - 1], length) in stems for name, length in whole)

    return found


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
