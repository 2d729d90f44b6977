"""One thread in front of the device: work waits here, in a bounded number, and is dropped when nobody waits for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from patchlight.core.errors import PatchlightError

log = logging.getLogger("patchlight")
END = object()


class BusyError(PatchlightError):
    """More work waits than the server takes."""


class StoppedError(Exception):
    """Nobody waits for the work any longer."""


@dataclass(eq=False)
class Ticket:
    """One request: what its pieces of work have to say goes through here, from the device's thread to the loop."""

    loop: asyncio.AbstractEventLoop
    pieces: int = 0
    events: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    gone: threading.Event = field(default_factory=threading.Event)

    def tell(self, event: Any) -> None:
        """From the device's thread; raises StoppedError where nobody listens."""
        self.check()
        self.post(event)

    def check(self) -> None:
        if self.gone.is_set():
            raise StoppedError

    def post(self, event: Any) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    async def stream(self) -> AsyncGenerator[Any, None]:
        """Events until all pieces have ended; an exception of a piece is raised here."""
        left = self.pieces
        while left:
            event = await self.events.get()
            if event is END:
                left -= 1
            elif isinstance(event, BaseException):
                raise event
            else:
                yield event


@dataclass(order=True)
class Piece:
    urgency: int  # clicks go before maps
    turn: int  # the first pieces of all requests go before the second ones
    number: int
    ticket: Ticket = field(compare=False)
    work: Callable[[Ticket], None] = field(compare=False)


class Device:
    """Runs one piece at a time."""

    def __init__(self, most: int) -> None:
        self.most, self.open = most, 0
        self.numbers = itertools.count()
        self.waiting: queue.PriorityQueue[Piece] = queue.PriorityQueue()
        self.thread: threading.Thread | None = None

    @contextmanager
    def request(self, *works: Callable[[Ticket], None], urgency: int = 1) -> Iterator[Ticket]:
        """A ticket for pieces of work, which are forgotten when the block is left."""
        self.check()
        self.start()
        ticket = Ticket(asyncio.get_running_loop(), len(works))
        self.open += 1
        try:
            for turn, work in enumerate(works):
                self.waiting.put(Piece(urgency, turn, next(self.numbers), ticket, work))
            yield ticket
        finally:
            ticket.gone.set()
            self.open -= 1

    def check(self) -> None:
        if self.open >= self.most:
            raise BusyError(f"the server is busy: {self.open} requests are being worked on or wait. Try again in a moment.")

    def start(self) -> None:
        """With the first request, and again after a stop."""
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self.run, name="patchlight-device", daemon=True)
            self.thread.start()

    def run(self) -> None:
        while True:
            piece = self.waiting.get()
            if piece.work is stop:
                return
            self.do(piece)
            del piece  # what it holds is not kept until the next one comes

    def do(self, piece: Piece) -> None:
        try:
            piece.ticket.check()
            piece.work(piece.ticket)
        except StoppedError:
            pass
        except PatchlightError as error:
            piece.ticket.post(error.with_traceback(None))
        except Exception as error:
            log.exception("a piece of work failed")
            piece.ticket.post(RuntimeError(f"{type(error).__name__}: {error}"))
        finally:
            piece.ticket.post(END)

    def close(self) -> None:
        if self.thread is not None:
            self.waiting.put(Piece(-1, -1, -1, None, stop))  # type: ignore[arg-type]
            self.thread.join(timeout=5)
            self.thread = None


def stop(_: Ticket) -> None:
    """The piece that ends the thread."""
