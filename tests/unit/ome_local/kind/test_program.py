"""Tests of the message about a failure of kind."""

from ome_local.kind.program import complaint

NO_IMAGE = """\
Creating cluster "ome" ...
 • Ensuring node image (kindest/node:v1.34.0) \U0001f5bc  ...
\x1b[31m ✗ Ensuring node image (kindest/node:v1.34.0) \U0001f5bc\x1b[0m
ERROR: failed to create cluster: failed to pull image "kindest/node:v1.34.0": "docker pull" failed: exit status 1

Command Output: Error response from daemon
Stack Trace:
sigs.k8s.io/kind/pkg/errors.WithStack
	sigs.k8s.io/kind/pkg/errors/errors.go:59
sigs.k8s.io/kind/pkg/exec.(*LocalCmd).Run
	sigs.k8s.io/kind/pkg/exec/local.go:124
"""


def test_kind_error_names_step_and_image() -> None:
    """The message about a failure of kind names the step and the image. The last line of kind's output alone is only a line
    of a stack trace.
    """
    first, second, *last = complaint(NO_IMAGE).splitlines()
    assert first.strip().startswith("✗ Ensuring node image (kindest/node:v1.34.0)")
    assert second.startswith('ERROR: failed to create cluster: failed to pull image "kindest/node:v1.34.0"')
    assert len(last) == 5


def test_short_kind_error_is_printed_once() -> None:
    assert complaint("ERROR: unknown command\n") == "ERROR: unknown command"
    assert complaint("\n") == "(no output)"
