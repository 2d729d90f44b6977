"""The HTTP API and the page in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from patchlight import __version__
from patchlight.core.errors import PatchlightError
from patchlight.models.subject import Subject
from patchlight.render.page import page
from patchlight.web import catalogue, guide
from patchlight.web.device import BusyError, Device, Ticket
from patchlight.web.guard import LOCAL, Guard
from patchlight.web.schemas import Attention, Curves, Explain, File, Problem, Scores
from patchlight.web.uploads import ContentError, Limits, TooLargeError, UnknownError, samples, too_large
from patchlight.web.work import Bench, Work, for_page, for_programs, target_of

STATUS = {BusyError: 503, TooLargeError: 413, ContentError: 415, UnknownError: 404}
ANSWERS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "A token is needed"},
    403: {"model": Problem, "description": "From another site or host"},
    404: {"model": Problem, "description": "No such picture or model"},
    413: {"model": Problem, "description": "Too many bytes or pixels"},
    415: {"model": Problem, "description": "Not a picture"},
    422: {"model": Problem, "description": "What is wrong, and what to do"},
    503: {"model": Problem, "description": "Busy: try again in a moment"},
}
Model = Annotated[str | None, Query(max_length=200)]
Id = Annotated[str, Path(max_length=64)]


def create_app(
    subjects: Mapping[str, Subject],
    *,
    token: str | None = None,
    hosts: frozenset[str] = frozenset(),
    limits: Limits | None = None,
) -> FastAPI:
    """The server for these models."""
    limits = limits or Limits()
    bench, device = Bench(subjects, limits), Device(limits.requests)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(device.close)

    app = FastAPI(
        title="patchlight",
        version=__version__,
        description="What a Vision Transformer looked at, as an API.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        responses=ANSWERS,
    )
    app.add_exception_handler(PatchlightError, on_error)
    app.add_exception_handler(RequestValidationError, on_wrong_call)
    app.add_exception_handler(HTTPException, on_http_error)
    add_pages(app, bench, device)
    add_pictures(app, bench, device)
    add_explain(app, bench, device)
    add_clicks(app, bench, device)
    app.add_middleware(Guard, limits=limits, token=token, hosts=LOCAL | hosts)  # type: ignore[arg-type]
    return app


async def on_error(_: Request, error: Exception) -> JSONResponse:
    status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 422)
    return JSONResponse({"error": str(error)}, status, headers={"retry-after": "2"} if status == 503 else None)


async def on_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=dict(error.headers or {}))


async def on_wrong_call(_: Request, error: Exception) -> JSONResponse:
    """What is wrong with a request, in one line for each fault."""
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(str(p) for p in e['loc'][1:]) or 'request'}: {e['msg']}" for e in error.errors()[:5]]
    return JSONResponse({"error": "; ".join(told)}, 422)


# -- answers ----------------------------------------------------------------------------------------------------------


async def one(request: Request, device: Device, work: Work, *, urgency: int = 0) -> Any:
    """The one answer of a piece of work; dropped when the caller has gone."""
    with device.request(work, urgency=urgency) as ticket:
        async for event in followed(request, ticket):
            return event
    return None


async def followed(request: Request, ticket: Ticket) -> AsyncGenerator[Any, None]:
    """The ticket's events while the caller is there."""
    watch = asyncio.create_task(gone(request))
    async with aclosing(ticket.stream()) as events:
        try:
            while True:
                turn = asyncio.ensure_future(anext(events, None))
                await asyncio.wait({turn, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not turn.done():
                    turn.cancel()
                    await asyncio.gather(turn, return_exceptions=True)
                    return
                if (event := turn.result()) is None:
                    return
                yield event
        finally:
            watch.cancel()


async def gone(request: Request) -> None:
    """Returns when the caller has left."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def streamed(device: Device, works: list[Work], first: dict[str, Any] | None = None) -> StreamingResponse:
    """One JSON document a line, as it comes; leaving the page stops the work."""
    device.check()

    async def lines() -> AsyncIterator[str]:
        try:
            with device.request(*works) as ticket:
                if first is not None:
                    yield json.dumps(first) + "\n"
                async with aclosing(ticket.stream()) as events:
                    async for event in events:
                        yield json.dumps(event) + "\n"
            yield '{"event":"end"}\n'
        except Exception as error:
            told = str(error) if isinstance(error, PatchlightError) else "the server failed; its log says more."
            yield json.dumps({"event": "error", "error": told}) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


# -- routes -----------------------------------------------------------------------------------------------------------


def add_pages(app: FastAPI, bench: Bench, device: Device) -> None:
    empty = page({"live": {"version": __version__}}, title="patchlight", offline=False)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def viewer() -> HTMLResponse:
        return HTMLResponse(empty)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(guide.page_of(app.openapi()))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server is up, and how many requests it has."""
        return {"ok": True, "requests": device.open, "most": device.most}

    @app.get("/about")
    async def about() -> dict[str, Any]:
        """Models, methods with their settings, sample photos and limits."""
        return await asyncio.to_thread(catalogue.about, bench.subjects, bench.limits)


def add_pictures(app: FastAPI, bench: Bench, device: Device) -> None:
    photos = samples()
    kinds = {"image/*": {"schema": {"type": "string", "format": "binary"}}}

    @app.post("/pictures", openapi_extra={"requestBody": {"required": True, "content": kinds}})
    async def send(request: Request, name: Annotated[str, Query(max_length=300)] = "picture", model: Model = None) -> Any:
        """Send a picture as the body of the request; the answer has its id and what the model says of it."""
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > bench.limits.bytes:
                raise too_large(len(data), bench.limits)
        key = await asyncio.to_thread(bench.pictures.add, bytes(data), name)
        return await one(request, device, bench.look(key, model))

    @app.get("/pictures/{key}")
    async def seen(request: Request, key: Id, model: Model = None) -> Any:
        """A picture that was sent, and what a model says of it."""
        return await one(request, device, bench.look(key, model))

    @app.post("/samples/{name}")
    async def sample(request: Request, name: Id, model: Model = None) -> Any:
        """One of the photos that come with patchlight, as if it had been sent."""
        if name not in photos:
            raise UnknownError(f"there is no sample {name!r}. There are: {', '.join(photos)}.")
        key = await asyncio.to_thread(bench.pictures.add, photos[name], name)
        return await one(request, device, bench.look(key, model))


def add_explain(app: FastAPI, bench: Bench, device: Device) -> None:
    async def prepared(asked: Explain) -> str:
        target_of(asked)
        return await asyncio.to_thread(bench.pictures.given, asked.picture)

    @app.post("/explain")
    async def explain(request: Request, asked: Annotated[Explain, Body()]) -> dict[str, Any]:
        """Explain a picture by several methods: raw scores as nested lists, on patches or pixels."""
        key = await prepared(asked)
        results, problems = {}, {}
        with device.request(*bench.explain(key, asked, for_programs)) as ticket:
            async for event in followed(request, ticket):
                if event["event"] == "map":
                    results[event["label"]] = {k: v for k, v in event.items() if k not in ("event",)} | {
                        "name": event.get("method")
                    }
                elif event["event"] == "problem":
                    problems[event["label"]] = event["error"]
        if problems and not results:
            raise PatchlightError("; ".join(problems.values()))
        return {"picture": key, "model": bench.subject(asked.model).name, "results": results, "problems": problems}

    @app.post("/explain/stream", response_class=StreamingResponse)
    async def stream(asked: Annotated[Explain, Body()]) -> StreamingResponse:
        """The same as it comes, one JSON document a line, cheap methods first: events map, progress, problem, error, end."""
        key = await prepared(asked)
        return streamed(device, bench.explain(key, asked, for_page), {"event": "start", "picture": key})

    @app.post("/file", response_class=Response)
    async def file(request: Request, asked: Annotated[File, Body()]) -> Response:
        """The explanation as a self-contained page or as .npz."""
        key = await prepared(asked)
        data = await one(request, device, bench.file(key, asked), urgency=1)
        kind = {"html": "text/html; charset=utf-8", "npz": "application/zip"}[asked.format]
        named = {"content-disposition": f'attachment; filename="patchlight.{asked.format}"'}
        return Response(data, media_type=kind, headers=named)


def add_clicks(app: FastAPI, bench: Bench, device: Device) -> None:
    @app.post("/attention")
    async def attention(request: Request, asked: Annotated[Attention, Body()]) -> Any:
        """Where a patch attends, at every block and head."""
        return await one(request, device, bench.attend(bench.pictures.given(asked.picture), asked))

    @app.post("/scores")
    async def scores(request: Request, asked: Annotated[Scores, Body()]) -> Any:
        """What the model says when patches are taken away: one answer for each set."""
        return await one(request, device, bench.scores(bench.pictures.given(asked.picture), asked))

    @app.post("/curves", response_class=StreamingResponse)
    async def curves(asked: Annotated[Curves, Body()]) -> StreamingResponse:
        """Deletion and insertion in a given order, as the points come; rows alternate between the two."""
        return streamed(device, [bench.curves(bench.pictures.given(asked.picture), asked)])
