"""Nothing outlives an explanation: the tensors of a pass are freed without the garbage collector, after an error too."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import patchlight as pl
import tiny


@pytest.fixture
def watched():
    """Weak references to what the blocks put out, with the collector off."""
    held: list[weakref.ref[torch.Tensor]] = []
    model = tiny.fresh("vit")
    subject = pl.load(model)
    subject.layout((32, 32))
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _a, out: held.append(weakref.ref(out)))
    gc.collect()
    gc.disable()
    yield subject, held
    gc.enable()


@pytest.mark.parametrize("method", ["rollout", "transformer_mm", "vtranm", "ag_cam", "attcat", "grad_cam", "tam"])
def test_what_a_method_used_is_freed(watched, method):
    subject, held = watched
    pl.explain(subject, tiny.pictures(), method, 1, **tiny.quick(method))
    assert held
    assert not [r for r in held if r() is not None]


def test_what_a_failed_forward_pass_used_is_freed(watched, monkeypatch):
    subject, held = watched

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no more")

    monkeypatch.setattr(subject.model, "forward_head", fail)
    with pytest.raises((RuntimeError, pl.PatchlightError), match="no more") as caught:
        pl.explain(subject, tiny.pictures(), "transformer_mm", 1)
    assert len(held) == len(subject.model.blocks)
    del caught
    gc.collect()  # the traceback holds frames; the graph must not hold the recorder
    assert not [r for r in held if r() is not None]
