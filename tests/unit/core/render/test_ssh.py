"""SSH keys of a service: asked for by annotation, made by the shell, read by nobody but the pods."""

from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from ome_operator import keys
from ome_operator.controllers.inferenceservice import secret_data
from ome_operator.core.render import meta, ssh

OWNER = meta.Owner("svc", "team", "u")
ASKED = {keys.SSH_KEYS: "ssh"}
MOUNTED = [{"name": "ssh", "mountPath": "/etc/ssh-keys"}]


def template(**spec: Any) -> dict[str, Any]:
    """A pod template that asks for keys."""
    pod = {"containers": [{"name": "main", "volumeMounts": MOUNTED}], **spec}
    return {"metadata": {"annotations": ASKED}, "spec": ssh.inject(pod, ASKED, "svc")}


def test_a_pod_that_asks_gets_a_volume_that_only_it_may_read() -> None:
    (volume,) = template()["spec"]["volumes"]
    assert volume == {"name": "ssh", "secret": {"secretName": "svc-ssh", "defaultMode": 0o400}}
    assert ssh.inject({"containers": []}, {}, "svc") == {"containers": []}


def test_the_secret_is_the_services_and_has_no_data_yet() -> None:
    found = ssh.secret(OWNER, template())
    assert found is not None
    assert found["metadata"]["name"] == "svc-ssh" and found["type"] == keys.SSH_SECRET
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert not {"data", "stringData"} & found.keys()


def test_a_volume_of_the_users_own_stays() -> None:
    mine = {"name": "ssh", "emptyDir": {}}
    asked = template(volumes=[mine])
    assert asked["spec"]["volumes"] == [mine]
    assert ssh.secret(OWNER, asked) is None


def test_keys_that_nobody_mounts_are_told() -> None:
    assert ssh.advice(template()) == ()
    assert "volumeMounts" in ssh.advice(template(containers=[{"name": "main"}]))[0]


def test_the_keys_fit_each_other_and_are_new_every_time() -> None:
    first, second = secret_data.ssh_keys(), secret_data.ssh_keys()
    for private, public in (("ssh_host_ed25519_key", "known_hosts"), ("id_ed25519", "authorized_keys")):
        said = first[public].removeprefix("* ").strip().encode()
        made = load_ssh_private_key(first[private].encode(), None).public_key()
        assert load_ssh_public_key(said) == made
        assert first[private] != second[private]
    assert first["known_hosts"].startswith("* ssh-ed25519 "), "every pod of the service has the same host key"
