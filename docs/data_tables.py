"""Write docs/data.md from the registry: python docs/data_tables.py. A test keeps the two equal."""

from __future__ import annotations

from pathlib import Path

from patchlight import data

PAGE = Path(__file__).parent / "data.md"
HEAD = """# Data sets

Made by `python docs/data_tables.py` from the signatures and docstrings in `src/patchlight/data`; one file there is one data set.

```python
from patchlight import data

pets = data.open("pets", root="oxford-iiit-pet")  # or PATCHLIGHT_DATA=folder, and the set in folder/pets
pets[0].picture, pets[0].label, pets[0].boxes, pets[0].mask
few = pets.sample(100, seed=0)  # or pets[:100]
few.digest()  # 32 digits of the content, for the key of a stored number
for items in few.batches(16):  # broken files are named in the log and in few.broken, and skipped
    maps = pl.explain(model, items)
    score = pl.evaluate(model, items, maps, metric="pointing_game")  # labels, boxes and masks come with the items
```

`patchlight data` lists the sets, `patchlight data NAME` shows one, `patchlight data NAME --root FOLDER --check` reads every
picture of a copy, says what is broken (exit code 1) and prints its digest.

* **Nothing is downloaded.** What is not there is an error that says what to get, from where, and what must lie where.
* **Licences** are those of the pictures' owners; the lines here are a summary and no permission.
* A **box** is (x0, y0, x1, y1) in the picture's pixels, as edges: the box of one pixel is (x, y, x + 1, y + 1). Formats that
  name the last pixel (VOC, ImageNet) get 1 added; VOC's count from 1 is turned into one from 0. Boxes are cut at the picture's
  edges; one that is empty or lies outside is an error that names its picture.
* A **mask** is 1 on the object, 0 beside it, and -1 where nobody decided (VOC's void, COCO's crowds, the edge of a trimap).
  Pixels of -1 count neither for nor against a map.
* Pictures are turned as their EXIF says, except those with annotations, which were made on the pixels as stored.
* A **digest** is made of the names, the labels, the bytes of the picture files, and the boxes and masks as they are read. It
  does not depend on where the set lies, on the layout, or on whether boxes came from XML or CSV; it does depend on settings
  that change labels, boxes or masks.
* **Known causes**: `scenes` are drawn, so it is known to the pixel what decides the class. `item.parts` has the masks of the
  object, the distractors and the mark, any of which can be given to a metric:
  `pl.evaluate(model, items, maps, metric="energy", masks=[i.parts["mark"] for i in items])` asks how much of the map lies on a
  spurious mark. `leave_out="mark"` draws the same scenes without it: what the model then answers is the true effect.
* `imagenet_segmentation` needs h5py and `coco` needs pycocotools: `pip install 'patchlight[data]'`.
"""


def page() -> str:
    return HEAD + overview() + "".join(section(k) for k in data.datasets().values())


def overview() -> str:
    rows = [f"| [{k.name}](#{k.name}) | {', '.join(k.gives)} | {k.licence} |\n" for k in data.datasets().values()]
    return "\n| data set | gives | licence |\n|---|---|---|\n" + "".join(rows)


def section(kind: data.Kind) -> str:
    rows = "".join(f"| `{s.name}` | `{s.default}` | {s.described.replace('|', 'or')} |\n" for s in kind.settings.values())
    table = f"\n| setting | default | takes |\n|---|---|---|\n{rows}" if rows else ""
    facts = (("Licence", kind.licence), ("Get", kind.get), ("Layout", kind.layout), ("Cite", kind.cite))
    lines = "".join(f"* {title}: {text}\n" for title, text in facts)
    return f"\n## {kind.name}\n\n{kind.description}\n\n{lines}{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
