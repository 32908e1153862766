"""Runs `ome lint` on files and on parsed objects, for tests of its findings."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ome_operator.cli.live.linted import subjects
from ome_operator.cli.manifests import SERVICES, read_manifests
from ome_operator.core.observed.objects import Ref
from ome_operator.engines.flags import packaged_versions
from ome_operator.lint import rules
from ome_operator.lint.finding import Finding, Severity
from ome_operator.lint.subject import Subject
from tests.support.overlays import composed_file
from tests.support.parts import ROOT


@cache
def catalog() -> list[dict[str, Any]]:
    """Return the models, runtimes and accelerator classes that are shipped with `ome`."""
    return [body for body in read_manifests([ROOT / "config"], "default") if body["kind"] not in SERVICES]


def looked_at(
    bodies: Iterable[Mapping[str, Any]], whole: bool = True, others: frozenset[Ref] = frozenset()
) -> list[Subject]:
    """Return the inputs of `ome lint`: these objects together with the catalog. If `whole` is false, only the accelerator
    classes of the catalog are added. This is enough for services that bring their own model and runtime, and saves the time
    to parse the rest of the catalog. `others` are the objects of other kinds in the files.
    """
    beside = [body for body in catalog() if whole or body["kind"] == "AcceleratorClass"]
    return list(subjects([dict(body) for body in bodies], beside, packaged_versions(), others=others))


def found(bodies: Iterable[Mapping[str, Any]], whole: bool = True, others: frozenset[Ref] = frozenset()) -> list[Finding]:
    """Return the findings for these bodies."""
    return [finding for subject in looked_at(bodies, whole, others) for finding in rules.check(subject)]


@cache
def in_file(path: Path) -> tuple[Finding, ...]:
    """Return the findings for a case. Cached, because several tests use the same cases."""
    return tuple(found(read_manifests([composed_file(path)], "default")))


def grave(findings: Iterable[Finding]) -> list[str]:
    """Return rule and message of all findings that are errors or warnings, not notes."""
    return [f"{each.rule.id}: {each.hit.says}" for each in findings if each.rule.severity != Severity.NOTE]
