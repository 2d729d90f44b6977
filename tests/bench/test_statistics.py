"""Intervals that cover, tests that agree with scipy, ranks with ties."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from patchlight.bench.statistics import adjusted, estimate, paired, ranks


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    found = [estimate(rng.normal(0.3, 1, 60), seed=i) for i in range(300)]
    share = np.mean([e.low <= 0.3 <= e.high for e in found])
    assert 0.90 < share < 0.98


def test_one_picture_has_no_interval():
    found = estimate(np.array([0.5]))
    assert found.mean == 0.5
    assert np.isnan(found.low)
    assert estimate(np.array([])).n == 0


def test_a_paired_test_takes_the_pictures_that_both_have():
    a = {f"p{i}": v for i, v in enumerate(np.random.default_rng(0).normal(0.2, 0.1, 30))}
    b = {f"p{i}": v for i, v in enumerate(np.random.default_rng(1).normal(0.1, 0.1, 28))}
    found = paired("a", "b", a, b)
    gaps = [a[p] - b[p] for p in sorted(b)]
    assert found.n == 28
    assert found.difference == pytest.approx(np.mean(gaps))
    assert found.p == pytest.approx(stats.wilcoxon(gaps).pvalue)
    assert paired("a", "a", a, a).p == 1.0


def test_holm_multiplies_by_what_is_left():
    a = {str(i): float(i) for i in range(20)}
    found = [paired("x", "y", a, {k: v - s for k, v in a.items()}) for s in (1.0, 2.0)]
    ps = [c.p for c in found]
    both = adjusted(found)
    assert both[0].adjusted == pytest.approx(2 * ps[0])
    assert both[1].adjusted == pytest.approx(max(2 * ps[0], ps[1]))
    assert all(c.significant for c in both)


def test_equal_means_share_a_rank():
    assert ranks({"a": 0.5, "b": 0.5, "c": 0.9}, higher=True) == {"c": 1, "a": 2, "b": 2}
    assert ranks({"a": 0.5, "b": 0.5, "c": 0.9}, higher=False) == {"a": 1, "b": 1, "c": 3}
