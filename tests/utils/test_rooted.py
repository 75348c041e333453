"""Files below a root folder: no name, link, named pipe or swap of links leads out of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tapr.errors import TaprError
from tapr.utils import rooted
from tapr.utils.rooted import NotRegular, Root, open_regular
from tests.refusals import refused

OUTSIDE = ("../x", "a/../../x", "/x", "a//x", "./x", "..", "a/..", "", "x\0y")


@pytest.fixture(params=["by handle", "by path"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A folder beside a file that must stay as it is; with the calls of a system that has no openat, too."""
    if request.param == "by path":
        monkeypatch.setattr(rooted, "_BY_HANDLE", False)
    (tmp_path / "x").write_bytes(b"outside")
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "file").write_bytes(b"inside")
    return Root(tmp_path / "root")


def content(root: Root, name: str) -> bytes:
    with root.open(name) as file:
        return file.read()


def test_files_inside(root: Root) -> None:
    assert content(root, "a/file") == b"inside"
    assert root.write("new/deep/x", [b"1", b"2"]) == 2
    assert content(root, "new/deep/x") == b"12"
    assert root.write("new/deep/x", [b"3"]) == 1
    assert (root.folders(), root.files("new/deep"), root.files("nothing")) == (["a", "new"], ["x"], [])
    with pytest.raises(FileExistsError):
        root.create("new/deep/x")
    root.rename("new/deep/x", "y")
    assert (root.size("new/deep/y"), root.size("new/deep/x")) == (1, None)
    root.delete("new/deep/y")
    root.delete("new/deep/y")
    assert root.files("new/deep") == []


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_is_refused(root: Root, name: str) -> None:
    for use in (root.open, root.delete, lambda name: root.write(name, [b"no"])):
        with refused("outside_folder"):
            use(name)
    assert (root.folder.parent / "x").read_bytes() == b"outside"


def test_no_link_is_followed(root: Root) -> None:
    (root.folder / "up").symlink_to("..")
    (root.folder / "link").symlink_to("../x")
    for name in ("up/x", "link"):
        with refused("outside_folder"):
            root.open(name)
    for use in (root.delete, lambda name: root.write(name, [b"no"]), root.size):
        with refused("outside_folder"):
            use("up/x")
    with refused("outside_folder"):
        root.files("up")
    assert root.folders() == ["a"]
    root.write("link", [b"in place of the link"])
    root.write("more", [b""])
    (root.folder / "more").unlink()
    (root.folder / "more").symlink_to("../x")
    root.delete("more")
    assert (root.folder.parent / "x").read_bytes() == b"outside"
    assert (root.files(), (root.folder / "link").is_symlink()) == (["link", "up"], False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_only_regular_files_are_opened(root: Root) -> None:
    os.mkfifo(root.folder / "pipe")
    for name in ("pipe", "a"):
        with pytest.raises(NotRegular):
            root.open(name)
        with pytest.raises(NotRegular):
            open_regular(root.folder / name)


def test_a_write_that_fails_leaves_the_old_file(root: Root) -> None:
    with pytest.raises(TypeError):
        root.write("a/file", ["no bytes"])  # type: ignore[list-item]
    assert content(root, "a/file") == b"inside"
    assert root.files("a") == ["file"]


@pytest.mark.skipif(not rooted._BY_HANDLE, reason="the system cannot open files from an open folder")
def test_links_that_are_swapped_meanwhile_lead_nowhere(tmp_path: Path) -> None:
    root, stop = Root(tmp_path / "root"), threading.Event()
    for folder, content in (("root/real", b"inside"), ("secret", b"outside")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x").write_bytes(content)
    (tmp_path / "root" / "link").symlink_to("../secret")

    def swap() -> None:
        at = {name: str(tmp_path / "root" / name) for name in ("real", "link", "here", "kept")}
        while not stop.is_set():
            for name in ("real", "link"):
                os.rename(at[name], at["here"])
                os.rename(at["here"], at[name])

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                with root.open("here/x") as file:
                    seen.add(file.read())
            except (TaprError, FileNotFoundError):
                continue
    finally:
        stop.set()
        swapper.join()
    assert seen <= {b"inside"}
