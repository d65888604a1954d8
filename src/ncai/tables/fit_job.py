"""The whole of `ncai fit`: read, fit, save, score, tell, report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncai.cli._arguments import print_json
from ncai.preprocessing.columns.notes import counted
from ncai.tables import display as model_tables
from ncai.tables import fit as table_fit
from ncai.tables import summary as fit_summary
from ncai.tables.inspect import cut_short, rows_sentence


@dataclass(frozen=True)
class FitRequest:
    """What the command line asked for, parsed.

    Args:
        data: file of the rows, or "-".
        target: column to predict.
        features: columns to predict from; None for all others.
        drop: columns to leave out.
        valid: share of rows, or file, that chooses among restarts; None is the
            preset's.
        test: share of rows, or file, that only the scores are computed on.
        settings: arguments of the estimator.
        out: file of the model.
        report: file of the HTML report, if wanted.
        command: the command to repeat.
        form: "text", "json" or "none": what goes to standard output.
    """

    data: str
    target: str
    features: list[str] | None
    drop: list[str] | None
    valid: float | Path | None
    test: float | Path
    settings: Mapping[str, Any]
    out: Path
    report: Path | None
    command: str
    form: str


def run_fit(request: FitRequest, console, tell: Callable[[str], None]) -> bool:
    """Fit and save; whether Ctrl-C ended the training early.

    Args:
        request: what to do.
        console: where tables for a person are printed.
        tell: takes one line of news or warning.
    """
    tables = table_fit.load_tables(
        request.data,
        request.target,
        request.features,
        request.drop,
        request.valid,
        request.test,
        int(request.settings["random_state"]),
    )
    table_fit.check_settings(request.settings)
    preparer = tables.preparer
    if request.form == "text":
        used = len(preparer.get_feature_names_out())
        title = f"Columns ({counted(used, 'input')} made of them)"
        console.print(title, style="bold", highlight=False)
        console.print(model_tables.column_table(preparer.notes_))
        console.print()
    for sentence in (*preparer.warnings_, *tables.surprises):
        tell(f"Warning: {sentence}")
    fitted = table_fit.fit_model(tables, request.settings)
    record = replace(fitted.record, command=request.command)
    fitted = replace(fitted, record=record)
    # At once, so that whatever happens next the training is not lost.
    fitted.save(request.out)
    model = fitted.estimator
    cut = cut_short(model.stop_reasons_, model.n_iter_)
    if cut and request.form == "none":
        tell(f"Warning: {cut}")
    if model.interrupted_:
        if request.form == "text":
            console.print(_training(tables, model, None))
        if request.report is not None:
            tell("No report was written, and nothing was scored.")
        return True
    try:
        _score_and_tell(request, tables, fitted, console, tell)
    except KeyboardInterrupt:
        tell(
            f"Stopped after the training: the model is in {request.out}, the rest "
            "(scores, report) left out."
        )
        return True
    return False


def _score_and_tell(request: FitRequest, tables, fitted, console, tell) -> None:
    """Diagnosis, scores beside baselines, summary and report."""
    model = fitted.estimator
    if request.settings["progress"]:
        tell(f"Trained in {model.fit_seconds_:.0f} s; scoring beside baselines ...")
    diagnosis = table_fit.diagnose_if_possible(model)
    name = fit_summary.method_name(model.settings_)
    baselines = table_fit.fit_baselines(model, tables)
    scores, log_likelihoods = table_fit.score_methods(model, tables, name, baselines)
    counts = fit_summary.row_counts(tables, model)
    record = replace(
        fitted.record,
        **counts,
        scores=scores,
        diagnosis=None if diagnosis is None else diagnosis.to_dict(),
    )
    fitted = replace(fitted, record=record)
    fitted.save(request.out)
    if request.form == "json":
        print_json(_as_json(request, fitted))
    elif request.form == "text":
        console.print(_training(tables, model, diagnosis))
        if scores:
            console.print()
            console.print(model_tables.score_table(scores, counts["num_test"]))
            verdict = fit_summary.verdict_on_scores(log_likelihoods)
            lines = [("Verdict", verdict)]
            if model.scaling_.lattice.step.any():
                lines.append(("Note", model_tables.ROUNDED_COVERAGE))
            console.print(model_tables.label_table(lines))
        else:
            console.print(model_tables.label_table([("Scores", _NO_SCORES)]))
    if request.report is not None:
        if request.settings["progress"]:
            tell("Writing the report ...")
        _write_report(request.report, request, tables, model, scores, baselines)


_NO_SCORES = (
    "none, since no rows were kept apart: --test takes a share of the rows of a table "
    f"that has {table_fit.FEWEST_TO_SPLIT} of them at least, or a file"
)


def _training(tables, model, diagnosis):
    rows = rows_sentence(fit_summary.row_counts(tables, model))
    lines = [("Rows", f"{rows}; {model.fit_seconds_:.1f} s")]
    return model_tables.label_table(
        [*lines, *fit_summary.verdict_lines(model, diagnosis)]
    )


def _as_json(request: FitRequest, fitted) -> dict[str, Any]:
    preparer, model, record = fitted.preparer, fitted.estimator, fitted.record
    return {
        "model": str(request.out),
        "report": None if request.report is None else str(request.report),
        "target": request.target,
        "columns": preparer.notes_,
        "warnings": preparer.warnings_,
        "inputs": [str(name) for name in preparer.get_feature_names_out()],
        "num_train": record.num_train,
        "num_valid": record.num_valid,
        "num_test": record.num_test,
        "fit_seconds": model.fit_seconds_,
        "target_transform": model.settings_.target_transform,
        "stop_reasons": list(model.stop_reasons_),
        "cut_short": cut_short(model.stop_reasons_, model.n_iter_),
        "scores": record.scores,
        "diagnosis": record.diagnosis,
    }


def _write_report(
    path: Path, request: FitRequest, tables, model, scores, baselines
) -> None:
    from ncai.report import ReportInputs, write_report

    test = tables.test
    write_report(
        path,
        ReportInputs(
            model=model,
            train_inputs=tables.train.inputs,
            train_target=tables.train.targets,
            test_inputs=None if test is None else test.inputs,
            test_target=None if test is None else test.targets,
            raw_train=tables.train.raw,
            groups=tables.preparer.groups(),
            target_name=request.target,
            data_notes=tables.preparer.describe(),
            data_warnings=tables.preparer.warnings_,
            scores=scores,
            baselines=baselines,
            command=request.command,
            title=f"{request.target} from {table_fit.table_name(request.data)}",
        ),
    )
