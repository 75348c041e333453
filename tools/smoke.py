"""Tries an installed tapr: version, kernel, a gallery and a search with the encoder that needs no weights.

python -I tools/smoke.py KERNEL     how the kernel's name must begin: cpu-, numpy
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from PIL import Image

import tapr
from tapr.search.kernels.choose import kernel_report

COLOURS = ("red", "green", "blue", "white", "black", "yellow")


def main(kernel: str) -> None:
    assert "site-packages" in tapr.__file__, f"{tapr.__file__} is not what was installed"
    assert version("tapr-cir") == tapr.__version__
    report = kernel_report()
    assert report["kernel"].startswith(kernel), f"the kernel is {report['kernel']}, not {kernel}...: {report}"
    assert report["compiled"] or report["why_not"], "it has to say why there is no compiled kernel"
    with tempfile.TemporaryDirectory() as folder:
        for left in COLOURS:
            for right in COLOURS:
                picture = Image.new("RGB", (64, 64), left)
                picture.paste(right, (32, 0, 64, 64))
                picture.save(Path(folder) / f"{left}-{right}.png")
        gallery = tapr.Gallery.build(Path(folder) / "gallery", folder, encoder="fake")
        spec = tapr.EditSpec("red and green", add=["green"], preserve=["red"], remove=["blue"])
        ranking = tapr.search(gallery, Path(folder) / "red-blue.png", spec, k=3)
        best = {hit.id for hit in ranking.hits[:2]}
        assert best == {"red-green.png", "green-red.png"}, ranking.hits
        print(f"tapr {tapr.__version__}, Python {sys.version.split()[0]}, kernel {ranking.kernel}: {sorted(best)}")


if __name__ == "__main__":
    main(sys.argv[1])
