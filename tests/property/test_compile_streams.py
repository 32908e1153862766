"""Properties of compile caches: a pod gets exactly what an engine has compiled or nothing, whatever happens to the bytes."""

import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.agent.compile_store import CachePlace, CacheRefused, CompileStore
from ome_operator.compile_cache.archive import ChangedError, NoCache, pack, unpack

LIMIT, HARDWARE = 1 << 20, "a" * 32
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=8)
TREES = st.dictionaries(st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join),
                        st.binary(max_size=200), min_size=1, max_size=6)  # fmt: skip


def write(tree: dict[str, bytes], top: Path) -> dict[str, bytes]:
    """Write the files of a tree, except those for whose path a file and a folder would need the same name. Return the files
    that belong into an archive, by their paths.
    """
    for name, content in tree.items():
        try:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(content)
        except OSError:
            continue
    return {
        name: content
        for name, content in files(top).items()
        if not any(part == "lock" or part.endswith(".lock") for part in name.split("/"))
        and name.split("/")[0] not in ("ple", "model_streamer")
    }


def files(top: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def archive(top: Path) -> bytes:
    """Return the archive of a folder; b"" if there is none."""
    out = io.BytesIO()
    try:
        pack(top, out, LIMIT)
    except (NoCache, ChangedError):
        return b""
    return out.getvalue()


@given(TREES)
def test_unpacked_copy_equals_the_compiled_cache(tree: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top, copy = Path(folder, "cache"), Path(folder, "copy")
        top.mkdir()
        expected = write(tree, top)
        if data := archive(top):
            unpack(io.BytesIO(data), len(data), copy)
            assert files(copy) == expected
        else:
            assert not expected


@given(TREES, st.data())
def test_caches_changed_on_disk_are_never_served(tree: dict[str, bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top, store = Path(folder, "cache"), CompileStore([folder], LIMIT)
        top.mkdir()
        write(tree, top)
        parts = iter([whole := archive(top)])
        place = CachePlace(folder, "team", "0" * 32)
        place.path.mkdir(parents=True)
        if not whole:
            return
        store.receive(place, HARDWARE, lambda _: next(parts, b""))
        (path,) = place.path.glob("*.cache")
        start = data.draw(st.integers(0, len(whole)))
        path.write_bytes(
            whole[:start] + data.draw(st.binary(max_size=40)) + whole[data.draw(st.integers(start, len(whole))) :]
        )
        same = path.read_bytes() == whole
        try:
            with store.load(place, HARDWARE) as (file, size):
                assert same and file.read() == whole and size == len(whole)
        except CacheRefused:
            assert not same


@given(TREES, st.lists(st.tuples(st.sampled_from(["seal", "cut", "load", "serve"]), st.integers(0, 500)), max_size=12))
def test_directory_always_has_a_complete_cache_or_none(tree: dict[str, bytes], steps: list[tuple[str, int]]) -> None:
    """A directory has a complete cache or none, in whatever order pods seal a cache, are cut off while they send it, load a
    cache, and report that they serve with it.
    """
    with tempfile.TemporaryDirectory() as folder:
        now = [1e9]
        top, store = Path(folder, "cache"), CompileStore([folder], LIMIT, clock=lambda: now[0])
        top.mkdir()
        write(tree, top)
        whole = archive(top)
        place = CachePlace(folder, "team", "0" * 32)
        place.path.mkdir(parents=True)
        sealed = False
        for step, number in steps:
            now[0] += 60
            parts = iter([whole[:number] if step == "cut" else whole])
            try:
                if step in ("seal", "cut"):
                    store.receive(place, HARDWARE, lambda _, parts=parts: next(parts, b""))
                    assert whole and (step == "seal" or number >= len(whole))
                    sealed = True
                elif step == "serve":
                    store.served(place, HARDWARE)
                else:
                    with store.load(place, HARDWARE) as (file, _):
                        assert sealed and file.read() == whole
            except CacheRefused:
                sealed = sealed and bool([*place.path.glob("*.cache")])
            assert not [*place.path.glob(".new-*")]
