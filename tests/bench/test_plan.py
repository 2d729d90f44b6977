"""Plans: what they say, what they refuse, and that those which ship can be run."""

from __future__ import annotations

import pytest

from patchlight.bench.opened import spread
from patchlight.bench.plan import changed, open_plan, read_plan, ready_plans
from patchlight.core.errors import SettingError
from patchlight.data import datasets


def test_a_plan_without_blocks_crosses_everything(plan):
    (block,) = plan.blocks
    assert block.methods == ("random", "rollout", "transformer_mm", "cam")
    assert block.metrics == ("deletion", "pointing_game")
    assert plan.method("rollout")[1]["start_block"] == 0


def test_blocks_choose_by_label(text):
    plan = read_plan(text + '[[block]]\nmethods = ["random"]\ntarget = "label"\n', name="p")
    assert plan.blocks[0].methods == ("random",)
    assert plan.blocks[0].data == ("scenes",)
    assert plan.blocks[0].target == "label"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("models = 3", r"plan p: \[models.NAME\] is needed"),
        ("x = ", "plan p: not TOML .*for a plan to start from"),
        ('tittle = "x"', "unknown entry 'tittle'. Did you mean 'title'"),
        ("batch = 0", "batch takes a whole number from 1 up, but 0 came"),
        ('precision = "int8"', "precision = 'int8' came, but it takes one of float32"),
        ('[[block]]\nmethod = ["random"]', r"a \[\[block\]\] has no entry 'method'. Did you mean 'methods'"),
        ('[[block]]\nmethods = ["rnadom"]', "names methods 'rnadom', which has no table. Did you mean 'random'"),
        ("[methods.rolout]", "There is no method 'rolout'. Did you mean 'rollout'"),
        ("[methods.saliency]\nsteps = 3", "saliency has no setting 'steps'"),
    ],
)
def test_a_wrong_plan_says_what_is_wrong(text, change, message):
    lines = [line for line in text.splitlines() if line.split(" ")[0] not in (change.split(" ")[0],)]
    whole = change + "\n" + "\n".join(lines) if "[" not in change else text + change + "\n"
    if change.startswith("models"):
        whole = change
    with pytest.raises(SettingError, match=message):
        read_plan(whole, name="p")


def test_an_unknown_plan_names_the_ready_ones():
    with pytest.raises(SettingError, match=r"no plan .quik.: give a TOML file or a ready plan. Did you mean .quick."):
        open_plan("quik")


def test_this_machine_tells_where_things_lie(plan):
    found = changed(plan, roots={"scenes": "there"}, weights={"small": "file"}, count=5, only=["random"])
    assert found.data["scenes"]["root"] == "there"
    assert found.data["scenes"]["count"] == 5
    assert found.models["small"]["weights"] == "file"
    assert found.blocks[0].methods == ("random",)
    assert plan.data["scenes"]["count"] == 7
    with pytest.raises(SettingError, match="plan small has no data of the name 'pets'"):
        changed(plan, roots={"pets": "there"})


def test_a_slice_is_spread_evenly():
    assert spread(10, 0, None, "d") == list(range(10))
    assert spread(10, 0, 4, "d") == [0, 2, 5, 7]
    assert spread(10, 4, 3, "d") == [4, 6, 8]
    with pytest.raises(SettingError, match="data d: 11 pictures from number 0 on were asked for, but it has 10"):
        spread(10, 0, 11, "d")


@pytest.mark.parametrize("name", ready_plans())
def test_a_ready_plan_names_only_what_there_is(name):
    plan = open_plan(name)
    assert plan.title
    for label in plan.methods:
        assert plan.method(label)[0]
    for label in plan.metrics:
        assert plan.metric(label)[0]
    for label, entry in plan.data.items():
        kind = datasets()[str(entry.get("name", label))]
        kind.resolve({k: v for k, v in entry.items() if k not in ("name", "root", "count", "start")})
