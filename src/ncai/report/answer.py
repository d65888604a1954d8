"""The answer in three sentences, and three words on it."""

from typing import Any, NamedTuple

from ncai.report.inputs import Subject, has_latents
from ncai.report.latents import MethodLatents
from ncai.report.quality import Quality
from ncai.report.split import Split
from ncai.report.words import count, fixed, listed, nice, percent


def sentences(
    subject: Subject,
    quality: Quality,
    split: Split,
    latents: list[MethodLatents],
    important: list[str],
) -> list[str]:
    """How close, how trustworthy, and what kind of uncertainty."""
    return [
        _how_close(subject, quality, important),
        _how_trustworthy(quality),
        _what_kind(subject, split, latents),
    ]


def badges(
    subject: Subject, quality: Quality, latents: list[MethodLatents]
) -> list[dict[str, Any]]:
    """What to see at a glance: good, and what it is."""
    if quality.too_narrow:
        found = {"good": False, "text": "intervals too narrow"}
    elif quality.too_wide:
        found = {"good": False, "text": "intervals too wide"}
    elif quality.shifted:
        found = {"good": False, "text": "intervals shifted"}
    else:
        found = {"good": True, "text": "intervals calibrated"}
    marks = [found]
    lead = lead_over_others(quality.scores)
    if lead is not None:
        good, text = lead.amount > 0, "best log-likelihood"
        if not lead.is_clear:
            good, text = True, "as good as the best other method"
        elif not good:
            text = "another method is better"
        marks.append({"good": good, "text": text})
    main = _main_latents(subject, latents)
    if main is not None:
        marks.append(
            {
                "good": main.is_noise,
                "text": "z is white noise" if main.is_noise else "z is not white noise",
            }
        )
    return marks


class Lead(NamedTuple):
    """Log-likelihood of the model less that of the best other, in nats a row.

    Attributes:
        amount: on average.
        name: of the other.
        low: end of the 95 % interval; the average itself if it is not known.
        high: the other end.
    """

    amount: float
    name: str
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether it is more than chance."""
        return self.low > 0 or self.high < 0


def lead_over_others(scores: list[dict]) -> Lead | None:
    """How far the first row is ahead of the best other."""
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


def _how_close(subject: Subject, quality: Quality, important: list[str]) -> str:
    inputs = count(subject.num_sources, "input")
    if subject.one_input:
        inputs = subject.names[0]
    elif important:
        inputs += f" (above all {listed(important[:2])})"
    unit = f" {subject.inputs.target_unit}" if subject.inputs.target_unit else ""
    sentence = (
        f"{subject.main.name} predicts {subject.target_name} from {inputs}: on "
        f"{subject.judged_words}, its mean is off by "
        f"{nice(quality.mean_absolute_error)}{unit} on average, and its 95\u202f% "
        f"intervals are {nice(quality.width)}{unit} wide"
    )
    if not subject.judged_are_new:
        sentence += " (there were no other rows, so this flatters it)"
    return f"{sentence}."


def _how_trustworthy(quality: Quality) -> str:
    if quality.too_narrow:
        start = "Its intervals are too narrow to be taken at their word"
    elif quality.too_wide:
        start = "Its intervals are wider than they need to be"
    elif quality.shifted:
        start = "Its intervals are wide enough, but in the wrong place (see the PIT)"
    else:
        start = "Its probabilities can be taken at their word"
    low, high = quality.expected
    sentence = (
        f"{start}: the {percent(quality.level)} intervals held "
        f"{percent(quality.coverage, 1)} of these rows, where {percent(low, 1)} to "
        f"{percent(high, 1)} is chance"
    )
    lead = lead_over_others(quality.scores)
    if lead is not None:
        sentence += f"; in log-likelihood {_compared(lead)}"
    return f"{sentence}."


def _compared(lead: Lead) -> str:
    if not lead.is_clear:
        return (
            f"it is not told apart from the best of the other methods, {lead.name} "
            f"({fixed(lead.amount, 2, sign=True)} nats a row, 95\u202f% interval "
            f"{fixed(lead.low, 2, sign=True)} to {fixed(lead.high, 2, sign=True)})"
        )
    if lead.amount > 0:
        return (
            f"it beats the best of the other methods, {lead.name}, by "
            f"{fixed(lead.amount, 2)} nats a row"
        )
    return f"{lead.name} is better, by {fixed(-lead.amount, 2)} nats a row"


def _what_kind(subject: Subject, split: Split, latents: list[MethodLatents]) -> str:
    sentence = (
        f"{percent(split.aleatoric_share)} of the predicted variance is noise that "
        "more data would not remove"
    )
    if not has_latents(subject.model):
        return f"{sentence}, and this model gives that noise the same width everywhere."
    if split.noise_ratio > 1.2:
        sentence += (
            f", {nice(split.noise_ratio, 2)} times as wide where it is wide as where "
            "it is narrow"
        )
    else:
        sentence += ", about as wide everywhere"
    main = _main_latents(subject, latents)
    if main is None:
        return f"{sentence}."
    if main.is_noise:
        return (
            f"{sentence}; the latent variable behind it looks like white noise, as it "
            "should."
        )
    return (
        f"{sentence}; but the latent variable behind it is not the white noise that "
        "predictions take it for, so widths may be off (see below)."
    )


def _main_latents(subject: Subject, latents: list[MethodLatents]):
    for item in latents:
        if item.method is subject.main:
            return item
    return None
