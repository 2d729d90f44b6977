"""A subject: logits out of whatever a model gives, labels, layouts, and wrappers taken off."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification
from transformers.modeling_outputs import BaseModelOutput, ImageClassifierOutput

from patchlight.core.errors import ModelError
from patchlight.core.layout import Layout
from patchlight.core.preprocess import Preprocess
from patchlight.models.load import load
from patchlight.models.subject import Subject, brief, unwrap

PREPROCESS = Preprocess(size=(32, 32))
LOGITS = torch.arange(6.0).reshape(2, 3)


class Says(nn.Module):
    """A module that gives the same whatever comes."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, images: Tensor) -> Any:  # noqa: ARG002
        return self.output


def says(output: Any) -> Subject:
    return Subject(Says(output), "toy", PREPROCESS)


@pytest.mark.parametrize(
    "output",
    [LOGITS, ImageClassifierOutput(logits=LOGITS), (LOGITS, LOGITS + 1), [LOGITS], {"logits": LOGITS}],  # type: ignore[arg-type]
)
def test_logits_are_found(output: Any) -> None:
    assert torch.equal(says(output).forward(torch.zeros(2, 3, 32, 32)), LOGITS)


def test_logits_are_float32_at_least() -> None:
    images = torch.zeros(2, 3, 32, 32)
    assert says(LOGITS.bfloat16()).forward(images).dtype == torch.float32
    assert says(LOGITS.double()).forward(images).dtype == torch.float64


@pytest.mark.parametrize(
    ("output", "came"),
    [
        (torch.zeros(2, 5, 4), r"a tensor \(2, 5, 4\) of torch.float32"),
        (torch.zeros(2, 5, dtype=torch.long), r"a tensor \(2, 5\) of torch.int64"),
        (BaseModelOutput(last_hidden_state=torch.zeros(2, 5, 4)), "a BaseModelOutput with last_hidden_state"),  # type: ignore[arg-type]
        ({"boxes": LOGITS}, "a dict with boxes"),
        ((), "a tuple of nothing"),
        ([torch.zeros(2, 3, 4, 4)], r"a list of a tensor \(2, 3, 4, 4\)"),
        ([{"boxes": LOGITS}], "a list of a dict with boxes"),
        (None, "a NoneType"),
    ],
)
def test_no_logits_says_what_came(output: Any, came: str) -> None:
    with pytest.raises(
        ModelError, match=rf"toy: the forward pass should give class scores \(b, k\), but {came}.* came. Give a model"
    ):
        says(output).forward(torch.zeros(2, 3, 32, 32))


def test_device_and_dtype_are_those_of_the_first_floating_parameter(vit: nn.Module) -> None:
    subject = Subject(vit.double(), "toy", PREPROCESS)
    assert (subject.device, subject.dtype) == (torch.device("cpu"), torch.float64)
    assert (says(LOGITS).device, says(LOGITS).dtype) == (torch.device("cpu"), torch.float32)


def test_labels_fall_back_to_the_number() -> None:
    subject = Subject(Says(LOGITS), "toy", PREPROCESS, labels=("cat", "dog"))
    assert [subject.label(i) for i in (0, 1, 17, -1)] == ["cat", "dog", "class 17", "class -1"]


def test_a_picture_is_prepared() -> None:
    subject = Subject(Says(LOGITS), "toy", Preprocess(size=(32, 48), resize=(32, 48)))
    assert subject.prepare(Image.new("L", (60, 50), 128)).shape == (3, 32, 48)


def test_repr_is_short(vit: nn.Module) -> None:
    subject = Subject(vit, "toy", PREPROCESS, labels=("cat", "dog"), origin="random")
    assert repr(subject) == "<Subject toy: VisionTransformer, 32 x 32, 2 labels, weights: random>"
    assert repr(Subject(vit, "toy", PREPROCESS)) == "<Subject toy: VisionTransformer, 32 x 32>"


def test_the_layout_is_found_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def find(model: nn.Module, forward: Callable[[Tensor], Tensor], *, size: tuple[int, int], given: Layout | None) -> Layout:
        asked.append((model, forward(torch.zeros(1, 3, *size)).shape, size, given))
        return Layout(grid=(4, 4), size=size)

    monkeypatch.setattr("patchlight.models.subject.find_layout", find)
    given = Layout(grid=(4, 4))
    subject = Subject(Says(LOGITS), "toy", PREPROCESS, given=given)
    assert subject.layout() is subject.layout((32, 32))
    assert subject.layout((32, 64)).size == (32, 64)
    assert asked == [(subject.model, (2, 3), (32, 32), given), (subject.model, (2, 3), (32, 64), given)]


def test_a_size_that_the_model_does_not_take(vit: nn.Module) -> None:
    with pytest.raises(
        ModelError, match=r"it called toy with a float tensor \(1, 3, 40, 40\) and got: AssertionError: Input height"
    ):
        Subject(vit, "toy", PREPROCESS).layout((40, 40))


def test_errors_are_shown_by_their_first_line() -> None:
    assert brief(ValueError("one\ntwo")) == "one."
    assert brief(ValueError("")) == "no message."
    assert brief(ValueError("x" * 400)) == "x" * 300 + " ..."


# -- wrappers ---------------------------------------------------------------------------------------------------------


def test_wrappers_are_taken_off(vit: nn.Module) -> None:
    assert unwrap(vit) is vit
    assert unwrap(torch.compile(vit)) is vit
    assert unwrap(nn.DataParallel(vit)) is vit
    assert unwrap(torch.compile(nn.DataParallel(torch.compile(vit)))) is vit  # type: ignore[arg-type]


def test_distributed_data_parallel_is_taken_off(tmp_path: Path, vit: nn.Module) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert unwrap(nn.parallel.DistributedDataParallel(vit)) is vit
    finally:
        torch.distributed.destroy_process_group()


def test_a_module_that_only_has_a_module_stays() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    holder = Holder()
    assert unwrap(holder) is holder


def test_peft_adapters_stay_active() -> None:
    peft = pytest.importorskip("peft", reason="needs peft")
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8
    )
    model = ViTForImageClassification(config).eval()
    images = torch.randn(2, 3, 32, 32)
    before = model(images).logits
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for an attribute by its older name
        wrapped = peft.get_peft_model(model, lora).eval()
    subject = load(wrapped)
    assert isinstance(subject.model, ViTForImageClassification)
    assert torch.equal(subject.forward(images), wrapped(images).logits)
    assert not torch.allclose(subject.forward(images), before)
    assert subject.layout().grid == (4, 4)


def test_torchscript_cannot_be_seen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ModelError, match=r"cannot see attention in a TorchScript module .* Load the eager model"):
        load(traced)  # type: ignore[arg-type]


def test_exported_programs_cannot_be_seen() -> None:
    exported = torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),))
    with pytest.raises(
        ModelError, match=r"cannot see attention in a program of torch.export \(ExportedProgram\).* Load the eager"
    ):
        load(exported)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"cannot see attention in a graph of bare operators .* Load the eager model"):
        load(exported.module())
    with pytest.raises(ModelError, match=r"cannot see attention in a program of torch.export \(UnflattenedModule\)"):
        load(torch.export.unflatten(exported))


def test_a_graph_that_still_calls_layers_is_taken() -> None:
    graph = torch.fx.symbolic_trace(torchvision.models.resnet18(num_classes=3).eval())
    assert load(graph, preprocess=Preprocess(size=(64, 64))).layout().size == (64, 64)
