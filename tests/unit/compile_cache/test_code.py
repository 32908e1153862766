"""Tests of the program that the kubelet runs when the engine's container starts."""

import subprocess
from pathlib import Path

from ome_operator.compile_cache import code, pod


def started(folder: Path) -> None:
    """Start the engine's container."""
    subprocess.run(["sh", "-c", code.AGAIN, "compile-cache", str(folder)], check=True, timeout=30)


def test_restarted_container_finds_no_cache_and_no_lock(tmp_path: Path) -> None:
    """A container that is started again finds neither a cache nor a lock. The kubelet starts it without its init
    containers. If the cache stayed, an engine that crashes with this cache would crash forever. If the lock stayed, torch
    would wait forever, because the engine that held the lock has ended.
    """
    (tmp_path / "cache/torch_extensions").mkdir(parents=True)
    (tmp_path / ".hardware").write_text("0" * 32)
    started(tmp_path)
    (tmp_path / "cache/torch_extensions/lock").touch()
    assert (tmp_path / ".hardware").exists(), "the first start uses the cache"
    for _ in range(2):
        started(tmp_path)
        assert not list((tmp_path / "cache").iterdir())
        (tmp_path / "cache/lock").touch()
    config = {"folder": str(tmp_path), "agent": str(tmp_path / "no-agent")}
    assert "the engine had to start again" in pod.repeated(pod.seal, config, 1, 0.0), "so this start counts as failed"


def test_first_start_after_init_containers_keeps_the_cache(tmp_path: Path) -> None:
    started(tmp_path)
    pod.repeated(pod.load, {"folder": str(tmp_path), "agent": str(tmp_path / "no-agent")}, 1, 0.0)
    (tmp_path / "cache/kernel").touch()
    started(tmp_path)
    assert (tmp_path / "cache/kernel").exists()


def test_unwritable_volume_does_not_stop_the_engine(tmp_path: Path) -> None:
    started(tmp_path / "missing")
