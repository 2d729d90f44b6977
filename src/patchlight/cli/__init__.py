"""The command line: one file per verb; `patchlight --help` starts without torch, which the verbs import when they run."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from patchlight.cli import bench, compare, data, demo, doctor, evaluate, explain, methods, metrics, serve, train_explainer
from patchlight.cli._console import err, say
from patchlight.core.errors import PatchlightError

FAILED, WRONG, STOPPED = 1, 2, 130


class Group(TyperGroup):
    """Turns what patchlight raises into one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PatchlightError as error:
            say(err(), f"patchlight: {error}")
            raise typer.Exit(WRONG) from error
        except KeyboardInterrupt as stop:
            say(err(), "patchlight: stopped. What was written before is complete and stays.")
            raise typer.Exit(STOPPED) from stop


app = typer.Typer(
    cls=Group,
    help="See what a Vision Transformer looked at.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # brackets in help texts stay
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (explain, compare, evaluate, methods, metrics, data, doctor, demo, serve, train_explainer):
    app.command(verb.__name__.rpartition(".")[2].replace("_", "-"))(verb.command)
app.add_typer(bench.app, name="bench")


def show_version(value: bool | None) -> None:  # noqa: FBT001  typer calls it with the option's value
    if value:
        from patchlight import __version__

        typer.echo(f"patchlight {__version__}")
        raise typer.Exit


Version = Annotated[bool | None, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")]


@app.callback()
def options(
    version: Version = None,  # noqa: ARG001  its callback does the work
) -> None:
    """See what a Vision Transformer looked at.

    Exit codes: 0 done, 1 some items failed (they are named), 2 wrong call.
    """
    # notes are shown by the verbs themselves: the library's log lines would repeat them
    logging.getLogger("patchlight").addHandler(logging.NullHandler())


def main() -> None:
    """The entry point of the package."""
    app()
