"""Tests that the runtimes in `config/` are the published recipes, and that their roles agree."""

import pytest
import yaml

from ome_operator import keys
from ome_operator.controllers.inferenceservice import secret_data
from tests.support.shipped import AGENTS, GPUS, RUNTIME, SEED, documents, env, flags, pairs, rank, runtime, servers_words

NODES = {RUNTIME: (4, 12), SEED: (4, 12), AGENTS: (2, 8)}
"""Number of nodes of a prefill group and of a decode group."""


@pytest.mark.parametrize(
    ("path", "part", "nodes"),
    [
        (path, part, nodes)
        for path, both in NODES.items()
        for part, nodes in zip(("engineConfig", "decoderConfig"), both, strict=True)
    ],
)
def test_shipped_parallelism_matches_nodes_of_group(path: str, part: str, nodes: int) -> None:
    component = runtime(path)[part]
    said = flags(component)
    gpus = nodes * GPUS
    assert component["worker"]["size"] == nodes - 1, "the leader also has a node"
    for amounts in component["runner"]["resources"].values():
        assert amounts["nvidia.com/gpu"] == GPUS
    assert said["--tp-size"] == str(gpus)
    assert said.get("--attn-dp-size", said.get("--dp-size")) == str(gpus)
    assert (384 + int(said.get("--ep-num-redundant-experts", 0))) % gpus == 0, "experts are spread evenly"
    assert said["--dist-init-addr"] == "$(LWS_LEADER_ADDRESS):5757"
    assert (said["--nnodes"], said["--node-rank"]) == ("$(LWS_GROUP_SIZE)", "$(LWS_WORKER_INDEX)")


def test_prefill_runtime_matches_recipe() -> None:
    component = runtime(RUNTIME)["engineConfig"]
    said = flags(component)
    assert {
        "--disaggregation-mode": "prefill",
        "--moe-a2a-backend": "deepep",
        "--deepep-mode": "normal",
        "--eplb-algorithm": "deepseek",
        "--ep-dispatch-algorithm": "dynamic",
        "--chunked-prefill-size": "131072",
        "--enable-two-batch-overlap": "",
        "--tool-call-parser": "kimi_k2",
        "--disaggregation-transfer-backend": "mooncake",
        "--disaggregation-ib-device": "$(IB_DEVICES)",
    }.items() <= said.items()
    assert component["annotations"][keys.BOOTSTRAP_PORT] == said["--disaggregation-bootstrap-port"]


def test_decode_runtime_matches_recipe() -> None:
    component = runtime(RUNTIME)["decoderConfig"]
    said, variables = flags(component), env(component)
    assert {
        "--disaggregation-mode": "decode",
        "--moe-a2a-backend": "deepep",
        "--deepep-mode": "low_latency",
        "--ep-num-redundant-experts": "96",
        "--enable-eplb": "",
        "--eplb-algorithm": "deepseek",
        "--ep-dispatch-algorithm": "dynamic",
        "--enable-two-batch-overlap": "",
        "--cuda-graph-bs-decode": "480",
        "--max-running-requests": "46080",
        "--tool-call-parser": "kimi_k2",
    }.items() <= said.items()
    batch = int(said["--cuda-graph-bs-decode"])
    assert int(said["--max-running-requests"]) == batch * int(said["--attn-dp-size"])
    assert int(variables["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"]) >= batch


@pytest.mark.parametrize("path", [RUNTIME, AGENTS])
def test_prefill_and_decode_agree_on_transfer_settings(path: str) -> None:
    spec = runtime(path)
    prefill, decode = flags(spec["engineConfig"]), flags(spec["decoderConfig"])
    for word in ("kv-cache-dtype", "page-size", "context-length", "served-model-name", "disaggregation-transfer-backend"):
        flag = f"--{word}"
        assert prefill.get(flag) == decode.get(flag), flag


