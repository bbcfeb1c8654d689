"""Place the backward runs of autograd in the schedule of one rank, with the reducers that they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Phase, Program, Role, Segment, Step
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.plurals import counted
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.autograd import differentiated, gradient, recorded
from tvlint.readers.nnscaler.gencode.lower.operators import Body
from tvlint.readers.nnscaler.gencode.lower.replica import made_by
from tvlint.readers.nnscaler.gencode.lower.schedule import Steps
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind, bound_of
from tvlint.readers.nnscaler.gencode.syntax.names import cell_name
from tvlint.readers.nnscaler.gencode.syntax.nodes import Fails, stops
from tvlint.readers.nnscaler.gencode.syntax.records import ClearGradients, Delete, Execute, Load, Opaque, Rename, RunBackward


class Schedule(Steps):
    """The whole schedule of one rank."""

    def run(self) -> None:
        built = self.built
        built.forward_cells[self.rank] = []
        built.groups[self.rank] = set()
        for action in self.file.actions:
            if isinstance(action, Load):
                self.load(action)
            elif isinstance(action, Execute):
                self.execute(action)
            elif isinstance(action, RunBackward):
                self._backward(action)
            elif isinstance(action, Rename):
                self.read((action.old,), self.file.train_source or Location(self.file.path))
                self.alias[action.new] = self.known(action.old)
                self.live.add(action.new)
            elif isinstance(action, Delete):
                self.live.difference_update(action.names)
            elif isinstance(action, Opaque):
                self.opaque(action)
            else:
                assert isinstance(action, ClearGradients)
        self.read(self.file.returned, self.file.returned_at or Location(self.file.path))
        built.returned_batches[self.rank] = tuple(self.batch_of.get(name, -1) for name in self.file.returned)
        self._in_turn()
        self._judge_waits()
        built.programs.append(Program((self.rank,), tuple(self.steps)))

    def _backward(self, action: RunBackward) -> None:
        built = self.built
        made = self.read(action.outputs, action.source)
        detached = next((one for one in action.outputs if one in self.alias), None)
        if detached is not None:
            said = f"`backward` of `{action.segment}` runs from `{detached}`, which was detached from it"
            raise stops(self.file.unclear, said, action.source)
        self.read(action.inputs, action.source)
        gradients = self.read(action.gradients, action.source)
        if len(gradients) != len(made):  # the first that nothing gives stops the rank here
            gradients = ("",) * len(made)
        run = next(((run, batch) for run, batch in reversed(self.runs) if self._fits(run, action.segment, made)), None)
        if run is None:
            said = f"`backward` of `{action.segment}` names results that no run of it made"
            ran = sum(one.method == action.segment and one.tracked for one, _ in self.runs)
            queued = ran > len(self.backwards.get(action.segment, ()))
            raise stops(self.file.unclear or queued, said, action.source, "the runtime takes the inputs of a run from a queue")
        forward, batch = run
        if not forward.tracked:
            said = f"`{action.segment}` is run without `requires_grad`, and `backward` runs from what it gives"
            help = f"its `backward` stands at line {action.source.line}; set `requires_grad=True`"
            raise stops(self.file.unclear, said, forward.source, help)
        body = built.bodies[self.rank, action.segment]
        outer_inputs = tuple(self.known(one) for one in forward.inputs)
        if any(self.known(one) not in outer_inputs for one in action.inputs):
            names = tuple(one for one in outer_inputs if one not in self.loaded | built.objects | self.untracked.keys())
            if len(names) == len(action.results):  # the runtime warns of the names, and takes the inputs of the run
                action = replace(action, inputs=names)
            elif len(action.results) > 1 or any(map(self._used, action.results)):
                raise ReadError(f"`backward` of `{action.segment}` names inputs that its run did not have", action.source)
            else:
                self.write(action.results, batch)
                action = replace(action, inputs=(), results=())
        given = tuple(map(self.known, action.inputs))
        idle_input = next((one for one in given if one in self.untracked), None)
        if idle_input is not None:
            said = f"`{idle_input}` is made without `requires_grad`, and `backward` of `{action.segment}` asks for its gradient"
            raise ReadError(said, self.untracked[idle_input], "the runtime gives gradients of what requires them only")
        places = sorted(outer_inputs.index(one) for one in given)  # the order in which the runtime gives gradients
        action = replace(action, inputs=tuple(forward.inputs[place] for place in places))
        given = tuple(outer_inputs[place] for place in places)
        self.backwards.setdefault(action.segment, []).append((self.runs.index(run), action))
        leaves = tuple(body.inputs[place] for place in places)
        results = tuple(body.outputs[forward.outputs.index(one)] for one in made)
        self._judge_recorded(action, body, outer_inputs, dict(zip(results, made, strict=True)))
        for inner, outer, given_back in zip(results, made, gradients, strict=True):
            if not given_back and inner not in built.kinds:  # autograd starts from single numbers only
                built.declare(inner, (built.scalar, "float32"), Role.ACTIVATION)
                built.declare(outer, (built.scalar, "float32"), Role.ACTIVATION)
        taken = tuple(gradient(one) for one, outer in zip(results, gradients, strict=True) if outer)
        if len(action.results) not in (len(leaves), 0):
            raise ReadError(
                f"`backward` of {counted(len(leaves), 'input')} gives {counted(len(action.results), 'gradient')}", action.source
            )
        leaving = tuple(gradient(one) for one in leaves) if action.results else ()
        lone = len(action.results) == 1 and action.inputs[0] in self.loaded and not self._used(action.results[0])
        name = self._backward_segment(action.segment, leaves, results, taken, leaving, frozenset(leaving if lone else ()))
        self._judge_given(action, dict(zip(action.results, leaving, strict=False)), name)
        outer_taken = tuple(outer for outer in gradients if outer)
        for one, outer in zip(made, gradients, strict=True):
            if outer:
                self._link(outer, one)
        for one, outer in zip(given, action.results, strict=False):
            self._link(outer, one)
            if one in built.kinds:
                built.declare(outer, built.kinds[one], Role.GRADIENT)
        self.write(action.results, batch)
        kept = built.segments[name].outputs
        outer_given = tuple(outer for name, outer in zip(leaving, action.results, strict=False) if name in kept)
        self.step(Step(name, batch, outer_taken, outer_given, action.source))
        self._fire(action, name)

    def _judge_recorded(self, action: RunBackward, body: Body, given: tuple[str, ...], results: Mapping[str, str]) -> None:
        """Raise Fails where `backward` runs from what requires no gradient: what a loader gives and buffers require none."""
        if self.file.unclear:
            return
        built = self.built
        taken = any(map(self._used, action.results))  # of what a loader gives, where it gives it with `requires_grad`
        without = (self.loaded | built.objects | self.untracked.keys()) - set(map(self.known, action.inputs if taken else ()))
        leaves = [inner for inner, outer in zip(body.inputs, given, strict=True) if outer not in without]
        leaves += [one for one, tensor in built.weights.items() if tensor.role is Role.WEIGHT and one in self.file.parameters]
        kinds: dict[str, Kind] = {one: (tensor.shape, tensor.dtype) for one, tensor in built.weights.items()}
        kinds.update(built.kinds)

        def hidden(operator: Compute) -> frozenset[int]:
            bound = bound_of(operator, kinds, built.scalar)
            if bound is None:
                return frozenset()
            cut = has_trait(operator.op, Trait.DETACHED)
            return bound.shape_only | (bound.zero_gradient if cut else frozenset())

        found = recorded(body.operators, leaves, hidden)
        for inner, outer in results.items():
            if inner not in found:
                said = f"`backward` of `{action.segment}` runs from `{outer}`, which requires no gradient: no weight enters it"
                raise Fails(said, action.source, f"leave `{outer}` out, and its gradient")

    def _judge_given(self, action: RunBackward, leaving: Mapping[str, str], segment: str) -> None:
        """Note gradients that the runtime does not give: it gives those of what requires one, and stops where there is none.

        What a loader gives requires no gradient by itself; the only gradient of a segment may then be None.
        """
        operators = self.built.segments[segment].operators
        made = {one for operator in operators for one in made_by(operator)} | set(self.built.segments[segment].inputs)
        for position, (one, result) in enumerate(zip(action.inputs, action.results, strict=False)):
            loaded = one in self.loaded
            if (leaving[result] in made and not loaded) or (loaded and len(action.results) == 1):
                continue
            found = self.built.asked if leaving[result] in made else self.built.ungiven
            found.setdefault((self.rank, action.segment, position), (result, one, action))

    def _judge_waits(self) -> None:
        """Raise Fails where an asynchronous reducer is waited for that no backward starts, for want of a gradient."""
        made = {
            name.removeprefix("g.")
            for step in self.steps
            for operator in self.built.segments[step.segment].operators
            if isinstance(operator, Backward)
            for name in made_by(operator)
        }
        for name, place in self.early.items():
            without = sorted(set(self.file.reducers[name].weights) - made)
            if name not in self.started and without and self.file.reducers[name].registered:
                said = f"`{name}` waits for the gradient of `{without[0]}`, which no backward makes"
                help = "an asynchronous reducer starts when all its weights have their gradients"
                raise stops(self.file.unclear, said, place, help)

    def _in_turn(self) -> None:
        """The runtime pairs the backwards of a segment with its runs in order; raises ReadError where one is out of turn."""
        for segment, turns in self.backwards.items():
            for index, (turn, action) in enumerate(turns):
                if action.inputs and any(later < turn for later, _ in turns[index + 1 :]):
                    said = f"`backward` of `{segment}` stands before that of an earlier run, and takes the inputs of that run"
                    help = "the runtime keeps the inputs of a segment in a queue: what ran forward first runs backward first"
                    plain = self.file.unclear or self.loaded.issuperset(action.inputs)
                    raise stops(plain, said, action.source, help)

    def _fits(self, run: Execute, segment: str, made: tuple[str, ...]) -> bool:
        return run.method == segment and set(made) <= set(run.outputs)

    def _used(self, name: str) -> bool:
        """Return whether anything in the schedule takes the value; what is only deleted may as well be None."""
        return any(
            name in (action.inputs if isinstance(action, Execute) else action.gradients)
            for action in self.file.actions
            if isinstance(action, (Execute, RunBackward))
        )

    def _link(self, outer: str, of: str) -> None:
        self.built.links.setdefault(outer, of)

    def _backward_segment(
        self,
        segment: str,
        leaves: tuple[str, ...],
        results: tuple[str, ...],
        taken: tuple[str, ...],
        leaving: tuple[str, ...],
        idle: frozenset[str],
    ) -> str:
        """Return the backward of a segment; uses that ask for other gradients are segments of their own.

        Gradients in `idle`, which nothing uses, are left out where autograd gives None for them.
        """
        built, mirror = self.built, cell_name(self.rank, segment)
        body = built.bodies[self.rank, segment]
        name, count = f"{mirror} backward", 1
        while name in built.segments:
            known = built.segments[name]
            left = set(leaving) - set(known.outputs)
            if known.inputs == taken and set(known.outputs) <= set(leaving) and left <= idle:
                return name
            count += 1
            name = f"{mirror} backward {count}"
        weights = [one for one, tensor in built.weights.items() if tensor.role is Role.WEIGHT and one in self.file.parameters]
        known_kinds: dict[str, Kind] = {one: (tensor.shape, tensor.dtype) for one, tensor in built.weights.items()}
        known_kinds.update(built.kinds)

        def constant(operator: Compute) -> frozenset[int]:
            bound = bound_of(operator, known_kinds, built.scalar)
            return bound.zero_gradient | bound.shape_only if bound is not None else frozenset()

        operators = differentiated(body.operators, (*leaves, *weights), results, constant)
        made = {one for operator in operators for one in made_by(operator)} | set(taken)
        leaving = tuple(one for one in leaving if one in made or one not in idle)
        for entry in body.operators:
            for one in (*made_by(entry.operator), *body.inputs):
                if one not in built.own_gradient and one in built.kinds:
                    built.own_gradient[one] = gradient(one)
                    built.links[gradient(one)] = one
        built.segments[name] = Segment(name, Phase.BACKWARD, taken, leaving, operators, mirror=mirror)
        return name

    def _fire(self, action: RunBackward, segment: str) -> None:
        """An asynchronous reducer starts when the gradients of all its weights came with reduction switched on."""
        if action.skips_reducer:
            return
        made = {
            name.removeprefix("g.")
            for operator in self.built.segments[segment].operators
            for name in made_by(operator)
            if name.removeprefix("g.") in self.file.parameters
        }
        for reducer in self.file.reducers.values():
            if not reducer.asynchronous:
                continue
            ready = self.ready.setdefault(reducer.name, set())
            ready |= made & set(reducer.weights)
            if reducer.weights and ready == set(reducer.weights):
                ready.clear()
                self.started.add(reducer.name)
                if reducer.name in self.early:
                    self.built.early.append((reducer.name, self.early[reducer.name], action.source, self.rank))
                    continue
                self.reduced(reducer, cell_name(self.rank, reducer.name), action.source)
