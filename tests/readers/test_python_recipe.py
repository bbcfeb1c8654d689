"""Python recipes: what counts as a setting, what is unknown, and what is no recipe at all."""

from __future__ import annotations

import re
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, SettingValue, Unknown
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

BRIDGE = "from megatron.bridge.training.config import ConfigContainer\n"
NEMO = "import nemo_run as run\nfrom nemo import lightning as nl\n"


def configurations(text: str, head: str = BRIDGE) -> tuple[Configuration, ...]:
    """What the recipe gives."""
    document = read("recipe.py", (head + textwrap.dedent(text)).encode())
    return document.configurations if document is not None else ()


def only(text: str, head: str = BRIDGE) -> dict[str, SettingValue | Unknown]:
    """The settings of the one configuration that the recipe gives."""
    (configuration,) = configurations(text, head)
    return {name: setting.value for name, setting in configuration.settings.items()}


def test_attributes_with_plain_values_are_settings_at_their_places() -> None:
    (found,) = configurations(
        """
        def recipe():
            cfg = base()
            cfg.model.tensor_model_parallel_size = 4
            cfg.model.num_attention_heads = 6
            cfg.train.micro_batch_size = 2
            cfg.optimizer.lr = 3
            return cfg
        """
    )
    assert (found.framework, found.format, found.section, found.complete) == (
        "megatron-bridge",
        "python-recipe",
        "recipe",
        False,
    )
    assert {name: setting.value for name, setting in found.settings.items()} == {
        "tensor_model_parallel_size": 4,
        "num_attention_heads": 6,
        "micro_batch_size": 2,
    }
    place = found.settings["tensor_model_parallel_size"]
    assert (place.location.line, place.location.column, place.location.end_column) == (5, 44, 45)
    assert (place.name_location.line, place.name_location.column, place.name_location.end_column) == (5, 15, 41)
    errors = [each for each in evaluate(found, load_rules()) if isinstance(each, Finding)]
    assert [(each.rule, each.location.line) for each in errors] == [("heads-not-divisible-by-tp", 6)]


def test_the_recipe_of_the_documentation_shows_what_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python recipe\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (found,) = configurations(recipe, "")
    rules = [each.rule for each in evaluate(found, load_rules()) if isinstance(each, Finding)]
    assert rules == ["heads-not-divisible-by-tp"]


def test_keyword_arguments_of_nested_builders_are_joined_with_the_nodes_of_the_trainer() -> None:
    assert only(
        """
        def trainer(tensor_parallelism: int = 4, num_nodes: int = 2):
            strategy = run.Config(
                nl.MegatronStrategy,
                tensor_model_parallel_size=tensor_parallelism,
                virtual_pipeline_model_parallel_size=2 * 3,
                sequence_parallel=True,
            )
            return run.Config(nl.Trainer, devices=8, num_nodes=4, strategy=strategy)

        """,
        NEMO,
    ) == {
        "tensor_model_parallel_size": 4,
        "num_virtual_stages_per_pipeline_rank": 6,
        "sequence_parallel": True,
    }
    assert only(
        """
            def recipe():
                strategy = nl.MegatronStrategy(tensor_model_parallel_size=4, context_parallel_size=2)
                trainer = nl.Trainer(devices=8, num_nodes=4, strategy=strategy)
                trainer.strategy.context_parallel_size = 1
                return trainer
            """,
        NEMO,
    ) == {"tensor_model_parallel_size": 4, "context_parallel_size": 1, "world_size": 32}


