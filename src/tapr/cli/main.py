"""The command line: one file per command in cli/, imported when it is used."""

from __future__ import annotations

import contextlib
import difflib
import errno
import gc
import importlib
import os
import sys
import warnings

import click

from tapr import __version__
from tapr.errors import TaprError
from tapr.utils.safe_text import printable, without_secrets

_VERBS = {
    "demo": "A real search on a bundled gallery, nothing to configure.",
    "index": "Index pictures into a gallery, or bring it up to date.",
    "watch": "Keep a gallery fresh while pictures come and go.",
    "sources": "Where a gallery's pictures come from: list, drop, move.",
    "first-stage": "Summarise the pictures of a large gallery, so that searches read few of them.",
    "repair": "Mend a gallery whose files are damaged.",
    "backup": "Copy a gallery while others use it, and verify the copy.",
    "restore": "Make a gallery from a backup.",
    "search": "Rank a gallery by a picture and an edit.",
    "searches": "Saved searches: list, run, delete, and new pictures that fit.",
    "show": "Show a picture of a gallery in its folder.",
    "factorize": "Turn a picture and an edit into Target, Add, Preserve, Remove.",
    "describe": "Say what pictures show.",
    "serve": "The HTTP API and the page.",
    "eval": "Metrics, controls, method tables and submissions on CIRCO, CIRR, FashionIQ, EmojiCIR.",
    "reproduce": "The paper's runs for one encoder, one after the other.",
    "cluster": "A gallery on a Ray cluster: start, status, scale, drain, stop.",
    "models": "Encoders and where their weights come from.",
    "doctor": "What is installed, reachable and fast, and what to do about the rest.",
}


_ADVICE = {
    errno.ENOSPC: "make room on that disk, then run this again",
    errno.EDQUOT: "make room within your quota, then run this again",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "choose another place, or change who may use this one",
    errno.EPERM: "choose another place, or change who may use this one",
    errno.EMFILE: "allow more open files (ulimit -n), then run this again",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "the disk itself failed: check it before you go on",
}


class _Verbs(click.Group):
    """Lists the verbs without importing them, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"tapr.cli.{module}"), module)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the one that was probably meant."""
        close = difflib.get_close_matches(args[0], _VERBS, n=1)
        if close and args[0] not in _VERBS:
            ctx.fail(f"there is no command {args[0]!r}: did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="tapr %(version)s")
def app() -> None:
    """Composed image retrieval: a picture and a sentence in, a ranked gallery and its reasons out."""


def main() -> None:
    """Run a command. Errors become one line on stderr: exit 2 for the user's mistakes, 1 for failures."""
    # Pillow warns of large pictures; ours are checked against images.decode.Limits. Only a program may silence that.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    _collect_seldom()
    try:
        code = app(prog_name="tapr", standalone_mode=False)
        sys.stdout.flush()  # reports a full disk behind stdout now, not when Python exits
    except TaprError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:  # `tapr` or `tapr models` alone
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "tapr"
        _fail(f"{error.format_message().rstrip('.?')}; see {usage} --help", 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("stopped; what was finished is kept", 130)
    except BrokenPipeError:
        _close_stdout()  # the reader, such as head, has closed the pipe
        sys.exit(0)
    except OSError as error:
        _close_stdout()
        _fail(_system_said(error), 1)
    sys.exit(code if isinstance(code, int) else 0)


def _collect_seldom() -> None:
    """Loading makes many objects and no garbage: at Python's own pace, looking for some is an eighth of a search."""
    gc.set_threshold(50_000, 20, 20)


def _system_said(error: OSError) -> str:
    """Turn a system error (disk, permission, limit) into a sentence."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    name = error.filename.decode(errors="replace") if isinstance(error.filename, bytes) else error.filename
    what = f"cannot use {name!r}: {reason}" if isinstance(name, str) else f"the system refused something: {reason}"
    return f"{what}; {_ADVICE.get(error.errno or 0, 'solve that, then run this again')}"


def _close_stdout() -> None:
    """Prevent a second error from the buffer of stdout when Python exits."""
    with contextlib.suppress(OSError, ValueError):  # stdout may have been replaced, for example by tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, code: int) -> None:
    print(f"tapr: {printable(without_secrets(sentence))}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
