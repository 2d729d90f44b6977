"""Ctrl-C: nothing that is done is lost, and the handler that was there comes back."""

from __future__ import annotations

import signal
import threading

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.interrupt import interruptible
from tiny import close, pictures, subject


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_asks_and_the_second_stops():
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as stop:
        press()
        assert stop.asked
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_installed():
    seen = []

    def work() -> None:
        with interruptible() as stop:
            seen.append((stop.asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, signal.getsignal(signal.SIGINT))]


def stopping(after: int):
    """Progress that presses Ctrl-C once that much is done."""

    def tell(done: int, _: int) -> None:
        if done == after:
            press()

    return tell


def test_sampling_that_is_interrupted_gives_the_estimate_so_far_with_its_error():
    with pytest.raises(pl.Interrupted, match="rise of 3 of 3 pictures") as caught:
        pl.explain(subject("vit"), pictures(), "rise", 1, samples=500, batch_size=8, progress=stopping(24))
    found = caught.value.found["rise"]
    assert found.samples.tolist() == [8, 8, 8]
    assert found.error.isfinite().all()
    assert "picture 0: interrupted after 8 of 500 masks, relative standard error" in found.notes[0]
    assert not isinstance(caught.value, Exception)  # so that `except Exception` in a loop does not swallow it


def test_pictures_that_are_done_are_kept():
    with pytest.raises(pl.Interrupted, match="saliency of 2 of 3 pictures") as caught:
        pl.explain(subject("vit"), pictures(), "saliency", 1, batch_size=1, progress=stopping(2))
    whole = tiny.explain("vit", "saliency", target=1)
    close(caught.value.found["saliency"].pixels, whole.pixels[:2], 1e-10)


def test_methods_that_are_done_are_kept():
    chosen = {"rollout": {}, "rise": {"samples": 50}, "saliency": {}}
    with pytest.raises(pl.Interrupted, match=r"rollout of 3 of 3 pictures, rise of 3 of 3 pictures$") as caught:
        pl.compare(subject("vit"), pictures(), chosen, 1, batch_size=8, progress=stopping(150))
    assert list(caught.value.found) == ["rollout", "rise"]
    assert not caught.value.found["rise"].notes  # all of its samples are there


def test_an_interrupt_before_anything_is_done_keeps_nothing():
    def tell(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(pl.Interrupted, match="nothing") as caught:
        pl.explain(subject("vit"), pictures(), "rise", 1, samples=50, progress=tell)
    assert caught.value.found == {}
    assert torch.is_grad_enabled()
