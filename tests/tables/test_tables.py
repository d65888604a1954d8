"""Tables in and out, whole and in pieces, and the table model."""

import errno
import gzip
import io
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import old_file
from ncai import BNNLVRegressor, TableModel
from ncai.tables import fit as table_fit
from ncai.tables import predict as table_predict
from ncai.tables import write as table_output
from ncai.tables.inspect import cut_short
from ncai.tables.model import FitRecord, NumberColumns
from ncai.tables.read import TableError, numbers, read_chunks, read_table

FRAME = pd.DataFrame(
    {"a": np.arange(25) / 4, "town": ["Ulm, old", "Bonn"] * 12 + [None], "n": range(25)}
)


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        tabs = ".tsv" in path.name
        frame.to_csv(path, index=False, sep="\t" if tabs else ",")
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.tsv", "t.tsv.gz", "t.parquet"]
)
def test_every_format_reads_the_same(name, tmp_path):
    path = write(FRAME, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(path), FRAME, check_dtype=False)
    pieces = list(read_chunks(path, num_rows=10))
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    # Pieces know which rows of the table they are.
    pd.testing.assert_frame_equal(pd.concat(pieces), FRAME, check_dtype=False)


@pytest.mark.parametrize("form", ["csv", "gzip", "tsv", "parquet"])
def test_standard_input_tells_its_format_by_its_content(form, tmp_path, monkeypatch):
    if form == "parquet":
        content = write(FRAME, tmp_path / "t.parquet").read_bytes()
    else:
        content = FRAME.to_csv(index=False, sep="\t" if form == "tsv" else ",").encode()
        content = gzip.compress(content) if form == "gzip" else content
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
    monkeypatch.setattr(sys, "stdin", stream)
    told = (
        pytest.warns(UserWarning, match="by tabs") if form == "tsv" else nullcontext()
    )
    with told:
        found = read_table("-")
    pd.testing.assert_frame_equal(found, FRAME, check_dtype=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("rows", [1, 3000])
def test_separator_and_byte_order_mark_are_found(separator, encoding, rows, tmp_path):
    frame = pd.DataFrame({"a": "x, y; z", "b, c": "1,5", "€": np.arange(rows) / 4})
    text = frame.to_csv(index=False, sep=separator)
    if encoding == "utf-16-be":
        text = "\ufeff" + text
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    unusual = separator != "," or "16" in encoding
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = read_table(path)
    pd.testing.assert_frame_equal(found, frame, check_dtype=False)
    words = {",": "", ";": "separated by ';'", "\t": "separated by tabs"}[separator]
    assert len(told) == unusual
    if unusual:
        assert f"{path} is read " in str(told[0].message)
        assert words in str(told[0].message)
        assert ("UTF-16" in str(told[0].message)) == ("16" in encoding)


def test_names_with_commas_do_not_hide_the_separator(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("size, m2;price;n\n1,5;2;3\n2,5;3;4\n")
    with pytest.warns(UserWarning, match="separated by ';'"):
        found = read_table(path)
    assert list(found) == ["size, m2", "price", "n"]
    # In doubt it is what the name of the file says.
    path.write_text("a;b,c\n1;2,3\n")
    assert list(read_table(path)) == ["a;b", "c"]


def test_text_columns_are_the_same_text_in_every_piece(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("code\n" + "01\n" * 10 + "x\n" * 10)
    pieces = list(read_chunks(path, num_rows=10, text_columns=["code"]))
    assert [piece["code"].iloc[0] for piece in pieces] == ["01", "x"]


def test_a_fault_far_down_is_told_with_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 30 + "1,2,3\n")
    with pytest.raises(TableError, match=r"line 32 of .* has more values"):
        list(read_chunks(path, num_rows=10))
    column = pd.Series([1.0, np.inf], index=[30, 31], name="y")
    with pytest.raises(TableError, match="column 'y' of table holds 'inf' in row 32"):
        numbers(column, "table")


def test_parquet_without_pyarrow_is_one_sentence(tmp_path, monkeypatch):
    path = write(FRAME, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"needs pyarrow: .*ncai\[parquet\]"):
        read_table(path)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet"])
def test_a_table_written_in_pieces_is_one_table(name, tmp_path):
    with table_output.table_writer(tmp_path / name) as write_piece:
        write_piece(FRAME.iloc[:10])
        write_piece(FRAME.iloc[10:])
        assert not (tmp_path / name).exists()
    pd.testing.assert_frame_equal(read_table(tmp_path / name), FRAME, check_dtype=False)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_stop_between_pieces_leaves_the_old_file(name, tmp_path):
    (tmp_path / name).write_text("old")

    def stopped():
        with table_output.table_writer(tmp_path / name) as write_piece:
            write_piece(FRAME)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", stop)
    with pytest.raises(KeyboardInterrupt):
        table_output.write_table(pd.DataFrame({"a": [1]}), tmp_path / "p.csv")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_while_a_model_is_written(tmp_path, monkeypatch):
    model = TableModel.load(old_file("houses"))

    def fill(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match=r"cannot write .*m.ncai: No space left"):
        model.save(tmp_path / "m.ncai")
    assert not list(tmp_path.iterdir())


def test_a_target_with_blanks_between_thousands_says_so():
    column = pd.Series(["1 234", "950", "12 000"], name="y")
    with pytest.raises(TableError, match=r"'1 234' in row 1.*blanks between thousands"):
        numbers(column, "t.csv")


# ----- The table model ---------------------------------------------------------------

# Written by `ncai fit` of version 0.1, and what its `ncai predict` said of three rows.
OLD_FILE = old_file("houses")
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


@pytest.mark.usefixtures("any_types")
def test_an_array_is_no_table(model):
    with pytest.raises(TableError, match=r"ndarray.*DataFrame"):
        model.predict_dist(np.ones((2, 6)))


def test_a_file_of_version_0_1_predicts_as_it_did(model):
    # Up to the random error of the draws of W, which 0.1 chose in another way.
    np.testing.assert_allclose(model.predict(ROWS), OLD_MEANS, rtol=3e-3)
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
    assert not any("rows to train on" in sentence for sentence in tables.surprises)
    (first, *_) = [s for s in load("new.tsv").surprises if "'code'" in s]
    assert "new.tsv: column 'code' has levels not seen in training in 4 rows" in first


def test_few_rows_are_taken_with_a_warning(tmp_path):
    few = pd.DataFrame({"size": range(6), "price": range(6)})
    few.to_csv(tmp_path / "few.csv", index=False)
    source = table_fit.TableSource(tmp_path / "few.csv", "price")
    tables = table_fit.load_tables(source, valid=None, test=0.1, seed=0)
    (told,) = tables.surprises
    assert "few.csv" in told
    assert "6 rows" in told


def test_only_a_cut_of_the_training_itself_is_told():
    trial = "trial marginal: time limit after 9 steps"
    assert cut_short([trial, "marginal: plateau after 100 steps"], 109) is None
    assert cut_short(["elbo: step limit after 100 steps"], 100) is None
    assert "short, after 9 steps:" in cut_short([trial], 9)
    assert "short, after 40 draws:" in cut_short(["hmc: time limit after 40 draws"], 9)
    assert "nothing was learned" in cut_short([], 0)
    assert cut_short([], None) is None  # a file that does not say


@pytest.mark.parametrize(
    ("share", "name"),
    [
        *((0.05, "05"), (0.5, "50"), (0.95, "95"), (0.975, "97.5"), (0.001, "00.1")),
        *((0.9999, "99.99"), (0.0001, "00.01"), (1e-7, "00.00001"), (0.07, "07")),
        *((0.1234567, "12.34567"), (0.12345678, "12.345678")),
    ],
)
def test_columns_of_levels_are_named_to_the_last_digit(share, name):
    assert table_predict._percent(share) == name
