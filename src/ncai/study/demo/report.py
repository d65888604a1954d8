"""The demo's report: NCAI, with the other fits and the truth to switch on and off."""

from pathlib import Path

import numpy as np
import pandas as pd

from ncai.datasets.synthetic import SyntheticData
from ncai.report import ReportInputs, write_report
from ncai.report.words import fixed
from ncai.study.demo.fits import DemoFit


def write_demo_report(
    path: Path, data: SyntheticData, fits: list[DemoFit], command: str
) -> None:
    """Write the report on the last of the fits."""
    *others, main = fits
    write_report(
        path,
        ReportInputs(
            main.model,
            *_rows(data.train),
            *_rows(data.test),
            target_name="y",
            data_notes=[
                "Heavy-Tail is a synthetic set: a network with a latent input makes y "
                "from x, so the true density is known and shown.",
                "The true density has a log-likelihood of "
                f"{fixed(main.true_log_likelihood)} on the test rows; no model can be "
                "expected to do better.",
                "Three models were fitted to the same rows. BNN is a plain Bayesian "
                "neural network. MFVI and NCAI have a latent variable z: MFVI is plain "
                "variational inference, NCAI constrains z to be white noise.",
            ],
            command=command,
            title="Heavy-Tail, fitted three ways",
            method_name=main.method,
            others={fit.method: fit.model for fit in reversed(others)},
            truth=data.oracle,
        ),
    )


def _rows(part) -> tuple[pd.DataFrame, np.ndarray]:
    return pd.DataFrame(part.inputs, columns=["x"]), part.targets[:, 0]
