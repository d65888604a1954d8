"""`ncai diagnose`: whether z is white noise, as the model assumes."""

import typer

from ncai.cli._arguments import AsJson, Model, print_json

EXAMPLES = ("ncai diagnose houses.ncai", "ncai diagnose houses.ncai --json")


def diagnose(model: Model, as_json: AsJson = False) -> None:
    """Check whether z is white noise, as the model assumes.

    Shows the diagnosis that `ncai fit` stored in the file. If there is none, it is
    computed from the training rows, if the file holds them.
    """
    from ncai.tables.inspect import diagnose_model

    found = diagnose_model(model)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
