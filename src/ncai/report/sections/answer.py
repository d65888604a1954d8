"""The answer in three sentences, and badges that sum it up."""

from dataclasses import dataclass
from typing import NamedTuple

from ncai.report.sections.latents import Latents, latents
from ncai.report.sections.noise import noise
from ncai.report.sections.quality import Quality, quality
from ncai.report.sections.split import Split, split
from ncai.report.subject import Subject, has_latents, shared
from ncai.report.words import count, fixed, nice, percent, sentence
from ncai.tables.inspect import cut_short

_Z_BADGES = {
    "good": "z is white noise",
    "open": "z may depend on x",
    "bad": "z is not white noise",
}
# With fewer rows, chance explains almost any coverage.
FEWEST_TO_TRUST = 100


@dataclass(frozen=True, eq=False)
class Answer:
    """The contents of the section, which the template shows.

    Attributes:
        sentences: how accurate the predictions are, how trustworthy, and which kind
            of uncertainty they have.
        cut_short: a warning, if training ended early.
        badges: the same at a glance; each state is "good", "bad", or "open" where the
            rows do not decide.
    """

    sentences: list[str]
    cut_short: str | None
    badges: list[dict[str, str]]


@shared
def answer(subject: Subject) -> Answer:
    """Sum up what the other sections found."""
    found, parts = quality(subject), split(subject)
    density, of_z = noise(subject), latents(subject)
    return Answer(
        sentences=[
            _how_close(subject, found, density.most_important),
            _how_trustworthy(subject, found),
            _what_kind(subject, parts, of_z),
        ],
        cut_short=_cut_short(subject),
        badges=badges(subject, found, of_z),
    )


def badges(subject: Subject, found: Quality, of_z: Latents) -> list[dict[str, str]]:
    """One badge for each question that the rows can answer."""
    marks = [_interval_badge(subject, found)]
    if _cut_short(subject) is not None:
        marks.append(_badge("bad", "training cut short"))
    lead = lead_over_others(found.scores)
    if lead is not None:
        if not lead.is_clear:
            marks.append(_badge("open", f"no clear difference from {lead.name}"))
        elif lead.amount > 0:
            marks.append(_badge("good", "best log-likelihood"))
        else:
            marks.append(_badge("bad", "another method is better"))
    main = of_z.of(subject.main)
    if main is not None:
        marks.append(_badge(main.state, _Z_BADGES[main.state]))
    return marks


def _cut_short(subject: Subject) -> str | None:
    model = subject.model
    if model.interrupted_:
        return "Training was stopped early; more steps may give better predictions."
    found = cut_short(model.stop_reasons_ or [], model.n_iter_)
    return None if found is None else sentence(found)


def _interval_badge(subject: Subject, found: Quality) -> dict[str, str]:
    if found.too_narrow:
        return _badge("bad", "intervals too narrow")
    if found.too_wide:
        return _badge("bad", "intervals too wide")
    if found.shifted:
        return _badge("bad", "intervals shifted")
    if not subject.held_out:
        return _badge("open", "intervals not tested on new rows")
    if len(subject.eval_inputs) < FEWEST_TO_TRUST:
        return _badge("open", "too few rows to test the intervals")
    return _badge("good", "intervals calibrated")


def _badge(state: str, text: str) -> dict[str, str]:
    return {"state": state, "text": text}


