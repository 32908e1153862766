"""Tests that JSON of any depth is read, on every Python version on which the package may be installed."""

import json
import os
import shutil
import subprocess
import tomllib
import tracemalloc
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.util import json_limits
from ome_operator.util.json_limits import (
    MAX_DEPTH,
    MIB,
    TooLarge,
    build_decoders,
    decode_json,
    decode_to_depth,
    estimate_memory,
    exceeds_depth,
    max_text_bytes,
    parse_untrusted,
    truncate_depth,
)
from tests.support.deep import MOST

ROOT = Path(__file__).parents[3]
FIRST = "import sys; sys.path[:0] = {paths!r}"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=40,
)


def pruned(value: Any, levels: int) -> Any:
    """Return the value without what `truncate_depth` has to leave out below this number of levels, computed recursively."""
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return type(value)()
    if isinstance(value, dict):
        return {key: pruned(inner, levels - 1) for key, inner in value.items()}
    return [pruned(inner, levels - 1) for inner in value]


@given(VALUES, st.integers(0, 4), st.sampled_from([None, 1]), st.booleans())
def test_values_nested_too_deeply_are_emptied_and_others_unchanged(
    value: Any, levels: int, indent: int | None, plain: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain, separators=None if indent else (",", ":"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_limits, "MAX_DEPTH", levels)
        assert json.loads(truncate_depth(text.encode())) == pruned(value, levels)


@given(st.binary() | st.text(alphabet='[]{}",:\\a1').map(str.encode))
def test_invalid_json_is_unchanged(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_limits, "MAX_DEPTH", 0)
        after = truncate_depth(text)
    try:
        json.loads(text)
    except ValueError:
        assert after == text
    else:
        json.loads(after)


NUMBERS = st.integers() | st.floats() | st.integers(-(2**70), 2**70) | st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**400])
TREES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def outcome(decode: Callable[[bytes], Any], text: bytes) -> Any:
    """Return the result of a decoder for a text: the value with the types of all its numbers, or the kind of the error."""
    try:
        return repr(decode(text))
    except RecursionError:
        return RecursionError
    except ValueError:
        return ValueError


@settings(max_examples=500)
@given(TREES, st.booleans(), st.sampled_from([None, 1]))
def test_fast_decoder_equals_the_standard_decoder(value: Any, plain: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent).encode("utf-8", "surrogatepass")
    assert outcome(decode_json, text) == outcome(json.loads, text)


@settings(max_examples=500)
@given(st.binary() | st.text(alphabet='[]{}",:\\au0189.eE+-ndtrulfs \x7f\u00e9').map(str.encode))
def test_fast_decoder_refuses_the_same_text_as_the_standard_decoder(text: bytes) -> None:
    assert outcome(decode_json, text) == outcome(json.loads, text)


def fields(*names: str) -> dict[str, Any]:
    """Return strategies for optional fields with any value."""
    return dict.fromkeys(names, TREES)


METADATA = st.fixed_dictionaries({}, optional=fields("name", "labels", "managedFields", "other"))
OBJECTS = st.fixed_dictionaries(
    {}, optional=fields("kind", "spec", "status", "message", "other") | {"metadata": METADATA | TREES}
)


OBJECT, EVENT = build_decoders()


def known(value: Any, names: tuple[str, ...] = ("kind", "metadata", "spec", "status", "message")) -> Any:
    """Return an object, or its metadata, reduced to the fields of `OBJECTS` that `OBJECT` does not skip."""
    if not isinstance(value, dict):
        return value
    return {
        name: known(value[name], ("name", "labels")) if name == "metadata" else value[name]
        for name in names
        if name in value
    }


