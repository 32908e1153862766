"""Tests of which texts a recording treats as secrets, in every form in which users write them, and which texts it leaves."""

import base64
import time
from typing import Any

import pytest

from ome_operator.recorder.redaction import Redaction

KEY = "Zx9-hunter_Q7"
"""The secret of these texts."""
CUT = "-----BEGIN RSA PRIVATE KEY-----\nMIIEZx9hunterQ7MIIEZx9hunterQ7"
LINES = f"first line of it\n{KEY}\nlast line of it"

VALUES: dict[str, Any] = {
    # the value of a flag, as a separate argument or in the same one
    "a value that begins with a dash": {"args": ["--api-key", f"-{KEY}"]},
    "a value that begins with two dashes": {"args": ["--api-key", f"--{KEY}"]},
    "&": {"args": [f"--api-key=ab&{KEY}"]},
    ",": {"args": [f"--api-key=ab,{KEY}"]},
    ";": {"args": [f"--api-key=ab;{KEY}"]},
    "blanks": {"args": [f"--api-key=two {KEY}"]},
    "blanks, behind the flag": {"args": ["--api-key", f"two {KEY}"]},
    "a variable as an argument": {"command": ["env", f"DB_PASSWORD=two {KEY}", "serve"]},
    "quotes in an argument": {"args": [f'--api-key="ab {KEY}"']},
    "a flag of the router": {"args": ["--admin-api-key", KEY]},
    "--key": {"args": ["--key", KEY]},
    "--auth": {"args": [f"--auth={KEY}"]},
    "--pass": {"args": ["--db-pass", KEY]},
    "curl -u": {"args": ["curl", "-u", f"me:{KEY}"]},
    "a flag without a value before it": {"args": ["--enable-token-auth", "--api-key", KEY]},
    # a shell script
    "&, in a shell": {"command": ["sh", "-c", f"serve --api-key=ab&{KEY} --port=1"]},
    ", in a shell": {"command": ["sh", "-c", f"serve --api-key ab,{KEY}"]},
    "double quotes, in a shell": {"command": ["sh", "-c", f'serve --api-key="two {KEY}" --port=1']},
    "single quotes, in a shell": {"command": ["sh", "-c", f"serve --api-key 'two {KEY}' --port=1"]},
    "quotes around the flag, in a shell": {"command": ["sh", "-c", f'serve "--api-key=two {KEY}" --port=1']},
    "parts of a word, in a shell": {"command": ["sh", "-c", f'serve --api-key=ab"{KEY}"']},
    "a variable, in a shell": {"command": ["sh", "-c", f"export HF_TOKEN={KEY}; exec serve"]},
    "AWS_KEY": {"command": ["sh", "-c", f"AWS_KEY={KEY} exec serve"]},
    "DB_PASS": {"command": ["sh", "-c", f"export DB_PASS='two {KEY}'; exec serve"]},
    "curl -u, in a shell": {"command": ["sh", "-c", f"curl -u me:{KEY} x"]},
    "behind a dash, in a shell": {"command": ["sh", "-c", f"serve --api-key -{KEY}"]},
    # headers and addresses
    "Authorization: Token": {"args": ["-H", f"Authorization: Token {KEY}"]},
    "Authorization: ApiKey": {"command": ["sh", "-c", f'curl -H "Authorization: ApiKey {KEY}" x']},
    "Authorization: Bearer": {"message": f"denied: Authorization: Bearer {KEY}"},
    "Cookie": {"message": f"sent Cookie: session={KEY}; other=1"},
    "a parameter of an address": {"message": f"GET https://x.example/?a=b&token={KEY}&c=d"},
    "?key=": {"message": f"GET https://x.example/v1?key={KEY}"},
    "a password with @": {"message": f"https://me:p@{KEY}@x.example/"},
    "a hook": {"args": [f"--notify=https://hooks.chat.example/services/T0/B0/{KEY}"]},
    # JSON and YAML, as text and as values
    "JSON": {"message": f'{{"api_key": "{KEY}"}}'},
    "JSON in JSON": {"message": f'{{\\"api_key\\": \\"{KEY}\\"}}'},
    "JSON in JSON in JSON": {"message": f'{{\\\\\\"api_key\\\\\\": \\\\\\"{KEY}\\\\\\"}}'},
    "a map, as text": {"message": f'{{"credentials": {{"user": "me", "is": "{KEY}"}}}}'},
    "a list, as text": {"message": f'{{"tokens": ["{KEY}"]}}'},
    "a map": {"credentials": {"user": {"is": KEY}}},
    "a list": {"tokens": ["a", KEY]},
    "a file that is none": {"message": f"password_file: {KEY}"},
    "a file that is none, as a value": {"password_file": KEY},
    "lines of YAML": {"message": f"password: |\n  {KEY}\nother: 1"},
    # other places for a value
    "a line of a variable": {"env": [{"name": "A", "value": LINES}], "message": f"cannot read {KEY}"},
    "its base64": {"env": [{"name": "A", "value": KEY}], "message": f"is {base64.b64encode(KEY.encode()).decode()}"},
    "base64 of it as a line": {
        "env": [{"name": "A", "value": KEY}], "message": base64.b64encode(f"{KEY}\n".encode()).decode(),
    },
    "what a variable encodes": {
        "env": [{"name": "A", "value": base64.b64encode(f"{KEY}\n".encode()).decode()}], "message": f"is {KEY}",
    },
    "a part of a value": {"args": [f"--api-key=ab&{KEY}"], "message": f"cannot use {KEY}"},
    "a variable with a name of the operator": {"env": [{"name": "NAMESPACE", "value": KEY}]},
    "an address with a name of the operator": {"env": [{"name": "LWS_LEADER_ADDRESS", "value": f"{KEY}.svc.team"}]},
    "a variable with more fields": {"env": [{"name": "NAMESPACE", "value": KEY, "self": "x", "name ": "y"}]},
    "a number with a name of the operator": {"env": [{"name": "PARALLELISM_SIZE", "value": KEY}]},
    # keys
    "a key whose end is cut": {"message": CUT},
    "a key whose beginning is cut": {"message": f"MIIE{KEY[:3]}hunter\nMIIEZx9hunterQ7\n-----END RSA PRIVATE KEY-----"},
    "a token of a hub": {"message": "is hf_Zx9hunterQ7abcdef"},
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_every_form_of_a_secret_is_redacted(value: Any) -> None:
    redaction = Redaction(["svc", "team"])
    redaction.collect_values(value)
    left = str(redaction.replace_values(value))
    encoded = base64.b64encode(KEY.encode()).decode()[:10]
    assert "redacted-" in left
    assert [part for part in (KEY, "hunter", "Zx9", encoded) if part in left] == []


@pytest.mark.parametrize(
    "plain",
    [
        {"args": ["--max-total-tokens", "4096", "--tp=8", "--api-key=$(API_KEY)", "--tokenizer-path=/models/x"]},
        {"args": ["--enable-token-auth", "--port=30000"], "command": ["sh", "-c", "exec serve --port 30000"]},
        {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname"}], "tolerations": [{"key": "gpu"}]},
        {"volumes": [{"name": "s", "secret": {"secretName": "mine", "items": [{"key": "token", "path": "hub/token"}]}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "token"}}}]},
        {"sources": [{"serviceAccountToken": {"audience": "vault", "path": "token"}}, {"secret": {"name": "x"}}]},
        {"huggingFaceSecretReference": {"name": "hub"}, "imagePullSecrets": [{"name": "pull"}]},
        {"message": 'MountVolume.SetUp failed for volume "x" : secret "hub" not found'},
        {"message": "prompt tokens: 512, output tokens per second: 12.5; use_auth_token=true"},
        {"message": "cannot read password_file=/etc/hub/password, token_path: ./token"},
        {"env": [{"name": "NAMESPACE", "value": "team"}, {"name": "INFERENCESERVICE_NAME", "value": "svc"}]},
        {"env": [{"name": "LWS_LEADER_ADDRESS", "value": "svc-engine-1-$(LWS_GROUP_INDEX)-0.svc-pods.team"}]},
        {
            "env": [
                {"name": "LWS_LEADER_ADDRESS", "value": "$(POD_NAME).svc-pods.team"},
                {"name": "MODEL_PATH", "value": "/m"},
            ]
        },
    ],
    ids=str,
)
def test_values_needed_for_decisions_are_not_redacted(plain: Any) -> None:
    redaction = Redaction(["svc", "team"])
    redaction.collect_values(plain)
    assert redaction.replace_values(plain) == plain


