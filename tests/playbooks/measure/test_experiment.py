"""Experiments as people write them: read, checked, and one change at a time."""

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.kv_cache import hp_blocks, layout_for
from playbooks.measure.experiment import (
    ArmSpec,
    Experiment,
    ExperimentSize,
    find_experiment,
    read_experiment,
    shipped,
)

ARMS = '[[arm]]\nname = "a"\n[[arm]]\nname = "b"\nchanges = { kv_format = "fp16" }\n'


def write(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_owners_table_is_one_change_after_another():
    found = find_experiment("owners_table")
    found.check_single_changes()
    assert "owners_table" in shipped()
    settings = [found.settings(i) for i in range(5)]
    assert [s["policy"] for s in settings] == ["static", *["continuous"] * 4]
    assert [s["kv_format"] for s in settings] == ["fp16", "fp16", *["int8_channel"] * 3]
    assert [s["dynamic_batch"] for s in settings] == [False, False, False, True, True]
    assert [s.get("compute", "f32") for s in settings] == [*["f32"] * 4, "auto"]
    assert {s["max_batch"] for s in settings} == {32}
    assert settings[0]["reserve"] == "max"
    assert [found.rival(i) for i in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert found.size.repeats * found.size.rate_requests >= 100  # or there is no P99
    assert (found.work.prompt_mean, found.work.output_mean, found.size.scale) == (512, 256, 0.25)
    assert found.longest(found.size) == 1024


def test_the_finer_formats_have_a_pool_for_a_third_of_the_requests():
    found = find_experiment("kv_pool")
    found.check_single_changes()
    settings = [found.settings(i) for i in range(3)]
    assert [s["kv_format"] for s in settings] == ["int8_channel", "k8v4", "k4v4"]
    assert [found.rival(i) for i in (1, 2)] == [0, 0]
    layouts = [layout_for(EngineConfig(**s), 3, 64) for s in settings]
    memory = found.kv_rows * found.longest(found.size) * layouts[0].fp16_bytes_per_token
    slabs, _ = hp_blocks(layouts[0], settings[0]["max_batch"], settings[0]["token_budget"])
    rows = [(memory - slabs * layout.slab_bytes) / layout.bytes_per_token
            / (found.work.prompt_mean + found.work.output_mean) for layout in layouts]  # fmt: skip
    assert rows[0] == pytest.approx(found.size.batch_requests / 3, rel=0.1)
    assert rows[1] > 1.2 * rows[0] and rows[2] > 1.5 * rows[0]


def test_a_file_of_ones_own(tmp_path):
    text = f'seed = 3\nkv_rows = 2.5\n{ARMS}[size]\nrepeats = 4\n[[goal]]\nmetric = "memory"\n'
    found = read_experiment(write(tmp_path, text + "at_most = 0.8\n"))
    assert (found.name, found.title, found.seed, found.kv_rows) == ("own", "own", 3, 2.5)
    assert found.size.repeats == found.quick.repeats == 4
    assert found.goals[0].at_most == 0.8
    assert find_experiment(str(tmp_path / "own.toml")) == found


def test_arms_without_a_chain_change_the_base():
    arms = (ArmSpec("a"), ArmSpec("b", {"max_batch": 2}), ArmSpec("c", {"seed": 1}))
    found = Experiment("x", "x", arms, base={"max_batch": 4})
    assert found.settings(2) == {"max_batch": 4, "seed": 1}
    assert found.rival(2) == 0


def test_two_changes_in_one_arm_need_a_reason():
    both = {"policy": "static", "kv_format": "fp16"}
    with pytest.raises(ConfigError, match="kv_format, policy at once"):
        Experiment("x", "x", (ArmSpec("a"), ArmSpec("b", both))).check_single_changes()
    Experiment("x", "x", (ArmSpec("a"), ArmSpec("b", both, "one thing"))).check_single_changes()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "two arms at least"),
        ("arm = 5", "arm: expected a list"),
        ("nonsense", "not valid TOML"),
        (f"schema = 9\n{ARMS}", "schema: expected 1, got 9"),
        (f"speed = 9\n{ARMS}", "unknown key 'speed'"),
        (f'seed = "x"\n{ARMS}', "seed: expected a whole number"),
        (f"chain = 1\n{ARMS}", "chain: expected true or false"),
        (f"seed = true\n{ARMS}", "seed: expected a whole number"),
        (f"kv_rows = -1\n{ARMS}", "kv_rows: expected above 0"),
        (f"rate = 1.0\nrate_of_first = 0.9\n{ARMS}", "not both"),
        (f"{ARMS}[size]\nrepeats = 1\n", "one run has no interval"),
        (f"{ARMS}[size]\nscale = 0\n", "scale"),
        (f"{ARMS}[size]\nbatch_requests = 0\n", "batch_requests"),
        (ARMS.replace('"b"', '"a"'), "same name"),
        (ARMS.replace("kv_format", "kv_fromat"), "unknown key 'kv_fromat'"),
        (ARMS.replace("fp16", "fp4"), "fp4"),
        (f'{ARMS}[[arm]]\nnam = "c"\n', "unknown key 'nam'; did you mean 'name'"),
        (f"{ARMS}[[arm]]\n", "name: is missing"),
        (f'{ARMS}[[goal]]\nmetric = "luck"\nat_least = 1\n', "metric: expected one of .*luck"),
        (f'{ARMS}[[goal]]\nmetric = "memory"\n', "at_least or at_most"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, text, why):
    with pytest.raises(ConfigError, match=why) as caught:
        read_experiment(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_those_that_ship():
    with pytest.raises(ConfigError, match="owners_table"):
        find_experiment("nobody")


def test_lengths_scale_with_the_longest_context():
    found = find_experiment("owners_table")
    mix = found.mix(ExperimentSize(scale=0.5), 10)
    assert (mix.prompt_mean, mix.output_mean) == (256, 128)
    assert mix.most_prompt + mix.most_output == 2048
