"""Read the result of a preflight check from the status of its pod (docs/preflight.md). The size of the result is bounded,
and any content is accepted.

The message comes from a container with a user's image: it may be truncated, may not be JSON, or may imitate a check's
message.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.termination import most_informative_line, replace_unprintable
from ome_operator.util.wording import count

Body = Mapping[str, Any]

LIMIT = 8192
"""Maximum number of characters of a message that are read. The kubelet keeps 4,096 bytes."""
MANY = 12
"""Maximum number of findings of a pod that are kept."""
MESSAGE_LENGTH, FIX_LENGTH, CHECK_LENGTH = 300, 200, 40
"""Maximum number of characters of a finding's cause, of its fix, and of the name of its check."""
RANKS = 10_000
OWN = -1
"""Value of `PreflightFinding.rank` for the rank of the pod itself."""
LOG = f"the log of container {keys.PREFLIGHT_CONTAINER}"


class PreflightFinding(NamedTuple):
    """A problem that the check has found."""

    check: str
    rank: int
    """The rank that the finding is about; OWN for the pod's own rank."""
    said: str
    fix: str

    @property
    def sentence(self) -> str:
        """The finding as a human-readable sentence."""
        whom = f"rank {self.rank}: " if self.rank != OWN else ""
        return f"{whom}{self.check}: {self.said}" + (f" ({self.fix})" if self.fix else "")


class CheckResult(NamedTuple):
    """The result of a pod's check."""

    findings: tuple[PreflightFinding, ...]
    held: bool
    """Whether the result prevents the engine from starting."""

    @property
    def sentence(self) -> str:
        """All findings as a sentence, in an order that is the same for all ranks of a group."""
        ordered = sorted(self.findings, key=lambda found: (found.rank, found.check, found.said))
        return "; ".join(found.sentence for found in ordered)


def parse_result(status: Body) -> CheckResult | None:
    """Return the result of the check from a pod's status; None if no check has ended, or if the check found nothing. While a
    check is repeated, the result of its previous run is returned, so that the status does not alternate.
    """
    box = _box(status, "initContainerStatuses", keys.PREFLIGHT_CONTAINER)
    ended = (box.get("state") or {}).get("terminated") or (box.get("lastState") or {}).get("terminated")
    if not ended:
        return None
    code = ended.get("exitCode") or 0
    found = tuple(_findings(str(ended.get("message") or ""), code))
    held = code != 0
    return CheckResult(found, held) if found or held else None


def parse_only_container(status: Body, name: str) -> CheckResult | None:
    """Return the result of a check from the status of a pod in which the check is the only container. `name` is the name of
    the container. Return None until the check has ended.
    """
    ended = (_box(status, "containerStatuses", name).get("state") or {}).get("terminated")
    if not ended:
        return None
    code = ended.get("exitCode") or 0
    found = tuple(_findings(str(ended.get("message") or ""), code))
    if code and not found:
        found = (_own(f"the check ended with code {code} after it had reported no findings", "check the node of the rank"),)
    return CheckResult(found, False)


def has_begun(status: Body, name: str) -> bool:
    """Return whether the check in the container `name` is running or has ended."""
    state = _box(status, "containerStatuses", name).get("state") or {}
    return bool(state.get("running") or state.get("terminated"))


def _box(status: Body, location: str, name: str) -> Body:
    return next((box for box in status.get(location) or () if box.get("name") == name), {})


def _findings(message: str, code: Any) -> Iterator[PreflightFinding]:
    """Yield the findings in a message, which the check wrote when it ended with the exit code `code`. If the message is
    truncated or malformed, also yield a finding about the message itself.
    """
    text = message[:LIMIT].strip()
    data = _json(text)
    if isinstance(data, dict) and "preflight" in data:
        if data.get("failed"):
            yield _own(f"the check could not run: {_clean(data['failed'], MESSAGE_LENGTH)}", f"see {LOG}")
        listed, more = data.get("findings"), data.get("more")
        yield from _listed(listed if isinstance(listed, list) else [], more if type(more) is int and more > 0 else 0)
        return
    if '"preflight"' in text[:40]:
        yield from _listed(list(_whole(text)))
        yield _own("the message of the check was truncated", f"see {LOG}")
        return
    words = _clean(most_informative_line(text), MESSAGE_LENGTH) or "nothing"
    yield _own(f"the check ended with code {code} and the message: {words}", f"see {LOG}")


def _own(message: str, fix: str) -> PreflightFinding:
    return PreflightFinding("preflight", OWN, message, fix)


def _listed(items: list[Any], more: int = 0) -> Iterator[PreflightFinding]:
    """Yield the findings of a parsed message. `more` is the number of findings for which the message had no space."""
    known = [item for item in items if isinstance(item, dict)]
    for item in known[:MANY]:
        rank = item.get("rank")
        whom = rank if type(rank) is int and 0 <= rank < RANKS else OWN
        check, message, fix = (
            _clean(item.get(name), most)
            for name, most in (("check", CHECK_LENGTH), ("said", MESSAGE_LENGTH), ("fix", FIX_LENGTH))
        )
        yield PreflightFinding(check or "preflight", whom, message or "the finding has no description", fix)
    if left := min(more, RANKS) + max(0, len(known) - MANY):
        yield _own(f"and {count(left, 'more finding')}", f"see {LOG}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(text: str) -> Iterator[Any]:
    """Yield the findings of a truncated message that precede the point of truncation."""
    decoder, at = json.JSONDecoder(), text.find('{"check"')
    while at >= 0:
        try:
            item, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield item
        at = text.find('{"check"', end)


def _clean(value: Any, most: int) -> str:
    """Return untrusted text as a single line of at most `most` characters, without characters that move a cursor."""
    text = value if isinstance(value, str) else ""
    return replace_unprintable(text[: most * 2]).strip()[:most]
