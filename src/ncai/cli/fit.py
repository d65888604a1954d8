"""`ncai fit`: fit a model to a table, save it, score it, and report on it."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncai.cli import _options as options
from ncai.cli._options import (
    EXIT_INTERRUPTED,
    AsJson,
    Data,
    Drop,
    Features,
    Force,
    Hidden,
    Inference,
    LatentDim,
    Preset,
    Restarts,
    Steps,
    Target,
    Test,
    Transform,
    Valid,
    notify,
    print_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
    from ncai.tables.fit import FitTables
    from ncai.tables.model import TableModel
    from ncai.tables.score import ScoresOnTestRows

EXAMPLES = (
    "ncai fit houses.csv --target price --drop id --out houses.ncai",
    "ncai fit houses.parquet --target price --report houses.html",
    "zcat houses.csv.gz | ncai fit - --target price --time-limit 5m",
)
_NO_SCORES = (
    "none, because no rows were held out; give --test a file, or a share of a table "
    "with at least {fewest} rows"
)
Out = Annotated[Path, typer.Option(help="File of the fitted model.", metavar="FILE")]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Also write a report: one HTML file that needs no network connection.",
        metavar="FILE.html",
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        help="Stop training after about this time: 60s, 5m, 1h. Compilation counts "
        "towards it but is not interrupted.",
        metavar="T",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed; the same seed gives the same fit.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")]


@dataclass(frozen=True)
class FitRequest:
    """The parsed options of `ncai fit`.

    Args:
        data: the file with the rows, or "-" for standard input.
        columns: the target, the columns to predict from and those to leave out.
        valid: share of the rows, or a file with the rows, that chooses among restarts;
            None for the preset's value.
        test: share of the rows, or a file with the rows, that is held out for the
            scores.
        settings: arguments of the estimator.
        out: file of the model.
        report: file of the HTML report, if wanted.
        form: what to print to standard output: "text", "json" or "none".
    """

    data: str
    columns: tuple[str, list[str] | None, list[str] | None]
    valid: float | Path | None
    test: float | Path
    settings: Mapping[str, Any]
    out: Path
    report: Path | None
    form: str

    def check_files(self, force: bool) -> None:
        """Reject files that cannot or must not be written, before any work is done."""
        inputs = options.files_among(self.data, self.valid, self.test)
        if str(self.out) == "-":
            raise ValueError(
                "--out - is not possible: a model must be written to a file."
            )
        options.check_output(self.out, force, inputs)
        if self.report is None:
            return
        options.check_ending(self.report, (".html", ".htm"), "--report")
        options.check_output(self.report, force, [*inputs, self.out], "--report")
        if self.report.absolute() == self.out.absolute():
            raise ValueError(f"--report {self.report} is also --out; choose another.")


def fit(
    data: Data,
    target: Target,
    features: Features = None,
    drop: Drop = None,
    out: Out = Path("model.ncai"),
    report: Report = None,
    inference: Inference = None,
    preset: Preset = "default",
    hidden: Hidden = None,
    latent_dim: LatentDim = 1,
    restarts: Restarts = None,
    max_steps: Steps = None,
    time_limit: TimeLimit = None,
    transform: Transform = None,
    valid: Valid = None,
    test: Test = "0.1",
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to the rows of a table, and save it.

    The command prepares columns of numbers, booleans, dates and categories, fills in
    missing values, and prints what it did to each column. The summary shows scores of
    the model and of three simple baselines on held-out rows. Ctrl-C stops the training,
    saves the best model so far, and exits with code 130.
    """
    rows = None if valid is None else options.parse_rows(valid, "--valid")
    settings = {
        "inference": inference,
        "preset": preset,
        "hidden": options.parse_layers(hidden),
        "latent_dim": latent_dim,
        "n_restarts": restarts,
        "max_steps": max_steps,
        "time_limit": options.parse_duration(time_limit),
        "target_transform": transform,
        "random_state": options.check_seed(seed),
        "progress": sys.stderr.isatty() and not quiet,
    }
    if isinstance(rows, float):
        settings["inference__validation_fraction"] = rows
    names = target, options.parse_names(features), options.parse_names(drop)
    scored = options.parse_rows(test, "--test")
    form = "json" if as_json else "none" if quiet else "text"
    request = FitRequest(data, names, rows, scored, settings, out, report, form)
    request.check_files(force)
    _run(request)


