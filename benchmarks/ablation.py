"""ViT-CX with its parts switched off, on ImageNet pictures: deletion, insertion and pointing game, picture by picture.

python benchmarks/ablation.py PICTURES [--model timm:deit_tiny_patch16_224] [--weights FILE] [--count 100] [--random 500]
                              [--device cpu] [--out ablation.jsonl]

PICTURES is a folder with index.csv (file, label, boxes as [[x0, y0, x1, y1], ...]) and images/. `count` pictures are taken at
even steps and their predicted classes explained. Rows are written as they are found; another call goes on where the last one
ended, and prints the table of what is there. Changes are paired: the mean of (variant - full) over the same pictures, with a
95 % interval.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from pathlib import Path
from typing import Any

import patchlight as pl

METRICS = ("deletion", "insertion", "pointing_game")


def variants(random: int) -> dict[str, dict[str, Any]]:
    """The rows of the paper's ablation table, and noise alone."""
    return {
        "full": {},
        "no noise": {"sigma": 0.0},
        "plain score": {"debias": False},
        "no coverage correction": {"coverage": False},
        "plain score, no coverage correction": {"debias": False, "coverage": False},
        "every channel a mask": {"masks": "features"},
        f"{random} random masks": {"masks": "random", "samples": random},
    }


def rows_of(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]  # the last line of a killed run may be cut off
    return {(row["file"], row["variant"]): row for row in found}


def row(subject: pl.Subject, folder: Path, entry: dict[str, str], name: str, settings: dict[str, Any]) -> dict[str, Any]:
    path = next(p for p in (folder / "images" / entry["file"], folder / entry["file"]) if p.exists())
    found = pl.explain(subject, path, "vit_cx", insides=True, **settings)
    scores = pl.evaluate_many(subject, path, found, METRICS, labels=[int(entry["label"])], boxes=[json.loads(entry["boxes"])])
    inside = found.insides
    return {
        "file": entry["file"],
        "variant": name,
        "masks": len(inside["impact"][0]),
        "impact": round(inside["impact mean"].item(), 5),
        "similarity": round(inside["mask similarity"].item(), 5),
        **{m: round(s.values.item(), 6) for m, s in scores.items()},
    }


def interval(values: list[float]) -> str:
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.4f} ± {half:.4f}"


def table(rows: dict[tuple[str, str], dict[str, Any]], names: list[str]) -> str:
    full = {file: r for (file, name), r in rows.items() if name == "full"}
    head = "| variant | n | masks | deletion ↓ | change | insertion ↑ | change | pointing | similarity | mean impact > 0.9 |"
    lines = [head, "|---|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        mine = {file: r for (file, v), r in rows.items() if v == name and file in full}
        if not mine:
            continue
        cells = [name, str(len(mine)), f"{statistics.mean(r['masks'] for r in mine.values()):.0f}"]
        for metric in METRICS[:2]:
            change = interval([r[metric] - full[f][metric] for f, r in mine.items()]) if name != "full" else ""
            cells += [f"{statistics.mean(r[metric] for r in mine.values()):.4f}", change]
        hits = [r["pointing_game"] for r in mine.values() if not math.isnan(r["pointing_game"])]
        cells += [
            f"{statistics.mean(hits):.3f}" if hits else "",
            f"{statistics.mean(r['similarity'] for r in mine.values()):.3f}",
        ]
        lines.append("| " + " | ".join([*cells, f"{statistics.mean(r['impact'] > 0.9 for r in mine.values()):.2f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--model", default="timm:deit_tiny_patch16_224")
    parser.add_argument("--weights")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--random", type=int, default=500)
    parser.add_argument("--only", help="names of variants, comma between")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("ablation.jsonl"))
    given = parser.parse_args()
    chosen = variants(given.random)
    wanted = given.only.split(",") if given.only else list(chosen)
    with (given.pictures / "index.csv").open(encoding="utf-8") as file:
        entries = list(csv.DictReader(file))
    entries = entries[:: max(1, len(entries) // given.count)][: given.count]
    subject = pl.load(given.model, weights=given.weights, device=given.device)
    done = rows_of(given.out)
    for entry in entries:
        for name in wanted:
            if (entry["file"], name) not in done:
                found = row(subject, given.pictures, entry, name, chosen[name])
                done[entry["file"], name] = found
                with given.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(found) + "\n")
    print(table(done, list(chosen)))  # noqa: T201


if __name__ == "__main__":
    main()