def test_a_parameter_says_nothing_about_the_number_of_nodes() -> None:
    assert "world_size" not in only(
        """
        def recipe(num_nodes: int = 1):
            trainer = nl.Trainer(
                devices=8,
                num_nodes=num_nodes,
                strategy=nl.MegatronStrategy(tensor_model_parallel_size=4, sequence_parallel=True),
            )
            return trainer
        """,
        NEMO,
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("if fast: cfg.model.tensor_model_parallel_size = 2", "some paths"),
        ("for size in sizes: cfg.model.tensor_model_parallel_size = 2", "some paths"),
        ("cfg.model.tensor_model_parallel_size = sizes[0]", "computation"),
        ("cfg.model.tensor_model_parallel_size = tp", "depends on `tp`"),
        ("cfg.model.tensor_model_parallel_size += 1", "computation"),
        ("tune(cfg)", "`tune` may change it"),
        ("tune(options=[cfg.model])", "`tune` may change it"),
        ("cfg.model.finalize()", "`finalize` may change it"),
        ("tune(cfg).x = 3", "`tune` may change it"),
        ("setattr(cfg.model, name, 3)", "`setattr` may change it"),
        ("if fast: cfg = other()", "some paths"),
        ("for cfg in others: pass", "some paths"),
        ("(cfg.model.tensor_model_parallel_size, x) = 1, 2", "computation"),
        ("def inner(): cfg.model.tensor_model_parallel_size = 1", "function within"),
        ("run(lambda: tune(cfg))", "function within"),
    ],
)
def test_what_may_change_is_unknown(line: str, why: str) -> None:
    found = configurations(
        f"""
        def recipe(tp):
            cfg = base()
            cfg.model.tensor_model_parallel_size = 4
            cfg.model.num_attention_heads = 6
            {line}
        """
    )
    values = [each.settings["tensor_model_parallel_size"].value for each in found]
    assert values
    assert all(isinstance(value, Unknown) and why in value.reason for value in values), values


def test_an_alias_sets_the_same_object() -> None:
    found = only(
        """
        def recipe():
            cfg = base()
            model = cfg.model
            cfg.model.tensor_model_parallel_size = 4
            model.tensor_model_parallel_size = 2
            model.sequence_parallel = True
        """
    )
    assert found == {"tensor_model_parallel_size": 2, "sequence_parallel": True}


def test_a_new_object_under_the_same_attribute_clears_it() -> None:
    found = configurations(
        """
        def recipe():
            cfg = base()
            cfg.model.tensor_model_parallel_size = 4
            cfg.model.num_attention_heads = 6
            cfg.model = other()
        """
    )
    assert found == ()


def test_places_that_disagree_are_unknown() -> None:
    found = only(
        """
        def recipe():
            recipe = base()
            recipe.trainer.strategy.tensor_model_parallel_size = 4
            recipe.model.config.tensor_model_parallel_size = 2
            recipe.model.config.num_attention_heads = 6
        """,
        NEMO,
    )
    assert isinstance(found["tensor_model_parallel_size"], Unknown)


@pytest.mark.parametrize(
    "text",
    [
        "def recipe():\n    self.tensor_model_parallel_size = 4\n    self.num_layers = 3\n",
        "def recipe(tensor_model_parallel_size=4): pass\n",
        "print('cfg.model.tensor_model_parallel_size = 4')\n",
        "cfg.tensor_model_parallel_size = 4\n",
    ],
)
def test_what_is_no_recipe_is_passed_over(text: str) -> None:
    assert configurations(text) == ()


def test_tests_and_other_python_are_passed_over() -> None:
    body = "cfg.model.tensor_model_parallel_size = 4\ncfg.model.num_attention_heads = 6\n"
    assert len(configurations(body)) == 1
    assert len(configurations(body, "import unittest\n" + BRIDGE)) == 1
    assert read("test_recipe.py", ("import pytest\n" + BRIDGE + body).encode()) is None
    assert read("test_recipe.py", (BRIDGE + body).encode()) is not None
    assert configurations(body, "import torch\n") == ()


def test_constants_count_only_where_they_are_bound_once() -> None:
    text = """
        TP = 4
        {second}
        def recipe():
            cfg = base()
            cfg.model.tensor_model_parallel_size = TP
            cfg.model.num_attention_heads = 6
        """
    assert only(text.format(second=""))["tensor_model_parallel_size"] == 4
    for second in ("TP = 2", "def change():\n            global TP\n            TP = 2", "from x import TP"):
        assert isinstance(only(text.format(second=second))["tensor_model_parallel_size"], Unknown)


