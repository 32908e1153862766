"""Tests that the workflows call only make targets, so that every step can be tried on any machine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import charts, images

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_command_is_an_existing_make_target(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"].strip() for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        found = re.fullmatch(
            r'(?:sudo env "PATH=\$PATH" )?make (?:--silent )?([a-z0-9-]+)(?: [A-Z]+=\S*)*(?: >>"\$GITHUB_OUTPUT")?', command
        )
        assert found and found[1] in targets, command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_with_its_version(workflow: Path) -> None:
    """Every action is referenced by a commit, with its version in a comment. If actions were referenced by tag, whoever can
    move such a tag could sign releases.
    """
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", workflow.read_text(), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in steps(workflow))
    assert [name for name in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name)] == []


def test_an_action_has_the_same_commit_everywhere() -> None:
    used = {step["uses"] for workflow in WORKFLOWS for step in steps(workflow) if "uses" in step}
    assert len({name.partition("@")[0] for name in used}) == len(used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_checkouts_do_not_persist_credentials(workflow: Path) -> None:
    """No checkout keeps its credentials. Otherwise a later step, or a program from a package, could read the token in
    .git/config.
    """
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert [step for step in checkouts if step.get("with", {}).get("persist-credentials") is not False] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_only_an_environment_may_write_and_sign(workflow: Path) -> None:
    """Only a job in a protected environment may write and sign: a person must approve it, wherever the tag comes from."""
    text = yaml.safe_load(workflow.read_text())
    assert text["permissions"] == {"contents": "read"}
    writing = {name for name, job in text["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing == {name for name, job in text["jobs"].items() if job.get("environment") == "release"}
    assert writing == ({"push"} if workflow.stem == "release" else set())
    with_secrets = {name for name, job in text["jobs"].items() if "secrets." in str(job)}
    assert with_secrets <= writing


def test_each_platform_has_a_build_machine() -> None:
    """Each platform has a machine that builds it. These are the platforms of the images that `make release` joins."""
    text = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    rows = text["jobs"]["images"]["strategy"]["matrix"]["include"]
    assert sorted(row["platform"] for row in rows) == sorted(images.PLATFORMS)


def test_ci_script_runs_the_same_targets_as_the_workflow() -> None:
    words = (ROOT / ".ci/run").read_text().split("exec make ")[1].split()
    assert [step["run"] for step in steps(ROOT / ".github/workflows/ci.yml") if "run" in step] == [
        f"make {word}" for word in words
    ]


def test_published_artifacts_are_signed_with_provenance() -> None:
    """All published artifacts are signed: files by themselves, and images and charts by their digests. They are signed
    after they were pushed, and before the release page names them.
    """
    pushed = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["push"]["steps"]
    told = [step.get("run", "").split(" VERSION")[0] or step["uses"].partition("@")[0] for step in pushed]
    attests = [at for at, what in enumerate(told) if what == "actions/attest-build-provenance"]
    files, *others = (pushed[at]["with"] for at in attests)
    assert files == {"subject-path": "dist/ome*"}
    names = [*images.IMAGES.values(), *(f"charts/{name}" for name in charts.CHARTS)]
    assert others == [
        {
            "subject-name": f"ghcr.io/${{{{ github.repository }}}}/{name}",
            "subject-digest": f"${{{{ steps.digests.outputs.{name.replace('/', '-')} }}}}",
            "push-to-registry": True,
        }
        for name in names
    ]
    assert told.index("make release") < told.index("make release-sign") < attests[0]
    assert told.index('make --silent release-outputs >>"$GITHUB_OUTPUT"') < attests[1]
    assert attests[-1] < told.index("make release-page")
    assert "release digests | xargs -n 1 cosign sign" in (ROOT / "Makefile").read_text()
