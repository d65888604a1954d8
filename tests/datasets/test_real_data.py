"""Real sets: files, downloads from a server that misbehaves, splits, a fit on one."""

import http.server
import io
import json
import threading
import time
import zipfile
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
from ncai.datasets.download import download_dataset, fetch
from ncai.datasets.real import check_table
from ncai.datasets.registry import DatasetError, UciFile, find_set


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


SHORT = 0.3  # seconds
UCI_PATH = "/static/public/5/toy+set.zip"
ABOUT_PATH = "/api/v1/json/data/7"
DATA_PATH = "/data/v1/download/99/toy.arff"


class Server:
    """Answers by a table from path to what is done with the request."""

    def __init__(self):
        self.answers, self.asked = {}, []
        self.over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                act = outer.answers.get(self.path)
                if act is None:
                    self.send_error(404)
                    return
                try:
                    act(self)
                except OSError:  # the client has left
                    pass

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.over.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(timeout=5)

    @property
    def bases(self):
        return {"uci": self.base, "openml": self.base}

    def gives(self, path, body: bytes, claimed: int | None = None):
        """Send the body; with `claimed`, a false length."""

        def act(request):
            request.send_response(200)
            length = len(body) if claimed is None else claimed
            request.send_header("Content-Length", str(length))
            request.end_headers()
            request.wfile.write(body)

        self.answers[path] = act

    def is_silent(self, path):
        self.answers[path] = lambda request: self.over.wait(5)

    def drips(self, path):
        """A byte now and then: never silent for long, never done."""

        def act(request):
            request.send_response(200)
            request.send_header("Content-Length", "1000")
            request.end_headers()
            while not self.over.wait(SHORT / 5):
                request.wfile.write(b"x")
                request.wfile.flush()

        self.answers[path] = act


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    one = Server()
    yield one
    one.close()


@pytest.fixture
def known(monkeypatch):
    """A set with both sources, as the only one."""
    one = toy(uci_id=5, uci_file=UciFile("toy+set", "toy.data", r"\s+"))
    monkeypatch.setattr(registry, "REAL_SETS", {"toy": one})
    return one


def zipped(text, member="toy.data"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"inner/{member}", text)
        archive.writestr("Index", "about")
    return buffer.getvalue()


def uci_text(text=TOY):
    """Without header, by blanks, and with an empty line at the end."""
    return "\r\n".join(text.replace(",", "  ").splitlines()[1:]) + " \r\n\r\n"


def arff(text=TOY, names=("Kind", "Size", "'Price'")):
    lines = [f"@ATTRIBUTE {name} REAL" for name in names]
    rows = [f"'{row[0]}'{row[1:]}" for row in text.splitlines()[1:]]
    return "\n".join(["% toy", "@RELATION toy", *lines, "", "@DATA", *rows]).encode()


def offer_openml(server, content, data_path=DATA_PATH):
    about = {"data_set_description": {"id": "7", "url": server.base + data_path}}
    server.gives(ABOUT_PATH, json.dumps(about).encode())
    server.gives(data_path, content)


def refused(server, folder, *words, **arguments):
    """The set is not had, the reasons are told, and the folder is not even made."""
    with pytest.raises(DatasetError) as caught:
        download_dataset("toy", folder, server.bases, **{"timeout": 5, **arguments})
    for word in ("'toy'", "toy.csv", "kind,size,price", "nothing was written", *words):
        assert word in str(caught.value)
    assert not folder.exists()
    return True


# ----- Good answers -------------------------------------------------------------------


def test_uci_gives_a_file_that_can_be_loaded(server, known, tmp_path):
    server.gives(UCI_PATH, zipped(uci_text()))
    told = []
    path = download_dataset(
        "toy", tmp_path / "new", server.bases, on_progress=lambda *n: told.append(n)
    )
    assert path.read_text() == TOY
    assert list(path.parent.iterdir()) == [path]
    assert datasets.load_dataset("toy", folder=path.parent).found_at == path
    size = len(zipped(uci_text()))
    assert told[-1] == (size, size)
    assert server.asked == [UCI_PATH]


