"""A model, its gradients, its hooks, random numbers and torch itself are as before: after success and after any error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import patchlight as pl
import tiny
from patchlight import api
from patchlight.core.registry import Method, discover
from tiny import KINDS, pictures, quick

SEEN = ("vit", "vit_map", "cait", "hf_deit", "torchvision_vit", "swin", "cnn")
FEW = ("vit", "torchvision_vit", "swin", "cnn")  # where passes fail: plain, fused by itself, in windows, without attention
HOOKS = [n for n in vars(nn.Module()) if "hook" in n]
FUNCTIONS = {
    F: ("scaled_dot_product_attention", "softmax", "linear", "layer_norm", "multi_head_attention_forward", "dropout", "gelu"),
    torch: ("softmax", "matmul", "bmm", "einsum", "add", "mul", "conv2d"),
    torch.Tensor: ("softmax", "matmul", "__matmul__", "__add__", "__mul__", "backward"),
    nn.Module: ("__call__", "forward", "_call_impl"),
}


def of_module(module: nn.Module) -> dict[str, Any]:
    hooks = {n: tuple(getattr(module, n).items()) for n in HOOKS if isinstance(getattr(module, n), dict)}
    own = {n: v for n, v in vars(module).items() if isinstance(v, (int, float, str, tuple)) or v is None}
    return {"training": module.training, "hooks": hooks, "forward": module.forward, "names": sorted(vars(module)), "own": own}


def of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    gradient = tensor.grad
    kept = None if gradient is None else (id(gradient), content(gradient))
    return id(tensor), tensor.dtype, tensor.requires_grad, content(tensor), kept, tensor._backward_hooks, tensor.is_inference()


def content(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def of_process() -> dict[str, Any]:
    legacy = np.random.get_state()
    return {
        "torch rng": content(torch.get_rng_state()),
        "numpy rng": (legacy[1].tobytes(), legacy[2]),
        "python rng": random.getstate(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()),
        "default": (torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()),
        "kernels": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "functions": {(place.__name__, n): id(getattr(place, n)) for place, names in FUNCTIONS.items() for n in names},
    }


def state(model: nn.Module) -> dict[str, Any]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "modules": {n: of_module(m) for n, m in model.named_modules()},
        "tensors": {n: of_tensor(t) for n, t in tensors.items()},
        **of_process(),
    }


def mixed(network: str) -> pl.Subject:
    """A model as a user may hold it: in training here and there, some parameters frozen, gradients and hooks in place."""
    held = pl.load(tiny.fresh(network))
    held.layout()
    for number, module in enumerate(held.model.modules()):
        module.training = number % 3 == 0 or isinstance(module, nn.Dropout)
        if isinstance(module, nn.Dropout):
            module.p = 0.5
        if number % 4 == 0:
            module.register_forward_hook(lambda *_: None)
    for number, parameter in enumerate(held.model.parameters()):
        parameter.requires_grad_(number % 3 != 1)
        if number % 2:
            parameter.grad = torch.full_like(parameter, number)
    return held


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    before = state(model)
    yield
    after = state(model)
    for name, value in before.items():
        assert after[name] == value, name


held = {}


def holding(network: str) -> pl.Subject:
    if network not in held:
        held[network] = mixed(network)
    return held[network]


every_pair = pytest.mark.parametrize(("network", "method"), tiny.pairs(*SEEN))
few_pairs = pytest.mark.parametrize(("network", "method"), tiny.pairs(*FEW))


@every_pair
def test_after_success(network, method):
    """In a caller's inference mode; and dropout of a model in training is off, so that the numbers are the usual ones."""
    subject = holding(network)
    with unchanged(subject.model), torch.inference_mode(), unchanged(subject.model):
        found = pl.explain(subject, pictures(network).clone(), method, insides=True, **quick(method))
    tiny.close(found.scores, tiny.known(network, method).scores, 1e-10)


@pytest.mark.parametrize("network", KINDS)
def test_after_finding_the_layout(network):
    model = tiny.fresh(network)
    before = state(model)
    before["modules"][""].pop("names")
    pl.load(model).layout()
    after = state(model)
    after["modules"][""].pop("names")
    assert after == before


@pytest.mark.parametrize("method", [m.name for m in tiny.served("vit")])
def test_the_callers_tensor_is_left_alone(method):
    images = pictures(count=2).requires_grad_()
    before = images.detach().clone()
    found = pl.explain(holding("vit"), images, method, 3, insides=True, **quick(method))
    assert torch.equal(images, before)
    assert images.grad is None
    assert images.requires_grad
    assert not found.scores.requires_grad
    assert not found.logits.requires_grad


