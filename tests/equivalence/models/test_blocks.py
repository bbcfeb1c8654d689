"""What ranks reduce of their parts or of blocks of a dimension, and put together from the results."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

ATTENTION = "weight q f32[4,3]\nweight k f32[4,3]\nweight v f32[4,3]\ninput x f32[2,6,3]{cp}\n{mask}loss l\nprogram\n"
ATTENTION += "a = linear(x, q)\nb = linear(x, k)\nc = linear(x, v)\n"
ONE = ATTENTION.format(cp="", mask="") + "t = transpose(b, 1, 2)\ns = bmm(a, t)\n"
SOFTMAX = "p = softmax({s}, dim=-1)\no = bmm(p, c)\nz = tanh(o)\nl: f32[] = sum(z)\n"
CUT = "b{i} = narrow(bg, 1, {at}, 3)\nc{i} = narrow(cg, 1, {at}, 3)\nt{i} = transpose(b{i}, 1, 2)\ns{i} = bmm(a, t{i})\n"
GREATEST = "m{i} = amax({s}{i}, dim=-1, keepdim=True) || none\n"
POWERS = "d{i} = sub({s}{i}, {m})\np{i} = exp(d{i})\nn{i} = sum(p{i}, dim=-1, keepdim=True)\no{i} = bmm(p{i}, c{i})\n"
RESCALED = "f0 = sub(m1, m) || none\nf = exp(f0) || none\nn3 = mul(n1, f)\no3 = mul(o1, f)\n"
RESCALED += "n = add(n3, n2)\no4 = add(o3, o2)\no = div(o4, n)\nz = tanh(o)\n"
NORMALISED = "y{i} = logsumexp(s{i}, dim=-1, keepdim=True)\np{i} = softmax(s{i}, dim=-1)\no{i} = bmm(p{i}, c{i})\n"
BY_SIGMOID = "d = sub(y2, y1)\nf = sigmoid(d)\no3 = sub(o1, o2)\no4 = mul(f, o3)\no = sub(o1, o4)\nz = exp(o)\n"
BY_POWERS = (
    "d1 = exp(y1)\nd2 = exp(y2)\no3 = mul(d1, o1)\no4 = mul(d2, o2)\no5 = add(o3, o4)\nn = add(d1, d2)\no = div(o5, n)\n"
)
BY_POWERS += "z = exp(o)\n"
TO_LOSS = "l0: f32[] = sum(z)\nl: f32[] = all-reduce(l0) over cp\n"


def _online(masks: str = "", s: str = "s") -> str:
    blocks = CUT.format(i=1, at=0) + CUT.format(i=2, at=3) + masks + GREATEST.format(i=1, s=s) + GREATEST.format(i=2, s=s)
    blocks += (
        "m = maximum(m1, m2) || none\n" + POWERS.format(i=1, s=s, m="m1") + POWERS.format(i=2, s=s, m="m") + RESCALED + TO_LOSS
    )
    return "bg = all-gather(b, dim=1) over cp\ncg = all-gather(c, dim=1) over cp\n" + blocks


def _merged(merge: str) -> str:
    blocks = CUT.format(i=1, at=0) + CUT.format(i=2, at=3) + NORMALISED.format(i=1) + NORMALISED.format(i=2)
    return "bg = all-gather(b, dim=1) over cp\ncg = all-gather(c, dim=1) over cp\n" + blocks + merge + TO_LOSS


LAST = "l: f32[] = sum(z)"
HEAD = "mesh cp=2\n" + ATTENTION.format(cp=" cp:S(1)", mask="")
END = "end reduce-gradients q, k, v over cp\n"
MEAN = "weight w f32[4,3]\nweight u f32[2,4]\ninput x f32[2,6,3]{cp}\nloss l\nprogram\nh = linear(x, w)\na = gelu(h)\n"
ROWS = "y = linear(m, u)\nz = tanh(y)\nl: f32[] = sum(z)\n"
CLASSES = "weight w f32[6,3]{tp}\ninput x f32[5,3]\nloss l\nprogram\ny = linear(x, w)\n"
IDIOMS = {
    "attention block by block": Idiom(
        ONE + SOFTMAX.format(s="s"),
        HEAD + _online() + END,
        (
            ("o3 = mul(o1, f)", "o3 = identity(o1)"),
            ("n3 = mul(n1, f)", "n3 = identity(n1)"),
            ("f0 = sub(m1, m)", "f0 = sub(m, m1)"),
            ("d2 = sub(s2, m)", "d2 = sub(s2, m2)"),
            ("b2 = narrow(bg, 1, 3, 3)", "b2 = narrow(bg, 1, 2, 3)"),
            ("c2 = narrow(cg, 1, 3, 3)", "c2 = narrow(cg, 1, 0, 3)"),
            ("o4 = add(o3, o2)", "o4 = sub(o3, o2)"),
            (END, "end reduce-gradients q, v over cp\n"),
        ),
    ),
    **{
        f"results of blocks that are merged by {name}": Idiom(
            ONE + SOFTMAX.format(s="s").replace("tanh(o)", "exp(o)"), HEAD + _merged(merge) + END, wrong
        )
        for name, merge, wrong in (
            (
                "a sigmoid",
                BY_SIGMOID,
                (
                    ("d = sub(y2, y1)", "d = sub(y1, y2)"),
                    ("o = sub(o1, o4)", "o = add(o1, o4)"),
                    ("o3 = sub(o1, o2)", "o3 = sub(o1, o1)"),
                    ("f = sigmoid(d)", "f = exp(d)"),
                    ("y2 = logsumexp(s2", "y2 = logsumexp(s1"),
                ),
            ),
            ("powers", BY_POWERS, (("n = add(d1, d2)", "n = add(d1, d1)"), ("o4 = mul(d2, o2)", "o4 = mul(d1, o2)"))),
        )
    },
    "log-sum-exps of shards": Idiom(
        CLASSES.format(tp="") + "e = logsumexp(y, dim=-1)\nz = tanh(e)\nl: f32[] = mean(z)\n",
        "mesh tp=3\n" + CLASSES.format(tp=" tp:S(0)") + "e0 = logsumexp(y, dim=-1, keepdim=True)\n"
        "g = all-gather(e0, dim=1) over tp || chunk\ne = logsumexp(g, dim=-1)\nz = tanh(e)\nl: f32[] = mean(z)\n",
        (
            ("e = logsumexp(g, dim=-1)", "e = sum(g, dim=-1)"),
            ("e0 = logsumexp(y, dim=-1, keepdim=True)", "e0 = sum(y, dim=-1, keepdim=True)"),
            ("over tp || chunk", "over tp"),
            ("y = linear(x, w)\ne0", "y0 = linear(x, w)\ny = mul(y0, 1.1)\ne0"),
        ),
    ),
    "log-sum-exps from the greatest of them": Idiom(
        CLASSES.format(tp="") + "e = logsumexp(y, dim=-1)\nz = tanh(e)\nl: f32[] = mean(z)\n",
        "mesh tp=3\n" + CLASSES.format(tp=" tp:S(0)") + "a = logsumexp(y, dim=-1)\n"
        "c = identity(a) || none\nm = all-reduce max(c) over tp || none\nd = sub(a, m)\np = exp(d)\ns = all-reduce(p) over tp\n"
        "g = log(s)\ne = add(g, m)\nz = tanh(e)\nl: f32[] = mean(z)\n",
        (
            ("e = add(g, m)", "e = sub(g, m)"),
            ("e = add(g, m)", "e = add(g, a)"),
            ("d = sub(a, m)", "d = add(a, m)"),
            ("d = sub(a, m)", "d = sub(m, a)"),
            ("e = add(g, m)", "e = identity(g)"),
            ("d = sub(a, m)", "c2 = mul(m, 0.5) || none\nd = sub(a, c2)"),
            ("s = all-reduce(p) over tp", "s = identity(p)"),
            ("s = all-reduce(p) over tp", "s = all-reduce avg(p) over tp"),
            ("g = log(s)", "g = sqrt(s)"),
            ("a = logsumexp(y, dim=-1)", "y2 = mul(y, 2)\na = logsumexp(y2, dim=-1)"),
            ("s = all-reduce(p) over tp", "s = all-reduce max(p) over tp"),
            ("e = add(g, m)", "e = add(g, c)"),
        ),
    ),
    "means of parts": Idiom(
        MEAN.format(cp="") + "m = mean(a, dim=1)\n" + ROWS,
        "mesh cp=2\n" + MEAN.format(cp=" cp:S(1)") + "m0 = mean(a, dim=1, keepdim=True)\n"
        "g = all-gather(m0, dim=1) over cp || chunk\nm = mean(g, dim=1)\n" + ROWS + "end reduce-gradients w over cp\n",
        (
            ("m = mean(g, dim=1)", "m = sum(g, dim=1)"),
            ("m0 = mean(a, dim=1, keepdim=True)", "m0 = sum(a, dim=1, keepdim=True)"),
            ("end reduce-gradients w over cp\n", ""),
            ("over cp || chunk", "over cp"),
        ),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_what_is_put_together_is_the_whole(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), twins(IDIOMS))
def test_what_is_put_together_otherwise_is_not(name: str, before: str, after: str) -> None:
    verdict = IDIOMS[name].verdict(before, after)
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]


def _on_one_rank(mask: str, masks: Sequence[str]) -> Idiom:
    """Return attention block by block on one rank, of scores that are masked, and that of all masked scores at once."""
    text = _online("".join(masks), s="w").partition("\n")[2].partition("\n")[2]
    text = text.replace("(bg", "(b").replace("(cg", "(c").replace(TO_LOSS, LAST + "\n")
    return Idiom(ONE + mask + SOFTMAX.format(s="w0"), ATTENTION.format(cp="", mask="") + text, ())


MASK = "i = arange(6) || none\nr = unsqueeze(i, 1) || none\nj = arange({low}, {high}) || none\nh{n} = gt(j, r) || none\n"
MASK += "w{n} = masked_fill({s}, h{n}, {fill})\n"


@pytest.mark.parametrize(("fill", "outcome"), [("-inf", Outcome.UNKNOWN), ("-1e30", Outcome.PROVED)])
@pytest.mark.parametrize("given", ["", "e = narrow(w0, 2, 3, 3) || none\nm9 = amax(e, dim=-1) || none\n"])
def test_a_block_that_may_be_masked_throughout_is_proved_where_its_greatest_score_is_a_number(
    fill: str, outcome: Outcome, given: str
) -> None:
    """The greatest of scores that all are minus infinity is no number when it is subtracted from them.

    It is none either where the reference takes that block, too.
    """
    masks = [MASK.format(low=at, high=at + 3, n=n, s=f"s{n}", fill=fill) for n, at in ((1, 0), (2, 3))]
    reference = MASK.format(low=0, high=6, n=0, s="s", fill=fill) + given
    assert _on_one_rank(reference, masks).verdict().outcome is outcome


@pytest.mark.parametrize(
    "made",
    [
        "v{n} = div(1.0, u{n}) || none\n",
        "v{n} = rsqrt(u{n}) || none\n",
        "v0{n} = log(u{n}) || none\nv{n} = neg(v0{n}) || none\n",
    ],
)
@pytest.mark.parametrize("flags", ["u{n} = ge(j, r) || none\n", "g{n} = ge(j, r) || none\nu{n} = add(g{n}, g{n}) || none\n"])
def test_a_block_whose_scores_are_all_infinite_is_not_proved(flags: str, made: str) -> None:
    """One over a flag, and its logarithm, mask as a constant that is minus infinity does."""
    mask = MASK.partition("h{n}")[0] + flags + made + "w{n} = sub({s}, v{n})\n"
    masks = [mask.format(low=at, high=at + 3, n=n, s=f"s{n}") for n, at in ((1, 0), (2, 3))]
    assert _on_one_rank(mask.format(low=0, high=6, n=0, s="s"), masks).verdict().outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        ("v{n} = identity({g}) || none\n", Outcome.PROVED),
        ("e{n} = exp({g}) || none\nv{n} = log(e{n}) || none\n", Outcome.PROVED),
        ("v{n} = reciprocal({g}) || none\n", Outcome.UNKNOWN),
        ("v{n} = rsqrt({g}) || none\n", Outcome.UNKNOWN),
        ("r{n} = relu({g}) || none\nv{n} = reciprocal(r{n}) || none\n", Outcome.UNKNOWN),
    ],
)
def test_a_block_whose_scores_numbers_may_make_infinite_is_not_proved(made: str, outcome: Outcome) -> None:
    """What may be zero masks as a flag does, where one over it is taken from the scores."""
    data = "m0 = narrow(x, 2, 0, 1) || none\nmm = transpose(m0, 1, 2) || none\n"
    taken = "w{n} = sub({s}, v{n})\n"
    cut = "g{n} = narrow(mm, 2, {at}, 3) || none\n"
    masks = [cut.format(n=n, at=at) + (made + taken).format(n=n, g=f"g{n}", s=f"s{n}") for n, at in ((1, 0), (2, 3))]
    reference = data + (made + taken).format(n=0, g="mm", s="s")
    assert _on_one_rank(reference, [data, *masks]).verdict().outcome is outcome


GIVEN = "input s f32[4,6]\ninput u f32[4,6]\ninput v f32[6,3]\noutput o\nprogram\n{made}"
SHARES = "d1 = exp(y1)\nd2 = exp(y2)\nn = add(d1, d2)\ny3 = log(n)\n" + "".join(
    f"e{i} = sub(w{i}, y{i})\nf{i} = sub(y{i}, y3)\ng{i} = add(e{i}, f{i})\nh{i} = exp(g{i})\nj{i} = matmul(h{i}, v{i})\n"
    for i in (1, 2)
)
MERGES = {
    "a sigmoid": BY_SIGMOID.partition("z")[0],
    "powers": BY_POWERS.partition("z")[0],
    "logarithms": SHARES + "o = add(j1, j2)\n",
}


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        ("w = add(s, u)\n", Outcome.PROVED),
        ("a = exp(u)\nr = log(a)\nw = sub(s, r)\n", Outcome.PROVED),
        ("r = reciprocal(u)\nw = sub(s, r)\n", Outcome.UNKNOWN),
        ("r = log(u)\nw = add(s, r)\n", Outcome.UNKNOWN),
        ("a = abs(u)\nr = rsqrt(a)\nw = sub(s, r)\n", Outcome.UNKNOWN),
    ],
)
def test_results_of_blocks_are_merged_where_no_block_may_be_masked_throughout(made: str, outcome: Outcome, merge: str) -> None:
    """The sum of the powers of scores that all are minus infinity is zero, and what is divided by it no number."""
    given = GIVEN.format(made=made)
    blocks = "w1, w2 = chunk(w, 2, dim=-1)\nv1, v2 = chunk(v, 2, dim=0)\n"
    blocks += "".join(
        NORMALISED.format(i=i).replace("(s", "(w").replace("bmm", "matmul").replace(f"c{i}", f"v{i}") for i in (1, 2)
    )
    plan = given + blocks + MERGES[merge]
    assert verdict_on(plan, given + "p = softmax(w, dim=-1)\no = matmul(p, v)\n").outcome is outcome
