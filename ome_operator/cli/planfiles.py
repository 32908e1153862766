"""Read and write the files of `ome plan`: models, workloads and calibration files. Unreadable files raise PlanRefused."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ome_operator.cli.file_errors import why_unreadable
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.sizing.calibration import Row
    from ome_operator.sizing.constants import Constants
    from ome_operator.sizing.gpus import Gpu
    from ome_operator.sizing.queueing import Load
    from ome_operator.sizing.shapes import Shape

LARGEST, LARGEST_YAML = 64 << 20, 2 << 20
"""Maximum size in bytes of any file, and of a YAML file. The limit for YAML is lower because the YAML parser reads about
200 KB per second; no object of an API server is larger."""


def is_file(text: str) -> bool:
    """Return whether an argument is the name of a YAML or JSON file, judged by its suffix."""
    return Path(text).suffix in (".yaml", ".yml", ".json")


def constants(calibration: Path | None) -> "Constants":
    """Return the fitted constants of the model of step times. If `calibration` is the path of a calibration file of the
    user, the constants are adapted to the rows of this file.
    """
    from ome_operator.sizing.calibration import read
    from ome_operator.sizing.constants import shipped_constants

    return (
        shipped_constants()
        if calibration is None
        else fit_constants(read(text(calibration), str(calibration)), str(calibration))
    )


def fit_constants(found: "Iterable[Row | tuple[str, str]]", name: str) -> "Constants":
    """Return the fitted constants, adapted to the rows in `found`.

    An item of `found` that is not a Row is a pair: the id of an unusable row, and the reason. Raises PlanRefused if there
    is such a pair, or no row. The message contains `name`, the name of the calibration file.
    """
    from ome_operator.sizing.calibration import Row
    from ome_operator.sizing.constants import shipped_constants
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.learn import adapt_constants

    rows = []
    for each in found:
        if not isinstance(each, Row):
            raise PlanRefused(f"{name}, {each[0]}: {each[1]}")
        rows.append(each)
    if not rows:
        raise PlanRefused(f"{name} contains no rows: add a line for each measured run.")
    return adapt_constants(rows, shipped_constants())


def model(name: str, precision: str) -> "Shape":
    """Return the sizes of a model. `name` is the name of a known model, or the path of a config.json or of its directory."""
    from ome_operator.cli.weight_files import is_folder, weight_bytes
    from ome_operator.modelinfo.extract import CONFIG, MODELOPT
    from ome_operator.modelinfo.json_fields import text_part
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.shapes import check_sizes, from_config, shape
    from ome_operator.sizing.unknown_family import by_sizes

    path = Path(name)
    if name not in (path.name, f"{path.name}/") and is_folder(path):  # a known model may have the name of a directory
        path /= CONFIG
    if path.suffix != ".json":
        return shape(name, precision)
    config = _json_object(path, CONFIG)
    title = make_visible(str(config.get("_name_or_path") or path.resolve().parent.name or path.stem))
    check_sizes(title, text_part(config))
    beside = path.with_name(MODELOPT)
    try:
        return from_config(title, config, precision, _json_object(beside, MODELOPT) if beside.exists() else None)
    except PlanRefused as error:
        weights = None if precision else weight_bytes(path.parent)
        if weights is not None:
            return by_sizes(title, config, weights)
        if precision:
            raise
        raise PlanRefused(f"{error} {_FOR_A_BOUND}") from error


_FOR_A_BOUND = (
    "Put the weight files, or their model.safetensors.index.json, next to config.json to get the memory and a rough speed."
)


def _json_object(path: Path, kind: str) -> dict[str, Any]:
    """Return the JSON object in one of the small files of a model. `kind` is the usual name of the file. Raises PlanRefused
    if the file cannot be read or parsed.
    """
    from ome_operator.modelinfo.extract import MEMORY
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.util.json_limits import parse_untrusted

    try:
        found = parse_untrusted(text(path), str(path), memory=MEMORY[kind], extract=lambda value: value)
    except ValueError as error:
        raise PlanRefused(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise PlanRefused(f"{path} is not a {kind}: it must contain a JSON object.")
    return found


def models_beside(file: Path) -> "Callable[[str, str], Shape]":
    """Return a function that finds a model by its name, or by the path of its config.json relative to the folder of a
    calibration file. The function reads each file once.
    """
    return cache(lambda name, precision: model(str(file.parent / name) if name.endswith(".json") else name, precision))


def hardware(text: str) -> "list[Gpu]":
    """Return the GPUs of the option --hardware: names and hardware files, separated by commas. Raises PlanRefused for an
    unknown GPU, a repeated GPU or an invalid file.
    """
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.gpus import from_file, gpu

    words = [word.strip() for word in text.split(",")]
    found = [from_file(document(Path(word)), word) if is_file(word) else gpu(word) for word in words]
    if twice := [each.name for number, each in enumerate(found) if each.name in [other.name for other in found[:number]]]:
        raise PlanRefused(f"--hardware contains {twice[0]} twice: name each GPU once.")
    return found


def parse_workloads(text: str, hit: float) -> "tuple[Load, ...]":
    """Return the workloads of the option --workload: `text` is IN/OUT in tokens, or the path of a workload file. `hit` is
    the value of --prefix-hit. Raises PlanRefused for an invalid workload, and if `hit` is not 0 although a file is
    given.
    """
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.workloads import parse_workload, workload

    if not is_file(text):
        return (workload(text, hit),)
    if hit:
        raise PlanRefused("--prefix-hit applies only to --workload IN/OUT: set `hit` of each workload in the file instead.")
    return parse_workload(document(Path(text)), text)


def document(path: Path) -> Any:
    """Return the only YAML document of a file, parsed with limits of size and depth because the file is untrusted. Raises
    PlanRefused if the file cannot be read or parsed.
    """
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.util.kubeyaml import document as bounded

    try:
        return bounded(text(path, LARGEST_YAML))
    except yaml.YAMLError as error:
        raise PlanRefused(f"{path} is not valid YAML: {' '.join(why_unreadable(error).split())}.") from error


def text(path: Path, most: int = LARGEST) -> str:
    """Return the text of a file of at most `most` bytes. Raises PlanRefused if the file is larger or cannot be read."""
    from ome_operator.sizing.errors import PlanRefused

    try:
        if path.stat().st_size > most:
            raise PlanRefused(f"{path} is larger than {most >> 20} MiB, the limit for this kind of file.")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanRefused(f"{path} cannot be read: {why_unreadable(error)}.") from error


def write(path: Path, content: str) -> None:
    """Write `content` to a file. Raises PlanRefused if the file cannot be written."""
    from ome_operator.sizing.errors import PlanRefused

    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise PlanRefused(f"{path} cannot be written: {error.strerror}.") from error
