"""Attention methods against the authors' own code on DeiT-tiny; tolerances are those of golden/README.md."""

from __future__ import annotations

import numpy as np
import pytest

from patchlight.methods.attention.attention_flow import flows

ROWS = [
    ("chefer_raw_attention_last", "raw_attention", {}),
    ("chefer_rollout_s0", "rollout", {"start_block": 0}),
    ("chefer_rollout_s1", "rollout", {"start_block": 1}),
    ("tam_rollout_perhead_s0", "rollout", {"head_fusion": "separate"}),
    ("tam_s4", "tam", {}),
    ("tam_s0", "tam", {"start_block": 0}),
    ("tam_s4_steps5", "tam", {"start_block": 4, "steps": 5}),
    ("tam_s0_nointegral", "tam", {"start_block": 0, "integrate": False}),
    ("tam_s0_firststate", "tam", {"start_block": 0, "steps": 5, "chain": False}),
]


def test_forward_equals_golden_logits(golden, agree):
    found = golden.subject.forward(golden.images)
    agree(found, golden.file("forward")["logits"], 1e-5)  # float32: kernels may sum in another order


@pytest.mark.parametrize(("file", "method", "settings"), ROWS, ids=[r[0] for r in ROWS])
def test_tokens_equal_golden(golden, agree, file, method, settings):
    for picture, target, expected in golden.cases(file):
        agree(golden.explain(method, picture, target, **settings).tokens[0], expected, 1e-4)


def test_rollout_divided_by_its_maximum_equals_vit_explain(golden, agree):
    for picture, target, expected in golden.cases("vitexplain_rollout_mean_d00"):
        tokens = golden.explain("rollout", picture, target).tokens[0]
        agree(tokens / tokens.max(), expected, 1e-4)


# -- attention flow ---------------------------------------------------------------------------------------------------


def test_attention_flow_equals_scipy_on_all_tokens(golden, agree):
    for picture, target, expected in golden.cases("attention_flow_full_scipy", "_flow_cls"):
        found = golden.explain("attention_flow", picture, target, wide=True).tokens[0]
        agree(found, expected[1:], 1e-6)  # the class token's own flow is left out


def with_skip(maps: np.ndarray) -> np.ndarray:
    total = maps + np.eye(maps.shape[-1])
    return total / total.sum(-1, keepdims=True)


@pytest.mark.parametrize("picture", ["img00", "img01", "img02"])
def test_flows_equal_the_original_code_on_a_micro_model(golden, agree, picture):
    arrays = golden.file("attention_flow_micro")
    maps = with_skip(arrays[f"{picture}_att"].astype(np.float64).mean(1))
    found = flows(maps, np.eye(maps.shape[-1])[0])
    agree(found, arrays[f"{picture}_flow_cls_unnormalised"], 1e-6)
    agree(found / found.sum(), arrays[f"{picture}_flow_cls"], 1e-6)


@pytest.mark.parametrize("case", range(3))
def test_flows_equal_the_original_code_on_random_maps(golden, agree, case):
    """From every token behind every block; the original writes them beside the diagonal, each row summing to 1."""
    arrays = golden.file("attention_flow_random")
    maps, expected = with_skip(arrays[f"case{case}_att"]), arrays[f"case{case}_flows"]
    blocks, tokens, _ = maps.shape
    for level in range(1, blocks + 1):
        for token in range(tokens):
            found = flows(maps[:level], np.eye(tokens)[token])
            agree(found / found.sum(), expected[level * tokens + token, (level - 1) * tokens : level * tokens], 1e-6)
