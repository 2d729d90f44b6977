"""Values and methods as they are written on a command line."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from patchlight.cli._settings import chosen, is_fast, parsed, plain, settings_for
from patchlight.core.errors import SettingError
from patchlight.core.registry import Setting, discover, get


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (float, "3", 3.0),
        (float, "1e-3", 1e-3),
        (bool, "no", False),
        (bool, "True", True),
        (Literal["mean", "max"], "max", "max"),
        (int | None, "none", None),
        (int | None, "4", 4),
        (int | tuple[int, int] | None, "3,4", (3, 4)),
        (int | tuple[int, int] | None, "(3, 4)", (3, 4)),
        (int | tuple[int, int] | Literal["class"] | None, "class", "class"),
        (int, "x", "x"),
        (tuple[int, int], "1,2,3", "1,2,3"),
        (torch.Tensor | None, "x", "x"),
    ],
)
def test_a_text_becomes_a_value_of_the_declared_type(kind: Any, text: str, value: Any):
    found = parsed(Setting("s", None, kind), text)
    assert found == value
    assert type(found) is type(value)


def test_settings_go_to_all_methods_that_have_them_or_to_one():
    found = settings_for(["rollout", "vtranm", "random"], ["readout=3,4", "rollout.discard=0.5", "lengths=off"])
    assert found == {
        "rollout": {"readout": (3, 4), "discard": 0.5},
        "vtranm": {"readout": (3, 4), "lengths": False},
        "random": {},
    }
    assert plain(found["rollout"]) == "readout=(3, 4), discard=0.5"


def test_methods_by_name_and_by_word():
    assert chosen(["rollout, random", "rollout"]) == ["rollout", "random"]
    every = chosen(["all"])
    assert sorted(every) == sorted(name for name, m in discover().items() if not m.requires)
    assert {get(n).family for n in every[-2:]} == {"baseline"}
    fast = chosen(["fast"])
    assert fast == [n for n in every if is_fast(get(n))]
    assert "transformer_mm" in fast
    assert not {"smooth_grad", "attention_flow"} & set(fast)


def test_a_setting_that_no_method_has():
    with pytest.raises(SettingError, match=r"none of rollout, random has a setting 'discart'.*Did you mean 'discard'"):
        settings_for(["rollout", "random"], ["discart=1"])
