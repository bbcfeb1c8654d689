"""The form of a kind of plan."""

from __future__ import annotations

from dataclasses import dataclass

from tests.builders.plan_tapes import with_backward


@dataclass(frozen=True, slots=True)
class Kind:
    """A parallel plan that is right, its reference, and mistakes: what stands in the plan and what in its place."""

    name: str
    reference: str
    plan: str
    mistakes: tuple[tuple[str, str], ...] = ()

    def broken(self, mistake: tuple[str, str]) -> str:
        """The plan with one mistake."""
        before, after = mistake
        assert before in self.plan, (self.name, before)
        return self.plan.replace(before, after)


def taped(name: str, reference: str, plan: str, *mistakes: tuple[str, str]) -> Kind:
    """A kind of which only the forward pass is written; the backward pass follows from it."""
    return Kind(name, with_backward(reference), with_backward(plan), mistakes)
