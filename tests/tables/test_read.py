"""Tables in and out, whole and in pieces; files appear whole or not at all."""

import errno
import gzip
import io
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import old_file
from ncai import TableModel
from ncai.tables import write as table_output
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
