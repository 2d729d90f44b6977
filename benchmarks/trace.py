"""What tracing costs, as a ratio to one bare fused forward pass plus backward pass to the input, on the same pictures.

python benchmarks/trace.py [--model vit_base_patch16_224] [--batch 4] [--device cpu] [--precision float32] [--rounds 7]

All rows are measured in turn within each round, and the medians over rounds are compared, so that what else the machine does
falls on all of them alike. Parameters are frozen for the bare passes too: weight gradients would only flatter the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import timm
import torch
from torch import Tensor

import patchlight as pl

SHARED = ["raw_attention", "rollout", "tam", "grad_cam", "attcat", "transformer_mm", "vtranm"]
SETTINGS = {"tam": {"integrate": False}, "vtranm": {"gradient": "logit"}}
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def rows(subject: pl.Subject, images: Tensor) -> dict[str, Callable[[], object]]:
    model, size = subject.model, len(images)

    def bare() -> object:
        leaf = images.clone().requires_grad_()
        return torch.autograd.grad(model(leaf).float().amax(-1).sum(), leaf)

    def forward() -> object:
        with torch.no_grad():
            return model(images)

    def compare(methods: dict[str, dict[str, object]]) -> Callable[[], object]:
        return lambda: pl.compare(subject, images, methods, batch_size=size)

    seven = {m: SETTINGS.get(m, {}) for m in SHARED}
    return {
        "bare forward + backward to the input": bare,
        "bare forward": forward,
        "transformer_mm": compare({"transformer_mm": {}}),
        "vtranm (logit)": compare({"vtranm": {"gradient": "logit"}}),
        "vtranm (probability)": compare({"vtranm": {}}),
        "ag_cam": compare({"ag_cam": {}}),
        "seven methods together": compare(seven),
        "seven + vtranm (probability)": compare(seven | {"vtranm p": {"method": "vtranm"}}),
        "seven + vtranm (probability) + ag_cam": compare(seven | {"vtranm p": {"method": "vtranm"}, "ag_cam": {}}),
    }


def measure(todo: dict[str, Callable[[], object]], *, rounds: int, device: str) -> dict[str, tuple[float, float]]:
    """Median seconds and peak memory in GiB (CUDA only) of each row."""
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in todo}
    peak = dict.fromkeys(todo, 0.0)
    for turn in range(rounds + 1):  # the first round warms up
        for name, work in todo.items():
            sync()
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            work()
            sync()
            if turn:
                seconds[name].append(time.perf_counter() - started)
            if device == "cuda":
                peak[name] = torch.cuda.max_memory_allocated() / 2**30
    return {name: (statistics.median(seconds[name]), peak[name]) for name in todo}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = timm.create_model(given.model, pretrained=False).eval().requires_grad_(requires_grad=False)
    subject = pl.load(model.to(given.device, PRECISIONS[given.precision]))
    images = torch.randn(given.batch, 3, *subject.preprocess.size).to(subject.device, subject.dtype)
    found = measure(rows(subject, images), rounds=given.rounds, device=given.device)
    base = found["bare forward + backward to the input"][0]
    if given.json:
        print(json.dumps({"run": vars(given), "torch": torch.__version__, "rows": found}))  # noqa: T201
        return
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{given.model}, batch {given.batch}, {given.precision}, {where}, torch {torch.__version__}, {given.rounds} rounds")  # noqa: T201
    print(f"{'':40s} {'ratio':>6s} {'ms':>9s} {'pictures/s':>11s} {'peak GiB':>9s}")  # noqa: T201
    for name, (seconds, peak) in found.items():
        print(f"{name:40s} {seconds / base:6.2f} {seconds * 1e3:9.1f} {given.batch / seconds:11.1f} {peak:9.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
