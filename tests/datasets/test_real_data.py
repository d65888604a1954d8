"""Real sets: their files, whole or damaged, their parts, and a fit on one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import ncai
from helpers import FOLDER, TOY, real_data, toy
from ncai import MLP, BNNLVRegressor, datasets
from ncai.cli import app as cli
from ncai.datasets import registry
from ncai.datasets.real import check_table
from ncai.datasets.registry import DatasetError, find_set


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders of the three kinds, all empty, and the toy set as the only one known."""
    folders = {name: tmp_path / name for name in ("explicit", "variable", "cache")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("NCAI_DATA_DIR", str(folders["variable"]))
    monkeypatch.setenv("NCAI_CACHE_DIR", str(folders["cache"]))
    folders["cache"] = folders["cache"] / "data"
    folders["cache"].mkdir()
    monkeypatch.setattr(registry, "REAL_SETS", {"toy": toy()})
    return folders


# ----- Files --------------------------------------------------------------------------


def test_the_places_are_searched_in_order(places):
    for name in ("cache", "variable", "explicit"):
        (places[name] / "toy.csv").write_text(TOY)
        data = datasets.load_dataset("toy", folder=places["explicit"])
        assert data.found_at == places[name] / "toy.csv"
    assert ncai.load_dataset("toy").found_at == places["variable"] / "toy.csv"


def test_categories_become_columns(places):
    (places["cache"] / "toy.csv").write_text(TOY)
    data = datasets.load_dataset("toy")
    assert data.input_names == ("kind_a", "kind_b", "size")
    assert data.target_name == "price"
    np.testing.assert_array_equal(data.inputs, [[1, 0, 1.5], [0, 1, 2], [1, 0, 0.25]])
    np.testing.assert_array_equal(data.targets, [[10], [11.5], [9]])


def test_the_same_values_in_other_digits_are_the_same_file(places):
    text = TOY.replace("1.50", "1.5").replace(",2,", ",2.000,").replace("\n", "\r\n")
    (places["cache"] / "toy.csv").write_bytes(text.encode())
    assert len(datasets.load_dataset("toy").inputs) == 3


def test_a_missing_file_is_told_with_all_that_helps(places):
    with pytest.raises(DatasetError) as caught:
        datasets.load_dataset("toy", folder=places["explicit"])
    for word in (
        *(
            "'toy'",
            "toy.csv",
            "kind,size,price",
            "3 rows",
            "OpenML 7",
            "openml.org/d/7",
        ),
        *(str(place) for place in places.values()),
        *("NCAI_DATA_DIR", "ncai datasets get toy"),
    ):
        assert word in str(caught.value)


def test_places_that_do_not_exist_are_named_too(places, monkeypatch):
    monkeypatch.delenv("NCAI_DATA_DIR")
    monkeypatch.setenv("NCAI_CACHE_DIR", "off")
    with pytest.raises(DatasetError, match=r"not set.*switched off"):
        datasets.load_dataset("toy")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a table"),
        (b"\xff\xfe\x00PK", "not a table"),
        (TOY.replace("size", "length").encode(), "header is kind,length,price"),
        (TOY[:-8].encode(), "row 3 of size"),
        (TOY.replace("11.5", "11,5").encode(), "not a table"),
        (TOY.replace("11.5", "").encode(), "row 2 of price is '', not a number"),
        (TOY.replace("11.5", "nan").encode(), "values differ"),
        (TOY.replace("1.50", "1.51").encode(), "values differ"),
        (TOY.replace("b,", "c,").encode(), "values differ"),
        ((TOY + "a,1,1\n").encode(), "4 rows"),
    ],
)
def test_a_damaged_file_is_refused_and_no_other_taken(places, content, reason):
    (places["variable"] / "toy.csv").write_bytes(content)
    (places["cache"] / "toy.csv").write_text(TOY)
    with pytest.raises(DatasetError, match=reason) as caught:
        datasets.load_dataset("toy")
    for word in ("'toy'", "variable", "kind,size,price", "Searched", "OpenML 7"):
        assert word in str(caught.value)