@pytest.mark.parametrize("path", [RUNTIME, AGENTS])
def test_longest_request_is_configured_consistently(path: str) -> None:
    spec = runtime(path)
    router = flags(spec["routerConfig"])
    longest = int(router["--request-timeout-secs"])
    for part in ("engineConfig", "decoderConfig"):
        assert spec[part]["timeoutSeconds"] == longest
        for name in ("BOOTSTRAP", "WAITING"):
            assert env(spec[part])[f"SGLANG_DISAGGREGATION_{name}_TIMEOUT"] == str(longest)
    hook = spec["routerConfig"]["runner"]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = int(router["--shutdown-grace-period-secs"])
    assert grace == longest
    assert spec["routerConfig"]["terminationGracePeriodSeconds"] >= hook + grace + 10


def published(text: str) -> dict[str, str]:
    return {flag: " ".join(words) for flag, words in pairs(text.split())}


BOTH = (
    "--trust-remote-code --enable-dp-attention --decode-log-interval 1 --disable-radix-cache --enable-deepep-moe "
    "--moe-dense-tp-size 1 --enable-dp-lm-head --disable-shared-experts-fusion --watchdog-timeout 1000000 "
    "--enable-two-batch-overlap --tool-call-parser kimi_k2 "
)
PUBLISHED = {
    "engineConfig": BOTH
    + "--disaggregation-mode prefill --tp-size 32 --dp-size 32 --chunked-prefill-size 131072 --mem-fraction-static 0.85 "
    "--deepep-mode normal --ep-dispatch-algorithm dynamic --eplb-algorithm deepseek --max-running-requests 1024",
    "decoderConfig": BOTH
    + "--disaggregation-mode decode --tp-size 96 --dp-size 96 --context-length 2176 --deepep-mode low_latency "
    "--mem-fraction-static 0.8 --cuda-graph-bs 480 --max-running-requests 46080 --ep-num-redundant-experts 96",
}
LOCAL = {"--model-path", "--dist-init-addr", "--host", "--disaggregation-ib-device", "--nnodes", "--node-rank"}


