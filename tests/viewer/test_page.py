"""The page itself: one file, one script under its limit, nothing from outside."""

from __future__ import annotations

import collections
import re
from importlib.resources import files

from patchlight.render.page import IMPORT, SCRIPTS, as_data, digest, page, palettes, script, style

FOLDER = files("patchlight.render") / "viewer"
TOP = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class)\s+([\w$]+(?:\s*,\s*[\w$]+)*)", re.MULTILINE)


def test_the_script_is_under_its_limit():
    assert len(script().encode()) < 100_000


def test_every_module_is_part_of_the_script_and_every_import_is_one_of_them():
    names = {p.name for p in FOLDER.iterdir() if p.name.endswith(".js")}
    assert names == {f"{name}.js" for name in SCRIPTS}
    for name in SCRIPTS:
        text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
        assert {m for line in IMPORT.findall(text) for m in re.findall(r'"\./(.*?)"', line)} <= names


def test_what_is_imported_is_exported():
    texts = {name: (FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS}
    for name, text in texts.items():
        for wanted, source in re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";', text, re.MULTILINE):
            for one in (w.strip() for w in wanted.split(",")):
                pattern = rf"^export (?:async )?(?:function|const|let|class) (?:\w+, )*{re.escape(one)}(?![\w$])"
                assert re.search(pattern, texts[source], re.MULTILINE), f"{name}.js imports {one} from {source}.js"


def test_the_modules_share_no_name():
    seen = collections.Counter(n for found in TOP.findall(script()) for n in re.findall(r"[\w$]+", found))
    assert not [name for name, times in seen.items() if times > 1]


def test_nothing_comes_from_outside():
    whole = page({"pictures": []})
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[\w/.]*", whole)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    assert "@import" not in whole
    assert "url(" not in style()


def test_the_policy_names_the_script_and_the_style_by_their_digest_and_forbids_the_rest():
    for offline in (True, False):
        policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page({}, offline=offline))[0]
        assert f"script-src {digest(script())};" in policy
        assert f"style-src {digest(style())};" in policy
        assert "default-src 'none'" in policy
        assert ("connect-src 'none'" in policy) is offline


def test_no_data_ends_its_element():
    assert "</script" not in as_data({"name": "</script><script>alert(1)</script>"})
    whole = page({"name": "</script><img src=x onerror=alert(1)>"}, title="<b>&")
    assert whole.count("</script>") == 3
    assert "<title>&lt;b&gt;&amp;</title>" in whole


def test_the_colours_are_those_of_the_overlays():
    assert set(palettes()) == {"sequential", "diverging"}
    assert all(len(text) == 1024 for kind in palettes().values() for text in kind.values())  # 256 x 3 bytes
