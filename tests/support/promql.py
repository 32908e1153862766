"""Finds the metrics that a PromQL expression reads, and the labels that it selects by."""

import re

_LANGUAGE = """
abs absent and avg by bool changes clamp count delta for group_left group_right histogram_quantile ignoring increase irate
label_replace label_values le max max_over_time min offset on or quantile rate scalar sort sum time topk unless vector
without
"""
WORDS = frozenset(_LANGUAGE.split())
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def metrics(expression: str) -> set[str]:
    """Return the names of metrics: all names that are not keywords, labels or numbers."""
    bare = re.sub(r"\{[^}]*\}", "", _TEXT.sub('""', expression))
    bare = re.sub(r"\b\d[\w.]*", "", _LISTS.sub("", re.sub(r"\[[^\]]*\]", "", bare)))
    return {word for word in re.findall(r"[A-Za-z_:][\w:]*", bare) if word not in WORDS}


def labels(expression: str) -> dict[str, set[str]]:
    """Return for each metric the labels in its selectors."""
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"([A-Za-z_:][\w:]*)\{([^}]*)\}", _TEXT.sub('""', expression)):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*[!=]", selector))
    return found


def aggregation_labels(expression: str) -> set[str]:
    """Return the labels by which the expression aggregates."""
    return {word.strip() for names in re.findall(r"\bby\s*\(([^)]*)\)", expression) for word in names.split(",")} - {""}
