"""Formats findings as text, JSON and SARIF."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ome_operator.lint.finding import Finding, Severity
from ome_operator.lint.rules import RULES
from ome_operator.lint.source import spot
from ome_operator.util.visible import document, make_all_visible
from ome_operator.util.wording import count

PAGE = "docs/rules.md"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def link(finding: Finding) -> str:
    """Return the URL of the explanation of the finding's rule."""
    return f"{PAGE}#{finding.rule.id}"


def text_report(findings: Sequence[Finding]) -> str:
    """Return the findings as human-readable text. Each finding has its location, its consequence and its fix; the number of
    findings is at the end.
    """
    out = [_paragraph(finding) for finding in findings]
    counted = Counter(finding.rule.severity for finding in findings)
    message = ", ".join(count(counted[severity], severity) for severity in Severity)
    return "\n\n".join([*out, message if findings else "no findings"]) + "\n"


def _paragraph(finding: Finding) -> str:
    hit, rule = make_all_visible(finding.hit), finding.rule
    of = f"  (service {make_all_visible(finding.service)})" if finding.service else ""
    return "\n".join(
        (
            f"{rule.severity} {rule.id}: {hit.says}.",
            f"  Where:       {hit.place.object}: {hit.place.field}{of}",
            f"  If ignored:  {rule.ignored}",
            f"  Fix:         {hit.remedy[:1].upper()}{hit.remedy[1:]}.",
            f"  More:        {link(finding)}",
        )
    )


def json_report(findings: Iterable[Finding], files: Mapping[str, str]) -> str:
    """Return the findings as a JSON list for programs. `files` maps the path of each checked file to its text."""
    return document([_plain(finding, files) for finding in findings], indent=2) + "\n"


def _plain(finding: Finding, files: Mapping[str, str]) -> dict[str, Any]:
    hit, where = finding.hit, spot(files, finding.hit)
    fields = {
        "rule": finding.rule.id,
        "severity": str(finding.rule.severity),
        "service": finding.service,
        "object": hit.place.object,
        "field": hit.place.field,
        "says": hit.says,
        "ignored": finding.rule.ignored,
        "remedy": hit.remedy,
        "fix": hit.fix._asdict() if hit.fix is not None else None,
        "file": where.file if where is not None else None,
        "line": where.line if where is not None else None,
        "more": link(finding),
    }
    return {name: value for name, value in fields.items() if value is not None}


def sarif_report(findings: Sequence[Finding], files: Mapping[str, str], version: str) -> str:
    """Return the findings in the format SARIF 2.1.0, which GitHub code scanning and other viewers read."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": f"{rule.title}. If ignored: {rule.ignored} Evidence: {rule.evidence}"},
            "defaultConfiguration": {"level": str(rule.severity)},
        }
        for rule in RULES.values()
    ]
    driver = {"name": "ome lint", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_result(finding, files) for finding in findings]}
    return document({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, files: Mapping[str, str]) -> dict[str, Any]:
    hit, where = finding.hit, spot(files, finding.hit)
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": f"{hit.place.object}: {hit.place.field}"}]}
    if where is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": where.file}, "region": {"startLine": where.line}}
    return {
        "ruleId": finding.rule.id,
        "level": str(finding.rule.severity),
        "message": {"text": f"{hit.says}. If ignored: {finding.rule.ignored} Fix: {hit.remedy}."},
        "locations": [location],
    }
