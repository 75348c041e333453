"""Downloads of many pictures, and the file manager of the server's machine."""

import csv
import io
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from PIL.ExifTags import IFD

from tapr import BadInput
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tests.pictures import flag
from tests.server.conftest import HOSTILE_IDS, client_of

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from starlette.testclient import TestClient

from tapr.server.settings import Settings

IDS = ["red-blue.png", "blue-red.png", *HOSTILE_IDS]


def test_a_zip_of_original_pictures(client: TestClient, gallery: Gallery) -> None:
    reply = client.post("/api/export", json={"ids": IDS})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/zip")
    assert reply.headers["content-disposition"] == 'attachment; filename="tapr-pictures.zip"'
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("pictures.csv").decode(), newline="")))
        assert [row["id"] for row in rows] == IDS
        assert all("/" not in name and "\\" not in name for name in archive.namelist())
        for row in rows:
            entry = gallery.find(row["id"])
            assert entry is not None
            assert archive.read(row["file"]) == Path(entry.path).read_bytes()


def test_a_list_as_csv(client: TestClient) -> None:
    reply = client.post("/api/export", json={"ids": IDS, "format": "csv"})
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(reply.text, newline="")))
    assert [row["id"] for row in rows] == IDS
    assert (rows[0]["rank"], rows[0]["left"], rows[0]["width"]) == ("1", "red", "48")
    assert "path" not in rows[0]


def test_what_is_refused(gallery: Gallery) -> None:
    with client_of(gallery, Settings(names=("testserver",), most_exported=1)) as client:
        assert client.post("/api/export", json={"ids": ["unknown"]}).status_code == 404
        assert client.post("/api/export", json={"ids": []}).status_code == 422
        reply = client.post("/api/export", json={"ids": IDS})
        assert (reply.status_code, reply.json()["detail"][:37]) == (400, "one ZIP takes up to 1 picture, not 12")
        assert client.post("/api/export", json={"ids": IDS, "format": "csv"}).status_code == 200
        for _ in range(9):  # each gives its place back
            assert client.post("/api/export", json={"ids": IDS[:1]}).status_code == 200


@pytest.mark.parametrize("strip", [False, True])
def test_originals_without_the_place_where_they_were_taken(tmp_path: Path, strip: bool) -> None:
    exif = Image.Exif()
    exif.get_ifd(IFD.GPSInfo).update({1: "N", 2: (48.0, 51.0, 29.87)})
    flag("red").save(tmp_path / "red.jpg", exif=exif)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "red.jpg", FakeEncoder())
    with client_of(gallery, Settings(names=("testserver",), strip_location=strip)) as client:
        original = client.get("/api/images/red.jpg").content
        asked = {"ids": ["red.jpg"], "keep_location": True}
        archive = zipfile.ZipFile(io.BytesIO(client.post("/api/export", json=asked).content))
        for data in (original, archive.read("01-red.jpg")):
            assert bool(Image.open(io.BytesIO(data)).getexif().get_ifd(IFD.GPSInfo)) != strip


def test_show_in_folder_is_off_unless_asked_for(client: TestClient) -> None:
    assert client.get("/api/gallery").json()["shows_in_folder"] is False
    assert client.post("/api/show", json={"id": IDS[0]}).status_code == 404


def test_show_in_folder_for_the_person_at_the_machine(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def show(path: str) -> bool:
        opened.append(path)
        return True

    monkeypatch.setattr("tapr.server.export_api.show_in_folder", show)
    with client_of(gallery, Settings(names=("testserver",), show_in_folder=True)) as client:
        assert client.get("/api/gallery").json()["shows_in_folder"] is True
        assert client.post("/api/show", json={"id": IDS[0]}).status_code == 204
        assert client.post("/api/show", json={"id": "/etc/passwd"}).status_code == 404
        remote_encoder = {"origin": "http://evil.example"}
        assert client.post("/api/show", json={"id": IDS[0]}, headers=remote_encoder).status_code == 403
        assert [Path(path).name for path in opened] == [IDS[0]]
        monkeypatch.setattr("tapr.server.export_api.show_in_folder", lambda path: False)
        assert client.post("/api/show", json={"id": IDS[0]}).status_code == 400


@pytest.mark.parametrize(
    "other",
    [{"token": "a long secret"}, {"write_token": "a long secret"}, {"host": "0.0.0.0", "token": "a long secret"}],
)
def test_never_for_others(other: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="for the person at this machine"):
        Settings(show_in_folder=True, **other)  # type: ignore[arg-type]
