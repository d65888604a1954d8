"""The benchmark's results as one tidy frame, and entries of it beside the published."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import Benchmark
from ncai.study.experiments.paper_settings import PUBLISHED_SELECTION, SYNTHETIC
from ncai.study.experiments.problems import expected_oracle
from ncai.study.output.tables.write import Entry, pick, published, tidy

NUM_PUBLISHED_SPLITS = 5
SELECTED = "selected"


@dataclass(frozen=True, eq=False)
class Numbers:
    """Ours and theirs.

    Args:
        ours: a line for each set, method and reported split; `selected`, the one of
            NCAI0 and NCAI that validation chose, is a method too.
        theirs: the published numbers.
        choice: that one, by set.
    """

    ours: pd.DataFrame
    theirs: pd.DataFrame
    choice: dict[str, str]

    @classmethod
    def of(cls, study: Benchmark, scale: Scale, store: Store) -> "Numbers":
        """All that is done so far."""
        frame = tidy(study, scale, store)
        choice = {}
        if not frame.empty:
            for dataset in frame["dataset"].unique():
                method = study.selected_method(scale, store, dataset)
                if method is not None:
                    choice[str(dataset)] = method
            frame = pick(frame, phase="report")
        if not frame.empty:
            frame["oracle_gap"] = frame["oracle_test"] - frame["avg_ll_test"]
            chosen = [
                choice.get(dataset) == method
                for dataset, method in zip(
                    frame["dataset"], frame["method"], strict=True
                )
            ]
            selected = frame[chosen].assign(method=SELECTED)
            frame = pd.concat([frame, selected], ignore_index=True)
        return cls(frame, published(), choice)

    def values(self, dataset: str, method: str, metric: str) -> dict[int, float]:
        """Ours by split."""
        if metric not in self.ours:
            return {}
        picked = pick(self.ours, dataset=dataset, method=method)
        picked = picked[picked[metric].notna()]
        return dict(zip(picked["split"], picked[metric], strict=True))

    def entry(self, dataset: str, method: str, metric: str) -> Entry:
        """Mean and spread of ours over splits."""
        return Entry.of(list(self.values(dataset, method, metric).values()))

    def published_entry(self, dataset: str, method: str, metric: str) -> Entry:
        """The paper's, in the units of ours."""
        if metric == "oracle_gap":
            level = self.published_entry(dataset, method, "avg_ll_test")
            if dataset not in SYNTHETIC or not level.count:
                return Entry.of([])
            return Entry(expected_oracle(dataset) - level.mean, level.std, level.count)
        if method == SELECTED:
            method = PUBLISHED_SELECTION[dataset]
        factor = 1.0
        name = metric
        if metric in ("rmse_test", "rmse_train"):
            name, factor = f"{metric}_as_printed", self._raw_rmse_factor(dataset)
        picked = pick(self.theirs, dataset=dataset, method=method, metric=name)
        if picked.empty:
            return Entry.of([])
        value, std = (float(picked[column].iloc[0]) for column in ("value", "std"))
        return Entry(value * factor, std * factor, NUM_PUBLISHED_SPLITS)

    def _raw_rmse_factor(self, dataset: str) -> float:
        """The paper divided standardised RMSE by std(y); it should have multiplied.

        So its numbers are compared after multiplication by std(y)^2 (docs/readings.md).
        """
        picked = pick(self.ours, dataset=dataset)
        if picked.empty:
            return 1.0
        return float(np.mean(picked["target_scale"].to_numpy())) ** 2