@settings(max_examples=500)
@given(OBJECTS | TREES, st.booleans())
def test_skipping_managed_fields_keeps_all_other_fields(value: Any, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    wanted = outcome(lambda text: known(json.loads(text)), text)
    assert outcome(lambda text: known(decode_json(text, OBJECT)), text) == wanted
    event = b'{"object":' + text + b',"type":"ADDED"}'
    assert outcome(lambda event: known(decode_json(event, EVENT)["object"]), event) == wanted


@pytest.mark.parametrize("more", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"uid": "a"}]}])
def test_managed_fields_are_skipped(more: dict[str, Any]) -> None:
    kept = {"kind": "Pod", "metadata": {"name": "a", **more}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    whole = {**kept, "metadata": {"name": "a", **more, "managedFields": [{"manager": "kubelet"}], "selfLink": "/a"}}
    assert decode_json(json.dumps(whole).encode(), OBJECT) == kept
    assert decode_json(json.dumps({"type": "ADDED", "object": whole}).encode(), EVENT) == {"type": "ADDED", "object": kept}


@pytest.mark.parametrize(
    "text",
    [
        b"18446744073709551616", b"-9223372036854775809", b"1" * 300, b"1" * 5000, b"1e400", b"-1e400", b"NaN", b"-Infinity",
        b"-0", b"-0.0", b"1.0", b"1E5", b"01", b"1.", b"", b" ", b"[1,]", b"{}x", b'"\\ud800"', b'{"\\udc00\\ud800":1}',
        b'"\xed\xa0\x80"', b'"\xff"', b'"a\x01b"', b'{"a":1,"a":2}', b'{"a":{"b":1},"b":2,"a":{"c":3}}', b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_numbers_surrogates_and_repeated_keys_are_decoded_as_usual(text: bytes) -> None:
    assert outcome(decode_json, text) == outcome(json.loads, text)


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 990, 2_000, MOST, 10 * MOST])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'{"x\\"{":"[}","a":', b"}")])
def test_json_of_any_depth_is_decoded(levels: int, opening: bytes, closing: bytes) -> None:
    text = opening * levels + b"1" + closing * levels
    assert exceeds_depth(decode_to_depth(text), MAX_DEPTH) is (levels > MAX_DEPTH)
    assert not exceeds_depth(json.loads(truncate_depth(text)), MAX_DEPTH + 1)
    assert (truncate_depth(text) == text) is (levels <= MAX_DEPTH)


CHILD = """
import json, sys, threading
from ome_operator.util import stack
from ome_operator.util.json_limits import MAX_DEPTH, decode_to_depth, exceeds_depth, truncate_depth
def read():
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for levels in (*range(980, 1000, 3), *range(1490, 1502, 3), 2000, *range(9990, 10_003, 3), 100_000):
            text = opening * levels + b"1" + closing * levels
            assert exceeds_depth(decode_to_depth(text), MAX_DEPTH), levels
            assert len(repr(json.loads(truncate_depth(text)))) < 4000, levels
def below(frames):
    return read() if not frames else below(frames - 1)
stack.widen()
read()
below(500)
for kib in (4096, 8192):
    threading.stack_size(kib * 1024)
    thread = threading.Thread(target=lambda: (read(), done.append(kib)))
    done = []
    thread.start()
    thread.join()
    assert done == [kib]
print("read")
"""


@cache
def python(version: str) -> str | None:
    """Return the path of an interpreter of this Python version, which may be on the path or belong to uv or pyenv; None if
    this machine has none.
    """
    found = [
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")),
    ]
    if uv := shutil.which("uv", path=str(ROOT / ".venv/bin")) or shutil.which("uv"):
        asked = subprocess.run([uv, "python", "find", "--offline", version], capture_output=True, text=True, check=False)
        found.append(asked.stdout.strip() or None)
    for item in found:
        if (
            item and subprocess.run([item, "-c", ""], capture_output=True, check=False).returncode == 0
        ):  # a shim may be empty
            return item
    return None


@cache
def msgspec_for(interpreter: str, version: str) -> Path | None:
    """Return a folder with the locked msgspec for an interpreter of this version, or None if it cannot be installed."""
    folder = ROOT / "build" / "msgspec" / version
    wanted = f"msgspec=={metadata.version('msgspec')}"
    uv = shutil.which("uv", path=str(ROOT / ".venv/bin"))
    words = [uv, "pip", "install", "--quiet", "--target", str(folder), "--python", interpreter, wanted]
    return folder if uv and subprocess.run(words, check=False).returncode == 0 else None  # type: ignore[arg-type]


def test_ci_has_every_supported_python_version() -> None:
    """Continuous integration has an interpreter of every Python version that the package supports. The proof below fails
    there if an interpreter is missing; elsewhere it is skipped.
    """
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    assert job["env"]["OME_PYTHONS"].split() == list(VERSIONS)
    (versions,) = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert sorted(versions.split()) == sorted(VERSIONS) and versions.split()[-1] == VERSIONS[0]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert oldest == f">={VERSIONS[0]}"


