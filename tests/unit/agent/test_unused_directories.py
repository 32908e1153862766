"""Tests of directories to which no model refers: how they are reported, and which ones may be removed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ome_operator.agent.access import find_homes
from ome_operator.agent.unused_directories import UnusedDirectories, directories, remove

OLD, NEW = "0000000a", "0000000b"
LABEL = "models.ome.io/clusterbasemodel.k2"


def whole(home: Path, digest: str, path: str = "k2") -> Path:
    """Create a directory with its manifest, as a complete download of a model leaves it, and return its path."""
    root = home / digest
    root.mkdir(parents=True)
    (root / "a").write_bytes(b"12345")
    files = [{"name": "a", "size": 5, "hash": "size:", "blocks": []}]
    known = {"uri": "hf://a/b", "revision": "c1", "verifiedAt": "", "models": [LABEL], "paths": [str(home.parent / path)]}
    (home / f"{digest}.json").write_text(json.dumps({**known, "files": files}))
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory with an old revision and a new one. The model's path is a link to the new one."""
    made = tmp_path / "models" / ".ome"
    for digest in (OLD, NEW):
        whole(made, digest)
    (made.parent / "k2").symlink_to(f".ome/{NEW}")
    (made.parent / "former").symlink_to(f".ome/{OLD}")
    (made / f"{OLD}.partial").mkdir()
    return made


class Clocked:
    """The unused directories of a node, and a clock that the test sets."""

    def __init__(self, home: Path, after: float) -> None:
        self.now = 1000.0
        self.it = UnusedDirectories(
            [str(home.parent)], after, lambda: self.now, lambda: datetime.fromtimestamp(self.now, UTC)
        )
        self._named = {str(home / NEW)}

    async def says(self, seconds: float = 0.0, offer: bool = True, also: str = "") -> list[dict[str, Any]]:
        """Let this many seconds pass, and return the entries of the node's record about unused directories. `offer` is
        whether they may be offered for removal, and `also` a directory to which a model refers, in addition to those of the
        test.
        """
        self.now += seconds
        self.it.mark_outdated()
        await self.it.scan()
        return self.it.unused_record({*self._named, also}, offer=offer)


def test_unused_directories_are_found_on_disk(home: Path) -> None:
    (home / "not-ours").mkdir()
    (home / "0000000c.partial").mkdir()
    (home / "0000000c.partial" / "part").write_bytes(b"123")
    old, new, begun = directories(home)
    assert (old.path, old.models, old.paths, old.bytes) == (str(home / OLD), (LABEL,), (str(home.parent / "k2"),), 5)
    assert new.path == str(home / NEW)
    assert (begun.models, begun.bytes) == ((), 3), "incomplete, so no pod can use it"


def test_removal_deletes_the_directory_and_its_links_only(home: Path) -> None:
    remove(home / OLD)
    assert sorted(one.name for one in home.iterdir()) == [NEW, f"{NEW}.json"]
    assert not (home.parent / "former").is_symlink()
    assert (home.parent / "k2" / "a").read_bytes() == b"12345"


def test_directory_named_ome_inside_model_files_is_not_offered(home: Path) -> None:
    """A folder named `.ome` inside a model's own files is not one of the agent's directories: its content is neither offered
    to other nodes nor removed.
    """
    whole(home / NEW / ".ome", "deadbeef")
    assert find_homes([home.parent]) == [home]


async def test_unused_directories_are_kept_by_default(home: Path) -> None:
    clocked = Clocked(home, after=0.0)
    (said,) = await clocked.says()
    assert said["directory"] == str(home / OLD) and said["models"] == [LABEL]
    (said,) = await clocked.says(1e9)
    assert "offer" not in said and not clocked.it.has_offer


async def test_directory_is_offered_for_removal_after_the_waiting_time(home: Path) -> None:
    clocked = Clocked(home, after=60.0)
    assert "offer" not in (await clocked.says())[0]
    assert "offer" not in (await clocked.says(59.0))[0]
    (said,) = await clocked.says(2.0)
    offer = said["offer"]
    assert offer == "1970-01-01T00:17:41+00:00", "the time of the offer"
    assert (await clocked.says(5.0))[0]["offer"] == offer, "the same offer until it is answered"
    assert await clocked.says(also=str(home / OLD)) == [], "a model refers to it again"
    assert "offer" not in (await clocked.says(59.0))[0], "the waiting time starts again"


async def test_no_directory_is_offered_while_a_model_cannot_be_read(home: Path) -> None:
    clocked = Clocked(home, after=60.0)
    await clocked.says()
    assert "offer" not in (await clocked.says(61.0, offer=False))[0]
    assert "offer" in (await clocked.says())[0]


async def test_removal_needs_the_answer_to_the_current_offer(home: Path) -> None:
    clocked = Clocked(home, after=60.0)
    await clocked.says()
    path = str(home / OLD)
    await clocked.it.remove([{"directory": path, "offer": ""}])
    (said,) = await clocked.says(61.0)
    wrong = [(path, "an older one"), (str(home / NEW), said["offer"])]
    await clocked.it.remove([{"directory": place, "offer": offer} for place, offer in wrong])
    assert (home / OLD).is_dir() and (home / NEW).is_dir()
    await clocked.it.remove([{"directory": path, "offer": said["offer"]}])
    assert not (home / OLD).exists() and (home / NEW).is_dir()
    assert await clocked.says() == []
