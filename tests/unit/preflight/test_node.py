"""Tests of what a rank reads about its own node: the check runs as a separate process with simulated /sys, /proc and
/dev.
"""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from ome_operator.preflight.node import CommandLine
from tests.support.preflights import ENGINE, Done, device, healthy_node_root, run, weights, write

MANY, FEW = "mlx5_0,mlx5_1", "--disaggregation-ib-device=mlx5_0,mlx5_7"


def alone(folder: Path, *args: str, **options: Any) -> Done:
    """Run the check of a single rank, with these additional arguments of the engine."""
    return run(folder, words=(*ENGINE, *args), **options)


def rdma(folder: Path, **second: Any) -> Path:
    """Return a node with two RDMA devices."""
    at = healthy_node_root(folder)
    device(at, "mlx5_0", 0)
    device(at, "mlx5_1", 1, **second)
    return at


def test_healthy_rank_has_no_findings(tmp_path: Path) -> None:
    at, model = rdma(tmp_path), weights(tmp_path / "model")
    write(at, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
    for number in range(8):
        write(at, f"dev/nvidia{number}", "")
    write(at, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu")
    env = {"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "eth", "NCCL_IB_GID_INDEX": "3", "CUDA_VERSION": "12.8.1"}
    args = (f"--model-path={model}", f"--disaggregation-ib-device={MANY}", "--served-model-name=/not/a/path")
    found = alone(tmp_path, *args, env=env, mode="Require", gpus=8, hugepages={"2Mi": 1 << 30}, shm=1 << 30, limits={})
    few = "files may be open" in found.finding_messages  # of this machine
    assert (found.finding_names, found.code) == (([(0, "nofile")], 1) if few else ([], 0)), found.finding_messages
    assert found.message["seconds"] < 15


def test_files_fetched_by_an_init_container_are_not_reported_missing(tmp_path: Path) -> None:
    model = weights(tmp_path / "model")
    min(model.glob("*.safetensors")).unlink()
    args = (f"--model-path={model}", "--tokenizer-path=/cache/tokenizer", "--chat-template=/cached")
    found = alone(tmp_path, *args, fetched=[str(tmp_path / "model"), "/cache"])
    assert found.finding_names == [(0, "paths")] and "/cached, which" in found.finding_messages, (
        "the name of a folder is no prefix of a word"
    )
    assert {check for _, check in alone(tmp_path, *args).finding_names} == {"paths", "weights"}


@pytest.mark.parametrize(
    ("args", "env", "check", "words"),
    [
        ([FEW], {}, "devices", "mlx5_7 does not exist; existing devices: mlx5_0, mlx5_1"),
        (["--disaggregation-ib-device", '{"0": "mlx5_0", "1": "mlx5_9"}'], {}, "devices", "mlx5_9 does not exist"),
        ([], {"NCCL_IB_HCA": "=ib0,ib1"}, "devices", "no such device exists"),
        ([], {"UCX_NET_DEVICES": "mlx4_0:1"}, "devices", "no such device exists"),
        ([], {"NCCL_SOCKET_IFNAME": "bond0"}, "interfaces", "the pod has only: eth0, lo"),
        ([], {"GLOO_SOCKET_IFNAME": "=eth"}, "interfaces", "GLOO_SOCKET_IFNAME"),
        ([], {"NCCL_IB_HCA": "mlx5_1", "NCCL_IB_GID_INDEX": "1"}, "gid", "mlx5_1 has no GID with this index"),
        ([], {"NCCL_IB_HCA": "mlx5_1", "NCCL_IB_GID_INDEX": "2"}, "gid", "not RoCE v2"),
        (["--tokenizer-path=/no/such"], {}, "paths", "--tokenizer-path names /no/such"),
        (["--lora-paths", "a=/no/lora"], {}, "paths", "/no/lora"),
        ([], {"NCCL_TOPO_FILE": "/no/topo.xml"}, "paths", "NCCL_TOPO_FILE names /no/topo.xml"),
        (["--enable-trace"], {}, "packages", "the image lacks the packages of OpenTelemetry"),
    ],
)
def test_missing_paths_in_arguments_and_variables_are_findings(
    tmp_path: Path, args: list[str], env: dict[str, str], check: str, words: str
) -> None:
    rdma(tmp_path, link="Ethernet")
    found = alone(tmp_path, *args, env=env)
    assert found.finding_names == [(0, check)] and words in found.finding_messages
    assert found.message["findings"][0]["fix"] and found.code == 0, "the engine starts in mode Warn"


def test_image_with_tracing_packages_has_no_findings(tmp_path: Path) -> None:
    for name in ("sdk", "exporter/otlp/proto/grpc", "exporter/otlp/proto/http"):
        write(tmp_path, f"lib/opentelemetry/{name}/__init__.py", "")
    env = {"PYTHONPATH": str(tmp_path / "lib")}
    assert alone(tmp_path / "pod", "--enable-trace", env=env, isolated=False).finding_names == []


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_IB_HCA": "^mlx5_0"},
        {"NCCL_IB_HCA": "=mlx5_0,mlx5_5"},
        {"UCX_NET_DEVICES": "eth0"},
        {"UCX_NET_DEVICES": "all"},
        {"NCCL_SOCKET_IFNAME": "^docker,lo"},
    ],
)
def test_optional_paths_and_partial_lists_are_no_findings(tmp_path: Path, env: dict[str, str]) -> None:
    rdma(tmp_path)
    assert alone(tmp_path, "--dump-path=/made/later", "--chat-template=llama", env=env).finding_names == []


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"rate": 200}, "mlx5_1 runs at 200 Gb/s, but other devices of this node at 400"),
        ({"state": "1: DOWN"}, "port 1 of mlx5_1 is DOWN (Disabled)"),
        ({"state": "2: INIT"}, "is INIT"),
    ],
)
def test_inactive_rdma_link_is_a_finding(tmp_path: Path, second: dict[str, Any], words: str) -> None:
    rdma(tmp_path, **second)
    found = alone(tmp_path, f"--disaggregation-ib-device={MANY}", mode="Require")
    assert found.finding_names == [(0, "links")] and words in found.finding_messages and found.code == 1


