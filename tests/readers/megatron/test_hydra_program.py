"""Overrides that Hydra refuses, judged by the configuration that the program of the command composes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

MAIN = '@hydra.main(config_path="config", config_name="ppo", version_base=None)\ndef main(config):\n    run(config)\n'
PPO = "defaults:\n- actor@actor: small\n- _self_\nactor:\n  batch: 4\nreward: null\ntrainer:\n  nnodes: 1\n"
FILES = {
    "trainer/main.py": MAIN,
    "trainer/config/ppo.yaml": PPO,
    "trainer/config/actor/small.yaml": "optim:\n  lr: 1\n",
    "trainer/config/sft.yaml": "data:\n  path: x\n",
    "own/main.py": MAIN,
    "packed/main.py": MAIN.replace('"config"', '"pkg://trainer.config"'),
    "own/config/ppo.yaml": "hydra:\n  searchpath:\n  - file://trainer/config\ndefaults:\n- sft\n- _self_\nkl: 1\n",
}


def refused(folder: Path, command: str, files: dict[str, str] = FILES) -> list[str]:
    """Return what is said of the overrides of a command."""
    (folder / ".git").mkdir()
    script = f"python elsewhere.py model.tensor_model_parallel_size=1\n{command}\n"
    for name, text in (files | {"run.sh": script}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    document = read(str(folder / "run.sh"))
    assert document is not None
    return [each.message for each in document.findings]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m trainer.main actor.batch=8 actor.optim.lr=2 trainer.nnodes=2", []),
        ("python -m trainer.main actor.bach=8", ["`ppo.yaml` has no `actor.bach`"]),
        ("python -m trainer.main actor.batch=8 actor.optim-lr=8", ["`ppo.yaml` has no `actor.optim-lr`"]),
        ("python trainer/main.py critic.optim.lr=8", ["`ppo.yaml` has no `critic`"]),
        ("python -m trainer.main a.b=8 $@", ["`ppo.yaml` has no `a`, unless `$@` chooses another configuration"]),
        ("python -m trainer.main +actor.bach=8 actor.bach=2 ++critic.lr=1 critic.lr=3", []),
        ("python -m trainer.main ~actor.bach actor.batch=1", ["`ppo.yaml` has no `actor.bach`"]),
        ("python -m trainer.main reward.path=8 hydra.run.dir=x", ["`ppo.yaml` has no `reward.path`"]),
        ("python -m trainer.main 'reward={path: 1}' reward.path=8", []),
        ("python -m trainer.main +actor.optim.lr=3 +actor.new=1 ++actor.batch=2", ["`ppo.yaml` has `actor.optim.lr` already"]),
        ("python -m trainer.main +reward=3 +trainer.nnodes=[1] '+actor.batch={a: 1}'", []),
        ("python -m trainer.main --config-name=sft.yaml data.path=8 data.paths=9", ["`sft.yaml` has no `data.paths`"]),
        ("python -m trainer.main --config-name $NAME data.paths=9", []),
        ("python -m trainer.main --config-dir other actor.bach=9", []),
        ("python -m trainer.main actor@actor=large actor.bach=9", []),
        ("python -m trainer.main engine=large actor.bach=9", []),
        ("python -m own.main data.path=1 kl.a=2 data.paths=2", ["`ppo.yaml` has no `data.paths`"]),
        ("python -m gone.main actor.bach=9", []),
        ('python -m trainer.main --config-path="$(pwd)/own/config" data.paths=1', ["`ppo.yaml` has no `data.paths`"]),
        ("python -m trainer.main --config-name=spt data.path=8", ["there is no configuration `config/spt.yaml`"]),
        ("python -m trainer.main --config-path=confi actor.batch=1", ["there is no configuration `confi/ppo.yaml`"]),
        ("python -m trainer.main --config-name=of_mine --config-path=elsewhere actor.bach=9", []),
        ("python -m packed.main actor.bach=8 actor.batch=8", ["`ppo.yaml` has no `actor.bach`"]),
        ("python -m packed.main --config-path=pkg://gone.config actor.bach=8", []),
        ("python -m trainer.main --config-path=elsewhere/recipe/config actor.bach=9", []),
        (
            "python -m trainer.main actor.batch=8 --bf16 --cfg job",
            ["Hydra reads the command line of `trainer.main`, and has no option `--bf16`"],
        ),
        ("case ${1:-a} in a) ;; b) python -m trainer.main actor.bach=8;; esac", ["`ppo.yaml` has no `actor.bach`"]),
    ],
)
def test_an_override_needs_a_setting_of_the_composed_configuration(tmp_path: Path, command: str, expected: list[str]) -> None:
    assert refused(tmp_path, command) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"trainer/config/ppo.yaml": PPO.replace("small", "gone")},
        {"trainer/config/ppo.yaml": PPO.replace("small", "${size}")},
        {"trainer/main.py": MAIN + MAIN},
        {"trainer/main.py": MAIN.replace("@hydra.main", "@other.main")},
        {"trainer/config/ppo.yaml": PPO.replace("actor:\n  batch: 4", "actor: ${other}")},
    ],
)
def test_what_is_not_known_of_the_configuration_refuses_nothing(tmp_path: Path, changed: dict[str, str]) -> None:
    assert refused(tmp_path, "python -m trainer.main actor.bach=8", FILES | changed) == []


ENGINES = {
    "trainer/config/ppo.yaml": "defaults:\n- engine: dp\n- actor@actor: ${engine}_actor\n- _self_\ntrainer:\n  nodes: 1\n",
    "trainer/config/engine/dp.yaml": "# @package _global_\nengine: dp\n",
    "trainer/config/engine/fast.yaml": "# @package _global_\nengine: fast\n",
    "trainer/config/fast.yaml": "defaults:\n- ppo\n- override engine: fast\n- _self_\nkl: 0\n",
    "trainer/config/own.yaml": "defaults:\n- ppo\n- _self_\nkl: 0\n",
    "trainer/config/actor/dp_actor.yaml": "lr: 1\n",
    "trainer/config/actor/fast_actor.yaml": "rate: 1\n",
}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("actor.lr=2 trainer.nodes=2", []),
        ("actor.rate=2", ["`ppo.yaml` has no `actor.rate`"]),
        ("engine=fast actor.rate=2 engine.x=1", []),
        ("engine=fast actor.lr=2", ["`ppo.yaml` has no `actor.lr`"]),
        ("actor@actor=fast_actor actor.lr=2", ["`ppo.yaml` has no `actor.lr`"]),
        ("engine=$ENGINE actor.rate=2", []),
        ("engine=gone actor.rate=2", []),
        ("+engine=fast actor.rate=2", []),
        ("engines=fast actor.rate=2", []),
        ("--config-name=fast actor.rate=2 kl=1", []),
        ("--config-name=fast actor.lr=2", ["`fast.yaml` has no `actor.lr`"]),
        ("--config-name=own actor.lr=2 kl=1", []),
        ("--config-name=own actor.rate=2", ["`own.yaml` has no `actor.rate`"]),
    ],
)
def test_a_part_is_chosen_by_what_is_chosen_of_another(tmp_path: Path, overrides: str, expected: list[str]) -> None:
    """verl names the parts of its actor, its critic and its reference after the engine."""
    assert refused(tmp_path, f"python -m trainer.main {overrides}", FILES | ENGINES) == expected


def test_a_choice_that_no_file_makes_is_none(tmp_path: Path) -> None:
    changed = ENGINES | {"trainer/config/ppo.yaml": "defaults:\n- actor@actor: ${engine}_actor\n- _self_\n"}
    assert refused(tmp_path, "python -m trainer.main actor.bach=8", FILES | changed) == []
