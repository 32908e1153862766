"""Tests of which bytes are read into the page cache, and of the bounds by the memory of the node and of the container."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.agent.prefetch_plan import (
    CONTAINER,
    GIB,
    MARGIN,
    MIB,
    NODE,
    RESERVE,
    SMALL,
    ContainerMemory,
    MemoryState,
    Piece,
    container_memory,
    node_memory,
    plan,
    room,
    weights_in_order,
)

SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
ORDERS: dict[str, tuple[list[str], list[str]]] = {
    "shards by name": ([SHARDS[2], SHARDS[0], SHARDS[1]], SHARDS),
    "a second copy in one file": (["consolidated.safetensors", SHARDS[0]], SHARDS[:1]),
    "only the consolidated files": (["consolidated.00.safetensors"], ["consolidated.00.safetensors"]),
    "a second copy in another format": (["pytorch_model.bin", SHARDS[0]], SHARDS[:1]),
    "a second copy in a subdirectory": (["original/consolidated.00.pth", SHARDS[0]], SHARDS[:1]),
    "GGUF": (["b.gguf", "a.gguf"], ["a.gguf", "b.gguf"]),
    "components of diffusers": (
        ["vae/x.safetensors", "text_encoder/x.safetensors"],
        ["text_encoder/x.safetensors", "vae/x.safetensors"],
    ),
    "nothing": ([], []),
}


@pytest.mark.parametrize("case", ORDERS)
def test_weight_files_are_ordered_as_the_engine_reads_them(case: str) -> None:
    files, expected = ORDERS[case]
    assert weights_in_order(dict.fromkeys(files, GIB)) == expected


def test_small_configuration_files_come_first_and_other_large_files_are_omitted() -> None:
    sizes = {SHARDS[0]: GIB, "tokenizer.json": SMALL, "config.json": 1, "demo.mp4": SMALL + 1, "docs/a.json": 1}
    assert weights_in_order(sizes) == ["config.json", "tokenizer.json", SHARDS[0]]


HALF = GIB // 2


def test_prefetch_plan_ends_at_its_limit_and_skips_cached_blocks() -> None:
    sizes = dict.fromkeys(SHARDS, GIB)
    whole = [Piece(name, start, HALF, HALF) for name in SHARDS for start in (0, HALF)]
    assert plan(sizes, {}, HALF, 3 * GIB) == whole
    assert plan(sizes, {}, HALF, GIB + 5 * MIB + 1) == [*whole[:2], Piece(SHARDS[1], 0, 5 * MIB, 5 * MIB)]
    some = {SHARDS[0]: [HALF, HALF], SHARDS[1]: [HALF, HALF - MIB]}
    assert plan(sizes, some, HALF, MIB) == [Piece(SHARDS[1], HALF, HALF, MIB)]
    assert plan(sizes, {SHARDS[0]: [HALF, 0]}, HALF, 2 * MIB) == [Piece(SHARDS[0], HALF, 2 * MIB, 2 * MIB)]
    everything = {name: [HALF, HALF] for name in SHARDS}
    assert plan(sizes, {SHARDS[1]: [HALF, 0]}, HALF, 0) == [] == plan(sizes, everything, HALF, GIB)


files = st.dictionaries(st.sampled_from([*SHARDS, "config.json", "a.gguf", "x/y.safetensors"]), st.integers(0, 5 * GIB))


@given(files, st.data(), st.integers(-1, 20 * GIB))
def test_prefetch_plan_never_exceeds_its_limit(sizes: dict[str, int], data: st.DataObject, limit: int) -> None:
    blocks = {name: [min(GIB, size - start) for start in range(0, size, GIB)] for name, size in sizes.items()}
    cached = {name: [data.draw(st.integers(0, length)) for length in lengths] for name, lengths in blocks.items()}
    pieces = plan(sizes, cached, GIB, limit)
    added = [
        min(piece.length, blocks[piece.name][at] - cached[piece.name][at]) for piece in pieces for at in [piece.start // GIB]
    ]
    assert sum(added) <= sum(piece.missing for piece in pieces) <= max(0, limit)
    order = weights_in_order(sizes)
    places = [(order.index(piece.name), piece.start) for piece in pieces]
    assert places == sorted(places)
    assert all(0 < piece.length <= blocks[piece.name][piece.start // GIB] for piece in pieces)
    missing = sum(sizes[name] - sum(cached[name]) for name in order)
    if missing <= limit:
        assert sum(piece.missing for piece in pieces) == missing, "everything that is missing is read"


def memory(**given: Any) -> MemoryState:
    """Return the memory of a node with 16 GiB, of which 10 GiB are free or used by pages that were read once."""
    return MemoryState(16 * GIB, 12 * GIB, 8 * GIB, 2 * GIB, None)._replace(**given)


ROOMS: dict[str, tuple[dict[str, Any], int, str]] = {
    "free memory and pages that were read once": ({}, 10 * GIB - RESERVE, NODE),
    "what programs can allocate": ({"available": 5 * GIB}, 3 * GIB, NODE),
    "a tenth of a large node is left": (
        {"total": 1000 * GIB, "free": 500 * GIB, "available": 900 * GIB}, 402 * GIB, NODE,
    ),
    "the limit of the container": ({"container": ContainerMemory(2 * GIB, GIB)}, 3 * GIB, CONTAINER),
    "a container that has room": ({"container": ContainerMemory(50 * GIB, 0)}, 8 * GIB, NODE),
    "a container that is full": ({"container": ContainerMemory(-MIB, 0)}, 0, CONTAINER),
    "a node that is short": ({"free": GIB, "inactive_file": 0}, 0, NODE),
}  # fmt: skip


@pytest.mark.parametrize("case", ROOMS)
def test_only_unused_memory_is_available_for_prefetch(case: str) -> None:
    given_, expected, bound = ROOMS[case]
    assert room(memory(**given_)) == (expected, bound)


HELD: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "a large node": (
        {"total": 600 * GIB, "available": 580 * GIB, "free": 160 * GIB, "inactive_file": 400 * GIB},
        400 * GIB, 100 * GIB, NODE,
    ),
    "engines have read it meanwhile": ({"free": 8 * GIB, "inactive_file": 0}, 4 * GIB, 12 * GIB - 4 * GIB - RESERVE, NODE),
    "more than is inactive": ({"available": 16 * GIB}, 5 * GIB, 8 * GIB - RESERVE, NODE),
    "what programs can allocate": ({"free": 0, "inactive_file": 12 * GIB}, 4 * GIB, 8 * GIB - RESERVE, NODE),
    "inactive pages of the container": ({"container": ContainerMemory(GIB, 3 * GIB)}, 2 * GIB, 2 * GIB, CONTAINER),
    "active pages of the container": ({"container": ContainerMemory(GIB, 0)}, 2 * GIB, GIB, CONTAINER),
}  # fmt: skip


@pytest.mark.parametrize("case", HELD)
def test_prefetched_inactive_memory_is_not_available(case: str) -> None:
    given_, held, expected, bound = HELD[case]
    assert room(memory(**given_), held) == (expected, bound)


MEMINFO = """MemTotal:       16384 kB
MemFree:         4096 kB
MemAvailable:    8192 kB
Inactive(file):  2048 kB
HugePages_Total:       0
"""


def test_node_memory_is_parsed_from_meminfo() -> None:
    kib = 1024
    container = ContainerMemory(5, 6)
    assert node_memory(MEMINFO, container) == MemoryState(16384 * kib, 8192 * kib, 4096 * kib, 2048 * kib, container)
    with pytest.raises(KeyError):
        node_memory("MemTotal: 5 kB", None)


def test_container_memory_limit_minus_usage_plus_inactive_files_is_available() -> None:
    stat = f"anon {GIB}\ninactive_file {GIB}\nactive_file {2 * GIB}\n"
    found = container_memory(f"{6 * GIB}\n", f"{4 * GIB}\n", stat, "inactive_file")
    assert found == ContainerMemory(2 * GIB - MARGIN, GIB)
    assert container_memory("max\n", "5\n", stat, "inactive_file") is None