def test_a_folder_in_place_of_the_file_is_refused(places):
    (places["variable"] / "toy.csv").mkdir()
    with pytest.raises(DatasetError, match="cannot be read"):
        datasets.load_dataset("toy")


def test_wrong_arguments_are_refused():
    with pytest.raises(DatasetError, match=r"name='wine'.*'wine_red'"):
        datasets.load_dataset("wine")
    with pytest.raises(ValueError, match="subsample='all'"):
        datasets.load_dataset("lidar", subsample="all")


def test_lidar_has_a_source_but_no_download(tmp_path, monkeypatch):
    monkeypatch.delenv("NCAI_DATA_DIR", raising=False)
    monkeypatch.setenv("NCAI_CACHE_DIR", str(tmp_path))
    with pytest.raises(DatasetError, match="SemiPar") as caught:
        datasets.load_dataset("lidar")
    assert "datasets get" not in str(caught.value)


def test_every_set_is_described_whole():
    for name in datasets.real_dataset_names():
        known = find_set(name)
        assert len(known.digest) == 64
        assert known.source
        assert known.reference
        assert (known.uci_file is None) or known.uci_id
    sizes = {n: len(find_set(n).input_names) for n in datasets.real_dataset_names()}
    assert sizes == {
        **{"lidar": 1, "yacht": 6, "energy": 8, "airfoil": 5},
        **{"abalone": 10, "wine_red": 11, "boston": 13},
    }


# ----- Parts --------------------------------------------------------------------------


def fake(num_rows, num_inputs=2):
    generator = np.random.default_rng(0)
    inputs = 5 + 3 * generator.standard_normal((num_rows, num_inputs))
    inputs[:, -1] = np.arange(num_rows)
    targets = inputs[:, -1:] * 2
    return datasets.RealDataset("fake", inputs, targets, ("a", "b"), "y", Path())


@pytest.mark.parametrize(
    ("rows", "test_rows"), [(221, 44), (308, 61), (768, 153), (1000, 200), (1599, 319)]
)
def test_parts_have_the_sizes_behind_the_published_coverages(rows, test_rows):
    parts = datasets.split(fake(rows), seed=3)
    assert len(parts.test.inputs) == test_rows
    assert len(parts.valid.inputs) == rows // 10
    every = [p.inputs[:, -1] for p in (parts.train, parts.valid, parts.test)]
    np.testing.assert_array_equal(np.sort(np.concatenate(every)), np.arange(rows))
    for part in (parts.train, parts.valid, parts.test):
        np.testing.assert_array_equal(part.targets[:, 0], 2 * part.inputs[:, -1])


