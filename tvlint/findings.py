"""Findings of checks, verdicts of proofs, and the report that holds them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tvlint.ir.coverage import Coverage
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, field

if TYPE_CHECKING:
    from tvlint.ir.outline import Outline


class Severity(Enum):
    """The severity of a finding, from worst to mildest."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Outcome(Enum):
    """The outcome of a proof."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a finding is about, and what stands there; `leads`: the wrong value comes by way of it."""

    message: str
    location: Location
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """The span of a file from `location` up to its end, and the text that takes its place."""

    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that repair a finding together; `message` says in the imperative what they do.

    A safe one writes down what the file surely means; any other is one of several that a person chooses from.
    """

    message: str
    edits: tuple[Edit, ...]
    is_safe: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake, at one place.

    `message` is one sentence: this thing, what is wrong with it, where; lower case, no full stop, names in backticks. `help`
    says what to do about it. `ranks` are the ranks concerned, when the finding is about a plan. `found_in` is the checked file
    that shows it, where it stands elsewhere (the model's source of a plan, a script that another one reads). `about` are the
    names of what it is about, by which it is found again in another run and repaired; None: those in backticks in its message.
    `section` is that of the configuration that it is about. `fixes` are ways to repair it, the best first.
    """

    rule: str
    severity: Severity
    message: str
    location: Location
    help: str = ""
    related: tuple[Related, ...] = ()
    ranks: tuple[int, ...] = ()
    found_in: str = ""
    about: tuple[str, ...] | None = None
    section: str | None = None
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """A rule that could not be judged, and what it would need."""

    rule: str
    location: Location
    reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The piece of a tensor that a rank holds: the indices `box` of the value `of`, of shape `whole` in one micro-batch.

    `lacks` says in words what it is short of being exactly that piece: a partial sum, a multiple; empty: nothing.
    """

    tensor: str
    of: str
    whole: tuple[int, ...]
    box: tuple[tuple[int, int], ...]
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class SceneStep:
    """One operator of a scene; names that nothing is known of have no piece."""

    operator: str
    reads: tuple[Piece, ...]
    gives: tuple[Piece, ...]
    blamed: bool = False
    """Whether it is the operator that the reason is about."""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """The operators around a defect in a proof stage, in order, on ranks that hold the same pieces."""

    ranks: tuple[int, ...]
    steps: tuple[SceneStep, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a verdict is not Proved: a named defect or gap, with its place and the ranks concerned.

    `name` is kebab-case and stable (`missing-allreduce`, `unsupported-operator`); tests assert it. `refutes` says
    whether it is a defect (a structural fact or a numeric counterexample) or only a gap in what could be decided. `repair` is a
    single change that makes the proof succeed, when one was found.
    """

    name: str
    refutes: bool
    message: str
    location: Location
    ranks: tuple[int, ...] = ()
    operator: str = ""
    expected: str = ""
    actual: str = ""
    repair: str = ""
    related: tuple[Related, ...] = ()
    scenes: tuple[Scene, ...] = ()
    """The operators around the defect, drawn once for each kind of rank concerned."""
    segments: tuple[str, ...] = ()
    """The segments of the plan in which it is."""
    unless: str = ""
    """What may make it right in a plan that has no reference."""


@dataclass(frozen=True, slots=True)
class StageCounts:
    """The number of proof stages by outcome."""

    total: int = 0
    classes: int = 0
    proved: int = 0
    refuted: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one proof."""

    reference: str
    parallel: str
    outcome: Outcome
    stages: StageCounts = field(default_factory=StageCounts)
    reasons: tuple[Reason, ...] = ()
    assumptions: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """What the proof derived about the pair, for people: (`ranks`, `8`), (`parameters covered`, `21`), ..."""
    coverage: Coverage | None = None
    """How much of the parallel plan was understood; None where nothing was derived."""
    trains: bool = True
    """Whether the reference has weights to train; without any, what is returned is all that is compared."""
    out_of_time: bool = False
    """Whether the solver, or the proof, ran out of time on something; on another machine it may not."""
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def claim(self) -> str:
        """Return what a proved plan does, in the words before its reference."""
        return "trains the same model as" if self.trains else "returns the same values as"

    @property
    def denial(self) -> str:
        """Return what a refuted plan does not do, likewise."""
        return "does not train the same model as" if self.trains else "does not return the same values as"


@dataclass(frozen=True, slots=True)
class Problem:
    """An input that could not be read, or a tvlint configuration that is wrong; makes the run exit 2."""

    message: str
    location: Location
    help: str = ""
    unfinished: bool = False
    """Whether time or memory ended before what is in the input was known."""


@dataclass(frozen=True, slots=True)
class Silenced:
    """A finding that is not reported as one: a comment beside it or the project file silences it."""

    finding: Finding
    by_comment: bool


@dataclass(frozen=True, slots=True)
class Pairing:
    """A place of the project file that names a plan."""

    path: str
    location: Location


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is another after a change, as text; empty where there is none."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One configuration before and after a change: what was written, and what follows from it."""

    path: str
    section: str
    written: tuple[Difference, ...]
    follows: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Recognised:
    """Files whose configurations were recognised as one framework's, and how many of the rules hold for it."""

    framework: str
    files: int
    applicable: int
    rules: int
    unsized: int = 0
    """Files of which nothing tells on how many ranks they run."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run has to say."""

    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    problems: tuple[Problem, ...] = ()
    checked: tuple[str, ...] = ()
    """Paths of the files that were recognised and checked."""
    outlines: tuple[Outline, ...] = ()
    """Mesh and schedule of each plan that was read; lets reporters name ranks by coordinates and draw the plan."""
    comparisons: tuple[Comparison, ...] = ()
    """What changed, where two versions were compared."""
    known: int = 0
    """Findings that a baseline or an earlier commit has, and that are not reported."""
    pairings: tuple[Pairing, ...] = ()
    """Where the project names the plans that it wants proved."""
    silenced: tuple[Silenced, ...] = ()
    """What comments and the project file silence."""
    judged_by: tuple[tuple[str, int], ...] = ()
    """The project files of folders below that of the run, each with how many of the files it judges."""
    recognised: tuple[Recognised, ...] = ()
    """The frameworks of the configurations that were checked."""
