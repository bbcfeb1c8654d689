"""Plan JSON is what the schema says, and the reader and the schema agree."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_plan_round_trip import EVERYTHING

from tests.builders.plan_equality import assert_same_plan
from tvlint.findings import Problem
from tvlint.ir.operators import Backward, Compute, Literal
from tvlint.ir.plan import Replication, Step
from tvlint.readers.document import ReadError
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_json.schema_checker import FormError, form
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer

ROOT = Path(__file__).parents[2]
(EXAMPLE,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "plan-json.md").read_text("utf-8"), re.DOTALL)
SCHEMA = json.loads((ROOT / "schemas" / "plan.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
_plan = plan_text.read("everything.plan", EVERYTHING).plan
assert _plan is not None
RICH = json_writer.write(_plan)


def fails(text: str) -> ReadError:
    with pytest.raises(ReadError) as caught:
        plan_json.read("p.json", text)
    return caught.value


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_key_is_described() -> None:
    def walk(schema: Any, where: str) -> None:
        for key, own in schema.get("properties", {}).items():
            described = "description" in own or "$ref" in own or "const" in own or "oneOf" in own or key == "kind"
            assert described, f"{where}/{key}"
            walk(own, f"{where}/{key}")
        for own in schema.get("oneOf", ()):
            walk(own, where)

    for name, own in SCHEMA["$defs"].items():
        walk(own, name)
    walk(SCHEMA, "")


def test_the_example_of_the_documentation_is_a_plan() -> None:
    VALIDATOR.validate(json.loads(EXAMPLE))
    assert plan_json.recognise(EXAMPLE)
    plan = plan_json.read("p.json", EXAMPLE).plan
    assert plan is not None
    assert plan.replication == Replication("dp", 2, 2)
    assert plan.programs[0].ranks == (0, 1)
    assert plan.programs[0].steps[1] == Step("backward", 0)
    forward = plan.segments["forward"].operators[0]
    assert isinstance(forward, Compute)
    assert forward.inputs == ("x", "w")
    assert forward.source is not None
    assert forward.source.path == "model.py"
    scaled = plan.segments["forward"].operators[3]
    assert isinstance(scaled, Compute)
    assert scaled.inputs == ("y", Literal(0.5))
    backward = plan.segments["backward"].operators[2]
    assert isinstance(backward, Backward)
    assert backward.forward is forward
    assert backward.outputs == ("", "grad(w)")
    assert plan.tensors["w"].gradient == "grad(w)"
    assert plan.tensors["y"].shape == (4, 8)


def test_what_is_written_is_what_the_schema_says() -> None:
    VALIDATOR.validate(json.loads(RICH))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"a": "tvlint_plan"}', "plan\n", '"tvlint_plan": 1'])
def test_other_json_is_not_recognised(text: str) -> None:
    assert not plan_json.recognise(text)


WRONG = [
    ('"phase": "forward"', '"phaze": "forward"', "phaze", "did you mean `phase`?"),
    ('"phase": "forward"', '"phase": "forwards"', "forwards", "did you mean `forward`?"),
    ('"kind": "all-reduce"', '"kind": "all_reduce"', "all_reduce", "did you mean `all-reduce`?"),
    ('"size": 2}, {', '"size": "2"}, {', "2", "integer"),
    ('"size": 2}, {', '"size": true}, {', "true", "integer"),
    ('"size": 2}, {', '"size": 2.5}, {', "2.5", "integer"),
    ('"axes": ["tp"]', '"axes": ["cp"]', "cp", "axis"),
    ('"axes": ["tp"]', '"axes": ["tp", "tp"]', "tp", "twice"),
    ('"axes": ["tp"]', '"ranks": [1, 1]', "1", "names rank 1 twice"),
    ('"whole": [8, 8]', '"region": [[0, 8]], "whole": [8, 8]', "[", "a region of 1 interval, of a value of 2 dimensions"),
    ('"whole": [8, 8]', '"region": [[0, 8], [8, 16]], "whole": [8, 8]', "[", "an interval up to 16 of 8"),
    ('"op": "mul"', '"draws_over": ["tp", "tp"], "op": "mul"', "tp", "twice"),
    ('"op": "mul"', '"draws_over": ["cp"], "op": "mul"', "cp", "axis"),
    ('"op": "mul"', '"in_place": [7], "op": "mul"', "[", "no tensor as input 7"),
    ('"op": "mul"', '"in_place": [0, 1], "op": "mul"', "[", "no tensor as input 1"),
    ('"axes": ["tp"]', '"axes": ["tp"], "ranks": [0]', "ranks", "unknown key"),
    ('"operator": 3', '"operator": 9', "9", "segment of 5"),
    ('"operator": 3', '"operator": 1', "1", "computation"),
    ('"segment": "step"', '"segment": "stop"', "{", "no segment"),
    ('"segment": "step"', '"inputs": ["more"], "segment": "step"', "{", "and the step names 1"),
    (
        '"whole": [8, 8], "placements": {"tp": {"kind": "shard", "dim": 1',
        '"placements": {"tp": {"kind": "shard", "dim": 2',
        "{",
        "say `whole`",
    ),
    ('"constant": 0.5', '"constant": NaN', "NaN", "float"),
    ('"loss": "l"', '"loss": "l", "loss": "m"', "loss", "twice"),
    ('"micro_batches": 2', '"micro_batches": 1e999', "1e999", ""),
    ('"micro_batches": 2', '"micro_batches": ' + "9" * 5000, "9", "digits"),
    ('"name": "row', '"name": row', "r", "not JSON"),
    ('"where": {}', '"where": {"tp": 2}', "2", "coordinate"),
    ('"where": {}', '"ranks": [9]', "{", "rank 9"),
]


@pytest.mark.parametrize(("old", "new", "at", "says"), WRONG)
def test_what_is_wrong_is_reported_where_it_is(old: str, new: str, at: str, says: str) -> None:
    text = EXAMPLE.replace(old, new, 1)
    assert text != EXAMPLE
    problem = fails(text).problem
    place = problem.location
    assert place.line is not None
    assert place.column is not None
    assert text.split("\n")[place.line - 1][place.column - 1 :].lstrip('"').startswith(at), problem
    assert says in f"{problem.message} {problem.help}"


@pytest.mark.parametrize("depth", [200, 2000, 100_000])
def test_deep_nesting_is_an_error(depth: int) -> None:
    assert "nest" in str(fails(EXAMPLE.replace("0.5", "[" * depth + "]" * depth, 1)))


def test_a_finding_without_a_line_is_located_in_the_text() -> None:
    plan = plan_json.read("p.json", EXAMPLE).plan
    assert plan is not None
    wait = plan.segments["forward"].operators[2].source
    assert wait is not None
    assert wait.line is None
    place = plan_json.locate(EXAMPLE, [wait])[wait.pointer]
    assert place.line is not None
    assert EXAMPLE.split("\n")[place.line - 1].strip() == '{"kind": "wait", "handle": "h"},'


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        found += _paths(item, (*path, key))
    return found


DOCUMENTS = [json.loads(EXAMPLE), json.loads(RICH)]
PATHS = [_paths(document) for document in DOCUMENTS]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
    st.sampled_from([1.0, -1, 0, 2.0, "", "tp"]),
    st.text(max_size=3), st.just({}), st.just([]), st.lists(st.integers(-1, 3), max_size=3),
    st.just({"kind": "wait", "handle": "h"}),
    st.just({"axes": []}), st.just({"rank": 0}), st.just({"constant": [1, "a", {"float": "inf"}]}), st.just({"float": "nan"}),
)  # fmt: skip
KEYS = sorted({path[-1] for paths in PATHS for path in paths if path and isinstance(path[-1], str)} | {"", "reduce", "x"})


@pytest.mark.heavy
@settings(max_examples=150)
@given(st.data())
def test_the_reader_and_the_schema_accept_the_same_documents(data: st.DataObject) -> None:
    which = data.draw(st.sampled_from([0, 1]))
    document = copy.deepcopy(DOCUMENTS[which])
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(PATHS[which][1:]))
        holder = document
        try:
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]]
        except (LookupError, TypeError):
            continue
        action = data.draw(st.sampled_from(["replace", "delete", "add", "rename"]))
        if action == "replace":
            holder[path[-1]] = data.draw(LEAVES)
        elif action == "delete" or not isinstance(holder, dict):
            del holder[path[-1]]
        elif action == "add":
            holder[data.draw(st.sampled_from(KEYS))] = data.draw(LEAVES)
        else:
            holder[data.draw(st.sampled_from(KEYS))] = holder.pop(path[-1])
    try:
        form()(document, None)
        accepted = True
    except FormError:
        accepted = False
    assert accepted == VALIDATOR.is_valid(document), list(VALIDATOR.iter_errors(document))[:1]
    text = json.dumps(document)
    if not accepted:
        assert fails(text).problem.location.line == 1
        return
    try:
        plan = plan_json.read("p.json", text).plan
    except ReadError as error:
        problem: Problem | None = error.problem
        plan = None
    else:
        problem = None
    if problem is not None:
        assert problem.location.line == 1
        return
    assert plan is not None
    again = plan_json.read("q.json", json_writer.write(plan)).plan
    assert again is not None
    assert_same_plan(plan, again)


@pytest.mark.parametrize(
    ("outputs", "loss", "said"),
    [(["x", "x"], "", "output `x` is given twice"), (["x"], "y", "the loss `y` is none of the outputs")],
)
def test_outputs_are_distinct_and_hold_the_loss(outputs: list[str], loss: str, said: str) -> None:
    tensors = {name: {"shape": [2], "dtype": "float32", "role": "input"} for name in ("x", "y")}
    document = {"tvlint_plan": 1, "mesh": [{"axis": "tp", "size": 1}], "tensors": tensors, "segments": {}, "programs": []}
    with pytest.raises(ReadError) as caught:
        plan_json.read("own.json", json.dumps({**document, "outputs": outputs, "loss": loss}))
    assert caught.value.problem.message == said
    assert caught.value.problem.location.line == 1


def test_values_behind_the_first_loss_start_gradients_and_need_not_be_returned() -> None:
    tensors = {name: {"shape": [2], "dtype": "float32", "role": "input"} for name in ("x", "y")}
    document = {"tvlint_plan": 1, "mesh": [{"axis": "tp", "size": 1}], "tensors": tensors, "segments": {}, "programs": []}
    plan = plan_json.read("own.json", json.dumps({**document, "outputs": ["x"], "loss": ["x", "y"]})).plan
    assert plan is not None
    assert (plan.outputs, plan.losses) == (("x",), ("x", "y"))
    with pytest.raises(ReadError, match="the loss `z` is none of the outputs"):
        plan_json.read("own.json", json.dumps({**document, "outputs": ["x"], "loss": ["x", "z"]}))


@pytest.mark.parametrize(("loss", "losses"), [("x", ("x",)), (["x", "y"], ("x", "y")), (["y"], ("y",)), ([], ())])
def test_a_plan_has_one_loss_or_several(loss: str | list[str], losses: tuple[str, ...]) -> None:
    tensors = {name: {"shape": [2], "dtype": "float32", "role": "input"} for name in ("x", "y")}
    document = {"tvlint_plan": 1, "mesh": [{"axis": "tp", "size": 1}], "tensors": tensors, "segments": {}, "programs": []}
    plan = plan_json.read("own.json", json.dumps({**document, "outputs": ["x", "y"], "loss": loss})).plan
    assert plan is not None
    assert plan.losses == losses
    again = plan_json.read("own.json", json_writer.write(plan)).plan
    assert again is not None
    assert again.losses == losses


def test_gradients_that_say_nothing_of_their_owner_are_those_of_the_operand_that_backward_gives_them_for() -> None:
    plan = plan_json.read(
        "p.json",
        """
        {"tvlint_plan": 1, "mesh": [{"axis": "dp", "size": 1}], "tensors": {
           "ids": {"shape": [4], "dtype": "int64", "role": "input"},
           "w": {"shape": [8, 2], "dtype": "float32", "role": "weight", "requires_grad": true},
           "dy": {"shape": [4, 2], "dtype": "float32", "role": "input"},
           "g": {"shape": [8, 2], "dtype": "float32", "role": "gradient"}},
         "segments": {"s": {"phase": "backward", "inputs": ["ids", "dy"], "outputs": [], "operators": [
           {"kind": "compute", "op": "torch.nn.functional.embedding", "inputs": ["ids", "w"], "outputs": ["y"]},
           {"kind": "backward", "forward": {"segment": "s", "operator": 0}, "inputs": ["dy"], "outputs": ["g"]}]}},
         "programs": [{"where": {}, "steps": [{"segment": "s"}]}]}
        """,
    ).plan
    assert plan is not None
    backward = plan.segments["s"].operators[1]
    assert isinstance(backward, Backward)
    assert backward.outputs == ("", "g")
    assert plan.tensors["g"].gradient_of == "w"
    assert plan.tensors["w"].gradient == "g"


def test_all_places_that_the_schema_does_not_allow_are_named() -> None:
    document = {"tvlint_plan": 1, "mesh": [{"axis": "tp", "size": "2"}], "tensors": {"w": {"rol": "weight"}}, "segments": 3}
    with pytest.raises(plan_json.ReadError) as raised:
        plan_json.read("here.json", json.dumps(document, indent=1))
    assert raised.value.problem.location.line == 6
    assert "2 more places that the schema does not allow: lines 10, 14" in raised.value.problem.help
