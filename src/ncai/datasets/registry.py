"""The real data sets of the paper: what their files contain, and their sources.

This module reads no files. A clean file is plain CSV in the order of the source, with
one header line and no missing values; the last column is the target. We recognise a set
by its values, not by its bytes: `digest` is the SHA-256 of the rows written with six
significant digits, so that 0.150 and 0.15 are equal but one changed value is noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BASE_URLS = MappingProxyType(
    {"uci": "https://archive.ics.uci.edu", "openml": "https://www.openml.org"}
)
"""The hosts; `download_dataset` can be given others."""

UCI_ARCHIVE = "{base}/static/public/{id}/{archive}.zip"
OPENML_DESCRIPTION = "{base}/api/v1/json/data/{id}"
"""Address of the description of a set, which names the address of its ARFF file."""

CC_BY = "CC BY 4.0"
NONE_STATED = "none stated"


class DatasetError(ValueError):
    """A data set is unknown, missing or damaged; the message says what to do."""


@dataclass(frozen=True)
class UciFile:
    """The file with the rows in an archive of the UCI repository.

    Args:
        archive: name of the archive, without its extension.
        member: name of the file in it.
        separator: what separates two values, as a regular expression.
        has_header: whether its first line is a header.
    """

    archive: str
    member: str
    separator: str
    has_header: bool = False


@dataclass(frozen=True)
class RealSet:
    """What we know about one real set.

    Args:
        name: its name for `load_dataset`.
        title: the name that its authors gave it.
        columns: header of the clean file; the last column is the target.
        rows: number of rows.
        digest: SHA-256 of the values (see the top of this file).
        target_mean: mean of the target, which errors about wrong files mention.
        licence: licence of the data.
        reference: the publication to cite.
        uci_id: its number in the UCI repository, if it has one.
        uci_file: which file there has the rows; None if we cannot read its format.
        openml_id: its number at OpenML, if it has one.
        elsewhere: where to get it if it has neither number.
        one_hot: categorical columns, with their levels in order.
        paper_rows: size of the paper's random subsample; None if it used all rows.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: int
    digest: str
    target_mean: float
    licence: str
    reference: str
    uci_id: int | None = None
    uci_file: UciFile | None = None
    openml_id: int | None = None
    elsewhere: str = ""
    one_hot: tuple[tuple[str, tuple[str, ...]], ...] = ()
    paper_rows: int | None = None

    @property
    def file(self) -> str:
        """Name of the clean file."""
        return f"{self.name}.csv"

    @property
    def header(self) -> str:
        """First line of the clean file."""
        return ",".join(self.columns)

    @property
    def target(self) -> str:
        """Name of the column to predict."""
        return self.columns[-1]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs; a categorical column has one for each level."""
        levels = dict(self.one_hot)
        return tuple(
            name
            for column in self.columns[:-1]
            for name in (
                [f"{column}_{level}" for level in levels[column]]
                if column in levels
                else [column]
            )
        )

    @property
    def source(self) -> str:
        """Where the set comes from, in a few words."""
        ids = {"UCI": self.uci_id, "OpenML": self.openml_id}
        known = [f"{host} {number}" for host, number in ids.items() if number]
        return ", ".join(known) or self.elsewhere

    @property
    def expectation(self) -> str:
        """Sentences for errors: which file we expect, and where it comes from."""
        pages = []
        if self.uci_id is not None:
            pages.append(
                f"UCI {self.uci_id} (archive.ics.uci.edu/dataset/{self.uci_id})"
            )
        if self.openml_id is not None:
            pages.append(f"OpenML {self.openml_id} (openml.org/d/{self.openml_id})")
        without_id = f"{self.elsewhere}; it has no UCI or OpenML id to download it by"
        return (
            f"We expect {self.file} with {self.rows} rows under the header "
            f"{self.header}. Source: {' and '.join(pages) or without_id}."
        )

    @property
    def advice(self) -> str:
        """A sentence on how to download it; empty if that is not possible."""
        if self.uci_file is None and self.openml_id is None:
            return ""
        return f" `ncai datasets get {self.name}` downloads it."


# OpenML numbers: 44956 (abalone), 44957 (airfoil), 44960 (energy) and 44972 (red wine)
# belong to the suite OpenML-CTR23; 42370 is yacht, 531 boston. We could not look them
# up when we wrote this, but the check of values would refuse a wrong one. The energy
# file at UCI is an Excel workbook, which would need another library; OpenML has it as
# text. UCI no longer lists boston.
_SETS = (
    RealSet(
        name="lidar",
        title="LIDAR",
        columns=("range", "logratio"),
        rows=221,
        digest="e8124ac9e8f93f5a4869d3f33dc407b6c3c1388d6b3f0d2f1c08e4a770c9b182",
        target_mean=-0.291156,
        licence=NONE_STATED,
        reference="Sigrist (1994), Air Monitoring by Spectroscopic Techniques, Wiley",
        elsewhere="R package SemiPar",
    ),
    RealSet(
        name="yacht",
        title="Yacht Hydrodynamics",
        columns=(
            "longitudinal_position",
            "prismatic_coefficient",
            "length_displacement_ratio",
            "beam_draught_ratio",
            "length_beam_ratio",
            "froude_number",
            "residuary_resistance",
        ),
        rows=308,
        digest="b97446828454c4bff91c6448b7c26720bd0b3bc95ded59d6ac0cb3e0c82b6717",
        target_mean=10.495357,
        licence=CC_BY,
        reference="Gerritsma, Onnink, Versluis (1981), doi:10.24432/C5XG7R",
        uci_id=243,
        uci_file=UciFile("yacht+hydrodynamics", "yacht_hydrodynamics.data", r"\s+"),
        openml_id=42370,
    ),
    RealSet(
        name="energy",
        title="Energy Efficiency",
        columns=(
            "relative_compactness",
            "surface_area",
            "wall_area",
            "roof_area",
            "overall_height",
            "orientation",
            "glazing_area",
            "glazing_area_distribution",
            "heating_load",
        ),
        rows=768,
        digest="f6fe57a026ce251f8cecfdbc14190382e28c3b12f27fbf8fdab77cab2646496a",
        target_mean=22.307195,
        licence=CC_BY,
        reference="Tsanas, Xifara (2012), doi:10.24432/C51307",
        uci_id=242,
        openml_id=44960,
    ),
    RealSet(
        name="airfoil",
        title="Airfoil Self-Noise",
        columns=(
            "frequency",
            "angle_of_attack",
            "chord_length",
            "free_stream_velocity",
            "suction_side_displacement_thickness",
            "scaled_sound_pressure_level",
        ),
        rows=1503,
        digest="edee1d3483abb29c7ffd57cf3db51650948ddd5bf51d749e1cc2e39a1e8cb019",
        target_mean=124.835943,
        licence=CC_BY,
        reference="Brooks, Pope, Marcolini (1989), doi:10.24432/C5VW2C",
        uci_id=291,
        uci_file=UciFile("airfoil+self+noise", "airfoil_self_noise.dat", r"\s+"),
        openml_id=44957,
        paper_rows=1000,
    ),
    RealSet(
        name="abalone",
        title="Abalone",
        columns=(
            "sex",
            "length",
            "diameter",
            "height",
            "whole_weight",
            "shucked_weight",
            "viscera_weight",
            "shell_weight",
            "rings",
        ),
        rows=4177,
        digest="de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
        target_mean=9.933684,
        licence=CC_BY,
        reference="Nash, Sellers, Talbot, Cawthorn, Ford (1994), doi:10.24432/C55C7W",
        uci_id=1,
        uci_file=UciFile("abalone", "abalone.data", ","),
        openml_id=44956,
        one_hot=(("sex", ("M", "F", "I")),),
        paper_rows=1000,
    ),
    RealSet(
        name="wine_red",
        title="Wine Quality, red",
        columns=(
            "fixed_acidity",
            "volatile_acidity",
            "citric_acid",
            "residual_sugar",
            "chlorides",
            "free_sulfur_dioxide",
            "total_sulfur_dioxide",
            "density",
            "ph",
            "sulphates",
            "alcohol",
            "quality",
        ),
        rows=1599,
        digest="31ef8eff38b3ce66612fe84c2033237bf5618506add2c47ad5b6046a8d97511c",
        target_mean=5.636023,
        licence=CC_BY,
        reference="Cortez, Cerdeira, Almeida, Matos, Reis (2009), doi:10.24432/C56S3T",
        uci_id=186,
        uci_file=UciFile("wine+quality", "winequality-red.csv", ";", has_header=True),
        openml_id=44972,
    ),
    RealSet(
        name="boston",
        title="Boston Housing",
        columns=(
            "crim",
            "zn",
            "indus",
            "chas",
            "nox",
            "rm",
            "age",
            "dis",
            "rad",
            "tax",
            "ptratio",
            "b",
            "lstat",
            "medv",
        ),
        rows=506,
        digest="bbb99c2bb3ea5c12da4fd204648c310b7a48f504e0fcaa6bbb4f4f57174c5514",
        target_mean=22.532806,
        licence=NONE_STATED,
        reference="Harrison, Rubinfeld (1978), J. Environ. Econ. Manage. 5:81-102",
        openml_id=531,
    ),
)

REAL_SETS: Mapping[str, RealSet] = MappingProxyType({one.name: one for one in _SETS})
"""The real sets, by name."""


def find_set(name: str) -> RealSet:
    """What we know about a real set, by its name."""
    if name not in REAL_SETS:
        raise DatasetError(
            f"name={name!r} must be one of the real data sets {list(REAL_SETS)}."
        )
    return REAL_SETS[name]
