"""`patchlight serve`: the viewer with a live model."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from patchlight.cli import _options as o
from patchlight.cli._console import out, say


def command(
    *,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="A model to choose from; several may be given. [default: pets-vit]")
    ] = None,
    weights: o.Weights = None,
    labels: o.Labels = None,
    device: o.Device = "auto",
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port to listen at.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="PATCHLIGHT_TOKEN", help="Who has it may ask. [default: made up beyond this machine]"),
    ] = None,
    megabytes: Annotated[int, typer.Option("--max-mb", min=1, help="The largest picture that is taken.")] = 20,
    megapixels: Annotated[int, typer.Option("--max-mp", min=1, help="The most pixels that are taken, in millions.")] = 40,
    requests: Annotated[int, typer.Option("--queue", min=1, help="Requests at once; more are told that it is busy.")] = 32,
) -> None:
    """Serve the viewer: drop a picture, choose methods and classes, click patches. Nothing leaves this machine."""
    from patchlight.core.errors import PatchlightError

    try:
        import uvicorn

        from patchlight.web.server import create_app
        from patchlight.web.uploads import Limits
    except ImportError as error:
        raise PatchlightError(f"patchlight serve needs {error.name}. Install it with: pip install 'patchlight[web]'.") from error
    from patchlight.cli import _run
    from patchlight.web.guard import LOCAL

    names = model or ["pets-vit"]
    one = len(names) == 1
    subjects = {
        name: _run.load_subject(
            name,
            weights=weights if one else None,
            labels=labels if one else None,
            device=device,
            precision=_run.Precision.float32,
        )
        for name in names
    }
    for subject in subjects.values():
        subject.model.eval()
    if token is None and host not in LOCAL:
        token = secrets.token_urlsafe(16)
    limits = Limits(bytes=megabytes * 1_000_000, pixels=megapixels * 1_000_000, requests=requests)
    app = create_app(subjects, token=token, hosts=frozenset({host}), limits=limits)
    shown = f"[{host}]" if ":" in host else host
    say(out(), f"patchlight viewer: http://{shown}:{port}/{f'#token={token}' if token else ''}", style="bold")
    say(out(), f"models: {', '.join(names)}; API: http://{shown}:{port}/docs; Ctrl-C stops it.", style="dim")
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False, timeout_keep_alive=15)