@pytest.mark.parametrize("version", ["3.11", "9.9"])
def test_missing_required_python_fails_instead_of_skipping(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.python", lambda _: None)
    monkeypatch.setenv("OME_PYTHONS", version)
    with pytest.raises(AssertionError, match="has to be here"):
        test_any_depth_is_decoded_by_every_python(version, "512")


@pytest.mark.parametrize("kib", ["512", "8192", "unlimited"])
@pytest.mark.parametrize("version", VERSIONS)
def test_any_depth_is_decoded_by_every_python(version: str, kib: str) -> None:
    """JSON of any depth is read by every supported Python version, with any size of the stack. Each version runs in a
    process of its own, which a stack that is too small would end.
    """
    interpreter = python(version)
    if interpreter is None:
        assert version not in os.environ.get("OME_PYTHONS", "").split(), f"no Python {version}, which has to be here"
        pytest.skip(f"no Python {version} is on this machine")
    if (packages := msgspec_for(interpreter, version)) is None:
        assert version not in os.environ.get("OME_PYTHONS", "").split(), f"no msgspec for Python {version}"
        pytest.skip(f"msgspec cannot be installed for Python {version}")
    first = FIRST.format(paths=[str(ROOT), str(packages)])
    done = subprocess.run(
        ["bash", "-c", f'ulimit -Ss {kib} && exec "$@"', "bash", interpreter, "-I", "-c", f"{first}\n{CHILD}"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]


def many(value: str, count: int) -> bytes:
    """Return a list that contains one value many times."""
    return f"[{','.join([value] * count)}]".encode()


def keys(entry: str, count: int) -> bytes:
    """Return a map with many different keys. `%x` in the entry is replaced by the number of the key."""
    return ("{" + ",".join(entry.replace("%x", f"{number:x}") for number in range(count)) + "}").encode()


JUST_RESIZED = 2**17 * 2 // 3 + 2
"""Number of keys at which CPython has just made a map larger."""
SHAPES = {
    "empty lists": many("[]", 100_000),
    "lists of one": many("[0]", 100_000),
    "empty maps": many("{}", 100_000),
    "maps of one": many('{"a":0}', 50_000),
    "maps in maps": many('{"":' * 100 + "{}" + "}" * 100, 1_000),
    "lists in lists": many("[" * 100 + "]" * 100, 1_000),
    "short keys": keys('"%x":"zz"', JUST_RESIZED),
    "keys of numbers": keys('"%x":1.5', JUST_RESIZED),
    "keys of lists": keys('"%x":[]', JUST_RESIZED),
    "wide keys": keys('"\\ud83d\\ude00%x":"\\ud83d\\ude00"', JUST_RESIZED),
    "numbers": many("12345", 200_000),
    "texts": many('"zz"', 200_000),
    "long text": b'["' + b"a" * 5 * MIB + b'"]',
    "one wide escape": b'["' + b"a" * 5 * MIB + b'\\ud83d\\ude00"]',
    "one wide character": b'["' + b"a" * 5 * MIB + "\U0001f600".encode() + b'"]',
    "Chinese": ('["' + "\u597d" * 2 * MIB + '"]').encode(),
    "UTF-16": json.dumps(["zz"] * 100_000).encode("utf-16"),
    "long numbers": many("1" * 4000, 500),
}


@pytest.mark.parametrize("name", SHAPES)
def test_decoding_needs_no_more_memory_than_estimated(name: str) -> None:
    text = SHAPES[name]
    tracemalloc.start()
    try:
        parse_untrusted(text, "it", memory=estimate_memory(text), extract=lambda value: None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(text) + peak <= estimate_memory(text) + MIB


def test_text_above_the_memory_limit_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_limits.json, "loads", lambda text: pytest.fail("it was decoded"))
    with pytest.raises(TooLarge, match=r"its index may need 32 MiB of memory, and at most 31 MiB are permitted"):
        parse_untrusted(many("[]", 100_000), "its index", memory=31 * MIB, extract=lambda value: value)
    assert estimate_memory(b"a" * (max_text_bytes(MIB) + 1)) >= MIB, "a longer text is always refused"


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "{", "", "\ufeff{", "1" * 5_000, b"\xff", '["\ud800"]'])
def test_undecodable_text_raises_value_error(text: str | bytes) -> None:
    try:
        assert parse_untrusted(text, "it", memory=1024 * MIB, extract=lambda value: value) == ["\ud800"]
    except ValueError:
        assert text != '["\ud800"]'


def test_weight_index_of_the_largest_published_models_is_decoded() -> None:
    """An index of weights is read even if it is as large as the index of the largest published models. Kimi K2 Thinking has
    60 layers of 384 experts with 3 matrices in 3 tensors each, in 62 files.
    """
    from ome_operator.modelinfo.extract import INDEX, MEMORY

    names = (
        f"language_model.model.layers.{layer}.mlp.experts.{expert}.{matrix}_proj.weight_{part}"
        for layer in range(1, 61) for expert in range(384) for matrix in ("down", "gate", "up")
        for part in ("packed", "scale", "shape")
    )  # fmt: skip
    index = {"metadata": {"total_size": 594e9}, "weight_map": dict.fromkeys(names, "model-00001-of-000062.safetensors")}
    text = json.dumps(index, indent=2).encode()
    assert len(index["weight_map"]) == 207_360
    print(len(text) / MIB, estimate_memory(text) / MIB)
    assert estimate_memory(text) < MEMORY[INDEX]