def test_inaccessible_device_is_a_finding(tmp_path: Path) -> None:
    at = rdma(tmp_path)
    (at / "dev/infiniband/uverbs1").unlink()
    found = alone(tmp_path, f"--disaggregation-ib-device={MANY}")
    assert found.finding_names == [(0, "devices")] and "/dev/infiniband/uverbs1 of mlx5_1" in found.finding_messages


def test_truncated_weight_file_is_a_finding(tmp_path: Path) -> None:
    model = weights(tmp_path / "model", 3)
    file = model / "model-2-of-3.safetensors"
    whole = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-10])
    (model / "model-3-of-3.safetensors").unlink()
    found = alone(tmp_path, env={"MODEL_PATH": str(model)})
    assert found.finding_names == [(0, "weights"), (0, "weights")]
    assert f"{file} has {whole - 10} bytes, but its header requires {whole}" in found.finding_messages
    assert "model-3-of-3.safetensors is not a complete file" in found.finding_messages


@pytest.mark.parametrize("text", [b"", b"\xff" * 7, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0null"])
def test_invalid_weight_file_is_a_finding(tmp_path: Path, text: bytes) -> None:
    model = weights(tmp_path / "model")
    (model / "model-1-of-2.safetensors").write_bytes(text)
    assert alone(tmp_path, f"--model={model}").finding_names == [(0, "weights")]


def test_unreadable_weight_index_is_a_finding(tmp_path: Path) -> None:
    model = weights(tmp_path / "model")
    (model / "model.safetensors.index.json").write_text("[1")
    assert "cannot be read" in alone(tmp_path, f"--model-path={model}").finding_messages


def test_low_process_limits_are_findings(tmp_path: Path) -> None:
    at = rdma(tmp_path)
    write(at, "proc/self/status", "CapEff:\t0000000000000000\n")
    few = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_MEMLOCK: 65536}
    found = alone(tmp_path, f"--disaggregation-ib-device={MANY}", limits=few)
    assert found.finding_names == [(0, "memlock"), (0, "nofile")]
    assert (
        "at most 1024 files may be open, but 4096 are needed" in found.finding_messages
        and "64 KiB of memory may be locked" in found.finding_messages
    )


def test_shared_memory_and_huge_pages(tmp_path: Path) -> None:
    found = alone(tmp_path, shm=16 << 20, hugepages={"2Mi": 1 << 30})
    assert found.finding_names == [(0, "hugepages"), (0, "shm")]
    assert "/dev/shm has 16 MiB, but 64 MiB are needed" in found.finding_messages
    assert "1024 MiB of hugepages-2Mi were requested, but the node has no such pages" in found.finding_messages


def test_missing_gpus_and_old_driver_are_findings(tmp_path: Path) -> None:
    at = healthy_node_root(tmp_path)
    for number in range(7):
        write(at, f"dev/nvidia{number}", "")
    write(at, "dev/nvidiactl", "")
    write(at, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.82.01  Release")
    found = alone(tmp_path, env={"CUDA_VERSION": "12.6.1"}, gpus=8, shm=1 << 30)
    assert {check for _, check in found.finding_names} - {"nofile"} == {"gpus", "driver"}
    assert "GPUs visible: 7, requested: 8" in found.finding_messages
    assert "driver 470 of the node is older than 525, which CUDA 12.6.1 of the image needs" in found.finding_messages


@pytest.mark.parametrize(
    ("lines", "asked", "words"),
    [
        ("GPU 0: H100 (UUID: a)\nGPU 1: H100 (UUID: b)", 2, ""),
        ("GPU 0: H100 (UUID: a)\n  MIG 1g.10gb Device 0: (UUID: c)\n  MIG 1g.10gb Device 1: (UUID: d)", 2, ""),
        ("GPU 0: H100 (UUID: a)", 2, "GPUs visible: 1, requested: 2"),
        ("Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error", 1, "(Unable to determine the device"),
    ],
)
def test_gpus_are_parsed_from_nvidia_smi(tmp_path: Path, lines: str, asked: int, words: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'E'\n{lines}\nE\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = alone(tmp_path, env={"PATH": path}, gpus=asked, root="", shm=1 << 30)
    assert ((0, "gpus") in found.finding_names) is bool(words) and words in found.finding_messages


def test_shell_command_line_is_split_into_words() -> None:
    line = "exec python3 -m sglang.launch_server --port 30000 --model-path='/a b' # --tp 3"
    found = CommandLine(["bash", "-c", line, "--x=1", "--y", "--z"])
    assert list(found.flags()) == [("--port", "30000"), ("--model-path", "/a b"), ("--x", "1")]
    assert list(CommandLine(["--a 'b"]).flags()) == [("--a", "'b")], "a quotation mark without an end"


def test_words_that_a_shell_would_expand_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a command are read without a shell: a `#` inside a word starts no comment, default values are used, and
    words that only a shell can compute are left out.
    """
    monkeypatch.setenv("SET", "7")
    line = "run --api-key a#b --node-rank ${POD_NAME##*-} --ib ${IB:-mlx5_0} --set=${SET:-1} --now `date` --port 1 # --tp 3"
    assert list(CommandLine(["sh", "-c", line]).flags()) == [
        ("--api-key", "a#b"), ("--ib", "mlx5_0"), ("--set", "7"), ("--port", "1"),
    ]  # fmt: skip


def test_unreadable_check_configuration_is_reported_as_invalid_input(tmp_path: Path) -> None:
    """If the check cannot read its configuration, it reports invalid input. It stops the engine only in mode Require."""
    for mode, code in (("Warn", 0), ("Require", 1)):
        found = run(tmp_path, mode=mode, size="many")
        assert found.code == code and "the check itself failed: ValueError" in found.finding_messages
        assert "Traceback" not in found.log


def test_message_is_limited_and_counts_omitted_findings(tmp_path: Path) -> None:
    found = alone(tmp_path, "--lora-paths", *(f"/no/such/日本語/{number}" for number in range(300)))
    assert 5 < len(found.message["findings"]) < 60 and found.message["more"] == 300 - len(found.message["findings"])
    assert len(json.dumps(found.message, ensure_ascii=False).encode()) < 4096
    assert found.log.count("preflight: rank 0: paths") == 300, "the log contains all findings"
