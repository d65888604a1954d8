"""Running the command in tests, and what a refusal must look like."""

from typer.testing import CliRunner

from ncai.cli import app as cli

# Settings that compile one stage of training; the demo runs all those of ncai.
QUICK = ("--max-steps", 100, "--restarts", 2, "--inference", "mfvi")
QUICK = (*QUICK, "--preset", "paper")


def run(*arguments, **options):
    return CliRunner().invoke(cli.app, [str(one) for one in arguments], **options)


def refused(result, *words):
    """Exit code 2, and one sentence with these words; nothing on standard output."""
    assert result.exit_code == 2, (result.exit_code, result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    return True
