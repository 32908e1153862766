"""Tests of what pods of a tenant may use of their node if `admissionPolicy.tenants` lists their namespace, with a tenant's
token.

They cover every field that Pod Security's level `baseline` restricts, in each kind of container that can have the field.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local.kubeapi import load
from ome_local.kubeconfig import with_token_file
from tests.controlplane.operator.test_agent import Token
from tests.support import clusters
from tests.support.rig import ROOT, Manifest, Rig

TENANT = "tenant-a"
ROOTS = ["/mnt/models", "/raid", "/raid/models"]
RULES = [{"apiGroups": [""], "resources": ["pods", "pods/ephemeralcontainers"], "verbs": ["*"]}]
PODS = f"/api/v1/namespaces/{TENANT}/pods"
MERGE = "application/strategic-merge-patch+json"
BOXES = ("containers", "initContainers", "ephemeralContainers")


def pod(name: str = "p", **spec: Any) -> Manifest:
    box = {"name": "main", "image": "i"}
    metadata = {"name": name, "namespace": TENANT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [box], **spec}}


@pytest.fixture(scope="module")
def tenant(installed: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    """Yield a client of a tenant with all rights for pods of a namespace. Three pods are older than the policy."""
    rig, folder = installed, tmp_path_factory.mktemp("tenant")
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    rig.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": TENANT}})
    group, where = "rbac.authorization.k8s.io", {"name": "tenant", "namespace": TENANT}
    rig.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": where, "rules": RULES})
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": TENANT}],
    }
    rig.create({"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": where, **binding})
    rig.create(pod("plain"))
    rig.create({**pod("former", hostNetwork=True), "metadata": {**pod("former")["metadata"], "finalizers": ["ome.test/a"]}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = rig.api.request("POST", f"/api/v1/namespaces/{TENANT}/serviceaccounts/tenant/token", request)
    token = folder / "token"
    token.write_text(made["status"]["token"])
    cluster = load(rig.cluster.at.kubeconfig)["clusters"][0]["cluster"]
    names = {"name": "test", "server": cluster["server"], "authority": cluster["certificate-authority-data"]}
    with_token_file(folder / "tenant", **names, user="tenant", token=token)
    chart = ("upgrade", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", "--set", "operator.external=true")
    roots = ("--set", f"agent.roots={{{','.join(ROOTS)}}}")
    rig.cluster.helm(*chart, *roots, "--set", f"admissionPolicy.tenants={{{TENANT}}}")
    who = Token(Path(folder / "tenant"))
    rig.wait("the policy", lambda: create(who, pod(hostNetwork=True))[0] == 403)
    yield who
    rig.cluster.helm(*chart)
    rig.patch("Pod", TENANT, "former", {"metadata": {"finalizers": None}})
    rig.delete("Namespace", "", TENANT)


def create(who: Token, made: Manifest) -> tuple[int, str]:
    """Send a dry run that creates the pod. Return the status code and the message of the answer."""
    return who.send("POST", f"{PODS}?dryRun=All", made)


def attach(who: Token, box: Manifest, name: str = "plain") -> tuple[int, str]:
    """Send a dry run that adds an ephemeral container to a running pod. Return the status code and the message of the
    answer.
    """
    change = {"spec": {"ephemeralContainers": [box]}}
    return who.send("PATCH", f"{PODS}/{name}/ephemeralcontainers?dryRun=All", change, MERGE)


def within(who: Token, kind: str, **fields: Any) -> tuple[int, str]:
    """Send a dry run of a pod in which a container of this kind has these fields: a new pod or, for `ephemeralContainers`,
    a running one. Return the status code and the message of the answer.
    """
    box = {"name": "x", "image": "i", **fields}
    if kind == "ephemeralContainers":
        return attach(who, box)
    probes = {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & fields.keys()
    sidecar = {"restartPolicy": "Always"} if kind == "initContainers" and probes else {}
    plain = [{"name": "main", "image": "i"}] if kind == "initContainers" else []
    return create(who, pod(**{"containers": plain, kind: [{**box, **sidecar}]}))


OF_PODS: dict[str, tuple[Manifest, str]] = {
    "hostNetwork": ({"hostNetwork": True}, "hostNetwork"),
    "hostPID": ({"hostPID": True}, "hostNetwork"),
    "hostIPC": ({"hostIPC": True}, "hostNetwork"),
    "hostProcess": (
        {"hostNetwork": True, "os": {"name": "windows"}, "securityContext": {"windowsOptions": {"hostProcess": True}}},
        "hostProcess",
    ),
    "AppArmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "AppArmor"),
    "SELinux type": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions"),
    "SELinux user": ({"securityContext": {"seLinuxOptions": {"user": "system_u"}}}, "seLinuxOptions"),
    "SELinux role": ({"securityContext": {"seLinuxOptions": {"role": "sysadm_r"}}}, "seLinuxOptions"),
    "seccomp": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
    "sysctl": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls"),
}
OF_BOXES: dict[str, tuple[Manifest, str]] = {
    "privileged": ({"securityContext": {"privileged": True}}, "privileged"),
    "SYS_ADMIN": ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "capabilities.add"),
    "NET_RAW": ({"securityContext": {"capabilities": {"add": ["CHOWN", "NET_RAW"]}}}, "capabilities.add"),
    "SYS_NICE": ({"securityContext": {"capabilities": {"add": ["SYS_NICE"]}}}, "capabilities.add"),
    "ALL": ({"securityContext": {"capabilities": {"add": ["ALL"]}}}, "capabilities.add"),
    "AppArmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "AppArmor"),
    "SELinux": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions"),
    "seccomp": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
}
OF_RUNNING: dict[str, tuple[Manifest, str]] = {
    "hostPort": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "hostPort"),
    "probe by HTTP": ({"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}, "must not name a host"),
    "probe by TCP": ({"readinessProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}, "must not name a host"),
    "start-up probe": ({"startupProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}, "must not name a host"),
    "postStart": ({"lifecycle": {"postStart": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}}, "must not name a host"),
    "preStop": ({"lifecycle": {"preStop": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}}, "must not name a host"),
}
"""Fields that the policy denies in containers and init containers. Ephemeral containers cannot have them."""


@pytest.mark.parametrize("row", OF_PODS)
def test_pod_fields_forbidden_by_baseline_are_refused(tenant: Token, row: str) -> None:
    spec, said = OF_PODS[row]
    code, why = create(tenant, pod(**spec))
    assert (code, "admissionPolicy.tenants" in why, said in why) == (403, True, True), why


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("row", OF_BOXES)
def test_container_fields_forbidden_by_baseline_are_refused(tenant: Token, row: str, kind: str) -> None:
    fields, said = OF_BOXES[row]
    code, why = within(tenant, kind, **fields)
    assert (code, "admissionPolicy.tenants" in why, said in why) == (403, True, True), why


@pytest.mark.parametrize("kind", BOXES[:2])
@pytest.mark.parametrize("row", OF_RUNNING)
def test_host_ports_and_host_probes_are_refused(tenant: Token, row: str, kind: str) -> None:
    fields, said = OF_RUNNING[row]
    code, why = within(tenant, kind, **fields)
    assert (code, "admissionPolicy.tenants" in why, said in why) == (403, True, True), why


def test_alternative_spellings_of_forbidden_fields_are_refused(tenant: Token) -> None:
    unmasked = [{"name": "main", "image": "i", "securityContext": {"procMount": "Unmasked"}}]
    if clusters.MINOR > 31:  # Kubernetes 1.31 drops the field unless the feature gate ProcMountType is enabled.
        assert "procMount must be Default" in create(tenant, pod(hostUsers=False, containers=unmasked))[1]
    process = {"windowsOptions": {"hostProcess": True}}
    boxes = [{"name": "main", "image": "i", "securityContext": process}]
    assert "hostProcess" in create(tenant, pod(hostNetwork=True, os={"name": "windows"}, containers=boxes))[1]
    key = "container.apparmor.security.beta.kubernetes.io/main"
    noted = pod()
    noted["metadata"]["annotations"] = {key: "unconfined"}
    assert "AppArmor" in create(tenant, noted)[1]


def mounting(path: str, kind: str = "Directory", *, read_only: bool = True) -> Manifest:
    volume = {"name": "v", "hostPath": {"path": path, **({"type": kind} if kind else {})}}
    mount = {"name": "v", "mountPath": "/m", **({"readOnly": True} if read_only else {})}
    return pod(volumes=[volume], containers=[{"name": "main", "image": "i", "volumeMounts": [mount]}])


@pytest.mark.parametrize(
    "path",
    [
        "/", "/etc", "/mnt", "/mnt/models", "/mnt/models/", "/mnt/models2/x", "/mnt/models/.namespaces",
        "/mnt/models/.namespaces/", "/mnt/models/.namespaces/other", "/mnt/models/.namespaces/tenant-ab",
        "/mnt/models/.namespaces/tenant-a/.namespaces/other",
        "/mnt/models/.namespaces/.former/tenant-a.x", "/mnt/models//.namespaces/other", "/mnt/models/./.namespaces/other",
        "/raid", "/raid/models", "/raid/models/.namespaces/other/.ome/x", "/mnt/models/org/.namespaces/tenant-a/x",
        "/mnt/models/.NAMESPACES/other", "/mnt/models/.Namespaces/tenant-b",
        "/mnt/models/.namespaces/tenant-a/.NAMESPACES/other", "/mnt/models/.namespace\u017f/other",
        "/mnt/models/.name\u200bspaces/other", "/raid/MODELS", "/raid/Models/.namespaces/x",
        "mnt/models/x", "/mnt/models/x/", "/mnt/models//x", "/var/run/docker.sock", "/proc/1/root/mnt/models/x",
    ],
)  # fmt: skip
def test_tenant_pods_can_mount_only_their_own_weights_from_the_node(tenant: Token, path: str) -> None:
    code, said = create(tenant, mounting(path))
    assert code == 403 and "a hostPath must be below a root" in said, said


def test_parent_directory_in_subpath_is_refused(tenant: Token) -> None:
    assert create(tenant, mounting("/mnt/models/.namespaces/tenant-a/../other"))[0] == 422, "the API server's own rule"


@pytest.mark.parametrize(
    "path",
    [
        "/mnt/models/.ome/0a1b", "/mnt/models/moonshotai/.ome/0a1b", "/mnt/models/.namespaces/tenant-a/.ome/0a1b",
        "/mnt/models/.namespaces/tenant-a", "/raid/models/.namespaces/tenant-a/.ome/0a1b", "/raid/models/moonshotai/x",
        "/raid/x",
    ],
)  # fmt: skip
def test_weights_of_the_namespace_and_of_the_cluster_can_be_mounted(tenant: Token, path: str) -> None:
    assert create(tenant, mounting(path)) == (201, "")
    code, said = create(tenant, mounting(path, read_only=False))
    assert code == 403 and "must be readOnly" in said


@pytest.mark.parametrize("kind", ["", "DirectoryOrCreate", "FileOrCreate", "File", "Socket", "BlockDevice", "CharDevice"])
def test_tenant_pods_cannot_create_paths_on_the_node(tenant: Token, kind: str) -> None:
    """A tenant's pod must not mount a path of the node that may not exist, because the kubelet would create a missing
    directory or file as root. For a volume without a type, containerd would do so.
    """
    code, said = create(tenant, mounting("/mnt/models/x", kind))
    assert code == 403 and "must have the type Directory" in said


CACHE = "/mnt/models/.namespaces/tenant-a/.compile/" + "0a" * 16


@pytest.mark.parametrize("path", [CACHE, CACHE.replace("/mnt", "/raid")])
def test_only_the_compile_cache_directory_may_be_created(tenant: Token, path: str) -> None:
    assert create(tenant, mounting(path, "DirectoryOrCreate")) == (201, "")
    code, said = create(tenant, mounting(path, "DirectoryOrCreate", read_only=False))
    assert code == 403 and "must be readOnly" in said


@pytest.mark.parametrize(
    "path",
    [
        CACHE[:-1], CACHE + "0", CACHE + "/x", CACHE.replace("tenant-a", "tenant-b"), CACHE.rpartition("/")[0],
        CACHE.replace("0a", "0A"), CACHE.replace(".compile", ".Compile"), CACHE.replace(".namespaces", "x/.namespaces"),
    ],
)  # fmt: skip
def test_other_directories_of_the_namespace_cannot_be_created(tenant: Token, path: str) -> None:
    assert create(tenant, mounting(path, "DirectoryOrCreate"))[0] == 403


@pytest.mark.parametrize("kind", BOXES)
def test_no_container_may_write_to_a_mounted_node_path(tenant: Token, installed: Rig, kind: str) -> None:
    mount = {"name": "v", "mountPath": "/m"}
    made = mounting("/mnt/models/x")
    if kind == "ephemeralContainers":
        made["metadata"]["name"] = "reads"
        installed.create(made)
        code, said = attach(tenant, {"name": "x", "image": "i", "volumeMounts": [mount]}, "reads")
        assert attach(tenant, {"name": "x", "image": "i", "volumeMounts": [{**mount, "readOnly": True}]}, "reads")[0] == 200
    else:
        other = {"name": "x", "image": "i", "volumeMounts": [mount]}
        made["spec"][kind] = [*made["spec"].get(kind, []), other]
        code, said = create(tenant, made)
    assert code == 403 and "must be readOnly" in said


SUB_PATHS: dict[str, Manifest] = {
    "subPath": {"subPath": "x"},
    "several names": {"subPath": "x/y"},
    "the directory itself": {"subPath": "."},
    "subPathExpr": {"subPathExpr": "x"},
    "a variable": {"subPathExpr": "$(NAME)"},
}


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("row", SUB_PATHS)
def test_no_directory_is_made_below_a_mounted_directory(tenant: Token, installed: Rig, row: str, kind: str) -> None:
    """A mount of a directory of the node has no subPath, because the kubelet creates a missing subPath as root, even if the
    mount is readOnly. The API server itself refuses both fields in ephemeral containers.
    """
    mount = {"name": "v", "mountPath": "/sub", "readOnly": True, **SUB_PATHS[row]}
    box = {"name": "x", "image": "i", "env": [{"name": "NAME", "value": "x"}], "volumeMounts": [mount]}
    made = mounting("/mnt/models/x")
    if kind == "ephemeralContainers":
        made["metadata"]["name"] = f"mounts-{list(SUB_PATHS).index(row)}"
        installed.create(made)
        code, said = attach(tenant, box, made["metadata"]["name"])
        assert code == 422 and "cannot be set for an Ephemeral Container" in said, said
        return
    made["spec"][kind] = [*made["spec"].get(kind, []), box]
    code, said = create(tenant, made)
    assert code == 403 and "a mount of a hostPath must not have subPath or subPathExpr" in said, said
    for empty in ({"subPath": ""}, {"subPathExpr": ""}):
        box["volumeMounts"] = [{"name": "v", "mountPath": "/sub", "readOnly": True, **empty}]
        assert create(tenant, made) == (201, "")


def test_other_volumes_have_sub_paths(tenant: Token) -> None:
    volumes = [
        {"name": "v", "hostPath": {"path": "/mnt/models/x", "type": "Directory"}},
        {"name": "e", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "weights"}},
    ]
    mounts = [{"name": "e", "mountPath": "/e", "subPath": "x"}, {"name": "c", "mountPath": "/c", "subPathExpr": "x"}]
    assert create(tenant, pod(volumes=volumes, containers=[{"name": "main", "image": "i", "volumeMounts": mounts}])) == (
        201,
        "",
    )


def test_pod_allowed_by_baseline_and_needed_for_rdma_is_accepted(tenant: Token) -> None:
    """The policy accepts what the level `baseline` allows and what RDMA needs. The pod also contains fields that are
    explicitly set to their default values.
    """
    context = {
        "privileged": False, "procMount": "Default",
        "capabilities": {"add": ["IPC_LOCK", "CHOWN", "SYS_CHROOT"], "drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"}, "runAsUser": 0,
    }  # fmt: skip
    box = {
        "name": "main", "image": "i", "securityContext": context, "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    }  # fmt: skip
    sysctls = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    spec = {"hostNetwork": False, "hostPID": False, "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}]}
    assert create(tenant, pod(containers=[box], securityContext={"sysctls": sysctls, "fsGroup": 1}, **spec)) == (201, "")
    assert attach(tenant, {"name": "debug", "image": "i"})[0] == 200


def test_policy_applies_to_pods_created_by_controllers(tenant: Token, installed: Rig) -> None:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "x", "namespace": TENANT}
    installed.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    def said() -> bool:
        events = installed.all("Event", TENANT)
        return any("admissionPolicy.tenants" in event.get("message", "") for event in events)

    installed.wait("the controller is refused", said)
    assert installed.all("Pod", TENANT, "app=x") == []
    installed.delete("Deployment", TENANT, "x")


def test_policy_does_not_apply_to_other_namespaces(tenant: Token, installed: Rig) -> None:
    made = pod(hostNetwork=True)
    made["metadata"]["namespace"] = "default"
    assert installed.api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", made)["spec"]["hostNetwork"] is True


def test_existing_pods_can_be_deleted_but_not_extended(tenant: Token) -> None:
    where = f"{PODS}/former?dryRun=All"
    assert tenant.send("PATCH", where, {"metadata": {"labels": {"a": "b"}, "finalizers": None}}, MERGE) == (200, "")
    code, said = attach(tenant, {"name": "x", "image": "i"}, "former")
    assert code == 403 and "hostNetwork" in said
    assert tenant.send("DELETE", where)[0] == 200