@pytest.mark.parametrize("part", sorted(PUBLISHED))
def test_seed_variant_equals_the_published_recipe(part: str) -> None:
    component = runtime(SEED)[part]
    said = flags(component)
    assert {flag: word for flag, word in said.items() if flag not in LOCAL} == published(PUBLISHED[part])
    assert set(said) >= LOCAL
    variables = env(component)
    tokens = variables.pop("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", None)
    assert tokens == ("480" if part == "decoderConfig" else None)
    assert variables == {
        "IB_DEVICES": variables["IB_DEVICES"],
        "MC_TE_METRIC": "true",
        "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "10000000",
        "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "100000",
        "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "100000",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.mark.parametrize("path", [RUNTIME, SEED, AGENTS])
@pytest.mark.parametrize("part", ["engineConfig", "decoderConfig"])
def test_shipped_engine_pods_have_rdma_and_shared_memory(path: str, part: str) -> None:
    component = runtime(path)[part]
    leader, worker, shared = component["leader"]["runner"], component["worker"].get("runner") or {}, component["runner"]
    assert {leader["name"], shared["name"]} == {keys.RUNNER}
    probe = leader["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 45 * 60, "loading a terabyte takes time"
    assert leader["readinessProbe"]["httpGet"]["path"] == "/health"
    assert leader["readinessProbe"]["timeoutSeconds"] > 1, "/health takes at least a second"
    for runner in (shared, worker):
        assert not [key for key in runner if key.endswith("Probe")], "ranks above 0 always answer 200"
    assert not [key for key in leader if key == "livenessProbe"]
    requests, limits = (shared["resources"][kind] for kind in ("requests", "limits"))
    assert requests == limits, "exclusive CPUs need a Guaranteed pod"
    assert str(requests["cpu"]).isdigit(), "exclusive CPUs must be whole numbers"
    security = shared["securityContext"]
    assert not security.get("privileged")
    assert "IPC_LOCK" in security["capabilities"]["add"]
    assert {one["mountPath"] for one in shared["volumeMounts"]} == {"/dev/shm", "/dev/infiniband"}
    assert component["shareProcessNamespace"] is True
    assert component["annotations"][keys.RDMA_INJECT] == "true"
    assert component["annotations"][keys.RDMA_CONTAINER] == keys.RUNNER


@pytest.mark.parametrize("path", [RUNTIME, SEED, AGENTS])
def test_shipped_router_waits_longer_than_engine_startup(path: str) -> None:
    spec = runtime(path)
    runner = spec["routerConfig"]["runner"]
    said = flags(spec["routerConfig"])
    for flag, component in (("--prefill-selector", keys.ENGINE), ("--decode-selector", keys.DECODER)):
        labels = dict(word.split("=") for word in said[flag].split())
        assert labels == {
            keys.COMPONENT: component,
            keys.WORKER_INDEX: "0",
            keys.SERVICE: "$(INFERENCESERVICE_NAME)",
        }
    assert said["--service-discovery-namespace"] == "$(NAMESPACE)"
    assert runner["readinessProbe"]["httpGet"]["path"] == "/readiness"
    assert int(said["--health-check-interval-secs"]) <= 5
    leader = spec["engineConfig"]["leader"]["runner"]
    assert said["--service-discovery-port"] == str(leader["ports"][0]["containerPort"])
    startup = leader["startupProbe"]
    assert int(said["--worker-startup-timeout-secs"]) >= startup["periodSeconds"] * startup["failureThreshold"]


def test_agent_prefill_runtime_uses_a_prefix_cache() -> None:
    spec = runtime(AGENTS)
    prefill, decode = flags(spec["engineConfig"]), flags(spec["decoderConfig"])
    assert "--disable-radix-cache" not in prefill and "--disable-radix-cache" in decode
    assert int(prefill["--chunked-prefill-size"]) == 8192 * int(prefill["--attn-dp-size"])
    assert int(prefill["--context-length"]) > 54_000, "50,000 tokens in and 4,000 out"
    batch = int(decode["--cuda-graph-bs-decode"])
    assert int(decode["--max-running-requests"]) == batch * int(decode["--attn-dp-size"])
    assert env(spec["decoderConfig"])["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] == str(batch)
    assert flags(spec["routerConfig"])["--prefill-policy"] == "cache_aware"


CHOICE = "--trust-remote-code --tool-call-parser kimi_k2 "
AUTO = "--enable-auto-tool-choice "
DP = (
    "--port 8000 --data-parallel-size 16 --data-parallel-size-local 8 --enable-expert-parallel "
    "--max-num-batched-tokens 8192 --max-num-seqs 256 --gpu-memory-utilization 0.85 "
)
GGUF = "--model_path $(MODEL_PATH) --gguf_path $(MODEL_PATH) --cache_lens 30000"
GUIDE = {
    ("srt/kimi-k2-tp16-rt", "leader"): CHOICE + "--tp-size 16 --dist-init-addr $(LWS_LEADER_ADDRESS):50000 "
    "--nnodes $(LWS_GROUP_SIZE) --node-rank $(LWS_WORKER_INDEX)",
    ("vllm/kimi-k2-tp16-ray-rt", "leader"): CHOICE + AUTO + "--port 8000 --tensor-parallel-size 16",
    ("vllm/kimi-k2-dp16-ep-rt", "leader"): CHOICE + AUTO + DP + "--data-parallel-address $(POD_IP)",
    ("vllm/kimi-k2-dp16-ep-rt", "worker"): CHOICE + AUTO + DP + "--headless --data-parallel-start-rank 8 "
    "--data-parallel-address $(LWS_LEADER_ADDRESS)",
    ("trtllm/kimi-k2-tp16-mpi-rt", "leader"): "--backend pytorch --tp_size 16 --ep_size 8 --trust_remote_code --port 8000 "
    "--kv_cache_free_gpu_memory_fraction 0.95 --max_batch_size 128 --max_num_tokens 4096 "
    "--extra_llm_api_options /etc/trtllm/extra-llm-api-config.yml",
    ("ktransformers/kimi-k2-gguf-rt", "leader"): GGUF,
    ("ktransformers/kimi-k2-gguf-amx-rt", "leader"): GGUF + " "
    "--optimize_config_path ktransformers/optimize/optimize_rules/DeepSeek-V3-Chat-fp8-linear-ggml-experts-serve-amx.yaml",
}
"""The commands of Moonshot's deployment guide, with the names of today's versions, and variables for its placeholders."""


@pytest.mark.parametrize(("file", "part"), sorted(GUIDE))
def test_recipe_contains_every_argument_of_the_guide(file: str, part: str) -> None:
    said = flags(runtime(f"runtimes/{file}.yaml")["engineConfig"], part)
    assert published(GUIDE[file, part]).items() <= said.items()


def test_both_nodes_of_a_data_parallel_group_agree() -> None:
    engine = runtime("runtimes/vllm/kimi-k2-dp16-ep-rt.yaml")["engineConfig"]
    first, second = flags(engine, "leader"), flags(engine, "worker")
    own = {"--data-parallel-address", "--headless", "--data-parallel-start-rank"}
    alike = [{flag: word for flag, word in one.items() if flag not in own} for one in (first, second)]
    assert alike[0] == alike[1]
    assert second["--data-parallel-start-rank"] == first["--data-parallel-size-local"]
    assert int(first["--data-parallel-size"]) == 2 * GPUS


def test_ray_starts_on_every_node_and_the_head_waits() -> None:
    engine = runtime("runtimes/vllm/kimi-k2-tp16-ray-rt.yaml")["engineConfig"]
    head, worker = rank(engine, "leader")["args"][0], rank(engine, "worker")["args"][0]
    assert head.index("ray start --head --port=6379") < head.index("until") < head.index("exec vllm serve")
    assert '= "$LWS_GROUP_SIZE" ]' in head
    assert 'exec ray start --block --address="$LWS_LEADER_ADDRESS:6379"' in worker
    assert servers_words(rank(engine, "worker")) == []


def test_mpirun_and_ssh_commands_equal_the_guide() -> None:
    engine = runtime("runtimes/trtllm/kimi-k2-tp16-mpi-rt.yaml")["engineConfig"]
    leader, worker = rank(engine, "leader")["args"][0], rank(engine, "worker")["args"][0]
    said = ("mpirun -np 16", "--hostfile /tmp/hosts", "-mca plm_rsh_args", "--allow-run-as-root", "slots=8", "-p 2233")
    assert [words for words in said if words not in leader] == []
    assert "trtllm-llmapi-launch trtllm-serve serve" in leader
    said = ("-p 2233", "PubkeyAuthentication=yes", "PermitRootLogin=prohibit-password", "PasswordAuthentication=no")
    assert [words for words in said if words not in worker] == []
    assert env(engine)["OMPI_MCA_orte_keep_fqdn_hostnames"] == "1", "pods have no short host names"
    volume = engine["annotations"][keys.SSH_KEYS]
    (mount,) = [one["mountPath"] for one in engine["runner"]["volumeMounts"] if one["name"] == volume]
    read = {name: leader if name in ("id_ed25519", "known_hosts") else worker for name in secret_data.ssh_keys()}
    assert [name for name, script in read.items() if f"{mount}/{name}" not in script] == []


def test_options_file_equals_that_of_the_guide() -> None:
    config = next(one for one in documents("samples/isvc/moonshotai/kimi-k2-trtllm.yaml") if one["kind"] == "ConfigMap")
    assert yaml.safe_load(config["data"]["extra-llm-api-config.yml"]) == {
        "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 2, 4, 8, 16, 32, 64, 128]},
        "print_iter_log": True,
        "enable_attention_dp": True,
    }
    engine = runtime("runtimes/trtllm/kimi-k2-tp16-mpi-rt.yaml")["engineConfig"]
    assert {"name": "llm-api", "configMap": {"name": config["metadata"]["name"]}} in engine["volumes"]
