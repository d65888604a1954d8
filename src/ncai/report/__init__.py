"""The report on a fitted model: one HTML file that needs no network."""

from ncai.report.inputs import ReportInputs
from ncai.report.write import write_report

__all__ = ["ReportInputs", "write_report"]
