"""What `ome plan` reads and writes: models, workloads, rows of one's own; a sentence for what cannot be read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from ome_operator.sizing.calibration import Row
    from ome_operator.sizing.constants import Constants
    from ome_operator.sizing.queueing import Load
    from ome_operator.sizing.shapes import Shape

LARGEST, LARGEST_YAML = 64 << 20, 2 << 20
"""Bytes of a file that is read; the parser of YAML reads some 200 KB a second, and no object of an API server is larger."""


def is_file(said: str) -> bool:
    """Whether a word names a file, and no lengths and no object of a cluster."""
    return Path(said).suffix in (".yaml", ".yml", ".json")


def constants(calibration: Path | None) -> "Constants":
    """The fitted constants, drawn to rows of one's own where there are some."""
    from ome_operator.sizing.calibration import read
    from ome_operator.sizing.constants import fitted

    return fitted() if calibration is None else learned(read(text(calibration), str(calibration)), str(calibration))


def learned(found: "Iterable[Row | tuple[str, str]]", name: str) -> "Constants":
    """The fitted constants, drawn to these rows of a file of this name."""
    from ome_operator.sizing.calibration import Row
    from ome_operator.sizing.constants import fitted
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.fit import learn

    rows = []
    for each in found:
        if not isinstance(each, Row):
            raise PlanRefused(f"{name}, {each[0]}: {each[1]}")
        rows.append(each)
    return learn(rows, fitted())


def model(name: str, precision: str) -> "Shape":
    """A known model, or the config.json of another."""
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.shapes import from_config, shape

    path = Path(name)
    if path.suffix != ".json":
        return shape(name, precision)
    try:
        config = json.loads(text(path))
    except (ValueError, RecursionError) as error:
        raise PlanRefused(f"{path} is no JSON: {error}.") from error
    if not isinstance(config, dict):
        raise PlanRefused(f"{path} is no config.json: it has no fields.")
    return from_config(str(config.get("_name_or_path") or path.parent.name or path.stem), config, precision)


def loads(said: str, hit: float) -> "tuple[Load, ...]":
    """IN/OUT, or a file of several."""
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.workloads import mix, workload

    if not is_file(said):
        return (workload(said, hit),)
    if hit:
        raise PlanRefused("--prefix-hit belongs to --workload IN/OUT: in a file each workload has its own hit.")
    return mix(document(Path(said)), said)


def document(path: Path) -> Any:
    """The document of a file, which may come from anybody: with bounds. A sentence where it is none."""
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.util.kubeyaml import document as bounded

    try:
        return bounded(text(path, LARGEST_YAML))
    except yaml.YAMLError as error:
        raise PlanRefused(f"{path} is no YAML: {' '.join(str(error).split())}.") from error


def text(path: Path, most: int = LARGEST) -> str:
    """A file; a sentence where it cannot be read."""
    from ome_operator.sizing.errors import PlanRefused

    try:
        if path.stat().st_size > most:
            raise PlanRefused(f"{path} has more than {most >> 20} MiB.")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise PlanRefused(f"{path} cannot be read: {why}.") from error


def write(path: Path, content: str) -> None:
    """A file; a sentence where it cannot be written."""
    from ome_operator.sizing.errors import PlanRefused

    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise PlanRefused(f"{path} cannot be written: {error.strerror}.") from error
