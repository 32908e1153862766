"""The demo's view of a service, from the service's status. It is shown as one line that changes, or as several lines if
the output is not a terminal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DONE, WORKING = "✓", "…"
_COMPONENTS = (
    ("engine", "prefill", "EngineReady"),
    ("decoder", "decode", "DecoderReady"),
    ("router", "router", "RouterReady"),
)


@dataclass(frozen=True)
class ViewLine:
    """A line of the view: a precondition for serving requests, such as a ready component, and whether it is met."""

    mark: str
    what: str
    """Name of a component, or "model", "runtime" or "URL"."""
    how: str
    """Number of ready groups of a component, such as "4/4"; or the name of the model or runtime; or the URL. "-" if
    unknown."""
    why: str = ""
    """Message about what is missing; "" if nothing is missing."""

    def __str__(self) -> str:
        return f"{self.mark} {self.what:8} {self.how}  {self.why}".rstrip()


@dataclass(frozen=True)
class View:
    """The state of the service."""

    title: str
    lines: tuple[ViewLine, ...]
    ready: bool
    why: str
    """Message about what is missing while the service does not serve with all of its groups; "" otherwise."""

    def counts(self) -> str:
        """Return all lines except the URL as one line: the number of ready groups of each component, and a mark for each
        other line.
        """
        return "  ".join(f"{line.what} {line.how if '/' in line.how else line.mark}" for line in self.lines[:-1])

    def missing_items(self) -> list[str]:
        """Return the name and the state of each line that is not met. The URL is left out, because it exists only after
        everything else.
        """
        return [f"{line.what} {line.how}" for line in self.lines[:-1] if line.mark != DONE]


def view(service: Mapping[str, Any]) -> View:
    """Return the view of an InferenceService. The service may have no status yet."""
    spec, status = service.get("spec") or {}, service.get("status") or {}
    seen = {condition["type"]: condition for condition in status.get("conditions") or []}
    lines = [
        _line("model", seen.get("ModelReady"), (spec.get("model") or {}).get("name") or "?"),
        _line("runtime", seen.get("RuntimeReady"), status.get("runtime") or (spec.get("runtime") or {}).get("name") or "?"),
    ]
    for component, word, condition in _COMPONENTS:
        if spec.get(component) is not None:
            count = ((status.get("components") or {}).get(component) or {}).get("ready") or "-"
            alone = component == "engine" and spec.get("decoder") is None  # with a decoder, the engine is prefill
            lines.append(_line("engine" if alone else word, seen.get(condition), count))
    ready = seen.get("Ready") or {}
    missing = seen.get("Scaled") or {}  # a service serves before all of its groups are ready
    is_ready = ready.get("status") == "True" and missing.get("status") != "False" and _current(service, ready)
    url = status.get("url")
    lines.append(ViewLine(DONE if url and is_ready else WORKING, "URL", url or "-"))
    name = (service.get("metadata") or {}).get("name", "?")
    return View(
        name,
        tuple(lines),
        is_ready,
        "" if is_ready else (missing if ready.get("status") == "True" else ready).get("message") or "",
    )


def _current(service: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Return whether a condition of a service describes the current generation of its spec."""
    generation = (service.get("metadata") or {}).get("generation")
    return bool(generation is None or condition.get("observedGeneration", generation) == generation)


def _line(part: str, condition: Mapping[str, Any] | None, name: str) -> ViewLine:
    if condition is None or condition.get("status") == "Unknown":
        return ViewLine(WORKING, part, name)
    if condition.get("status") == "True":
        return ViewLine(DONE, part, name)
    message = condition.get("message") or condition.get("reason") or ""
    return ViewLine(WORKING, part, name, message.removeprefix(f"{part} {name}").removeprefix(": "))