def test_openml_is_asked_if_uci_fails(server, known, tmp_path):
    offer_openml(server, arff())
    path = download_dataset("toy", tmp_path, server.bases)
    assert server.asked == [UCI_PATH, ABOUT_PATH, DATA_PATH]
    assert path.read_text() == TOY


def test_columns_of_openml_are_taken_by_name_else_by_place(server, known, tmp_path):
    moved = "\n".join(",".join(r.split(",")[i] for i in (0, 2, 1)) for r in TOY.split())
    offer_openml(server, arff(moved, ("kind", "price", "SIZE")))
    assert download_dataset("toy", tmp_path / "a", server.bases).read_text() == TOY
    more = "\n".join(row + ",4" for row in TOY.split())
    offer_openml(server, arff(more, ("V1", "V2", "V3", "V4")))
    assert download_dataset("toy", tmp_path / "b", server.bases).read_text() == TOY


def test_the_user_cache_is_where_it_goes(server, known, tmp_path, monkeypatch):
    monkeypatch.setenv("NCAI_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NCAI_DATA_DIR", raising=False)
    server.gives(UCI_PATH, zipped(uci_text()))
    path = download_dataset("toy", base_urls=server.bases)
    assert path == tmp_path / "data" / "toy.csv"
    assert datasets.load_dataset("toy").found_at == path
    monkeypatch.setenv("NCAI_CACHE_DIR", "off")
    with pytest.raises(DatasetError, match="no user cache"):
        download_dataset("toy", base_urls=server.bases)


def test_a_file_that_is_there_is_kept(server, known, tmp_path):
    path = tmp_path / "toy.csv"
    path.write_text(TOY)
    assert download_dataset("toy", tmp_path, server.bases) == path
    assert server.asked == []
    path.write_text("mine")
    with pytest.raises(DatasetError, match="unless forced"):
        download_dataset("toy", tmp_path, server.bases)
    assert path.read_text() == "mine"
    with pytest.raises(DatasetError, match="404"):
        download_dataset("toy", tmp_path, server.bases, force=True)
    assert path.read_text() == "mine"
    server.gives(UCI_PATH, zipped(uci_text()))
    download_dataset("toy", tmp_path, server.bases, force=True)
    assert path.read_text() == TOY


# ----- Bad answers --------------------------------------------------------------------


def test_404(server, known, tmp_path):
    assert refused(server, tmp_path / "to", "404 Not Found", UCI_PATH, ABOUT_PATH)


def test_no_server(known, tmp_path, server):
    server.close()
    assert refused(server, tmp_path / "to", "cannot be reached")


def test_silence_and_dripping_end_at_the_timeout(server, known, tmp_path):
    server.is_silent(UCI_PATH)
    server.drips(ABOUT_PATH)
    start = time.monotonic()
    assert refused(server, tmp_path / "to", "longer than 0.3 s", timeout=SHORT)
    assert time.monotonic() - start < 5 * SHORT
    with pytest.raises(ValueError, match="timeout=0"):
        download_dataset("toy", tmp_path, server.bases, timeout=0)


@pytest.mark.parametrize("claims_all", [True, False])
def test_a_truncated_body(server, known, tmp_path, claims_all):
    archive, text = zipped(uci_text()), arff()
    whole = len(archive) if claims_all else None
    server.gives(UCI_PATH, archive[:-30], whole)
    offer_openml(server, text)
    server.gives(DATA_PATH, text[:-4], len(text) if claims_all else None)
    words = ("bytes",) if claims_all else ("zip", "row 3 of price")
    assert refused(server, tmp_path / "to", *words)


