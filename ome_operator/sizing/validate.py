"""Predictions of a calibration file beside what was measured: by row, and by class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ome_operator.sizing.classes import FIGURES, Bar, bars, class_of
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.predict import Prediction, predict
from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.rows import Row, read, shipped

BEYOND = 2.0
"""No throughput and no TPOT of a known engine should be off by more than this factor."""


@dataclass(frozen=True)
class Answer:
    """A row that was predicted."""

    id: str
    row_class: str
    regime: str
    """waits: TTFT is above half of a request's whole time; queues: waiting is most of TTFT; reads: prefill's own time is."""
    taught: bool
    """Whether the constants were fitted on it."""
    predicted: Mapping[str, float]
    """Figure -> seconds, seconds, tokens a second on a GPU."""
    measured: Mapping[str, float]

    @property
    def ratios(self) -> dict[str, float]:
        """Figure -> predicted / measured."""
        return {name: self.predicted[name] / seen for name, seen in self.measured.items() if name in self.predicted}


@dataclass(frozen=True)
class Report:
    """All rows of a file."""

    answered: tuple[Answer, ...]
    refused: Mapping[str, str]
    """Id -> the sentence."""
    classes: Mapping[str, Mapping[str, Bar]] = field(default_factory=dict)
    """Class -> figure -> errors."""

    @property
    def rows(self) -> int:
        """Of the file."""
        return len(self.answered) + len(self.refused)

    @property
    def beyond(self) -> list[str]:
        """Rows whose TPOT or throughput is off by more than a factor of two."""
        return [each.id for each in self.answered if any(_beyond(each.ratios.get(name, 1.0)) for name in FIGURES[1:])]


def _beyond(ratio: float) -> bool:
    return not 1 / BEYOND <= ratio <= BEYOND


def figures(row: Row, said: Prediction) -> tuple[dict[str, float], dict[str, float]]:
    """(predicted, measured) by figure; tokens of answers, or of prompts where a row has only those."""
    pairs = {
        "ttft": (said.ttft, row.ttft),
        "tpot": (said.tpot, row.tpot),
        "tokens": (said.written, row.written) if row.written else (said.read, row.read),
    }
    guessed = {name: guess for name, (guess, _) in pairs.items() if guess is not None}
    return guessed, {name: seen for name, (_, seen) in pairs.items() if seen is not None}


def validate(text: str, name: str, c: Constants) -> Report:
    """A file's rows; PlanRefused where it is no calibration file."""
    taught = {row.id for row in shipped()}
    answered: list[Answer] = []
    refused: dict[str, str] = {}
    for number, found in enumerate(read(text, name), 1):
        if isinstance(found, Row):
            try:
                answered.append(_answer(found, found.id in taught, c))
            except PlanRefused as error:
                refused[_free(found.id, number, refused)] = str(error)
        else:
            refused[_free(found[0], number, refused)] = found[1]
    groups: dict[str, list[Mapping[str, float]]] = {}
    for each in answered:
        groups.setdefault(each.row_class, []).append(each.ratios)
    return Report(tuple(answered), refused, {title: bars(ratios) for title, ratios in sorted(groups.items())})


def _free(title: str, number: int, taken: Iterable[str]) -> str:
    return title if title not in taken else f"{title} (row {number})"


def _answer(row: Row, taught: bool, c: Constants) -> Answer:
    said = predict(row, c)
    guessed, seen = figures(row, said)
    return Answer(row.id, class_of(row.place, (row.prefill, row.decode), row.mtp), said.regime, taught, guessed, seen)
