"""kopf's streams are set up as we rely on it."""

from kopf._cogs.structs.references import Resource

from ome_operator.cache.cluster_cache import KINDS, LABELLED
from ome_operator.controllers.manager import SELECTOR, SELECTORS, watched
from ome_operator.kube.resources import RESOURCES
from ome_operator.watch.tuning import tuned


def test_selectors_reach_exactly_the_kinds_that_are_watched_by_label() -> None:
    """A key in another spelling matches nothing, silently: we would watch every pod of the cluster."""
    settings = tuned(600, {(one.group, one.version, one.plural): one.selector for one in watched() if one.selector})
    for kind in KINDS:
        group, version, plural = RESOURCES[kind].group, RESOURCES[kind].version, RESOURCES[kind].plural
        selectors = list(settings.watching.label_selectors.collect(Resource(group, version, plural)))
        assert selectors == ([SELECTORS[kind]] if kind in LABELLED else []), kind
    assert {kind: one for kind, one in SELECTORS.items() if one != SELECTOR} == {
        "ControllerRevision": "ome.io/managed-by=ome-operator,!component"
    }
