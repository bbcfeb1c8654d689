"""Experts whose tokens a program sorts, or finds for one expert after the other: `chosen_experts.py` in its four ways."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.capture.test_capture_proofs import count_unproved, lines_of, mutants, path_of, proof, prover_alone
from tvlint.findings import Outcome
from tvlint.readers.capture.lifting.dead import without_dead
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode
from tvlint.readers.capture.lifting.program import Program, Ref, Type
from tvlint.readers.capture.rewriting.set_flags import with_set_flags_selected
from tvlint.readers.capture.rewriting.sorted_rows import with_rows_in_order
from tvlint.readers.capture.tapes.tape import Mark

WAYS = ("grouped", "split", "listed", "masked")
MARK = Mark(micro_batch=0)
Arguments = dict[str, Any]


@pytest.mark.parametrize("way", WAYS)
def test_experts_that_tokens_choose_are_proved(way: str) -> None:
    verdict = proof(path_of(f"chosen_experts_{way}"), f"chosen_experts_{way}_reference")
    assert verdict.outcome is Outcome.PROVED, verdict.reasons


def with_other(key: str, value: object) -> Callable[[Arguments], Arguments]:
    return lambda arguments: {**arguments, key: value}


CHANGES: list[tuple[str, str, int, Callable[[Arguments], Arguments]]] = [
    ("grouped", "aten.sort.default", 0, with_other("descending", True)),
    ("grouped", "aten.cumsum.default", 0, with_other("dim", -2)),
    ("grouped", "aten._grouped_mm.default", 0, with_other("offs", {"t": 17})),
    ("grouped", "aten.floor_divide.default", 0, with_other("other", 3)),
    ("grouped", "aten.index_put_.default", 0, with_other("indices", [{"t": 15}])),
    ("grouped", "aten.index_put_.default", 0, with_other("indices", [None, {"t": 16}])),
    ("grouped", "aten.index_put_.default", 0, with_other("accumulate", True)),
    ("grouped", "aten.index_put.default", 0, with_other("indices", [{"t": 16}])),
    ("grouped", "aten.bincount.default", 0, with_other("weights", {"t": 16})),
    ("grouped", "aten.index.Tensor", 1, with_other("indices", [{"t": 19}])),
    ("split", "aten.cat.default", 0, lambda arguments: {"tensors": arguments["tensors"][::-1]}),
    ("split", "aten.sort.default", 0, with_other("descending", True)),
    ("split", "aten.floor_divide.default", 0, with_other("other", 3)),
    ("split", "aten.index_put.default", 0, with_other("indices", [{"t": 18}])),
    ("listed", "aten.eq.Scalar", 1, with_other("other", 2)),
    ("listed", "aten.eq.Scalar", 0, with_other("other", 5)),
    ("listed", "aten.index_add_.default", 0, with_other("dim", 1)),
    ("masked", "aten.eq.Scalar", 1, with_other("other", 2)),
    ("masked", "aten.any.dim", 0, with_other("dim", 0)),
    ("masked", "aten.index_put_.default", 1, with_other("accumulate", True)),
    ("masked", "aten.index_put_.default", 0, lambda arguments: {**arguments, "indices": [None, *arguments["indices"]]}),
]


@pytest.mark.parametrize("ranks", [{0, 1}, {1}], ids=["all ranks", "one rank"])
@pytest.mark.parametrize(("way", "op", "place", "change"), CHANGES)
def test_rows_that_are_sorted_or_chosen_otherwise_are_not_proved(
    way: str,
    op: str,
    place: int,
    change: Callable[[Arguments], Arguments],
    ranks: set[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prover_alone(monkeypatch)
    lines, rank, seen, changed = lines_of(f"chosen_experts_{way}"), -1, 0, 0
    for line in lines:
        if line.get("rank", rank) != rank:
            rank, seen = line["rank"], 0
        if line.get("op") == op:
            if seen == place and rank in ranks:
                line["arguments"] = change(line["arguments"])
                changed += 1
            seen += 1
    assert changed == len(ranks)
    assert count_unproved(tmp_path, [("", lines)], f"chosen_experts_{way}_reference") == 1


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
def test_no_mutant_of_experts_is_proved(way: str, tmp_path: Path) -> None:
    found = islice(mutants(lines_of(f"chosen_experts_{way}")), 0, None, 2)
    assert count_unproved(tmp_path, found, f"chosen_experts_{way}_reference") > 5


def of_sorted_rows(op: str, **attributes: Any) -> list[str]:
    """Return the operators that give the result of a program that sorts indices, applies one to rows, and puts these back."""
    program = Program(0)
    keys, x = program.fresh(Type((6,), "int64")), program.fresh(Type((6, 6), "float32"))
    ordered, places, again, back = (program.fresh(Type((6,), "int64")) for _ in range(4))
    taken, made, result = (program.fresh(Type((6, 6), "float32")) for _ in range(3))
    sort = {"dim": 0, "descending": False, "stable": False}
    nodes: list[LiftedNode] = [
        Call("torch.sort", (Ref(keys),), sort, (ordered, places), MARK),
        Call("torch.index_select", (Ref(x), Ref(places)), {"dim": 0}, (taken,), MARK),
        Call(op, (Ref(taken),), attributes, (made,), MARK),
        Call("torch.sort", (Ref(places),), sort, (again, back), MARK),
        Call("torch.index_select", (Ref(made), Ref(back)), {"dim": 0}, (result,), MARK),
    ]
    lifted = without_dead(with_rows_in_order(Lifted(program, nodes, gradients={"w": (result, None)})))
    return [node.op for node in lifted.nodes if isinstance(node, Call)]


def test_what_works_row_by_row_is_computed_of_rows_in_their_order() -> None:
    assert of_sorted_rows("torch.exp") == ["torch.exp", "torch.Tensor.view"]
    assert of_sorted_rows("torch.softmax", dim=1) == ["torch.softmax", "torch.Tensor.view"]


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("torch.cumsum", {"dim": 0}),
        ("torch.softmax", {"dim": 0}),
        ("torch.flip", {"dims": (0,)}),
        ("torch.tril", {}),
        ("torch.permute", {"dims": (1, 0)}),
        ("torch.nn.functional.dropout", {"p": 0.5}),
        ("an operator that is not known", {}),
    ],
)
def test_what_reads_other_rows_or_their_numbers_stays_in_sorted_order(op: str, attributes: dict[str, Any]) -> None:
    assert "torch.sort" in of_sorted_rows(op, **attributes)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 2, 2)])
def test_flags_of_other_dimensions_stay_as_they_are(shape: tuple[int, ...]) -> None:
    program = Program(0)
    flags, places = program.fresh(Type(shape, "bool")), program.fresh(Type((1, len(shape)), "int64"))
    lifted = Lifted(program, [Call("aten.nonzero.default", (Ref(flags),), {}, (places,), MARK)])
    assert with_set_flags_selected(lifted) is lifted