class InPlace(nn.Module):
    """A network that normalises its input where it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images.sub_(0.3).div_(2.0) if not images.requires_grad else (images - 0.3) / 2.0)


@pytest.mark.parametrize("method", [m.name for m in tiny.served("vit") if not m.stochastic])
def test_a_network_that_writes_into_its_input_gets_the_same_pictures_every_time(method):
    images = pictures(count=2)
    before = images.clone()
    found = pl.explain(InPlace(), images, method, 3, **quick(method))
    assert torch.equal(images, before)
    chosen = discover()[method]
    own_zero = method == "tam" or chosen.family == "masking"  # these know what grey is in the units of the input
    if chosen.returns(chosen.resolve({})) == "tokens" and not own_zero:  # the others scale with the input itself
        tiny.close(found.scores, tiny.explain("vit", method, (before - 0.3) / 2.0, 3).scores, 1e-10)


# -- errors -----------------------------------------------------------------------------------------------------------


class BangError(Exception):
    """Raised by the tests."""


def bang(*_: Any, **__: Any) -> Any:
    raise BangError("bang")


@few_pairs
def test_after_an_error_inside_the_forward_pass(network, method):
    subject = holding(network)
    middle = [m for m in subject.model.modules() if not list(m.children())][-3]
    handle = middle.register_forward_hook(bang)
    try:
        with unchanged(subject.model), pytest.raises(BangError, match="bang"):
            pl.explain(subject, pictures(network, 2), method, **quick(method))
    finally:
        handle.remove()


def takes_gradients(method: str) -> bool:
    chosen = discover()[method]
    return chosen.cost(chosen.resolve({})).backwards > 0


@pytest.mark.parametrize(("network", "method"), [pair for pair in tiny.pairs(*FEW) if takes_gradients(pair[1])])
def test_after_an_error_in_the_backward_pass(network, method, monkeypatch):
    subject = holding(network)
    with unchanged(subject.model), monkeypatch.context() as patch:
        patch.setattr(torch.autograd, "grad", bang)
        with pytest.raises(BangError, match="bang"):
            pl.explain(subject, pictures(network, 2), method, **quick(method))


def breaking(method: Method) -> Method:
    """The method, with an error at the second block or behind its first gradient."""

    def traced(trace: Any, **settings: Any) -> Iterator[None]:
        steps = method.function(trace, **settings)
        next(steps)
        steps.send((yield))
        yield
        raise BangError("bang")

    def asked(ask: Any, **settings: Any) -> Any:
        method.function(ask, **settings)
        raise BangError("bang")

    return replace(method, function=traced if method.traced else asked)


@few_pairs
def test_after_an_error_in_the_middle_of_a_method(network, method, monkeypatch):
    subject = holding(network)
    with unchanged(subject.model), monkeypatch.context() as patch:
        patch.setattr(api, "get", lambda name: breaking(discover()[name]))
        with pytest.raises(BangError, match="bang"):
            pl.explain(subject, pictures(network, 2), method, **quick(method))


@pytest.mark.parametrize("target", [99, "no such label", lambda logits: logits.sum()], ids=["number", "label", "function"])
def test_after_a_wrong_target(target):
    subject = holding("vit")
    with unchanged(subject.model), pytest.raises(pl.PatchlightError, match="target: "):
        pl.explain(subject, pictures(count=2), "transformer_mm", target)


# -- the caller's own modes -------------------------------------------------------------------------------------------

MODES: dict[str, Callable[[], Any]] = {"no_grad": torch.no_grad, "enable_grad": torch.enable_grad}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [m.name for m in discover().values() if not m.requires])
def test_same_numbers_in_the_callers_mode(method, mode):
    network = next(n for n in SEEN if discover()[method] in tiny.served(n) or n == SEEN[-1])
    subject, images = holding(network), pictures(network)
    with MODES[mode](), unchanged(subject.model):
        found = pl.explain(subject, images.clone(), method, **quick(method))
    tiny.close(found.scores, tiny.known(network, method).scores, 1e-10)


@pytest.mark.parametrize("method", [m.name for m in tiny.served("vit")])
def test_a_model_made_under_inference_mode(method):
    with torch.inference_mode():
        model, images = tiny.fresh("vit"), pictures(count=2)
        subject = pl.load(model)
        with unchanged(model):
            inside = pl.explain(subject, images, method, 3, **quick(method))
    with unchanged(model):
        outside = pl.explain(subject, images, method, 3, **quick(method))
    expected = tiny.explain("vit", method, pictures(count=2), 3)
    tiny.close(inside.scores, expected.scores, 1e-12)
    tiny.close(outside.scores, expected.scores, 1e-12)
