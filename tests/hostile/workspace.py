"""A checkout full of traps, as a pull request of a stranger and the earlier steps of a job leave it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shared import ROOT

from tvlint.reporters import FORMATS

TOUR = ROOT / "fixtures" / "tour"
SECRET = "hunter2secret"
"""A word of every file that no report may show; each file has a number of its own after it."""
UNTRACKED = frozenset({"secret.txt", "secret.sh", "secret.yaml"})
"""What earlier steps of a job left at the top of the checkout: to be opened only where the whole of it is looked through."""
NEVER = frozenset({".env", "pipe.yaml", "conf/pipe.yaml", "plans/fifo.json", "generated/gencode0.py"})
"""What git ignores, and pipes."""

PATHS = {
    "process": ("/proc/self", 2),
    "above": ("../..", 2),
    "outside": ("../outside", 2),
    "link": ("links/folder", 2),
    "git": (".git", 2),
    "device": ("/dev/zero", 2),
    "pipe": ("pipe.yaml", 2),
    "home": ("~", 2),
}
"""Paths that a project file names, and the exit code of a check of that project."""

PACKAGES = (
    "pip", "setuptools", "site", "sitecustomize", "usercustomize", "yaml", "numpy", "z3", "rich", "networkx", "jsonschema",
)  # fmt: skip


@dataclass(frozen=True)
class Workspace:
    """Where everything of a hostile checkout lies."""

    folder: Path

    @property
    def top(self) -> Path:
        """The checkout."""
        return self.folder / "checkout"

    @property
    def outside(self) -> Path:
        """What belongs to others: nothing in it is to be read, and nothing in it is to change."""
        return self.folder / "outside"

    @property
    def ran(self) -> Path:
        """Where a trap that is executed leaves a file with its name."""
        return self.folder / "ran"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def sprung(self) -> list[str]:
        return sorted(path.name for path in self.ran.iterdir())


def build(folder: Path) -> Workspace:
    """Fill `folder` with a checkout in which everything that a name, a link or a configuration can do is tried."""
    space = fill(folder)
    _arm_repository(space)
    return space


def fill(folder: Path) -> Workspace:
    """Do what `build` does, but for the configuration of the checkout's own repository."""
    space = Workspace(folder)
    for place in (space.top, space.outside, space.ran, space.home):
        place.mkdir(parents=True)
    _write_secrets(space)
    _write_honest_files(space)
    _write_modules(space)
    _write_option_names(space)
    _write_references(space)
    _write_links(space)
    _write_embedded_repository(space)
    _commit(space)
    _write_untracked(space)
    return space


