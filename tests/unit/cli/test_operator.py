"""Tests of `ome operator`: the addresses on which the operator listens, and what the command refuses before the operator
starts.
"""

import re
from typing import Any

import pytest
from typer.testing import CliRunner

import ome_operator.app
from ome_operator.cli.operator import app, missing_image_features
from ome_operator.cli.options import preflight_mode
from ome_operator.errors import UserError
from ome_operator.settings import Exposure, Settings
from ome_operator.util import log_format
from tests.support import parts

KUBECONFIG = ("--kubeconfig", "some")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Return the settings with which the operator was started."""
    found: list[Settings] = []

    async def run(settings: Settings) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(ome_operator.app, "run", run)
    monkeypatch.setattr(log_format, "configure", lambda *_: None)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return found


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ((), ("", 8081, 8080)),
        (KUBECONFIG, ("127.0.0.1", 18081, 18080)),
        ((*KUBECONFIG, "--address=", "--health-port=8081", "--metrics-port=0"), ("", 8081, 0)),
    ],
)
def test_operator_with_a_kubeconfig_listens_on_loopback_on_its_own_ports(
    words: tuple[str, ...], where: tuple[Any, ...], given: list[Settings]
) -> None:
    """With a kubeconfig, the operator runs on a user's machine. It then listens on loopback only, and not on ports 8081 and
    8080, which the kubelet and Prometheus expect in a pod.
    """
    assert CliRunner().invoke(app, list(words)).exit_code == 0
    assert [(one.address, one.health_port, one.metrics_port) for one in given] == [where]


def test_operator_process_does_not_use_the_documented_port_forward_port(given: list[Settings]) -> None:
    """An operator that runs as a process does not use the port of the README's port-forward on the same machine."""
    forwarded = re.findall(r"kubectl port-forward .* (\d+):\d+", (parts.ROOT / "README.md").read_text())
    CliRunner().invoke(app, list(KUBECONFIG))
    assert forwarded and not {int(port) for port in forwarded} & {given[0].health_port, given[0].metrics_port}


def test_refusals_can_be_disabled(given: list[Settings]) -> None:
    for words in ((), ("--no-lint-refuse",)):
        assert CliRunner().invoke(app, [*KUBECONFIG, *words]).exit_code == 0
    assert [settings.lint_refuse for settings in given] == [True, False]


def test_no_public_image_is_used_without_image_flags(given: list[Settings]) -> None:
    """Without the flags for images, no image of the operator is pulled from a public registry, where anybody may have taken
    an image name without a registry.
    """
    assert CliRunner().invoke(app, list(KUBECONFIG)).exit_code == 0
    CliRunner().invoke(app, [*KUBECONFIG, "--sidecar-image=r.example.com/op:1", "--tools-image=r.example.com/agent:1"])
    assert [(settings.policy.registry_image, settings.tools_image) for settings in given] == [
        ("", ""),
        ("r.example.com/op:1", "r.example.com/agent:1"),
    ]
    assert [said.partition(",")[0] for said in missing_image_features("", "")] == [
        "--sidecar-image is not set",
        "--tools-image is not set",
    ]
    assert missing_image_features("r.example.com/op:1", "r.example.com/agent:1") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--expose=Gateway"], "--expose=Gateway: write Ingress or HTTPRoute"),
        (["--expose=HTTPRoute"], "--expose=HTTPRoute needs --gateway"),
        (["--expose=HTTPRoute", "--gateway=edge"], "needs --gateway=NAMESPACE/NAME"),
        (["--watch-namespace=Team"], "--watch-namespace=Team: write the name of a namespace"),
        (["--watch-namespace=" + 64 * "a"], "write the name of a namespace"),
        (["--no-cluster-wide-kinds"], "--no-cluster-wide-kinds requires --watch-namespace"),
        (["--operator-class=" + 31 * "a"], "write at most 30 of the characters a-z"),
        (["--preflight=yes"], "--preflight=yes: write Off, Warn or Require."),
        (["--log-level=LOUD"], "--log-level=LOUD: write DEBUG, INFO, WARNING or ERROR."),
        (["--well-known-models=/nowhere"], "--well-known-models: well-known models at /nowhere cannot be read"),
    ],
)
def test_refused_option_names_the_flag_and_the_remedy(words: list[str], message: str, given: list[Settings]) -> None:
    result = CliRunner().invoke(app, [*KUBECONFIG, *words])
    assert isinstance(result.exception, UserError) and message in str(result.exception) and given == []


def test_valid_option_texts_become_settings(given: list[Settings]) -> None:
    words = (
        ["--expose=Ingress"],
        ["--expose=HTTPRoute", "--gateway=infra/edge"],
        ["--preflight=warn"],
        ["--log-level=debug"],
    )
    for line in words:
        assert CliRunner().invoke(app, [*KUBECONFIG, *line]).exit_code == 0, line
    assert [settings.policy.exposure for settings in given[:2]] == [
        Exposure("Ingress"),
        Exposure("HTTPRoute", gateway="infra/edge"),
    ]
    assert (given[2].policy.preflight, given[3].log_level) == ("Warn", "DEBUG")


def test_observe_options_become_policy(given: list[Settings]) -> None:
    for words in ((), ("--observe",), ("--observe-namespace", "a", "--observe-namespace", "b")):
        assert CliRunner().invoke(app, [*words]).exit_code == 0
    assert [(settings.policy.observe, settings.policy.observe_namespaces) for settings in given] == [
        (False, frozenset()),
        (True, frozenset()),
        (False, frozenset({"a", "b"})),
    ]


def test_wave_options_are_parsed_and_invalid_ones_refused(given: list[Settings]) -> None:
    assert (
        CliRunner().invoke(app, [*KUBECONFIG, "--waves=1, 50%", "--bake=1h", "--max-concurrent-services=3"]).exit_code == 0
    )
    assert CliRunner().invoke(app, list(KUBECONFIG)).exit_code == 0
    usual = Settings()
    assert [(item.waves, item.bake, item.max_concurrent_services) for item in given] == [
        (("1", "50%"), 3600.0, 3),
        (usual.waves, usual.bake, 0),
    ]
    for words, said in ((["--waves=0"], "--waves: 0 is not a wave"), (["--bake=soon"], "--bake: soon is not a duration")):
        found = CliRunner().invoke(app, [*KUBECONFIG, *words])
        assert isinstance(found.exception, UserError) and said in str(found.exception)


def test_preflight_mode_option_is_parsed_and_others_refused() -> None:
    assert [preflight_mode(said) for said in ("Off", "warn", "REQUIRE")] == ["Off", "Warn", "Require"]
    with pytest.raises(UserError, match="--preflight is 'yes': write Off, Warn, Require"):
        preflight_mode("yes")
