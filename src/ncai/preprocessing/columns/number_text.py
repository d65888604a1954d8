"""Numbers as people write them: 1,234.5 or 0,53 or 12 %, and marks of missing ones."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.missing import means_missing

PLAIN, THOUSANDS, DECIMAL_COMMA = "plain", "thousands", "decimal comma"
PERCENT, COMMA_PERCENT = "percent", "decimal comma percent"
# How a note describes each form; the first form that fits most values is used.
FORM_WORDS = {
    PLAIN: "a number",
    THOUSANDS: "a number with ',' between thousands",
    DECIMAL_COMMA: "a number with a decimal comma",
    PERCENT: "a number in percent",
    COMMA_PERCENT: "a number in percent with a decimal comma",
}
# Beyond this sums of squares overflow, and scaling fails on the way.
LARGEST = 1e100
# A text column holds numbers if at least this share of its values are numbers. The rest
# then count as the table's own marks of a missing value, such as "?".
_NUMBER_SHARE = 0.9
# A single repeated word marks missing values if there are at least this many different
# numbers; among fewer it may be one more level, as in 1, 2, 3, K. A mere sign such as
# "-" is never a level.
_FEWEST_NUMBERS = 10
_FEWEST_BESIDE_SIGNS = 2

_SIGN = r"[+-]?"
_GROUPED = re.compile(rf"{_SIGN}(\d+|[1-9]\d{{0,2}}(,\d{{3}})+)(\.\d+)?")
_WITH_COMMA = re.compile(rf"{_SIGN}(\d+|[1-9]\d{{0,2}}(\.\d{{3}})+)(,\d+)?")
_BESIDE = re.compile(r"([^\w.,]*)([+-]?\d[\d.,]*)(\s*\D{0,4})")


def number_form(known: pd.Series) -> str | None:
    """The form in which these texts are numbers, but for few values or one mark."""
    rows = known.value_counts()  # each text is looked at once
    texts = pd.Series(rows.index, rows.index, dtype=object)
    signs = {sign for sign in ",%" if any(sign in text for text in texts)}
    found = {
        form: numbers_in(texts, form)
        for form in FORM_WORDS
        if form == PLAIN or ("%" if PERCENT in form else ",") in signs
    }
    shares = {name: rows[one.notna()].sum() / len(known) for name, one in found.items()}
    form = max(shares, key=lambda name: shares[name])
    values = found[form]
    if shares[form] >= _NUMBER_SHARE:
        return form
    marks = list(texts[values.isna()])
    if len(marks) > 1:
        return None
    mark, different = marks[0], values.nunique()
    fewest = _FEWEST_BESIDE_SIGNS if means_missing(mark) else _FEWEST_NUMBERS
    return form if different >= fewest else None


def numbers_in(text: pd.Series, form: str) -> Any:
    """The numbers in texts of this form; NaN where a text is not a number."""
    if form == PLAIN:
        return pd.to_numeric(text, errors="coerce")
    pattern = _WITH_COMMA if form in (DECIMAL_COMMA, COMMA_PERCENT) else _GROUPED

    def read(value) -> float:
        if not isinstance(value, str):
            return np.nan
        if form in (PERCENT, COMMA_PERCENT):
            if not value.endswith("%"):
                return np.nan
            value = value[:-1].rstrip()
        if not pattern.fullmatch(value):
            return np.nan
        if pattern is _WITH_COMMA:
            return float(value.replace(".", "").replace(",", "."))
        return float(value.replace(",", ""))

    return pd.Series([read(value) for value in text], text.index, dtype=np.float64)


def right_numbers(wrong: float) -> str:
    """What a column must hold in place of this value."""
    return f"numbers below {LARGEST:g}" if np.isfinite(wrong) else "finite numbers"


def sign_beside(known: pd.Series) -> str | None:
    """What stands beside nearly all of these numbers, such as a currency."""
    found = [_BESIDE.fullmatch(value) for value in known]
    beside = Counter((one[1] + one[3]).strip() for one in found if one)
    (sign, count), *_ = beside.most_common(1) or [("", 0)]
    return sign if sign and count >= _NUMBER_SHARE * len(found) else None
