"""The form of a model file's header, checked before anything is made from it.

A header is JSON that anybody may have written. So each value that we use must have its
type and a size that the file can have, and nothing may be nested deeply.
"""

import json
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

MOST_HEADER_BYTES = 64_000_000
_DEEPEST = 16
_LARGEST_WHOLE = 2**63 - 1
MOST_LAYERS = 1000  # each of them is traced when the network is made
# The draws of a prediction are in memory before its first row is computed.
MOST_DRAWS = {"n_weight_draws": 10**6, "n_latent_draws": 10**5}
MOST_DRAWS_IN_ALL = 10**7
_MOST_SHOWN = 200
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60


class HeaderError(ValueError):
    """A header is not one that ncai writes; the message is a part of a sentence."""


def parse_header(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        HeaderError: it has an entry twice, or is nested deeply.
        ValueError: the text is something else.
    """
    try:
        header = json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise HeaderError("is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("no object")
    level: list[Any] = [header]
    for _ in range(_DEEPEST):
        level = [part for whole in level for part in _parts(whole)]
    if level:
        raise HeaderError("is nested too deeply")
    return header


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise HeaderError("names an entry twice")
    return found


def _parts(value: Any) -> Sequence[Any]:
    """What a dict or a list contains; nothing for other values."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def brief(value: Any) -> str:
    """Show a value of a file in a message: short, in one line, and printable."""
    shown = value if isinstance(value, str) else _REPR.repr(value)
    words = " ".join(shown[: 2 * _MOST_SHOWN].split())
    printable = "".join(sign if sign.isprintable() else "?" for sign in words)
    cut = len(printable) > _MOST_SHOWN
    return f"{printable[:_MOST_SHOWN]}..." if cut else printable


# ----- Forms of values ----------------------------------------------------------------


class Leaf(NamedTuple):
    """A value without parts: what it must be, in words, and a test for it."""

    words: str
    fits: Callable[[Any], bool]


class Each(NamedTuple):
    """A dict (or a list, if it is not `named`) whose values all have one form."""

    form: Any
    named: bool = True
    length: int | None = None


class Maybe(NamedTuple):
    """An entry that a dict may lack."""

    form: Any


class Either(NamedTuple):
    """A leaf, or a list or dict of one form each."""

    leaves: tuple[Leaf, ...]
    of_list: Any = None
    of_dict: Any = None


def _is_whole(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and abs(value) <= _LARGEST_WHOLE


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


TEXT = Leaf("a text", lambda value: isinstance(value, str))
FLAG = Leaf("true or false", lambda value: isinstance(value, bool))
WHOLE = Leaf("a whole number", _is_whole)
COUNT = Leaf("a whole number from 0 on", lambda v: _is_whole(v) and v >= 0)
SEED = Leaf(
    "a whole number from 0 to 2^32 - 1", lambda v: _is_whole(v) and 0 <= v < 2**32
)
NUMBER = Leaf("a finite number", _is_number)
INFINITY = Leaf("'inf'", lambda value: value == "inf")
NOTHING = Leaf("null", lambda value: value is None)
SCALARS = (TEXT, FLAG, NUMBER, NOTHING)
TEXTS = Each(TEXT, named=False)


# JSON has no infinity and no NaN: a file has "inf" and null instead.
ANY_NUMBER = Either((NUMBER, INFINITY, NOTHING))


def or_nothing(form: Any) -> Either:
    """A value of this form, or null."""
    if isinstance(form, Either):
        return form._replace(leaves=(*form.leaves, NOTHING))
    if isinstance(form, Leaf):
        return Either((form, NOTHING))
    is_list = isinstance(form, Each) and not form.named
    return Either((NOTHING,), form, None) if is_list else Either((NOTHING,), None, form)


def form_of(cls: type, number: Leaf | Either = NUMBER) -> dict[str, Any]:
    """The form of a dataclass of plain values, by its annotations.

    A field with a default may be missing, because it may be newer than the file.

    Args:
        cls: the dataclass.
        number: the form of a float; `ANY_NUMBER` if it may be infinite or NaN.
    """
    hints = get_type_hints(cls)
    forms = {
        field.name: _form_of_hint(hints[field.name], number) for field in fields(cls)
    }
    return {
        name: Maybe(form) if hasattr(cls, name) else form
        for name, form in forms.items()
    }


def _form_of_hint(hint: Any, number: Leaf | Either) -> Any:
    plain = {str: TEXT, bool: FLAG, int: WHOLE, float: number}
    if hint in plain:
        return plain[hint]
    own = get_args(hint)
    if isinstance(hint, UnionType) and own[-1] is NoneType:
        return or_nothing(_form_of_hint(own[0], number))
    if get_origin(hint) is tuple:
        length = None if own[-1] is Ellipsis else len(own)
        return Each(_form_of_hint(own[0], number), named=False, length=length)
    raise TypeError(f"{hint} has no form in a file.")


def check(value: Any, form: Any, place: str = "") -> None:
    """Raise a `HeaderError` that names the place, unless a value has this form."""
    if isinstance(form, Either):
        if any(leaf.fits(value) for leaf in form.leaves):
            return
        kinds = {list: form.of_list, dict: form.of_dict}
        if kinds.get(type(value)) is None:
            _refuse(value, " or ".join(leaf.words for leaf in form.leaves), place)
        check(value, kinds[type(value)], place)
    elif isinstance(form, Leaf):
        if not form.fits(value):
            _refuse(value, form.words, place)
    elif isinstance(form, Each):
        _check_each(value, form, place)
    else:
        _check_entries(value, form, place)


def _check_each(value: Any, form: Each, place: str) -> None:
    if not isinstance(value, dict if form.named else list):
        _refuse(value, "an object" if form.named else "a list", place)
    if form.length not in (None, len(value)):
        _refuse(value, f"a list of {form.length} values", place)
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        check(part, form.form, f"{place}.{name}")


def _check_entries(value: Any, form: Mapping[str, Any], place: str) -> None:
    if not isinstance(value, dict):
        _refuse(value, "an object", place)
    for name, one in form.items():
        full = f"{place}.{name}" if place else name
        if name in value:
            check(value[name], one.form if isinstance(one, Maybe) else one, full)
        elif not isinstance(one, Maybe):
            raise HeaderError(f"lacks part of a model ({full})")


def _refuse(value: Any, right: str, place: str) -> NoReturn:
    shown = brief(_REPR.repr(value))
    raise HeaderError(f"holds {shown} as {brief(place)}, which must be {right}")


# ----- The header ---------------------------------------------------------------------

# A setting of a method that somebody registered may be any plain value; the methods
# check their own. The whole header has a limited depth.
_ANYTHING = Either(
    SCALARS,
    Each(Leaf("a plain value", lambda value: True), named=False),
    Each(Leaf("a plain value", lambda value: True)),
)
_METHOD = {"name": TEXT, "settings": Each(_ANYTHING)}
_LAYERS = Each(COUNT, named=False)
_MLP = {
    "hidden": _LAYERS,
    "activation": TEXT,
    "latent_layer": Maybe(TEXT),
    "latent_hidden": Maybe(Either((TEXT,), _LAYERS)),
}
_SETTINGS = {
    "latent_dim": COUNT,
    "rounding_steps": Maybe(Each(NUMBER, named=False)),
    "target_transform": Maybe(TEXT),
    "inference": Maybe(or_nothing(TEXT)),  # of version 1, whose settings are flat
    "method": Maybe(_METHOD),
    "preset": Maybe(TEXT),
}
_SCORE = Maybe(ANY_NUMBER)
_SCORES = {"name": TEXT, "log_likelihood": _SCORE, "crps": _SCORE}
_SCORES |= {f"coverage_{level}": _SCORE for level in (50, 80, 95)}
_PREPARER = {
    "max_levels": COUNT,
    "min_level_rows": or_nothing(COUNT),
    "columns": TEXTS,
    "plans": Each({"kind": TEXT, "name": TEXT}, named=False),
    "outputs": Each(Each(TEXT)),
    "notes": Each(TEXT),
    "warnings": TEXTS,
}
_TABLE = {
    "preparer": _PREPARER,
    "target": Maybe(or_nothing(TEXT)),
    "command": Maybe(or_nothing(TEXT)),
    "num_train": Maybe(or_nothing(COUNT)),
    "num_valid": Maybe(or_nothing(COUNT)),
    "num_test": Maybe(or_nothing(COUNT)),
    "scores": Maybe(Each(_SCORES, named=False)),
    "diagnosis": Maybe(
        or_nothing(
            {"independence_verdict": Maybe(TEXT), "prior_verdict": Maybe(TEXT)},
        )
    ),
}
_HEADER = {
    "ncai": Maybe(TEXT),
    "versions": Maybe(Each(TEXT)),
    "estimator": TEXT,
    "params": Each(_ANYTHING),
    "settings": Each(_ANYTHING),
    "dims": Each(COUNT, named=False, length=3),
    "num_weights": COUNT,
    "custom_network": or_nothing(TEXT),
    "mlp": or_nothing(_MLP),
    "seed": SEED,
    "single_output": FLAG,
    "feature_names": or_nothing(TEXTS),
    "posterior": TEXT,
    "stop_reasons": TEXTS,
    "restarts_lost": COUNT,
    "interrupted": FLAG,
    "n_iter": COUNT,
    "fit_seconds": NUMBER,
    "score_name": TEXT,
    "restart_scores": Each(ANY_NUMBER, named=False),
    "sampler_report": Maybe(or_nothing(Each(Either(SCALARS)))),
    "table": Maybe(or_nothing(_TABLE)),
}
_PARAMS = {
    "inference": Maybe(Either((TEXT, NOTHING), None, _METHOD)),
    "network": Maybe(or_nothing(_MLP)),
    "random_state": Maybe(or_nothing(SEED)),
}


def check_header(header: dict[str, Any], num_bytes: int) -> None:
    """Raise a `HeaderError` unless all entries have their types and possible sizes.

    Args:
        header: the parsed header.
        num_bytes: size of the file, which limits the sizes that it may name.
    """
    check(header, _HEADER)
    check(header["params"], _PARAMS, "params")
    check(header["settings"], _SETTINGS, "settings")
    for name, size in zip(
        ("inputs", "latents", "outputs"), header["dims"], strict=True
    ):
        if size > num_bytes:
            raise HeaderError(f"is too small for its number of {name}, {size}")
    if header["num_weights"] > num_bytes:
        raise HeaderError(f"is too small for {header['num_weights']} weights")
    for network in (header["mlp"], header["params"].get("network")):
        _check_layers(network, num_bytes)
    _check_names(header)


def _check_layers(network: Mapping[str, Any] | None, num_bytes: int) -> None:
    own = (network or {}).get("latent_hidden", ())
    widths = [
        *(network or {}).get("hidden", ()),
        *(own if isinstance(own, list) else ()),
    ]
    if len(widths) > MOST_LAYERS or sum(widths) > num_bytes:
        raise HeaderError("is too small for the layers of its network")


def _check_names(header: Mapping[str, Any]) -> None:
    if header["mlp"] is None and header["custom_network"] is None:
        raise HeaderError("lacks part of a model (mlp)")
    num_inputs, num_latents, num_outputs = header["dims"]
    names = header["feature_names"]
    if names is not None and len(names) != num_inputs:
        raise HeaderError(f"names {len(names)} inputs of {num_inputs}")
    if header["single_output"] and num_outputs != 1:
        raise HeaderError(f"has {num_outputs} outputs, not a single one")
    stored = header["settings"].get("latent_dim")
    if stored != num_latents:
        raise HeaderError(f"has {num_latents} latents, not {brief(stored)}")


def check_draws(settings: Mapping[str, Any]) -> None:
    """Raise a `HeaderError` if a prediction would hold too many draws in memory."""
    counts = [settings.get(name, 1) for name in MOST_DRAWS]
    for name, count in zip(MOST_DRAWS, counts, strict=True):
        if not _is_number(count) or count > MOST_DRAWS[name]:
            raise HeaderError(
                f"holds {brief(count)} as {name}, which must be a whole number of at "
                f"most {MOST_DRAWS[name]}"
            )
    if math.prod(counts) > MOST_DRAWS_IN_ALL:
        raise HeaderError(
            f"asks for {counts[0]} draws of W with {counts[1]} of z, more than "
            f"{MOST_DRAWS_IN_ALL} in all"
        )
