"""Models as people wrap them: compiled, parallel, peft, checkpointed, home-made; and those that cannot be seen into."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import patchlight as pl
import tiny

CHAIN = "transformer_mm"


@pytest.fixture
def model():
    return tiny.fresh("vit")


@pytest.fixture
def expected(model):
    return pl.explain(model, tiny.pictures(), CHAIN, 3).tokens


def same(found: pl.Explanation, expected: torch.Tensor) -> bool:
    return bool((found.tokens - expected).abs().max() <= 1e-12 * expected.abs().max())


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "parallel"])
def test_wrapped_models_are_read_through(model, expected, wrap):
    assert same(pl.explain(wrap(model), tiny.pictures(), CHAIN, 3), expected)


def test_blocks_compiled_in_place_and_one_by_one_are_read_through(model, expected):
    model.blocks[0].compile()
    model.blocks[1] = torch.compile(model.blocks[1])
    assert same(pl.explain(model, tiny.pictures(), CHAIN, 3), expected)


def test_checkpointing_is_suspended_and_put_back(model, expected):
    model.set_grad_checkpointing()
    assert same(pl.explain(model, tiny.pictures(), CHAIN, 3), expected)
    assert model.grad_checkpointing


def test_peft_adapters_take_part(model):
    peft = pytest.importorskip("peft", reason="needs peft")
    config = peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False)
    whole = peft.get_peft_model(model, config)
    merged = pl.explain(whole, tiny.pictures(), CHAIN, 3).tokens
    assert any(p.requires_grad for p in whole.parameters())
    plain = pl.explain(whole.merge_and_unload(), tiny.pictures(), CHAIN, 3)
    assert (plain.tokens - merged).abs().max() <= 1e-9 * merged.abs().max()


def test_torchscript_is_refused_with_advice(model):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch calls its own function deprecated, in one release so and in another so
        scripted = torch.jit.trace(model, tiny.pictures())
    with pytest.raises(pl.PatchlightError, match="TorchScript"):
        pl.load(scripted)


class Attention(nn.Module):
    """Attention as people write it by hand, with einsum."""

    def __init__(self, width: int, heads: int, *, plain: bool) -> None:
        super().__init__()
        self.heads, self.plain = heads, plain
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.plain:
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5, dim=-1)
            context = torch.einsum("bhij,bhjd->bhid", weights, v)
        return self.out(context.transpose(1, 2).flatten(2))


class Hand(nn.Module):
    """A network without the names of any library."""

    def __init__(self, *, plain: bool) -> None:
        super().__init__()
        self.image_size = 32
        self.cut = nn.Conv2d(3, 24, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 24))
        self.body = nn.ModuleList(Hand.block(plain=plain) for _ in range(3))
        self.head = nn.Linear(24, 5)

    @staticmethod
    def block(*, plain: bool) -> nn.Module:
        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = nn.LayerNorm(24), nn.LayerNorm(24)
                self.look = Attention(24, 3, plain=plain)
                self.think = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = x + self.look(self.a(x))
                return x + self.think(self.b(x))

        return Layer()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.cut(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        for layer in self.body:
            x = layer(x)
        return self.head(x[:, 0])


@pytest.mark.parametrize("method", ["rollout", "transformer_mm", "vtranm", "attcat", "grad_cam", "ag_cam", "tam"])
def test_hand_written_attention_gives_what_fused_attention_gives(method):
    torch.manual_seed(0)
    fused, explicit = Hand(plain=True).double(), Hand(plain=False).double()
    explicit.load_state_dict(fused.state_dict())
    a, b = (pl.explain(m, tiny.pictures(), method, 1, **tiny.quick(method)).tokens for m in (fused, explicit))
    assert pl.load(fused).layout((32, 32)).pool == "class"
    assert (a - b).abs().max() <= 1e-10 * a.abs().max()


def test_a_kernel_that_cannot_be_watched_is_named(model):
    class Hidden(torch.autograd.Function):
        """Stands for an attention kernel outside PyTorch."""

        @staticmethod
        def forward(ctx, q, k, v):  # noqa: ARG004
            with torch._C.DisableTorchFunction():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    class Custom(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.qkv, self.proj, self.num_heads = inner.qkv, inner.proj, inner.num_heads

        def forward(self, x: torch.Tensor, **_: object) -> torch.Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
            return self.proj(Hidden.apply(q, k, v).transpose(1, 2).flatten(2))

    model.blocks[1].attn = Custom(model.blocks[1].attn)
    with pytest.raises(pl.PatchlightError, match=r"kernel that cannot be seen \(blocks.1"):
        pl.explain(model, tiny.pictures(), CHAIN, 3)
