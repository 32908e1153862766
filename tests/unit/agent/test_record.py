"""Tests of the size of a node's record (NodeModels). The API server accepts it with any number of models and with any texts
from the models' files (finding S6 of the security review).
"""

import json
from collections import Counter
from typing import Any

from ome_operator.agent.record import status

LIMIT = 1_100_000
"""Bytes that leave room for managedFields below etcd's 1.5 MiB."""


def entry(number: int, namespace: str = "team-a", **more: Any) -> dict[str, Any]:
    """Return the entry of a model whose fields have their greatest length."""
    kind = "BaseModel" if namespace else "ClusterBaseModel"
    said = {"kind": kind, "namespace": namespace, "name": f"m-{number:05}", "uri": "hf://" + "u" * 2000, "state": "Failed"}
    return {key: value for key, value in {**said, "message": "m" * 300, **more}.items() if value}


def test_size_of_a_record_with_300_long_models_is_limited() -> None:
    """The record of a node with 300 models whose texts are all long stays short enough. Reported: the record had 1.6 MB, and
    the API server refused it once a second for every node for as long as the models existed.
    """
    mine = entry(0, "", state="Ready", uri="hf://moonshotai/Kimi-K2", message="", facts={"architecture": "x" * 2000})
    said = status([mine, *(entry(number) for number in range(600))])
    assert len(json.dumps(said)) < LIMIT
    assert mine in said["models"], "the cluster-wide models stay, with their facts"
    assert "not listed because the record would be too long" in said["summary"]


def test_namespace_with_the_largest_entries_is_shortened_first() -> None:
    few = [entry(number, "team-b") for number in range(10)]
    said = status([*few, *(entry(number) for number in range(2000))])
    assert len(json.dumps(said)) < LIMIT
    assert sum(item["namespace"] == "team-b" for item in said["models"]) == 10


def test_record_below_the_limit_is_complete() -> None:
    plain = [entry(number, uri="hf://a/b", facts={"architecture": "A"}) for number in range(300)]
    assert status(plain)["models"] == sorted(plain, key=lambda item: item["name"])


def test_records_of_a_hundred_namespaces_are_shortened_equally() -> None:
    said = status([entry(number, f"team-{number % 100:03}") for number in range(10_000)])
    assert len(json.dumps(said)) < LIMIT and len(said["models"]) > 300
    counts = Counter(item["namespace"] for item in said["models"])
    assert len(counts) == 100 and max(counts.values()) - min(counts.values()) <= 1


def test_unused_directories_do_not_displace_models_in_the_record() -> None:
    """Directories to which no model refers leave space in the record for the models. A tenant that creates and deletes
    models can leave any number of directories if nothing is removed from the disk.
    """
    left = [{"directory": f"/raid/.namespaces/team-a/.ome/{number:032x}", "models": ["m" * 60]} for number in range(20_000)]
    others = [{"directory": f"/raid/models/.ome/{number:032x}", "bytes": 1} for number in range(10)]
    mine = [entry(number, "team-b") for number in range(50)]
    said = status(mine, [*left, *others])
    assert len(json.dumps(said)) < LIMIT
    assert said["models"] == mine and all(item in said["unused"] for item in others)
    assert f"{len(left) - len(said['unused']) + 10} unused directories not listed" in said["summary"]
