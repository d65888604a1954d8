"""Rows of a table to train on, to choose by and to score."""

import numpy as np
import pandas as pd
import pytest

from ncai.tables import fit as table_fit


@pytest.mark.parametrize(
    ("num_rows", "share", "count"),
    [(49, 0.1, 0), (50, 0.1, 10), (1000, 0.1, 100), (1000, 0, 0), (60, 0.9, 54)],
)
def test_test_rows(num_rows, share, count):
    rows = table_fit.choose_test_rows(num_rows, share, seed=3)
    assert len(np.unique(rows)) == count


def test_test_rows_leave_some_to_fit():
    with pytest.raises(ValueError, match=r"test=0\.99 leaves 1 of 60 rows"):
        table_fit.choose_test_rows(60, 0.99, seed=0)


def test_other_files_are_read_as_the_training_rows_were(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["01", "02", "AB"])[np.arange(60) % 3]
    prices = [f"{v:.3f}".replace(".", ",") for v in rng.uniform(1, 9, size=60)]
    prices[0] = "2.500,5"  # so the point is one of thousands
    frame = pd.DataFrame({"code": codes, "price": prices, "y": rng.normal(size=60)})
    frame.to_csv(tmp_path / "train.tsv", index=False, sep="\t")
    other = frame.iloc[:4].assign(code=["01", "02", "01", "02"], price=["2.500"] * 4)
    other.to_csv(tmp_path / "other.tsv", index=False, sep="\t")
    new = other.assign(code="zz")
    new.to_csv(tmp_path / "new.tsv", index=False, sep="\t")

    def load(file):
        files = tmp_path / file, tmp_path / file
        source = table_fit.TableSource(tmp_path / "train.tsv", "y")
        return table_fit.load_tables(source, *files, seed=0)

    tables = load("other.tsv")
    assert tables.valid.inputs["price"].tolist() == [2500.0] * 4
    assert tables.test.inputs["code=01"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert not any("code" in sentence for sentence in tables.surprises)
    assert not any("rows to learn from" in sentence for sentence in tables.surprises)
    (first, *_) = [s for s in load("new.tsv").surprises if "'code'" in s]
    assert "new.tsv: column 'code' has levels not seen in training in 4 rows" in first


def test_few_rows_are_taken_with_a_warning(tmp_path):
    few = pd.DataFrame({"size": range(6), "price": range(6)})
    few.to_csv(tmp_path / "few.csv", index=False)
    source = table_fit.TableSource(tmp_path / "few.csv", "price")
    tables = table_fit.load_tables(source, valid=None, test=0.1, seed=0)
    (told,) = tables.surprises
    assert "few.csv: 6 rows to learn from" in told
