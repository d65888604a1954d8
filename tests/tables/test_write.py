"""Files appear whole or not at all."""

import errno
from pathlib import Path

import pandas as pd
import pytest

from ncai import TableModel
from ncai.tables import write as table_output


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", stop)
    with pytest.raises(KeyboardInterrupt):
        table_output.write_table(pd.DataFrame({"a": [1]}), tmp_path / "p.csv")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_while_a_model_is_written(tmp_path, monkeypatch):
    model = TableModel.load(Path(__file__).with_name("houses-0.1.ncai"))

    def fill(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match=r"cannot write .*m.ncai: No space left"):
        model.save(tmp_path / "m.ncai")
    assert not list(tmp_path.iterdir())