PARTS = (
    "token=", "--token ", "token: ", "token={", "[", '"', '\\"', "'", "?key=", "authorization: ", "password_file: /a",
    "--auth --api-key ", "eyJ", "-----BEGIN A-----", "-----END A-----", "http://", "bearer ", "secret", "hf_", "a@",
    "token_file=/", "-u a:b ", "key=|\n ", "\\", 'token=a"b', "hooks.chat/", "/webhooks/", "=", ":", "a", " ", "0",
)  # fmt: skip
"""Parts of texts at which one of the functions begins to search."""
LENGTH = 200_000


@pytest.mark.parametrize("part", PARTS)
def test_any_text_is_redacted_within_a_second(part: str) -> None:
    """Any text is redacted within a second. Previously, a word of 60,000 letters took minutes. The texts of a service may
    have a megabyte.
    """
    assert max(
        (_seconds(begin, other), begin + other) for begin, other in [("", part), *((part, one) for one in PARTS[::8])]
    ) < (1,)


def _seconds(begin: str, part: str) -> float:
    """Return the seconds for a text of LENGTH characters. A shorter text is sufficient if even the square of its time is
    below a second.
    """
    for length in (LENGTH // 4, LENGTH):
        redaction, began = Redaction(), time.process_time()
        value = {"env": [{"name": "A", "value": "Zx9-hunter_Q7"}], "message": begin + part * (length // len(part))}
        redaction.collect_values(value)
        redaction.replace_values(value)
        took = time.process_time() - began
        if took * (LENGTH / length) ** 2 < 1:
            break
    return took * LENGTH / length
