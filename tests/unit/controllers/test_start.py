"""Tests of whether ScaledObjects are created, which depends on the operator's settings, the cluster and the operator's
rights.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Any, cast

import pytest

from ome_operator.controllers import start
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden
from ome_operator.settings import Policy, Settings


class Cluster:
    """A stand-in for the client of a cluster in which ScaledObjects are served and may be listed, or not."""

    def __init__(self, *, served: bool, forbidden: str | None = None) -> None:
        self.calls: list[str] = []
        self._served, self._forbidden = served, forbidden

    async def served_plurals(self, version: str) -> frozenset[str]:
        assert version == "keda.sh/v1alpha1"
        return frozenset({"scaledobjects"}) if self._served else frozenset()

    async def list_metadata(self, kind: str, namespace: str = "", *, label_selector: str = "") -> list[Any]:
        self.calls.append(namespace)
        assert (kind, label_selector) == ("ScaledObject", "ome.io/managed-by=ome-operator")
        if namespace == self._forbidden:
            raise Forbidden("scaledobjects.keda.sh is forbidden", 403)
        return []


@pytest.mark.parametrize(
    ("cluster", "keda", "places", "made", "said"),
    [
        (Cluster(served=True), False, (), False, ""),
        (Cluster(served=True), True, (), True, ""),
        (Cluster(served=True), True, ("a", "b"), True, ""),
        (Cluster(served=False), True, (), False, "the cluster has no ScaledObject of keda.sh/v1alpha1"),
        (Cluster(served=True, forbidden=""), True, (), False, "may not list them (keda.enabled of the chart"),
        (Cluster(served=True, forbidden="b"), True, ("a", "b"), False, "may not list them (keda.enabled of the chart"),
    ],
)
def test_scaled_objects_are_created_if_keda_is_enabled_served_and_permitted(
    cluster: Cluster, keda: bool, places: tuple[str, ...], made: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(Settings(), policy=Policy(keda=keda), watch_namespaces=places)
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(start.scaled_objects(cast(Client, cluster), settings)) is made
    assert said in caplog.text and bool(caplog.text) is bool(said)
    assert cluster.calls == [place for place in places or ("",) if keda and (made or "may" in said)]
