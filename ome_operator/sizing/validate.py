"""Compare predictions for the rows of a calibration file with the measured values, by row and by class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ome_operator.sizing import shapes
from ome_operator.sizing.calibration import Models, Row, read, shipped
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.error_bars import FIGURES, Bar, bars, class_of_row
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.predict import Prediction, predict

LONGEST = 400
"""Maximum number of characters of the reason why a row cannot be used. The reason can quote a cell of the row."""
BEYOND = 2.0
"""Largest acceptable factor between the predicted and the measured throughput or TPOT of a known engine."""


@dataclass(frozen=True)
class Answer:
    """A row of a calibration file with its prediction."""

    id: str
    row_class: str
    regime: str
    """The dominant part of TTFT: `waits`, `queues` or `reads`, as SteadyState.dominant_part defines them."""
    taught: bool
    """Whether this row is one of the rows to which the constants were fitted."""
    predicted: Mapping[str, float]
    """Predicted value of each figure: ttft and tpot in seconds, tokens in tokens per second for each GPU."""
    measured: Mapping[str, float]

    @property
    def ratios(self) -> dict[str, float]:
        """Maps each figure to the predicted value divided by the measured value."""
        return {name: self.predicted[name] / seen for name, seen in self.measured.items() if name in self.predicted}


@dataclass(frozen=True)
class Report:
    """The result of validating a calibration file."""

    answered: tuple[Answer, ...]
    refused: Mapping[str, str]
    """Maps the id of each row that could not be predicted to the reason."""
    classes: Mapping[str, Mapping[str, Bar]] = field(default_factory=dict)
    """Error bars by class, and in each class by figure."""

    @property
    def rows(self) -> int:
        """The number of rows in the file."""
        return len(self.answered) + len(self.refused)

    @property
    def outliers(self) -> list[str]:
        """Ids of the rows whose predicted TPOT or throughput differs from the measured value by more than a factor of
        two.
        """
        return [each.id for each in self.answered if any(_beyond(each.ratios.get(name, 1.0)) for name in FIGURES[1:])]


def _beyond(ratio: float) -> bool:
    return not 1 / BEYOND <= ratio <= BEYOND


def compare_figures(row: Row, prediction: Prediction) -> tuple[dict[str, float], dict[str, float]]:
    """Return the predicted and the measured value of each figure. The figure `tokens` is the rate of output tokens, or of
    prompt tokens for a row of prefill alone.
    """
    pairs = {
        "ttft": (prediction.ttft, row.ttft),
        "tpot": (prediction.tpot, row.tpot),
        "tokens": (prediction.written, row.written) if row.written else (prediction.read, row.read),
    }
    guessed = {name: guess for name, (guess, _) in pairs.items() if guess is not None}
    return guessed, {name: seen for name, (_, seen) in pairs.items() if seen is not None}


def validate(text: str, name: str, c: Constants, models: Models = shapes.shape) -> Report:
    """Predict all rows of a calibration file with these constants. `models` finds the models that rows name. Raises
    PlanRefused if the text is not a calibration file, or has no rows.
    """
    taught = {row.id for row in shipped()}
    answered: list[Answer] = []
    refused: dict[str, str] = {}
    for number, found in enumerate(read(text, name, models), 1):
        if isinstance(found, Row):
            try:
                answered.append(_answer(found, found.id in taught, c))
            except PlanRefused as error:
                refused[_free(found.id, number, refused)] = str(error)[:LONGEST]
        else:
            refused[_free(found[0], number, refused)] = found[1][:LONGEST]
    if not answered and not refused:
        raise PlanRefused(f"{name} contains no rows: add a line for each measured run.")
    groups: dict[str, list[Mapping[str, float]]] = {}
    for each in answered:
        groups.setdefault(each.row_class, []).append(each.ratios)
    return Report(tuple(answered), refused, {title: bars(ratios) for title, ratios in sorted(groups.items())})


def _free(title: str, number: int, taken: Iterable[str]) -> str:
    title = title[:LONGEST]
    return title if title not in taken else f"{title} (row {number})"


def _answer(row: Row, taught: bool, c: Constants) -> Answer:
    prediction = predict(row, c)
    guessed, seen = compare_figures(row, prediction)
    return Answer(row.id, class_of_row(row), prediction.regime, taught, guessed, seen)
