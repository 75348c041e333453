"""Metadata of photographs as columns: EXIF, XMP, IPTC and sidecars in real files, over several index runs."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.images.photo_facts import checked_facts, moment_of, read_facts
from tapr.images.workers import facts_apart
from tapr.images.xmp import MAX_DEPTH, read_xmp
from tapr.server.app import create_app
from tapr.server.settings import Settings
from tests.pictures import flag
from tests.refusals import refused

VIENNA = {1: "N", 2: (48.0, 12.0, 30.0), 3: "E", 4: (16.0, 22.0, 0.0)}
BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


def exif(taken: str = "2024:06:01 12:34:56", zone: str = "+02:00", **gps: Any) -> Image.Exif:
    tags = Image.Exif()
    tags[0x010F], tags[0x0110] = "Canon", "Canon EOS R5"
    tags.get_ifd(0x8769).update({0x9003: taken, 0x9011: zone, 0xA434: "RF 50mm"})
    tags.get_ifd(0x8825).update(gps.get("place", VIENNA))
    return tags


def xmp(attributes: str = "", inside: str = "") -> bytes:
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"'
        ' xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/"'
        f" {attributes}>{inside}</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def listed(name: str, *items: str) -> str:
    return f"<dc:{name}><rdf:Bag>{''.join(f'<rdf:li>{item}</rdf:li>' for item in items)}</rdf:Bag></dc:{name}>"


def picture(kind: str = "JPEG", colours: tuple[str, ...] = ("red", "blue"), **more: Any) -> bytes:
    file = io.BytesIO()
    flag(*colours).save(file, kind, **more)
    return file.getvalue()


def with_iptc(jpeg: bytes, **fields: str) -> bytes:
    """Add the block that Photoshop writes IPTC into."""
    numbers = {"title": 5, "keyword": 25, "date": 55, "time": 60}
    records = b"".join(
        b"\x1c\x02" + struct.pack(">BH", numbers[name], len(text.encode())) + text.encode()
        for name, text in fields.items()
    )
    records += b"\0" * (len(records) % 2)
    block = b"Photoshop 3.0\x008BIM\x04\x04\0\0" + struct.pack(">I", len(records)) + records
    return jpeg[:2] + b"\xff\xed" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


def build(folder: Path, *images: Path, **options: Any) -> Gallery:
    return Gallery.build(folder, images, FakeEncoder(), **options)


def metadata(gallery: Gallery) -> dict[str, dict[str, Any]]:
    entries = gallery.entries(range(len(gallery)))
    return {entry.id: entry.metadata for entry in entries}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_is_read_from_every_kind_of_file(kind: str) -> None:
    tags: Any = exif().tobytes() if kind == "TIFF" else exif()
    assert facts_apart(picture(kind, exif=tags)) == {
        "taken": "2024-06-01T12:34:56+02:00",
        "year": 2024,
        "camera": "Canon EOS R5",
        "lens": "RF 50mm",
        "latitude": 48.208333,
        "longitude": 16.366667,
    }


def test_a_sidecar_wins_over_exif_and_exif_over_iptc() -> None:
    data = with_iptc(picture(exif=exif()), title="of IPTC", keyword="sea", date="20200102", time="030405+0100")
    assert read_facts(data)["taken"].startswith("2024")
    assert read_facts(data)["title"] == "of IPTC"
    sidecar = xmp('xmp:Rating="4"', listed("title", "At sea") + listed("subject", "beach", "sun &amp; sea"))
    facts = read_facts(data, [sidecar])
    assert (facts["title"], facts["keywords"], facts["rating"]) == ("At sea", "beach, sun & sea", 4)
    alone = read_facts(with_iptc(picture(), date="20200102", time="030405+0100"))
    assert alone == {"taken": "2020-01-02T03:04:05+01:00", "year": 2020}


def test_places_of_xmp_and_of_the_southern_and_western_half() -> None:
    facts = read_facts(picture(), [xmp('exif:GPSLatitude="33,51.5S" exif:GPSLongitude="70,40,12W"')])
    assert (facts["latitude"], facts["longitude"]) == (-33.858333, -70.67)
    assert read_facts(picture(), [xmp('exif:GPSLatitude="99,0N" exif:GPSLongitude="70,40W"')]) == {}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024:06:01 12:34:56", "2024-06-01T12:34:56"),
        ("2024-06-01T12:34:56.78+0530", "2024-06-01T12:34:56+05:30"),
        ("2024-06-01T12:34Z", "2024-06-01T12:34:00Z"),
        ("2024-06-01", "2024-06-01"),
        ("0000:00:00 00:00:00", None),
        ("2024:02:31 00:00:00", None),
        ("2024", None),
        ("", None),
    ],
)
def test_moments(text: str, moment: str | None) -> None:
    assert moment_of(text) == moment


def test_entities_and_depth_in_xmp_are_refused_and_texts_are_cut() -> None:
    assert read_xmp(BOMB + xmp(inside=listed("title", "&b;"))) == {}
    assert read_xmp(b"<a>" * (MAX_DEPTH + 10)) == {}
    facts = read_facts(picture(), [xmp(inside=listed("subject", *(f"{n}{'x' * 5000}" for n in range(500))))])
    assert len(facts["keywords"]) <= 300


def test_broken_metadata_leaves_a_good_picture(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.jpg").write_bytes(picture(exif=b"Exif\0\0MM\0*" + b"\xff" * 40, xmp=b"<" * 100))
    gallery = build(tmp_path / "g", tmp_path / "p")
    assert metadata(gallery) == {"a.jpg": {}}


def test_only_facts_of_the_right_form_are_believed() -> None:
    wrong = {"taken": "now", "camera": 7, "rating": 1e9, "latitude": "x", "path": "/etc", "year": True}
    assert checked_facts(wrong) == {}
    assert checked_facts(["taken"]) == {}


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "Trips" / "Rome").mkdir(parents=True)
    (folder / "Trips" / "a.jpg").write_bytes(picture(exif=exif()))
    (folder / "Trips" / "Rome" / "b.jpg").write_bytes(picture(colours=("green",), exif=exif("2023:01:01 00:30:00")))
    (folder / "c.jpg").write_bytes(picture(colours=("white", "red")))
    return folder


def test_filters_by_date_folder_and_year(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips)
    assert gallery.select("taken >= '2024-06-01' and folder = 'Trips'").ids() == ["Trips/a.jpg"]
    assert gallery.select("taken between '2022-12-31 22:30' and '2022-12-31 22:31'").ids() == [
        "Trips/Rome/b.jpg"
    ]  # UTC
    assert gallery.select("taken is null and folder is null").ids() == ["c.jpg"]
    facets = {facet.name: facet for facet in gallery.facets()}
    assert (facets["year"].least, facets["year"].most) == (2023, 2024)
    assert {value for value, _ in facets["folder"].values or ()} == {"Trips", "Trips/Rome"}


def test_a_run_without_changes_publishes_nothing(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips)
    snapshot = gallery.manifest.snapshot
    assert gallery.sync().unchanged == 3
    assert gallery.manifest.snapshot == snapshot


def test_reading_can_be_turned_off_and_on_again(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips, exif=False)
    assert metadata(gallery)["Trips/a.jpg"] == {"folder": "Trips"}
    gallery.sync()
    assert "taken" not in gallery.metadata_keys()
    report = gallery.sync(exif=True)
    assert (report.encoded, metadata(gallery)["Trips/a.jpg"]["year"]) == (0, 2024)
    gallery.sync(exif=False)
    assert metadata(gallery)["Trips/a.jpg"] == {"folder": "Trips"}


@pytest.mark.parametrize(
    "name", ["a.xmp", "a.jpg.xmp", "a.XMP"]
)  # Lightroom; digiKam and darktable; Lightroom on Windows
def test_sidecars_that_come_change_and_go_are_followed(trips: Path, tmp_path: Path, name: str) -> None:
    gallery = build(tmp_path / "g", trips)
    sidecar = trips / "Trips" / name
    sidecar.write_bytes(xmp('xmp:Rating="3"'))
    os.utime(sidecar, (1, 1))  # older than the picture
    report = gallery.sync()
    assert (report.encoded, report.touched) == (0, 1)
    assert metadata(gallery)["Trips/a.jpg"]["rating"] == 3
    sidecar.write_bytes(xmp('xmp:Rating="5"', listed("title", "Best")))
    gallery.sync()
    assert metadata(gallery)["Trips/a.jpg"]["rating"] == 5
    sidecar.unlink()
    gallery.sync()
    assert "rating" not in gallery.metadata_keys()


def test_a_renamed_picture_takes_its_new_folder_and_is_not_encoded_again(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips)
    (trips / "Trips" / "a.jpg").rename(trips / "d.jpg")
    report = gallery.sync()
    assert (report.encoded, report.renamed) == (0, 1)
    assert "folder" not in metadata(gallery)["d.jpg"]
    assert metadata(gallery)["d.jpg"]["camera"] == "Canon EOS R5"


def test_a_column_of_a_table_wins_for_all_of_its_pictures(trips: Path, tmp_path: Path) -> None:
    table = trips / "list.csv"
    table.write_text("path,camera\nTrips/a.jpg,mine\nTrips/Rome/b.jpg,\n")
    gallery = build(tmp_path / "g", table)
    assert [one.get("camera") for one in metadata(gallery).values()] == ["mine", None]
    assert metadata(gallery)["Trips/a.jpg"]["year"] == 2024
    table.write_text("path,note\nTrips/a.jpg,good\nTrips/Rome/b.jpg,\n")
    gallery.sync()
    assert {one.get("camera") for one in metadata(gallery).values()} == {"Canon EOS R5"}


def test_hits_are_shown_in_the_order_of_a_column_with_missing_values_last(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips)
    for sort, ids in {
        "taken": ["Trips/Rome/b.jpg", "Trips/a.jpg", "c.jpg"],
        "taken desc": ["Trips/a.jpg", "Trips/Rome/b.jpg", "c.jpg"],
        "score DESC": [hit.id for hit in tapr.search(gallery, text="red").hits],
    }.items():
        ranking = tapr.search(gallery, text="red", sort=sort)
        assert [hit.id for hit in ranking.hits] == ids
        assert sorted(hit.rank for hit in ranking.hits) == [1, 2, 3]
    with refused("bad_option", "takne", "taken", option="sort"):
        tapr.search(gallery, text="red", sort="takne")


def test_a_server_hides_where_photographs_were_taken(trips: Path, tmp_path: Path) -> None:
    gallery = build(tmp_path / "g", trips)
    asked = [
        ("/api/gallery", {}),
        ("/api/facets", {}),
        ("/api/gallery", {"where": "latitude > 40"}),
        ("/api/gallery", {"where": "latitude is not null"}),
    ]
    for shown in (False, True):
        settings = Settings(names=("testserver",), show_location=shown)
        with TestClient(create_app(gallery, settings)) as client:
            replies = [client.get(path, params=params) for path, params in asked]
            hits = client.post("/api/search", json={"text": "red"}).json()["hits"]
            sort = client.post("/api/search", json={"text": "red", "sort": "latitude"})
        assert ("latitude" in replies[0].text) is shown
        assert ("longitude" in replies[0].text) is shown
        assert [reply.status_code for reply in replies] == [200, 200, *([200, 200] if shown else [400, 400])]
        assert any("latitude" in hit["metadata"] for hit in hits) is shown
        assert sort.status_code == (200 if shown else 400)
        assert "camera" in replies[0].text
    assert "latitude" in gallery.metadata_keys()
