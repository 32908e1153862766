"""A recording as a file: JSON, packed by gzip where its name ends in .gz."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator.recorder import sections
from ome_operator.recorder.facts import Unreadable
from ome_operator.recorder.passes import Pass
from ome_operator.recorder.redaction import Redaction
from ome_operator.util.json_limits import deeper

FORMAT = 1
"""Of the file. It rises when an older reader would understand a file wrongly."""
LARGEST = 256 * 2**20
"""Bytes of JSON that are read of a file at most."""
DEEPEST = 120
"""Levels of lists and maps in it."""


class Replayed(NamedTuple):
    """A pass of a file."""

    made: Pass
    then: dict[str, Any]
    """What was decided then, as JSON."""
    saw: dict[str, dict[str, Any]]
    """What was other than in the pass before."""
    before: dict[str, dict[str, Any]]
    """What there was in the pass before."""


class Recording(NamedTuple):
    """A file that was read."""

    version: str
    """Of the program that wrote it."""
    why: str
    redacted: int
    """Values that are not in it."""
    services: dict[str, list[Replayed]]
    """`namespace/name` -> its passes, the oldest first."""


def written(services: Mapping[str, Iterable[Pass]], version: str, why: str, now: datetime) -> dict[str, Any]:
    """The JSON of passes: `namespace/name` -> passes, the oldest first."""
    found = {name: service(list(passes)) for name, passes in services.items()}
    return head(version, why, now) | {"services": found}


def head(version: str, why: str, now: datetime) -> dict[str, Any]:
    """What begins the JSON of a file."""
    return {"recording": FORMAT, "ome": version, "written": now.isoformat(), "why": why}


def service(passes: list[Pass]) -> dict[str, Any]:
    """The JSON of the passes of a service, without what may be secret."""
    seen = [sections.tables(made) for made in passes]
    told = [sections.plain_decision(made.decided) for made in passes]
    redaction = Redaction(_names(seen))
    redaction.find([seen, told])
    saw = sections.steps(redaction.replaced(tables) for tables in seen)
    steps = [
        {"now": made.now.isoformat(), "times": made.times, "saw": changes, "decided": redaction.replaced(decided)}
        for made, changes, decided in zip(passes, saw, told, strict=True)
    ]
    return {"redacted": len(redaction), "passes": steps}


def _names(seen: Iterable[sections.Tables]) -> set[str]:
    """What is called by name everywhere and so is no secret."""
    found = set[str]()
    for tables in seen:
        for name in (*sections.TABLES[1:7], "children", "pods"):
            found.update(tables[name])
        metadata = tables["service"]["metadata"]
        found.update(str(metadata.get(part) or "") for part in ("name", "namespace", "uid"))
        for fact in (*tables["nodes"].values(), *tables["children"].values()):
            found.update((fact.get("labels") or {}).values())
    return found


def encoded(data: Mapping[str, Any], packed: bool) -> bytes:
    """The bytes of a file."""
    text = json.dumps(data, ensure_ascii=True, indent=None if packed else 1).encode() + b"\n"
    return gzip.compress(text, 6, mtime=0) if packed else text


def decoded(content: bytes) -> Recording:
    """The recording in a file. Raises Unreadable, with a sentence, for anything else."""
    data = data_of(content)
    services = data.get("services")
    if not isinstance(services, dict):
        raise Unreadable("services is no map")
    found = {name: list(_passes(told, name)) for name, told in services.items()}
    redacted = sum(told["redacted"] for told in services.values() if isinstance(told.get("redacted"), int))
    return Recording(str(data.get("ome")), str(data.get("why") or ""), redacted, found)


def data_of(content: bytes) -> dict[str, Any]:
    """The JSON of a file of this format. Raises Unreadable."""
    data = _json(_unpacked(content))
    if not isinstance(data, dict) or "recording" not in data:
        raise Unreadable("it is no recording: `ome record` and an operator write such files")
    version = data.get("ome") if isinstance(data.get("ome"), str) else "an unknown version"
    if data["recording"] != FORMAT:
        raise Unreadable(
            f"it was written by ome {version} in format {data['recording']!r}, and this version reads format {FORMAT}: "
            "replay it with the version that wrote it"
        )
    return data


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        if len(content) > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST // 2**20} MiB")
        return content
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(content, LARGEST + 1)
    except zlib.error as error:
        raise Unreadable("it is packed by gzip and damaged: copy it again") from error
    if len(text) > LARGEST:
        raise Unreadable(f"it is larger than {LARGEST // 2**20} MiB when it is unpacked")
    if not reader.eof:
        raise Unreadable("it is cut off in the middle: copy it again")
    return text


def _json(text: bytes) -> Any:
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise Unreadable(f"it is nested more than {DEEPEST} levels deep") from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is no text, so it is no recording") from error
    except ValueError as error:
        whole = text.rstrip()[-1:] == b"}"
        raise Unreadable("it is no JSON" if whole else "it is no JSON, or cut off in the middle: copy it again") from error
    if deeper(data, DEEPEST):
        raise Unreadable(f"it is nested more than {DEEPEST} levels deep")
    return data


def _passes(told: Any, name: str) -> Iterator[Replayed]:
    if not isinstance(told, dict) or not isinstance(told.get("passes"), list):
        raise Unreadable(f"services.{name} has no list of passes")
    seen: sections.Tables = {}
    for number, step in enumerate(told["passes"], 1):
        where = f"pass {number} of {name}"
        if not isinstance(step, dict) or not isinstance(step.get("saw"), dict) or not isinstance(step.get("decided"), dict):
            raise Unreadable(f"{where} is no map with `saw` and `decided`")
        before, seen = seen, sections.followed(seen, step["saw"], where)
        then = sections.read_decision(step["decided"], f"{where}: decided")
        made = sections.made(seen, _moment(step.get("now"), where), then, where)
        times = step.get("times")
        yield Replayed(made._replace(times=times if isinstance(times, int) else 1), step["decided"], step["saw"], before)


def _moment(text: Any, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{where}: now is no time in RFC 3339") from error
    if found.tzinfo is None:
        raise Unreadable(f"{where}: now has no time zone")
    return found
