"""The commands that fit to a table: `fit` and `compare`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ncai.cli._arguments import (
    EXIT_INTERRUPTED,
    AsJson,
    Data,
    Drop,
    Features,
    Force,
    Hidden,
    Preset,
    Restarts,
    Steps,
    Target,
    print_json,
    tell,
)


def add_tables(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, with its way of telling errors."""
    app.command(
        epilog=example(
            "ncai fit houses.csv --target price --drop id --out houses.ncai",
            "ncai fit houses.parquet --target price --report houses.html",
            "zcat houses.csv.gz | ncai fit - --target price --time-limit 5m",
        )
    )(guard(fit))
    app.command(
        epilog=example(
            "ncai compare houses.csv --target price --folds 5",
            "ncai compare houses.csv --target price --methods NCAI,NGBoost --out c.csv",
        )
    )(guard(compare))


def fit(
    data: Data,
    target: Target,
    features: Features = None,
    drop: Drop = None,
    out: Annotated[
        Path, typer.Option(help="File of the fitted model.", metavar="FILE")
    ] = Path("model.ncai"),
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write a report: one HTML file, no network.",
            metavar="FILE.html",
        ),
    ] = None,
    inference: Annotated[
        str | None,
        typer.Option(
            help="marginal, iwae, ncai, ncai0, mfvi, map, hmc or hmc_marginal; else "
            "marginal, or ncai with the preset paper.",
            metavar="NAME",
        ),
    ] = None,
    preset: Preset = "default",
    hidden: Hidden = None,
    latent_dim: Annotated[
        int,
        typer.Option(
            help="Number of latent inputs; 0 is a plain BNN (ncai is then mfvi)."
        ),
    ] = 1,
    restarts: Restarts = None,
    max_steps: Steps = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="Stop training after about this time: 60s, 5m, 1h. Compiling, which "
            "is not interrupted, counts.",
            metavar="T",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            help="Learn none, log or yeo_johnson of the target; auto tries; else the "
            "preset's.",
            metavar="NAME",
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(
            help="Share of the rows that --test leaves, or a file, to choose among "
            "starts by; else each "
            "start holds out rows of its own (marginal), or 0.1.",
            metavar="SHARE|FILE",
        ),
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            help="Share of the rows (at least 10, of 50 or more), or a file, kept "
            "apart to score the result; 0 keeps none.",
            metavar="SHARE|FILE",
        ),
    ] = "0.1",
    seed: Annotated[int, typer.Option(help="The same seed repeats a fit.")] = 0,
    force: Force = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, no summary.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to the rows of a table, and save it.

    Columns of numbers, booleans, dates and categories are prepared, gaps are filled,
    and what was done is said and kept in the model. The summary scores rows kept apart
    beside three simple baselines. Ctrl-C stops the training, saves the best found so
    far, and leaves with code 130.
    """
    from ncai.cli import _options as options

    valid_rows = None if valid is None else options.parse_rows(valid, "--valid")
    test_rows = options.parse_rows(test, "--test")
    inputs = [Path(data)] if data != "-" else []
    inputs += [rows for rows in (valid_rows, test_rows) if isinstance(rows, Path)]
    if str(out) == "-":
        raise ValueError("--out - is no file: a model is written to a file of its own.")
    options.check_output(out, force, inputs)
    if report is not None:
        options.check_ending(report, (".html", ".htm"), "--report")
        options.check_output(report, force, [*inputs, out], "--report")
        if report.absolute() == out.absolute():
            raise ValueError(f"--report {report} is also --out; choose another name.")
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
    if isinstance(valid_rows, float):
        settings["inference__validation_fraction"] = valid_rows
    names = options.parse_names(features), options.parse_names(drop)

    from rich.console import Console

    from ncai.tables.fit_job import FitRequest, run_fit

    request = FitRequest(
        data,
        target,
        *names,
        valid_rows,
        test_rows,
        settings,
        out,
        report,
        command=shlex.join(["ncai", *sys.argv[1:]]),
        form="json" if as_json else "none" if quiet else "text",
    )
    try:
        interrupted = run_fit(request, Console(), tell)
    except KeyboardInterrupt:
        tell("Stopped before anything was trained; no model was written.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if request.form == "text":
        typer.echo(f"Model: {out}")
        if report is not None and not interrupted:
            typer.echo(f"Report: {report}")
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def compare(
    data: Data,
    target: Target,
    features: Features = None,
    drop: Drop = None,
    folds: Annotated[int, typer.Option(help="Parts of the rows.")] = 5,
    methods: Annotated[
        str | None,
        typer.Option(help="Only these methods, between commas.", metavar="NAMES"),
    ] = None,
    preset: Preset = "default",
    hidden: Hidden = None,
    restarts: Restarts = None,
    max_steps: Steps = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="For each of our own fits: 60s, 5m.", metavar="T"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the folds and the fits.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Scores of every fold: .csv or .json.", metavar="FILE"),
    ] = None,
    figure: Annotated[
        Path, typer.Option(help="Picture to draw.", metavar="FILE.png")
    ] = Path("compare.png"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit several methods on the same folds of a table, and rank them.

    BNN, MFVI, NCAI0, NCAI, IWAE and Marginal are ours; NGBoost, CatBoost and Quantile
    forest join in where they are installed (`pip install 'ncai[compare]'`).
    """
    from ncai.cli import _options as options

    inputs = [Path(data)] if data != "-" else []
    options.check_ending(figure, (".png",), "--figure")
    options.check_output(figure, force, inputs, "--figure")
    if out is not None:
        options.check_ending(out, (".csv", ".json"), "--out")
        options.check_output(out, force, [*inputs, figure])
    settings = {
        "preset": preset,
        "hidden": options.parse_layers(hidden),
        "n_restarts": restarts,
        "max_steps": max_steps,
        "time_limit": options.parse_duration(time_limit),
        "random_state": options.check_seed(seed),
    }
    wanted = options.parse_names(methods)
    columns = options.parse_names(features), options.parse_names(drop)
    from ncai.comparison import compare as work
    from ncai.comparison.peers.registry import missing_sentence
    from ncai.tables.display import comparison_table, write_comparison

    chosen, missing = work.choose_methods(wanted, settings, seed)
    note = missing_sentence(missing) if missing else ""
    if not chosen:
        raise ValueError(note or "--methods names none; give one or more, with commas.")
    try:
        results = work.compare_table(
            data, target, columns, chosen, folds, seed, tell, note
        )
    except ValueError as error:
        raise ValueError(options.in_options(str(error))) from error
    summary = work.summarise(results)
    failures = results.dropna(subset="failure")
    for row in failures.to_dict("records"):
        place = f"{row['method']} failed in fold {row['fold']}"
        tell(f"Warning: {place}: {row['failure']}")
    if out is not None:
        write_comparison(results, summary, out)
    title = f"{target}, {folds} folds: mean and its standard error"
    work.draw_comparison(summary, figure, title)
    if as_json:
        print_json(json.loads(str(summary.to_json(orient="records"))))
        return
    from rich.console import Console

    Console().print(comparison_table(summary, folds))
    typer.echo(f"Figure: {figure}")