def test_wrong_content(server, known, tmp_path):
    page = b"<html>Sign in</html>"
    wrong_value = zipped(uci_text(TOY.replace("11.5", "12.5")))
    for archive, about, data, words in (
        (page, page, None, ("zip archive", "OpenML description")),
        (zipped("x", "other"), b"[]", None, ("no toy.data", "description")),
        (zipped("a 1\n"), None, page, ("2 columns", "not an ARFF file")),
        (zipped("a 1 2\nb 3 4 5"), None, b"@data\n", ("not a table",)),
        (zipped(b"\xff"), None, b"\xff", ("not plain text",)),
        (wrong_value, None, arff(TOY[:-9]), ("is 10.5", "not 10.166667", "2 rows")),
    ):
        server.gives(UCI_PATH, archive)
        offer_openml(server, data)
        if about is not None:
            server.gives(ABOUT_PATH, about)
        assert refused(server, tmp_path / "to", *words)


def test_openml_cannot_point_at_files_of_this_machine(server, known, tmp_path):
    secret = tmp_path / "toy.arff"
    secret.write_bytes(arff())
    about = {"data_set_description": {"url": secret.as_uri()}}
    server.gives(ABOUT_PATH, json.dumps(about).encode())
    assert refused(server, tmp_path / "to", "not a web address")


def test_too_much_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr("ncai.datasets.download.MOST_BYTES", 1000)
    server.gives("/big", b"x" * 2000)
    with pytest.raises(OSError, match="far more"):
        fetch(server.base + "/big", timeout=5)


def test_lidar_names_its_source(tmp_path):
    with pytest.raises(DatasetError, match=r"SemiPar.*no UCI or OpenML id"):
        download_dataset("lidar", tmp_path / "to")
    assert not (tmp_path / "to").exists()


# ----- The command --------------------------------------------------------------------


def test_the_command(server, known, tmp_path, monkeypatch):
    monkeypatch.setattr("ncai.datasets.download.BASE_URLS", server.bases)
    command = ["datasets", "get", "toy", "--to", str(tmp_path / "to")]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: The data set 'toy' cannot be downloaded")
    assert result.stderr.count("\n") == 1
    server.gives(UCI_PATH, zipped(uci_text()))
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"toy: {tmp_path / 'to' / 'toy.csv'}\n"
    assert (tmp_path / "to" / "toy.csv").read_text() == TOY


# ----- The real sets, in the forms of their sources -----------------------------------


@real_data
@pytest.mark.parametrize("name", [n for n in registry.REAL_SETS if n != "lidar"])
def test_the_forms_of_the_sources_become_the_known_files(server, tmp_path, name):
    known = find_set(name)
    table = pd.read_csv(Path(FOLDER) / known.file, dtype=str)
    form = known.uci_file
    if form is not None:
        sep = {r"\s+": "\t"}.get(form.separator, form.separator)
        text = table.to_csv(None, sep=sep, index=False, header=form.has_header)
        path = f"/static/public/{known.uci_id}/{form.archive}.zip"
        server.gives(path, zipped(text, form.member))
        got = download_dataset(name, tmp_path / "uci", server.bases)
        assert got.read_bytes() == (Path(FOLDER) / known.file).read_bytes()
    rows = table.assign(other="1").to_csv(None, index=False, header=False)
    lines = [f"@attribute {column} numeric" for column in [*known.columns, "other"]]
    content = "\n".join(["@relation x", *lines, "@data", rows])
    about = {"data_set_description": {"url": server.base + "/file.arff"}}
    server.answers.clear()
    server.gives(f"/api/v1/json/data/{known.openml_id}", json.dumps(about).encode())
    server.gives("/file.arff", content.encode())
    got = download_dataset(name, tmp_path / "openml", server.bases)
    assert got.read_bytes() == (Path(FOLDER) / known.file).read_bytes()
    data = datasets.load_dataset(name, folder=got.parent)
    assert data.found_at == got
    assert np.isfinite(data.targets).all()