def git(folder: Path, *arguments: str) -> str:
    """Run git as the owner of the checkout would, without its configuration."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def trap(space: Workspace, name: str) -> str:
    """Return a shell command that leaves `name` where traps leave their names."""
    return f"touch '{space.ran / name}'"


def plan_with_source(path: str, line: int = 1) -> str:
    """Return a plan with a defect whose operators say that they come from `path`."""
    source = {"path": path, "line": line}
    plan = {
        "tvlint_plan": 1,
        "name": "hostile",
        "mesh": [{"axis": "tp", "size": 2}],
        "micro_batches": 1,
        "tensors": {
            "w": {"shape": [8, 4], "dtype": "float32", "role": "weight", "requires_grad": True, "whole": [8, 8],
                  "placements": {"tp": {"kind": "shard", "dim": 1}}},
            "x": {"shape": [4, 4], "dtype": "float32", "role": "input", "whole": [4, 8],
                  "placements": {"tp": {"kind": "shard", "dim": 1}}},
        },
        "segments": {
            "forward": {"phase": "forward", "inputs": ["x"], "outputs": ["p", "y", "l"], "operators": [
                {"kind": "compute", "op": "linear", "inputs": ["x", "w"], "outputs": ["p"], "source": source},
                {"kind": "compute", "op": "gelu", "inputs": ["p"], "outputs": ["y"], "source": source},
                {"kind": "compute", "op": "sum", "inputs": ["y"], "outputs": ["l"], "source": source},
            ]},
        },
        "programs": [{"where": {}, "steps": [{"segment": "forward", "micro_batch": 0}]}],
        "outputs": ["l"],
        "loss": "l",
    }  # fmt: skip
    return json.dumps(plan)


def _secret(number: int) -> str:
    return f"{SECRET}{number}"


def _write_secrets(space: Workspace) -> None:
    (space.outside / "secret.txt").write_text(f"TOKEN={_secret(1)}\n")
    (space.outside / "env.sh").write_text(f"LAYERS=47{_secret(2)}\nPP={_secret(3)}\n")
    (space.outside / "launch.sh").write_text(_launch(f"47{_secret(4)}"))
    (space.outside / "x.yaml").write_text(f"num_layers: 47{_secret(5)}\npipeline_model_parallel_size: 2\n")
    (space.outside / "plan.json").write_text(plan_with_source(_secret(6)))
    (space.outside / "victim.txt").write_text("as it was\n")
    (space.outside / "tvlint.toml").write_text('ignore = ["layers-not-divisible-by-pp"]\n')


def _launch(layers: str) -> str:
    return (TOUR / "train.sh").read_text().replace("47", layers)


def _write_honest_files(space: Workspace) -> None:
    for name in ("train.sh", "single.plan", "dp2-tp2.plan", "dp2-tp2-broken.plan"):
        (space.top / name).write_text((TOUR / name).read_text())
    (space.top / "tvlint.toml").write_text(
        'paths = ["train.sh", "plans", "scripts", "conf", "links"]\n\n'
        '[[proof]]\nreference = "single.plan"\nparallel = ["dp2-tp2.plan", "dp2-tp2-broken.plan"]\n'
    )
    (space.top / "evil.toml").write_text('ignore = ["layers-not-divisible-by-pp"]\nselect = ["missing-wait"]\n')


def _write_modules(space: Workspace) -> None:
    """Write modules named like those that tvlint imports, but for those that `python -m` needs before it comes to tvlint."""
    loaded = [sys.executable, "-I", "-c", "import runpy, sys; print(*sys.modules)"]
    before = subprocess.run(loaded, capture_output=True, text=True, check=True).stdout.split()
    for name in {*sys.stdlib_module_names, *PACKAGES} - {*before}:
        text = f"open({str(space.ran / f'module-{name}')!r}, 'w').close()\nraise SystemExit(0)\n"
        (space.top / f"{name}.py").write_text(text)


def _write_option_names(space: Workspace) -> None:
    names = ("--config=evil.toml", "-ohtml:pwned.html", "-o", "--output=json:pwned.json", "--no-prove", "--help", "-V", "-x.sh",
             "--select=missing-wait", "-", "@args.sh", "--policy=HEAD", "--fail-on=note")  # fmt: skip
    for name in names:
        (space.top / name).write_text(_launch("47"))


def _write_references(space: Workspace) -> None:
    plans = space.top / "plans"
    plans.mkdir()
    sources = {
        "untracked": "secret.txt",
        "untracked-up": "../secret.txt",
        "hidden": ".env",
        "git-config": ".git/config",
        "git-config-up": "../.git/config",
        "outside": "../outside/secret.txt",
        "outside-up": "../../outside/secret.txt",
        "absolute": str(space.outside / "secret.txt"),
        "etc": "/etc/passwd",
        "environment": "/proc/self/environ",
        "pipe": "pipe.yaml",
        "link": "links/secret.txt",
        "link-folder": "links/folder/secret.txt",
        "link-untracked": "links/untracked.txt",
        "url": f"file://{space.outside / 'secret.txt'}",
        "home": "~/secret.txt",
        "nul": "secret.txt\0.py",
        "device": "/dev/zero",
    }
    for name, source in sources.items():
        (plans / f"{name}.json").write_text(plan_with_source(source))
    scripts = space.top / "scripts"
    scripts.mkdir()
    read = {
        "outside": "../../outside/env.sh",
        "absolute": str(space.outside / "env.sh"),
        "untracked": "../secret.sh",
        "link": "../links/env.sh",
        "environment": "/proc/self/environ",
        "pipe": "../pipe.yaml",
        "git": "../.git/config",
        "variable": '"$HOME/env.sh"',
        "substitution": "$(echo ../../outside)/env.sh",
    }
    for name, path in read.items():
        (scripts / f"{name}.sh").write_text(f"source {path}\n" + _launch('"$LAYERS"'))
    (scripts / "words.sh").write_text(f"LAYERS=$(cat {space.outside / 'secret.txt'})\n{_launch('$LAYERS')}")
    conf = space.top / "conf"
    conf.mkdir()
    named = ("../../outside/x", "../../../outside/x", "/etc/passwd", "../links/x", "untracked", "pipe", "../secret")
    for number, name in enumerate(named):
        (conf / f"hydra{number}.yaml").write_text(
            f"defaults:\n  - {name}\n  - _self_\nactor:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n"
        )
    (conf / "schema.json").write_text(
        json.dumps({"$schema": "http://localhost:9/schema.json", "$ref": "file:///etc/passwd", "tvlint_plan": 1})
    )
    (space.top / "generated").mkdir()
    (space.top / "proof-outside.toml").write_text(
        '[[proof]]\nreference = "../outside/plan.json"\nparallel = ["links/plan.json"]\n'
    )
    for name, (path, _) in PATHS.items():
        (space.top / f"paths-{name}.toml").write_text(f"paths = [{json.dumps(path)}]\n")


def _write_links(space: Workspace) -> None:
    links = space.top / "links"
    links.mkdir()
    targets = {
        "outside.sh": "../../outside/launch.sh",
        "plan.json": "../../outside/plan.json",
        "secret.txt": "../../outside/secret.txt",
        "env.sh": "../../outside/env.sh",
        "x.yaml": "../../outside/x.yaml",
        "folder": "../../outside",
        "absolute.sh": str(space.outside / "launch.sh"),
        "untracked.txt": "../secret.txt",
        "untracked.sh": "../secret.sh",
        "git.yaml": "../.git/config",
        "etc": "/etc",
        "process": "/proc/self",
        "zero.json": "/dev/zero",
        "stdin.json": "/dev/stdin",
        "loop.sh": "loop.sh",
        "up": "..",
        "chain.sh": "outside.sh",
        "report.sarif": "../../outside/victim.txt",
        "new.sarif": "../../outside/new.txt",
        "hook.sarif": "../.git/hooks/pre-commit",
        "honest.sh": "../train.sh",
        "honest.sarif": "../fine.sarif",
    }
    for name, target in targets.items():
        (links / name).symlink_to(target)


def _evil_configuration(space: Workspace, worktree: str | None) -> str:
    """Return a configuration of git in which everything that git can be told to run is a trap."""
    values = [
        ("core", "repositoryformatversion", "1"),
        ("core", "bare", "false"),
        ("core", "fsmonitor", trap(space, "fsmonitor") + "; false"),
        ("core", "pager", trap(space, "pager") + "; cat"),
        ("core", "editor", trap(space, "editor")),
        ("core", "sshCommand", trap(space, "ssh")),
        ("core", "gitProxy", trap(space, "proxy")),
        ("core", "alternateRefsCommand", trap(space, "alternates")),
        ("core", "askPass", trap(space, "askpass")),
        ('filter "x"', "clean", trap(space, "clean") + "; cat"),
        ('filter "x"', "smudge", trap(space, "smudge") + "; cat"),
        ('filter "x"', "required", "true"),
        ('filter "y"', "process", trap(space, "process")),
        ('diff "x"', "textconv", trap(space, "textconv") + "; cat"),
        ('diff "x"', "command", trap(space, "diff-driver")),
        ("diff", "external", trap(space, "diff-external")),
        ('merge "x"', "driver", trap(space, "merge")),
        ("credential", "helper", "!" + trap(space, "credential")),
        ("gpg", "program", trap(space, "gpg")),
        ("log", "showSignature", "true"),
        ("extensions", "partialClone", "origin"),
        ('remote "origin"', "url", "ext::sh -c " + trap(space, "remote").replace(" ", "% ")),
        ('remote "origin"', "promisor", "true"),
        ('remote "origin"', "uploadpack", trap(space, "uploadpack")),
        ('protocol "ext"', "allow", "always"),
        ("uploadpack", "packObjectsHook", trap(space, "packobjects")),
    ]
    if worktree is not None:
        values += [("core", "worktree", worktree), ("core", "hooksPath", "hooks"), ("core", "attributesFile", "attributes")]
    return "".join(f'[{section}]\n{key} = "{value}"\n' for section, key, value in values)


HOOKS = (
    "post-index-change",
    "pre-commit",
    "post-checkout",
    "fsmonitor-watchman",
    "reference-transaction",
    "pre-auto-gc",
    "pre-push",
)


def _write_hooks(space: Workspace, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for hook in HOOKS:
        (folder / hook).write_text(f"#!/bin/sh\n{trap(space, f'{name}-{hook}')}\n")
        (folder / hook).chmod(0o755)


def _write_embedded_repository(space: Workspace) -> None:
    for name, worktree in (("launch", "."), ("launch2", "../../outside")):
        bare = space.top / name
        bare.mkdir()
        git(bare, "init", "-q", "-b", "main")
        (bare / "run.sh").write_text(_launch("45"))
        (bare / "a.yaml").write_text("a: 1\n")
        git(bare, "add", "-A")
        git(bare, "commit", "-q", "-m", "embedded")
        git(bare, "tag", "embedded")
        for inner in sorted((bare / ".git").iterdir()):
            inner.rename(bare / inner.name)
        (bare / ".git").rmdir()
        (bare / "config").write_text(_evil_configuration(space, worktree))
        _write_hooks(space, bare / "hooks", name)
        (bare / ".gitattributes").write_text("* filter=x diff=x merge=x\n*.yaml filter=y\n")
        (bare / "attributes").write_text("* filter=x diff=x\n")
        (bare / "refs" / "heads" / "keep").write_text((bare / "refs" / "heads" / "main").read_text())
        for empty in [path for path in bare.rglob("*") if path.is_dir() and not any(path.iterdir())]:
            (empty / "keep").write_text("")
        (bare / "run.sh").write_text(_launch("43"))


def _commit(space: Workspace) -> None:
    (space.top / ".gitattributes").write_text("*.sh filter=x diff=x\n*.yaml filter=y\n")
    (space.top / ".gitignore").write_text(".env\n.tvlint_cache\n")
    git(space.top, "init", "-q", "-b", "main")
    git(space.top, "add", "-A")
    git(space.top, "commit", "-q", "-m", "first")
    (space.top / "train.sh").write_text(
        _launch("46").replace("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 2")
    )
    git(space.top, "commit", "-q", "-a", "-m", "second")
    (space.top / "train.sh").write_text((TOUR / "train.sh").read_text())


def _write_untracked(space: Workspace) -> None:
    (space.top / "secret.txt").write_text(f"SECRET_TOKEN={_secret(11)}\n")
    (space.top / ".env").write_text(f"SECRET_TOKEN={_secret(12)}\n")
    (space.top / "secret.sh").write_text(f"LAYERS=47{_secret(13)}\n")
    (space.top / "secret.yaml").write_text(f"actor:\n  num_layers: 47{_secret(14)}\n")
    (space.top / "conf" / "untracked.yaml").write_text(f"actor:\n  num_layers: 47{_secret(15)}\n")
    (space.home / "secret.txt").write_text(f"{_secret(16)}\n")
    (space.home / "env.sh").write_text(f"LAYERS=47{_secret(17)}\n")
    if hasattr(os, "mkfifo"):
        for name in ("pipe.yaml", "conf/pipe.yaml", "plans/fifo.json", "generated/gencode0.py"):
            os.mkfifo(space.top / name)


def _arm_repository(space: Workspace) -> None:
    """Give the checkout's own repository what its owner may have configured, none of which is for tvlint to run."""
    with open(space.top / ".git" / "config", "a") as file:
        file.write(_evil_configuration(space, None))
        file.write(f'[http "https://example.org/"]\nextraheader = AUTHORIZATION: basic {_secret(18)}\n')
    _write_hooks(space, space.top / ".git" / "hooks", "own")


