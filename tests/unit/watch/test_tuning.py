"""kopf is set up so that it only watches."""

import kopf
from kopf._cogs.structs.references import Resource

from ome_operator.cluster import KINDS, LABELLED
from ome_operator.kube.kinds import RESOURCES
from ome_operator.leader import SELECTOR, watched
from ome_operator.watch.tuning import tune


def tuned() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    tune(settings, 600, {(one.group, one.version, one.plural): one.selector for one in watched() if one.selector})
    return settings


def test_selectors_reach_exactly_the_kinds_that_are_watched_by_label() -> None:
    """A key in another spelling matches nothing, silently: we would watch every pod of the cluster."""
    settings = tuned()
    for kind in KINDS:
        resource = RESOURCES[kind]
        known = Resource(resource.group, resource.version, resource.plural, kind=kind, namespaced=resource.namespaced)
        selectors = list(settings.watching.label_selectors.collect(known))
        assert selectors == ([SELECTOR] if kind in LABELLED else []), kind


def test_kopf_writes_nothing_and_limits_nothing() -> None:
    settings = tuned()
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert settings.queueing.worker_limit is None
    assert settings.persistence.diffbase_storage.build(body=kopf.Body({"spec": {"a": 1}})) == {}
