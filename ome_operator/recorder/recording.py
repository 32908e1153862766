"""A recording as a file: JSON, compressed with gzip if its name ends in .gz."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.recorder import sections
from ome_operator.recorder.facts import UnreadableRecording
from ome_operator.recorder.passes import Pass
from ome_operator.recorder.redaction import redact_passes
from ome_operator.util.json_limits import exceeds_depth

FORMAT = 1
"""Version of the file format. It is raised when an older reader would misinterpret a file."""
LARGEST = 256 * 2**20
"""Maximum bytes of JSON that are read from a file."""
DEEPEST = 120
"""Maximum nesting of lists and maps in a file."""


class ReplayedRecording(NamedTuple):
    """A pass that was read from a file."""

    replayed_pass: Pass
    recorded_decision: dict[str, Any]
    """The recorded decision, as JSON."""
    saw: dict[str, dict[str, Any]]
    """Inputs of this pass that differ from the previous pass: the JSON of each input, by table and name."""
    before: dict[str, dict[str, Any]]
    """All inputs of the previous pass: the JSON of each input, by table and name."""


class Recording(NamedTuple):
    """The contents of a recording file."""

    version: str
    """Version of the program that wrote the file."""
    why: str
    redacted: int
    """Number of values that were replaced because they may be secret."""
    services: dict[str, list[ReplayedRecording]]
    """The passes of each service, the oldest first, by `namespace/name` of the service."""


def to_json(services: Mapping[str, Iterable[Pass]], version: str, reason: str, now: datetime) -> dict[str, Any]:
    """Return the JSON of passes. `services` maps `namespace/name` to passes, the oldest first. `reason` is the reason for
    writing the file.
    """
    recorded = {name: redact_passes(passes_as_json(name, list(passes))) for name, passes in services.items()}
    return file_header(version, reason, now) | {"services": recorded}


def file_header(version: str, reason: str, now: datetime) -> dict[str, Any]:
    """Return the first fields of a file's JSON. `reason` is the reason for writing the file."""
    return {"recording": FORMAT, "ome": version, "written": now.isoformat(), "why": reason}


def passes_as_json(service: str, passes: list[Pass]) -> dict[str, Any]:
    """Return the passes of the service `namespace/name` as JSON for `redaction.redact_passes`. The JSON contains all
    values, including secret values.
    """
    inputs = [sections.tables(made) for made in passes]
    steps = [
        {
            "now": made.now.isoformat(),
            "times": made.times,
            "saw": changes,
            "decided": sections.plain_decision(made.decided),
        }
        for made, changes in zip(passes, sections.changes(inputs), strict=True)
    ]
    return {"service": service, "names": sorted(_names(inputs)), "passes": steps}


def _names(inputs: Iterable[sections.Tables]) -> set[str]:
    """Return the names of objects, nodes and labels in the inputs. These names are not secret."""
    names = set[str]()
    for tables in inputs:
        for name in (*sections.TABLES[1:7], "children", "pods"):
            names.update(tables[name])
        metadata = tables["service"]["metadata"]
        names.update(str(metadata.get(part) or "") for part in ("name", "namespace", "uid"))
        for fact in (*tables["nodes"].values(), *tables["children"].values()):
            names.update((fact.get("labels") or {}).values())
    return names


def encode(data: Mapping[str, Any], packed: bool) -> bytes:
    """Return the JSON as the bytes of a file; `packed` states whether gzip is used."""
    text = json.dumps(data, ensure_ascii=True, indent=None if packed else 1).encode() + b"\n"
    return gzip.compress(text, 6, mtime=0) if packed else text


def decode(content: bytes) -> Recording:
    """Parse the bytes of a file. Raises UnreadableRecording, with a message, if they are not a valid recording."""
    data = parse_json(content)
    services = data.get("services")
    if not isinstance(services, dict):
        raise UnreadableRecording("services is not a map")
    passes = {name: list(_passes(entry, name)) for name, entry in services.items()}
    redacted = sum(entry["redacted"] for entry in services.values() if isinstance(entry.get("redacted"), int))
    return Recording(str(data.get("ome")), str(data.get("why") or ""), redacted, passes)


def parse_json(content: bytes) -> dict[str, Any]:
    """Return the JSON of a file. Raises UnreadableRecording if the file is not a recording, or has
    another format version.
    """
    data = _json(_unpacked(content))
    if not isinstance(data, dict) or "recording" not in data:
        raise UnreadableRecording("it is not a recording: only `ome record` and the operator write recordings")
    version = data.get("ome") if isinstance(data.get("ome"), str) else "an unknown version"
    if data["recording"] != FORMAT:
        raise UnreadableRecording(
            f"it was written by ome {version} in format {data['recording']!r}, but this version reads format {FORMAT}: "
            "replay it with that version"
        )
    return data


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        if len(content) > LARGEST:
            raise UnreadableRecording(f"it is larger than {LARGEST // 2**20} MiB")
        return content
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(content, LARGEST + 1)
    except zlib.error as error:
        raise UnreadableRecording("its gzip data is damaged: copy it again") from error
    if len(text) > LARGEST:
        raise UnreadableRecording(f"it is larger than {LARGEST // 2**20} MiB after decompression")
    if not reader.eof:
        raise UnreadableRecording("it is truncated: copy it again")
    return text


def _json(text: bytes) -> Any:
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise UnreadableRecording(f"its JSON is nested more than {DEEPEST} levels deep") from error
    except UnicodeDecodeError as error:
        raise UnreadableRecording("it is not UTF-8 text, so it is not a recording") from error
    except ValueError as error:
        complete = text.rstrip()[-1:] == b"}"
        raise UnreadableRecording("it is not JSON" if complete else "it is not JSON, or truncated: copy it again") from error
    if exceeds_depth(data, DEEPEST):
        raise UnreadableRecording(f"its JSON is nested more than {DEEPEST} levels deep")
    return data


def _passes(entry: Any, name: str) -> Iterator[ReplayedRecording]:
    if not isinstance(entry, dict) or not isinstance(entry.get("passes"), list):
        raise UnreadableRecording(f"services.{name} has no list of passes")
    tables: sections.Tables = {}
    for number, step in enumerate(entry["passes"], 1):
        where = f"pass {number} of {name}"
        if not isinstance(step, dict) or not isinstance(step.get("saw"), dict) or not isinstance(step.get("decided"), dict):
            raise UnreadableRecording(f"{where} is not a map with `saw` and `decided`")
        before, tables = tables, sections.apply_changes(tables, step["saw"], where)
        then = sections.read_decision(step["decided"], f"{where}: decided")
        made = sections.make_pass(tables, _moment(step.get("now"), where), then, where)
        times = step.get("times")
        yield ReplayedRecording(
            made._replace(times=times if isinstance(times, int) else 1), step["decided"], step["saw"], before
        )


def _moment(text: Any, location: str) -> datetime:
    time = quantity.parse_instant(text)
    if time is None:
        raise UnreadableRecording(f"{location}: now is not a time in RFC 3339")
    return time
