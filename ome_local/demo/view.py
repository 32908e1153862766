"""The demo's view of a service, read from its status: one line that changes, or several lines if the output is not a
terminal.
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
class Line:
    """Something that must exist before the service serves requests."""

    mark: str
    what: str
    """A component, or model and runtime."""
    how: str
    """Its name or its count."""
    why: str = ""
    """Message about what is missing."""

    def __str__(self) -> str:
        return f"{self.mark} {self.what:8} {self.how}  {self.why}".rstrip()


@dataclass(frozen=True)
class View:
    """The state of the service."""

    title: str
    lines: tuple[Line, ...]
    ready: bool
    why: str
    """Message of the condition Ready while it is not true."""

    def counts(self) -> str:
        """Return everything in one line: the number of ready items of what is counted, and a mark for the others."""
        return "  ".join(f"{line.what} {line.how if '/' in line.how else line.mark}" for line in self.lines[:-1])

    def missing(self) -> list[str]:
        """Return what is missing, as text. The URL appears after all other items."""
        return [f"{line.what} {line.how}" for line in self.lines[:-1] if line.mark != DONE]


def view(service: Mapping[str, Any]) -> View:
    """Return the view of an InferenceService, also of one without a status."""
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
    is_ready = ready.get("status") == "True" and _current(service, ready)
    url = status.get("url")
    lines.append(Line(DONE if url and is_ready else WORKING, "URL", url or "-"))
    name = (service.get("metadata") or {}).get("name", "?")
    return View(name, tuple(lines), is_ready, "" if is_ready else ready.get("message") or "")


def _current(service: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Return False if the condition refers to an older spec."""
    generation = (service.get("metadata") or {}).get("generation")
    return bool(generation is None or condition.get("observedGeneration", generation) == generation)


def _line(what: str, condition: Mapping[str, Any] | None, name: str) -> Line:
    if condition is None or condition.get("status") == "Unknown":
        return Line(WORKING, what, name)
    if condition.get("status") == "True":
        return Line(DONE, what, name)
    message = condition.get("message") or condition.get("reason") or ""
    return Line(WORKING, what, name, message.removeprefix(f"{what} {name}").removeprefix(": "))
