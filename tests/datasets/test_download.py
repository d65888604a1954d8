"""Downloads, from a server on this machine that also misbehaves."""

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
from typer.testing import CliRunner

from helpers import FOLDER, TOY, real_data, toy
from ncai import datasets
from ncai.cli import app as cli
from ncai.datasets import registry
from ncai.datasets.download import download_dataset, fetch
from ncai.datasets.registry import DatasetError, UciFile, find_set

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
