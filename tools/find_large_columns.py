"""Find the columns of clip-b16's normed states that are so large that 8 bits would leave few steps to the others.

    PYTHONPATH=src:. python tools/find_large_columns.py PICTURES_FOLDER...

Runs the image tower in float32 over the pictures, takes the COUNT columns with the largest number in them after every
norm, and writes encoders/data/clip_b16_columns.json. Such columns are the weights' own: any pictures show the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tapr.encoders.clip_weights import COLUMNS, GRID, INPUT, LAYERS, WIDTH, Columns, TowerWeights
from tapr.encoders.onnx_session import session
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.images.frame import Frame
from tools.build_image_tower import FloatProducts, Graph, TowerGraph, layer_weights

COUNT, PICTURES = 15, 60


class Watched(FloatProducts):
    """Remembers the tensors that have columns apart."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.seen: dict[int, str] = {}  # number of the norm -> tensor

    def rows(self, tensor: str, columns: Columns = ()) -> str:
        if columns:
            self.seen[columns[0]] = tensor
        return tensor


def main() -> None:
    files = sorted(
        path for folder in sys.argv[1:] for path in Path(folder).rglob("*") if path.suffix in (".jpg", ".png")
    )
    graph = Graph(layer_weights(TowerWeights.read(fetch(CLIP_B16_IMAGE_TOWER, print))))
    watched = Watched(graph)
    norms = 2 * LAYERS
    TowerGraph(graph, watched, tuple((number,) for number in range(norms))).vectors("tokens", GRID)
    names = [graph.output(watched.seen[number]) for number in range(norms)]
    tower, most = session(graph.model()), np.zeros((norms, WIDTH))
    for file in files[:: max(1, len(files) // PICTURES)]:
        image = Image.open(file).convert("RGBA")
        white = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        states = tower.run(names, {INPUT: Frame(224).apply(white)[None]})
        most = np.maximum(most, [np.abs(state).max(0) for state in states])
    found = np.sort(np.argsort(-most, axis=1)[:, :COUNT], axis=1).tolist()
    COLUMNS.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in found) + "\n]\n")
    print(f"{COLUMNS}: {COUNT} columns after each of {norms} norms")


if __name__ == "__main__":
    main()
