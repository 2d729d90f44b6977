"""Ctrl-C that loses nothing: long work is asked to stop, and hands over what it has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Stopped by Ctrl-C: `found` holds what was done by then, name -> Explanation, of the pictures that were finished."""

    def __init__(self, message: str, found: dict[str, Any]) -> None:
        super().__init__(message)
        self.found = found


@dataclass(eq=False)
class Stop:
    """Whether the user wants an end; looked at between batches of work."""

    asked: bool = False


@contextmanager
def interruptible() -> Iterator[Stop]:
    """The first Ctrl-C asks to stop, the second one stops at once. Outside the main thread signals never come."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) in (None, signal.SIG_IGN):
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and callable(before):
            before(number, frame)
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
