"""Tests of the check as text in a pod: it is small and complete, and is started by a shell that may find no Python."""

import ast
import base64
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ome_operator.preflight import code
from tests.support.preflights import ENGINE

FOLDER = Path(code.__file__).parent


def launched(folder: Path, path: str, mode: str, boot: str = code.BOOT) -> tuple[int, str]:
    """Return the exit code and the message of the launcher with this PATH."""
    message = folder / "message"
    message.unlink(missing_ok=True)
    facts = {"rank": "0", "size": 1, "message": str(message), "shm": 1 << 20}
    env = {"PATH": path, "OME_PREFLIGHT_MODE": mode, "OME_PREFLIGHT": json.dumps(facts)}
    env |= {"OME_PREFLIGHT_BOOT": boot, "OME_PREFLIGHT_CODE": code.packed()}
    script = code.LAUNCH.replace("/dev/termination-log", str(message))
    shell = shutil.which("sh")
    assert shell is not None
    ended = subprocess.run([shell, "-c", script, "preflight", *ENGINE], env=env, capture_output=True, text=True, timeout=60)
    return ended.returncode, message.read_text() if message.exists() else ""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Return a PATH with only Python."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    return str(tmp_path / "bin")


@pytest.mark.parametrize(("mode", "ends"), [("Warn", 0), ("Require", 1)])
def test_launcher_runs_the_check_and_returns_its_exit_code_in_require_mode(
    tmp_path: Path, python: str, mode: str, ends: int
) -> None:
    ended, message = launched(tmp_path, python, mode)
    assert ended == ends and json.loads(message)["findings"][0]["check"] == "shm"


@pytest.mark.parametrize(("mode", "ends"), [("Warn", 0), ("Require", 1)])
def test_image_without_python_is_reported(tmp_path: Path, mode: str, ends: int) -> None:
    ended, message = launched(tmp_path, str(tmp_path), mode)
    assert ended == ends and json.loads(message) == {"preflight": 1, "failed": "the image has no python3"}


def test_killed_python_process_is_reported(tmp_path: Path, python: str) -> None:
    ended, message = launched(tmp_path, python, "Warn", boot="import os; os.kill(os.getpid(), 11)")
    assert ended == 0 and json.loads(message)["failed"].startswith("python ended with code ")


def test_program_text_is_complete_and_small() -> None:
    """The text of the check is complete and small enough. A revision of at most 200,000 bytes contains it up to four times,
    and the kernel accepts at most 128 KiB in an argument.
    """
    assert len(code.packed()) < 20_000
    found = dict(json.loads(zlib.decompress(base64.b64decode(code.packed()))))
    assert list(found) == [
        "ome_operator",
        "ome_operator.preflight",
        *(f"ome_operator.preflight.{each}" for each in code.MODULES),
    ]
    for name in code.MODULES:
        assert ast.dump(ast.parse(found[f"ome_operator.preflight.{name}"])) == ast.dump(
            ast.parse(code.without_docstrings((FOLDER / f"{name}.py").read_text()))
        )
    assert {file.stem for file in FOLDER.glob("*.py")} == {"__init__", "code", *code.MODULES}


def test_check_imports_only_the_standard_library_and_its_own_modules() -> None:
    for name in code.MODULES:
        for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            strange = {each for each in names if each.partition(".")[0] not in sys.stdlib_module_names}
            assert strange <= {"ome_operator.preflight", *(f"ome_operator.preflight.{each}" for each in code.MODULES)}, name


def test_program_text_contains_no_kubelet_variable_reference() -> None:
    assert "$(" not in code.BOOT + code.LAUNCH + code.packed()
    assert os.linesep == "\n" and "\r" not in code.LAUNCH