class Lead(NamedTuple):
    """The lead in log-likelihood over the best other method, in nats per row.

    Attributes:
        amount: the average.
        name: name of the other method.
        low: lower end of the 95 % interval; the average itself if it is not known.
        high: upper end.
    """

    amount: float
    name: str
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether chance does not explain it."""
        return self.low > 0 or self.high < 0


def lead_over_others(scores: list[dict]) -> Lead | None:
    """How far the first row of scores is ahead of the best other row."""
    known = [
        row
        for row in scores
        if row.get("log_likelihood") is not None
        and row["log_likelihood"] == row["log_likelihood"]
    ]
    if len(known) < 2 or known[0] is not scores[0]:
        return None
    best = max(known[1:], key=lambda row: row["log_likelihood"])
    amount = float(known[0]["log_likelihood"]) - float(best["log_likelihood"])
    low, high = best.get("gain", (amount, amount, amount))[1:]
    return Lead(amount, str(best.get("name", "")), float(low), float(high))


def _how_close(subject: Subject, found: Quality, most_important: str | None) -> str:
    inputs = count(subject.num_sources, "input")
    if subject.one_input:
        inputs = subject.groups[0].name
    elif most_important is not None:
        inputs += f" (above all {most_important})"
    unit = f" {subject.inputs.target_unit}" if subject.inputs.target_unit else ""
    text = (
        f"{subject.main.name} predicts {subject.target_name} from {inputs}: on "
        f"{subject.eval_words}, its mean is off by "
        f"{nice(found.mean_absolute_error)}{unit} on average, and its 95\u202f% "
        f"intervals are {nice(found.width)}{unit} wide"
    )
    if not subject.held_out:
        text += " (no rows were held out, so this is optimistic)"
    return f"{text}."


def _how_trustworthy(subject: Subject, found: Quality) -> str:
    low, high = found.expected
    text = (
        f"{_trust(subject, found)}: the {percent(found.level)} intervals contain "
        f"{percent(found.coverage, 1)} of these rows (for a calibrated model, chance "
        f"explains {percent(low, 1)} to {percent(high, 1)})"
    )
    lead = lead_over_others(found.scores)
    if lead is not None:
        text += f"; in log-likelihood, {_compared(lead)}"
    return f"{text}."


def _trust(subject: Subject, found: Quality) -> str:
    if found.too_narrow:
        return "Its intervals are too narrow to rely on"
    if found.too_wide:
        return "Its intervals are wider than they need to be"
    if found.shifted:
        return "Its intervals are wide enough, but shifted (see the PIT histogram)"
    nothing = "Nothing speaks against its probabilities, but"
    if not subject.held_out:
        return f"{nothing} they were tested on training rows only"
    if len(subject.eval_inputs) < FEWEST_TO_TRUST:
        rows = count(len(subject.eval_inputs), "row")
        return f"{nothing} {rows} are a weak test of them"
    return "Its probabilities can be trusted"


def _compared(lead: Lead) -> str:
    if not lead.is_clear:
        return (
            f"it does not clearly differ from the best other method, {lead.name} "
            f"({fixed(lead.amount, 2, sign=True)} nats per row, 95\u202f% interval "
            f"{fixed(lead.low, 2, sign=True)} to {fixed(lead.high, 2, sign=True)})"
        )
    if lead.amount > 0:
        return (
            f"it beats the best other method, {lead.name}, by "
            f"{fixed(lead.amount, 2)} nats per row"
        )
    return f"{lead.name} is better, by {fixed(-lead.amount, 2)} nats per row"


def _what_kind(subject: Subject, parts: Split, of_z: Latents) -> str:
    text = (
        f"{percent(parts.aleatoric_share)} of the predicted uncertainty is noise that "
        "more data would not remove"
    )
    if not has_latents(subject.model):
        return f"{text}, and this model gives that noise the same width everywhere."
    main = of_z.of(subject.main)
    text += _noise_width(parts)
    if main is None:
        return f"{text}."
    if main.state == "good":
        return (
            f"{text}; the latent variable behind it looks like white noise, as it "
            "should."
        )
    if main.state == "open":
        return (
            f"{text}; the latent variable behind it looks like white noise, except for "
            "a hint that it depends on x (see below)."
        )
    return (
        f"{text}; but the latent variable behind it is not white noise, which "
        "predictions assume, so the widths may be wrong (see below)."
    )


def _noise_width(parts: Split) -> str:
    if parts.noise_ratio > 1.2:
        return (
            f", which is {nice(parts.noise_ratio, 2)} times as wide in the noisiest "
            "rows as in the quietest"
        )
    return ", about as wide everywhere"