def test_a_seed_repeats_a_split_and_another_changes_it():
    first, same, other = (datasets.split(fake(50), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.test.inputs, same.test.inputs)
    assert not np.array_equal(first.test.inputs, other.test.inputs)


def test_fractions_can_be_those_of_the_text():
    parts = datasets.split(fake(10), 0, fractions=(0.6, 0.3, 0.1))
    assert [len(p.inputs) for p in (parts.train, parts.valid, parts.test)] == [6, 3, 1]
    with pytest.raises(ValueError, match="fractions"):
        datasets.split(fake(10), 0, fractions=(0.7, 0.2, 0.2))


def test_units_are_those_of_the_training_rows():
    parts = datasets.split(fake(100), seed=0)
    parts.train.inputs[:, 0] = 4.0  # a column that says nothing
    scaled = parts.standardised()
    np.testing.assert_allclose(scaled.train.targets.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.train.targets.std(), 1)
    np.testing.assert_array_equal(scaled.train.inputs[:, 0], 0)
    shift, scale = parts.train.targets.mean(), parts.train.targets.std()
    np.testing.assert_allclose(
        scaled.test.targets, (parts.test.targets - shift) / scale
    )


# ----- The command --------------------------------------------------------------------


def test_the_list_says_where_each_set_is(places, monkeypatch):
    monkeypatch.setattr(
        registry, "REAL_SETS", {n: toy(name=n) for n in ("one", "two", "three")}
    )
    (places["cache"] / "one.csv").write_text(TOY)
    (places["cache"] / "two.csv").write_text(TOY[:-4])
    result = CliRunner().invoke(cli.app, ["datasets", "list"])
    assert result.exit_code == 0, result.stderr
    head, *lines = (line.split() for line in result.stdout.splitlines())
    assert head == ["name", "rows", "inputs", "source", "licence", "found"]
    one, two, three = lines
    assert one == ["one", "3", "3", "OpenML", "7", "CC0", f"{places['cache']}/one.csv"]
    assert two[-2:] == ["damaged:", f"{places['cache']}/two.csv"]
    assert three[-2:] == ["not", "here"]


def test_bench_and_datasets_explain_themselves():
    for words in (["bench"], ["datasets"], ["datasets", "list"], ["datasets", "get"]):
        result = CliRunner().invoke(cli.app, [*words, "--help"])
        assert result.exit_code == 0
        assert "Example:" in result.stdout


# ----- The real files -----------------------------------------------------------------


@real_data
@pytest.mark.parametrize("name", datasets.real_dataset_names())
def test_the_files_are_the_known_ones(name):
    data, known = datasets.load_dataset(name), find_set(name)
    assert data.inputs.shape == (known.rows, len(known.input_names))
    assert data.targets.shape == (known.rows, 1)
    np.testing.assert_allclose(data.targets.mean(), known.target_mean, atol=1e-6)
    assert np.isfinite(data.inputs).all()


@real_data
def test_one_wrong_digit_is_seen():
    known = find_set("abalone")
    table = pd.read_csv(Path(FOLDER) / known.file, dtype=str)
    check_table(known, table)
    table.loc[2000, "height"] = "0.999"
    with pytest.raises(ValueError, match="values differ"):
        check_table(known, table)


@real_data
def test_sex_is_one_hot():
    data = datasets.load_dataset("abalone")
    assert data.input_names[:4] == ("sex_M", "sex_F", "sex_I", "length")
    np.testing.assert_array_equal(data.inputs[:, :3].sum(axis=0), [1528, 1307, 1342])
    np.testing.assert_array_equal(data.inputs[:, :3].sum(axis=1), 1)


@real_data
@pytest.mark.parametrize(
    ("name", "rows"), [("airfoil", 1000), ("abalone", 1000), ("energy", 768)]
)
def test_the_subsample_of_the_paper(name, rows):
    whole = datasets.load_dataset(name)
    first, same, other = (
        datasets.load_dataset(name, subsample="paper", seed=seed) for seed in (0, 0, 1)
    )
    assert first.inputs.shape == (rows, whole.inputs.shape[1])
    np.testing.assert_array_equal(first.inputs, same.inputs)
    assert np.array_equal(first.inputs, other.inputs) == (rows == len(whole.inputs))
    known = {row.tobytes() for row in np.hstack([whole.inputs, whole.targets])}
    taken = {row.tobytes() for row in np.hstack([first.inputs, first.targets])}
    assert taken <= known


@real_data
def test_energy_is_learned_and_covered():
    table = pd.read_csv(Path(FOLDER) / "energy.csv")
    order = np.random.default_rng(0).permutation(len(table))
    train, test = table.iloc[order[100:]], table.iloc[order[:100]]
    inputs, target = list(table.columns[:-1]), table.columns[-1]
    network = MLP((50, 50), "silu", "last", (20,))  # the default's, its choice made
    model = BNNLVRegressor(
        max_steps=1_000, n_restarts=4, network=network, random_state=0
    )
    model.fit(train[inputs], train[target])
    marginal = norm(train[target].mean(), train[target].std())
    # A network that learns nothing has the marginal's score; this one gains 1.5 nats.
    score = model.log_score(test[inputs], test[target])
    assert score > marginal.logpdf(test[target]).mean() + 1.0
    lower, upper = model.predict_interval(test[inputs], level=0.95).T
    covered = np.mean((test[target] >= lower) & (test[target] <= upper))
    assert covered > 0.85
