"""The answer in three sentences, and three words on it."""

from typing import NamedTuple

from ncai.report.inputs import Subject, has_latents
from ncai.report.sections.latents import MethodLatents
from ncai.report.sections.quality import Quality
from ncai.report.sections.split import Split
from ncai.report.words import count, fixed, nice, percent
from ncai.tables.inspect import cut_short


def sentences(
    subject: Subject,
    quality: Quality,
    split: Split,
    latents: list[MethodLatents],
    most_important: str | None,
) -> list[str]:
    """How close, how trustworthy, and what kind of uncertainty."""
    return [
        _how_close(subject, quality, most_important),
        _how_trustworthy(subject, quality),
        _what_kind(subject, split, latents),
    ]


_Z_BADGES = {
    "good": "z is white noise",
    "open": "z may depend on x",
    "bad": "z is not white noise",
}
# Fewer rows than this cannot show that probabilities are right: chance covers too much.
FEWEST_TO_TRUST = 100


def badges(
    subject: Subject, quality: Quality, latents: list[MethodLatents]
) -> list[dict[str, str]]:
    """What to see at a glance; the state is "good", "bad", or "open": not known."""
    marks = [_interval_badge(subject, quality)]
    if cut_short_sentence(subject) is not None:
        marks.append(_badge("bad", "training cut short"))
    lead = lead_over_others(quality.scores)
    if lead is not None:
        if not lead.is_clear:
            marks.append(_badge("open", f"not told apart from {lead.name}"))
        elif lead.amount > 0:
            marks.append(_badge("good", "best log-likelihood"))
        else:
            marks.append(_badge("bad", "another method is better"))
    main = _main_latents(subject, latents)
    if main is not None:
        marks.append(_badge(main.state, _Z_BADGES[main.state]))
    return marks


def cut_short_sentence(subject: Subject) -> str | None:
    """What to know before all else if training did not come to its end."""
    model = subject.model
    if model.interrupted_:
        return "Training was stopped early: more of it may give better predictions."
    found = cut_short(model.stop_reasons_ or [], model.n_iter_)
    return None if found is None else f"{found[:1].upper()}{found[1:]}"


def _interval_badge(subject: Subject, quality: Quality) -> dict[str, str]:
    if quality.too_narrow:
        return _badge("bad", "intervals too narrow")
    if quality.too_wide:
        return _badge("bad", "intervals too wide")
    if quality.shifted:
        return _badge("bad", "intervals shifted")
    if not subject.judged_are_new:
        return _badge("open", "intervals not tested on new rows")
    if len(subject.judged) < FEWEST_TO_TRUST:
        return _badge("open", "too few rows to test the intervals")
    return _badge("good", "intervals calibrated")


def _badge(state: str, text: str) -> dict[str, str]:
    return {"state": state, "text": text}


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


def _how_close(subject: Subject, quality: Quality, most_important: str | None) -> str:
    inputs = count(subject.num_sources, "input")
    if subject.one_input:
        inputs = subject.groups[0].name
    elif most_important is not None:
        inputs += f" (above all {most_important})"
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


def _how_trustworthy(subject: Subject, quality: Quality) -> str:
    if quality.too_narrow:
        start = "Its intervals are too narrow to be taken at their word"
    elif quality.too_wide:
        start = "Its intervals are wider than they need to be"
    elif quality.shifted:
        start = "Its intervals are wide enough, but in the wrong place (see the PIT)"
    elif not subject.judged_are_new:
        start = (
            "Nothing speaks against its probabilities, but they were tested only on "
            "rows it was fitted to"
        )
    elif len(subject.judged) < FEWEST_TO_TRUST:
        start = (
            "Nothing speaks against its probabilities, but "
            f"{count(len(subject.judged), 'row')} can say little"
        )
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
    if split.is_rough:
        sentence += (
            f" (a rough number: in {percent(split.rare_share)} of the rows most of the "
            "variance is that of a few rare draws far out)"
        )
    elif split.noise_ratio > 1.2:
        sentence += (
            f", which is {nice(split.noise_ratio, 2)} times as wide in the noisiest "
            "rows as in the quietest"
        )
    else:
        sentence += ", about as wide everywhere"
    main = _main_latents(subject, latents)
    if main is None:
        return f"{sentence}."
    if main.state == "good":
        return (
            f"{sentence}; the latent variable behind it looks like white noise, as it "
            "should."
        )
    if main.state == "open":
        return (
            f"{sentence}; the latent variable behind it looks like white noise but for "
            "a hint that it follows x (see below)."
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
