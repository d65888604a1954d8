"""`TableModel`: from a table as people have it to predictions, and back from a file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ncai import BNNLVRegressor, TableModel
from ncai.tables.model import FitRecord, NumberColumns
from ncai.tables.read import TableError

# Written by `ncai fit` of version 0.1, and what its `ncai predict` said of three rows.
OLD_FILE = Path(__file__).with_name("houses-0.1.ncai")
ROWS = pd.DataFrame(
    {
        "size": [97.82, 125.87, 68.34],
        "town": ["Kiel", "Ulm", "Ulm"],
        "age": [np.nan, 53, 44],
        "sold": ["2019-01-01", "2019-01-21", "2019-02-10"],
        "new": "no",
        "fee": ["2,46", "4,37", "4,03"],
    }
)
OLD_MEANS = [285.90741, 279.84734, 244.38866]


@pytest.fixture(scope="module")
def model():
    return TableModel.load(OLD_FILE)


def test_a_file_of_version_0_1_predicts_as_it_did(model):
    np.testing.assert_allclose(model.predict(ROWS), OLD_MEANS, rtol=1e-5)
    assert model.record.target == "price"
    assert model.record.command.startswith("ncai fit houses.csv")
    assert (model.record.num_train, model.record.num_test) == (97, 12)
    assert len(model.record.scores) == 4


def test_a_model_is_the_same_after_a_file(model, tmp_path):
    record = replace(model.record, command="ncai fit again.csv")
    replace(model, record=record).save(tmp_path / "m.ncai")
    again = TableModel.load(tmp_path / "m.ncai")
    assert again.record == record
    np.testing.assert_array_equal(again.predict(ROWS), model.predict(ROWS))


def test_columns_are_found_by_name_and_others_ignored(model):
    turned = ROWS[ROWS.columns[::-1]].assign(more="text")
    np.testing.assert_array_equal(model.predict(turned), model.predict(ROWS))
    with pytest.raises(TableError, match="the table has no column 'town'"):
        model.predict(ROWS.drop(columns="town"))


def test_what_training_did_not_see_is_a_warning(model):
    with pytest.warns(UserWarning, match="'town' has levels not seen in training"):
        model.predict(ROWS.assign(town="Paris"))


def test_the_estimator_alone_names_the_way_to_give_it_a_table():
    estimator = BNNLVRegressor.load(OLD_FILE)
    with pytest.raises(ValueError, match=r"ncai\.TableModel\.load"):
        estimator.predict(ROWS)


@pytest.mark.parametrize("names", [["a", "b"], None])
def test_a_model_fitted_in_python_takes_tables_of_numbers(names, tmp_path, model):
    columns = NumberColumns(names, 2)
    table = pd.DataFrame({"a": [1, 2], "b": ["3", "4"]})
    inputs, surprises = columns.prepare(table)
    assert np.asarray(inputs).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert not surprises
    with pytest.raises(ValueError, match=r"'b'.*'red' in row 2"):
        columns.prepare(table.assign(b=["3", "red"]))
    if names is None:
        with pytest.raises(TableError, match=r"its 2 columns in order, not 3"):
            columns.prepare(table.assign(c=1.0))
    plain = TableModel(columns, model.estimator)
    plain.save(tmp_path / "plain.ncai")
    assert TableModel.load(tmp_path / "plain.ncai").record == FitRecord()
