"""Tests that a recording of another version, a truncated one and a malicious one lead to a message, and not to a
traceback.
"""

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from ome_operator.core.observed.silence import Silence
from ome_operator.core.observed.telemetry import DrainReport
from ome_operator.core.observed.transfers import FailingPair
from ome_operator.recorder import recording, replay, sections
from ome_operator.recorder.facts import UnreadableRecording
from tests.support.incidents import FOLDER

PACKED = (FOLDER / "rank-evicted.json.gz").read_bytes()
PLAIN = gzip.decompress(PACKED)
NAME = "team/svc"


def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PLAIN)
    return found


def sentence(content: bytes) -> str:
    with pytest.raises(UnreadableRecording) as error:
        recording.decode(content)
    return str(error.value)


def test_compressed_and_plain_recordings_are_equal() -> None:
    assert recording.parse_json(PACKED) == recording.parse_json(PLAIN)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_truncated_recording_is_refused(share: float) -> None:
    assert "not a recording" in sentence(b"{}") and "copy it again" in sentence(PLAIN[: int(len(PLAIN) * share)])
    assert sentence(PACKED[: max(3, int(len(PACKED) * share))])


def test_damaged_recording_is_refused() -> None:
    broken = bytearray(PACKED)
    broken[len(broken) // 2] ^= 0xFF
    assert sentence(bytes(broken))


def test_recording_of_other_format_is_refused_with_version() -> None:
    said = sentence(json.dumps(data() | {"recording": 7, "ome": "9.1"}).encode())
    assert "ome 9.1" in said and "format 7" in said and "reads format 1" in said


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff\xfe\x00", b"[]", b"null", b'{"recording": 1}', b'{"recording": true, "services": []}']
)
def test_other_content_is_not_a_recording(content: bytes) -> None:
    assert sentence(content)


def test_drain_reports_are_recorded_and_optional() -> None:
    told = data()
    saw = told["services"][NAME]["passes"][0]["saw"]
    assert "drains" not in saw
    (services,) = recording.decode(json.dumps(told).encode()).services.values()
    assert not any(each.replayed_pass.observed.drains for each in services)
    saw["drains"] = {"u": [{"router": "r", "at": 5.5, "requests": 3}, {"router": "s", "at": 6.0, "empty_readings": 2}]}
    (services,) = recording.decode(json.dumps(told).encode()).services.values()
    reports = {"u": (DrainReport("r", 5.5, 3), DrainReport("s", 6.0, None, 2))}
    assert [each.replayed_pass.observed.drains for each in services] == [reports] * len(services)
    assert sections.tables(services[0].replayed_pass)["drains"] == saw["drains"]
    saw["drains"] = {"u": [{"router": "r"}]}
    assert "drains.u[0] has no at" in sentence(json.dumps(told).encode())


def test_silence_reports_are_recorded() -> None:
    told = data()
    saw = told["services"][NAME]["passes"][0]["saw"]
    saw["silences"] = {"u": {"since": 5.5, "requests_fail": True, "hold": "no"}, "v": {"since": None}}
    (services,) = recording.decode(json.dumps(told).encode()).services.values()
    found = {"u": Silence(5.5, True, "no"), "v": Silence(None)}
    assert [each.replayed_pass.observed.silences for each in services] == [found] * len(services)
    assert sections.tables(services[0].replayed_pass)["silences"] == saw["silences"]


def test_traffic_status_is_recorded() -> None:
    told = data()
    facts = told["services"][NAME]["passes"][0]["saw"]["told"]
    facts["traffic"] = {"time": "2026-01-01T00:00:00Z", "requestsPerSecond": 2.5}
    (services,) = recording.decode(json.dumps(told).encode()).services.values()
    assert services[0].replayed_pass.observed.traffic == facts["traffic"]
    assert sections.tables(services[0].replayed_pass)["told"]["traffic"] == facts["traffic"]
    facts["traffic"] = [1]
    assert "told.traffic is not a map" in sentence(json.dumps(told).encode())


def test_deeply_nested_recording_is_refused() -> None:
    assert "levels deep" in sentence(b'{"recording":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LARGEST", 2**20)
    assert "1 MiB" in sentence(gzip.compress(b" " * 2**22))
    assert "1 MiB" in sentence(b" " * (2**20 + 1))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("saw", "pods"), [], "pass 1 of team/svc.pods is not a map"),
        (("saw", "secrets"), {}, "is not a known part of a pass"),
        (("saw", "children"), {"a": {}}, "has 2 parts"),
        (("saw", "nodes"), {"n": {"name": "n"}}, "nodes.n has no version"),
        (("saw", "settings"), {"password": 1}, "password is not a setting"),
        (("saw", "service"), {"metadata": {}}, "service cannot be read"),
        (("now",), "yesterday", "now is not a time"),
        (("now",), "2026-01-01T00:00:00", "not a time in RFC 3339"),
        (("decided",), {"steps": 3}, "decided.steps is not a list"),
        (("times",), "x", ""),
    ],
)
def test_invalid_recording_field_is_named(path: tuple[str, ...], value: Any, said: str) -> None:
    told = data()
    at = told["services"][NAME]["passes"][0]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    content = json.dumps(told).encode()
    if said:
        assert said in sentence(content)
    else:
        assert recording.decode(content)


def test_any_changed_recording_is_replayed_or_refused_with_a_message() -> None:
    """A recording in which any value is replaced by another one, which may have another type, is either replayed, possibly
    with other decisions, or rejected with a message.
    """
    chance, outcomes = random.Random(1), {"read": 0, "refused": 0}
    told = data()
    told["services"][NAME]["passes"] = told["services"][NAME]["passes"][:2]
    for _ in range(150):
        broken = copy.deepcopy(told)
        _break(broken["services"], chance)
        try:
            found = recording.decode(json.dumps(broken).encode())
            list(replay.replay(found.services.get(NAME, []), True))
            outcomes["read"] += 1
        except UnreadableRecording as error:
            assert str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


def _break(value: Any, chance: random.Random) -> None:
    """Replace a random value somewhere below by another one."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        if not isinstance(value[key], dict | list) or not value[key] or chance.random() < 0.1:
            value[key] = chance.choice([None, "", "x" * 300, -1, 2**70, 1.5, True, [], {}, [[]], {"a": 1}, "\x1b[2J"])
            return
        value = value[key]


def test_recording_text_is_never_used_as_a_file_name(tmp_path: Path) -> None:
    """No text in a recording is used as the name of another file."""
    told = data()
    told["services"][NAME]["passes"][0]["saw"]["settings"]["well_known"] = str(tmp_path)
    assert recording.decode(json.dumps(told).encode())


def test_failing_transfer_reports_are_recorded() -> None:
    told = data()
    saw = told["services"][NAME]["passes"][0]["saw"]
    saw["transfers"] = {"u": [{"prefill": "a", "decode": "b", "probes": 20, "failed": 14, "decode_works_with": "c"}]}
    (services,) = recording.decode(json.dumps(told).encode()).services.values()
    found = {"u": (FailingPair("a", "b", 20, 14, "", "c"),)}
    assert [each.replayed_pass.observed.transfers for each in services] == [found] * len(services)
    assert sections.tables(services[0].replayed_pass)["transfers"] == saw["transfers"]