@pytest.mark.parametrize(
    "text",
    [
        "cfg.model.tensor_model_parallel_size = " + "(" * 5000 + "1" + ")" * 5000,
        "cfg.model.tensor_model_parallel_size = " + "-" * 50000 + "1",
        "cfg.model.tensor_model_parallel_size = 9" + "9" * 5000,
        "cfg.model.tensor_model_parallel_size = 2 ** 2 ** 2 ** 60\ncfg.model.num_layers = 1 << 10 ** 9",
        "cfg" + ".a" * 50000 + ".tensor_model_parallel_size = 4",
        "cfg.model.tensor_model_parallel_size = " + "A(x=" * 150 + "1" + ")" * 150,
        "cfg.model.tensor_model_parallel_size = 1\n" * 3000,
    ],
)
def test_hostile_recipes_end(text: str) -> None:
    with suppress(ReadError):
        configurations(text)


def test_a_recipe_that_is_no_python_or_too_large_is_a_problem_and_a_text_that_shows_one_is_none() -> None:
    broken = (BRIDGE + "def broken(:\n    cfg.model.tensor_model_parallel_size = 4\n").encode()
    assert read("guide.md", broken) is None
    with pytest.raises(ReadError, match="not Python"):
        read("recipe.py", broken)
    with pytest.raises(ReadError, match="more than the 1048576 that are read"):
        read("recipe.py", (BRIDGE + "tensor_model_parallel_size = 4\n").encode() + b"#" * (1 << 20))
    with pytest.raises(ReadError, match="more than the 2000 functions"):
        read("recipe.py", (BRIDGE + "def f(): pass\n" * 2001 + "tensor_model_parallel_size = 4\n").encode())


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [
                "cfg = base()",
                "cfg.model.tensor_model_parallel_size = 4",
                "cfg.model = Provider(num_layers=2, tensor_model_parallel_size=2)",
                "m = cfg.model",
                "m.sequence_parallel = True",
                "cfg = m",
                "m = cfg",
                "cfg.model = m",
                "m = Config(model=cfg, config=m)",
                "cfg = Config(cfg, x=m)",
                "del m",
                "m, cfg = cfg, m",
                "f(cfg)",
                "if x: m = cfg",
                "with cfg as m: m.model = cfg",
                "cfg.model.config = cfg",
            ]
        ),
        max_size=12,
    )
)
def test_any_order_of_statements_is_followed(lines: list[str]) -> None:
    configurations("\n".join([*lines, "z.model.tensor_model_parallel_size = 1"]))


CONFIG = """
from dataclasses import dataclass
from abc import ABC
@dataclass(kw_only=True)
class Basis(ABC):
    train_iters: int = 1
@dataclass
class Training(Basis):
    eval_interval: int = 1
    def finalize(self): pass
@dataclass
class Open(Elsewhere):
    eval_interval: int = 1
class Plain:
    eval_interval: int = 1
"""


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("build(tensor_parallelism=2, micro_batch=1)", ""),
        ("build(tensor_paralelism=2)", "tensor_parallelism"),
        ("build(tensorparallelism=2)", "tensor_parallelism"),
        ("build(tensor_parallelism=2, tensor_paralelism=2)", ""),
        ("build(cows=2)", ""),
        ("takes_all(tensor_paralelism=2)", ""),
        ("Training(train_itrs=5)", "train_iters"),
        ("Training(eval_interval=5, **more)", ""),
        ("Training(eval_intreval=5)", "eval_interval"),
        ("Open(eval_interva=5)", ""),
        ("Plain(eval_interva=5)", ""),
        ("Gone(eval_interva=5)", ""),
        ("rebound(eval_interva=5)", ""),
    ],
)
def test_a_keyword_that_nothing_takes_is_a_slip(call: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "a" / "recipes").mkdir(parents=True)
    (tmp_path / "src" / "a" / "config.py").write_text(CONFIG)
    path = tmp_path / "src" / "a" / "recipes" / "one.py"
    path.write_text(
        "import megatron.bridge\nfrom a.config import Training, Open, Plain, Training as rebound\nfrom b import Gone\n"
        "def build(tensor_parallelism, micro_batch=1): pass\n"
        "def takes_all(tensor_parallelism, **more): pass\n"
        "rebound = print\n"
        f"def recipe():\n    model = Model(tensor_model_parallel_size=2, num_layers=4)\n    {call}\n    return model\n"
    )
    document = read(str(path))
    assert document is not None
    found = [(each.rule, each.help, each.location.line) for each in document.findings]
    assert found == ([("misspelled-option", f"did you mean `{meant}`?", 9)] if meant else [])