@dataclass(frozen=True)
class Call:
    """A command of tvlint in a folder of the checkout, the exit codes that it may have, and the files that it is to write."""

    name: str
    folder: str
    arguments: tuple[str, ...]
    codes: frozenset[int]
    outputs: tuple[str, ...] = ()

    @property
    def looks_everywhere(self) -> bool:
        """Whether the command looks through the whole checkout, also for files that are not tracked yet."""
        return self.name in ("check-here", "check-proof-outside") or (
            self.name.startswith("diff") and "--" not in self.arguments
        )


def calls() -> tuple[Call, ...]:
    """Return every command, in the folders and on the files that a stranger fills."""

    def call(
        name: str, codes: int | tuple[int, ...], *arguments: str, folder: str = ".", outputs: tuple[str, ...] = ()
    ) -> Call:
        return Call(name, folder, arguments, frozenset({codes} if isinstance(codes, int) else codes), outputs)

    return (
        call("check", 2, "check"),
        call("check-here", 2, "check", "."),
        call("check-no-cache", 2, "check", "--no-cache", "--no-prove", "--"),
        call("check-launch", 1, "check", ".", folder="launch"),
        call("check-launch2", 1, "check", ".", folder="launch2"),
        call("check-links", 1, "check", ".", folder="links"),
        call("check-changed", 1, "check", "--changed", "--no-prove", "--", "train.sh", "launch/run.sh", "links/outside.sh"),
        call("changed-in-launch", 1, "check", "--changed", "--no-prove", "--", "run.sh", folder="launch"),
        call("check-proof-outside", 2, "check", "--config", "proof-outside.toml"),
        call("diff", 1, "diff", "HEAD"),
        call("diff-two", 0, "diff", "HEAD~1", "HEAD"),
        call("diff-paths", 1, "diff", "HEAD", "--", "links", "launch", "train.sh", "conf"),
        call("diff-launch", 1, "diff", "HEAD", folder="launch"),
        call("diff-launch-main", 1, "diff", "main", folder="launch"),
        call("diff-launch2", 1, "diff", "HEAD", folder="launch2"),
        call("diff-embedded", 2, "diff", "embedded", folder="launch"),
        call("prove", 1, "prove", "dp2-tp2-broken.plan", "--reference", "single.plan"),
        call("prove-launch", 0, "prove", "../dp2-tp2.plan", "--reference", "../single.plan", folder="launch"),
        call("prove-link", 2, "prove", "links/plan.json", "--reference", "single.plan"),
        call("prove-generated", 2, "prove", "generated"),
        call("topology", 0, "topology", "train.sh", "--world-size", "16"),
        call("topology-link", 2, "topology", "links/absolute.sh"),
        call("convert", 0, "convert", "plans/untracked.json"),
        call("convert-link", 2, "convert", "links/plan.json"),
        call("schedule-link", 2, "schedule", "links/untracked.txt"),
        call("rules", 0, "rules"),
        call("explain", 0, "explain", "missing-allreduce"),
        call("explain-path", 2, "explain", "../../outside/secret.txt"),
        call("config", 0, "config", "verify"),
        call("version", 0, "--version"),
        *(call(f"check-{format}", 2, "check", "-o", format, "--", "plans", "scripts", "conf") for format in FORMATS),
        *(call(f"paths-{name}", code, "check", "--config", f"paths-{name}.toml") for name, (_, code) in PATHS.items()),
        *(
            call(f"output-{name}", 2, "check", "-o", f"sarif:links/{name}", "--", "train.sh")
            for name in ("report.sarif", "new.sarif", "folder/made.sarif", "hook.sarif", "etc/made.sarif")
        ),
        call("output", 1, "check", "-o", "sarif:fine.sarif", "--", "train.sh", outputs=("fine.sarif",)),
        call("output-link-inside", 1, "check", "-o", "sarif:links/honest.sarif", "--", "train.sh", outputs=("fine.sarif",)),
        call("convert-output", 2, "convert", "-o", "json:links/report.sarif", "--", "single.plan"),
        call("topology-output", 2, "topology", "-o", "html:links/new.sarif", "--", "train.sh"),
    )