def _run(request: FitRequest) -> None:
    """Run the request, and exit with the code for its outcome."""
    try:
        interrupted = fit_save_score(request)
    except KeyboardInterrupt:
        notify("Stopped before anything was trained; no model was written.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if request.form == "text":
        typer.echo(f"Model: {request.out}")
        if request.report is not None and not interrupted:
            typer.echo(f"Report: {request.report}")
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def fit_save_score(request: FitRequest) -> bool:
    """Fit, save, score and report; return whether Ctrl-C ended it early."""
    from ncai.tables import fit as table_fit

    source = table_fit.TableSource(request.data, *request.columns)
    with options.named_as_options():
        tables = table_fit.load_tables(
            source, request.valid, request.test, request.settings["random_state"]
        )
        table_fit.check_settings(request.settings)
    _show_columns(request, tables)
    command = shlex.join(["ncai", *sys.argv[1:]])
    with options.named_as_options():
        model = table_fit.fit_table(tables, request.settings, command)
    # Save now: scoring takes a while, and the process may be killed at any time.
    model.save(request.out)
    _warn_of_time_limit(request, model)
    if model.estimator.interrupted_:
        _show_training(request, model)
        if request.report is not None:
            notify("No report was written, and nothing was scored.")
        return True
    try:
        _score_and_report(request, tables, model)
    except KeyboardInterrupt:
        notify(f"Stopped after the training: {_kept(request)}")
        return True
    except Exception as error:
        if not isinstance(error, BrokenPipeError):
            notify(f"Failed after the training: {_kept(request)}")
        raise
    return False


def _kept(request: FitRequest) -> str:
    return f"the model is in {request.out}; scores and report may be incomplete."


def _score_and_report(
    request: FitRequest, tables: "FitTables", model: "TableModel"
) -> None:
    """Diagnose z, score the model and baselines, and show and report the results."""
    from ncai.tables.score import diagnose_if_possible, score_test_rows, with_results

    if request.settings["progress"]:
        seconds = model.estimator.fit_seconds_
        notify(f"Trained in {seconds:.0f} s; scoring the model and baselines ...")
    diagnosis = diagnose_if_possible(model.estimator)
    scores = score_test_rows(model, tables)
    model = with_results(model, scores, diagnosis)
    model.save(request.out)
    if request.form == "json":
        print_json(_as_json(request, model))
    elif request.form == "text":
        _show_training(request, model, diagnosis)
        _show_scores(model, scores)
    if request.report is not None:
        if request.settings["progress"]:
            notify("Writing the report ...")
        _write_report(request.report, request, tables, model, scores)


# ----- What is shown ------------------------------------------------------------------


def _print(*parts: "str | Table", **style: Any) -> None:
    from rich.console import Console

    console = Console()
    for part in parts:
        console.print(part, **style)


def _show_columns(request: FitRequest, tables: "FitTables") -> None:
    """Print what was done to each column, and warnings about columns."""
    from ncai.cli._options import column_table
    from ncai.preprocessing.columns.column import counted

    preparer = tables.preparer
    if request.form == "text":
        used = counted(len(preparer.get_feature_names_out()), "input")
        _print(f"Columns ({used} made of them)", style="bold", highlight=False)
        _print(column_table(preparer.notes_), "")
    for sentence in (*preparer.warnings_, *tables.surprises):
        notify(f"Warning: {sentence}")


def _warn_of_time_limit(request: FitRequest, model: "TableModel") -> None:
    """Warn that the time limit cut training short, if no summary says so."""
    if request.form != "none":
        return
    from ncai.tables.inspect import cut_short

    estimator = model.estimator
    if cut := cut_short(estimator.stop_reasons_, estimator.n_iter_):
        notify(f"Warning: {cut}")


def _show_training(
    request: FitRequest,
    model: "TableModel",
    diagnosis: "LatentDiagnosis | None" = None,
) -> None:
    """Print how training went and the diagnosis of z."""
    if request.form != "text":
        return
    from ncai.cli._options import label_table
    from ncai.tables.inspect import cut_short, learned_as, rows_sentence

    estimator, record = model.estimator, model.record
    settings = estimator.settings_.to_dict()
    reasons: list[str] = estimator.stop_reasons_ or []
    rows, cut = rows_sentence(vars(record)), cut_short(reasons, estimator.n_iter_)
    lines = [
        ("Rows", f"{rows}; {estimator.fit_seconds_:.1f} s"),
        ("Target", learned_as(settings)),
        *zip(("Stages", *[""] * 9), reasons, strict=False),
    ]
    if cut:
        lines.append(("Note", cut))
    if diagnosis is not None:
        lines += [
            ("Latent", diagnosis.independence_verdict),
            ("", diagnosis.prior_verdict),
        ]
    _print(label_table(lines))


def _show_scores(model: "TableModel", scores: "ScoresOnTestRows") -> None:
    from ncai.cli._options import ROUNDED_COVERAGE, label_table, score_table
    from ncai.tables.fit import FEWEST_TO_SPLIT

    if not scores.averages:
        _print(label_table([("Scores", _NO_SCORES.format(fewest=FEWEST_TO_SPLIT))]))
        return
    lines = [("Verdict", scores.verdict())]
    if model.estimator.scaling_.lattice.step.any():
        lines.append(("Note", ROUNDED_COVERAGE))
    _print("", score_table(scores.averages, model.record.num_test), label_table(lines))


def _as_json(request: FitRequest, model: "TableModel") -> dict[str, Any]:
    from ncai.tables.inspect import cut_short

    preparer: Any = model.preparer
    estimator, record = model.estimator, model.record
    return {
        "model": str(request.out),
        "report": None if request.report is None else str(request.report),
        "target": record.target,
        "columns": preparer.notes_,
        "warnings": preparer.warnings_,
        "inputs": [str(name) for name in preparer.get_feature_names_out()],
        "num_train": record.num_train,
        "num_valid": record.num_valid,
        "num_test": record.num_test,
        "fit_seconds": estimator.fit_seconds_,
        "target_transform": estimator.settings_.target_transform,
        "stop_reasons": list(estimator.stop_reasons_),
        "cut_short": cut_short(estimator.stop_reasons_, estimator.n_iter_),
        "scores": record.scores,
        "diagnosis": record.diagnosis,
    }


def _write_report(
    path: Path,
    request: FitRequest,
    tables: "FitTables",
    model: "TableModel",
    scores: "ScoresOnTestRows",
) -> None:
    from ncai.report import ReportInputs, write_report
    from ncai.tables.read import table_name

    test = tables.test
    write_report(
        path,
        ReportInputs(
            model=model.estimator,
            train_inputs=tables.train.inputs,
            train_target=tables.train.targets,
            test_inputs=None if test is None else test.inputs,
            test_target=None if test is None else test.targets,
            test_predictions=scores.of_the_model,
            baseline_predictions=scores.of_the_baselines,
            raw_train=tables.train.raw,
            groups=tables.preparer.groups(),
            target_name=tables.target,
            data_notes=tables.preparer.describe(),
            data_warnings=tables.preparer.warnings_,
            scores=scores.averages,
            baselines=scores.baselines,
            command=model.record.command or "",
            title=f"{tables.target} from {table_name(request.data)}",
        ),
    )
