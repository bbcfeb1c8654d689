"""Entries of the cache: only what was put there, whole and under its address, comes back; nothing else harms."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tvlint.cache import store as store_module
from tvlint.cache.secret import LENGTH, secret
from tvlint.cache.store import LARGEST_ENTRY, Store

KEY = b"k" * LENGTH
ONE, TWO = "1" * 64, "2" * 64
CONTENT = b'[["a verdict"],1.5,null]'

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes and permissions of POSIX")

xdg = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folder that XDG names")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / ".tvlint_cache"), KEY)


def entry(store: Store, address: str = ONE) -> Path:
    return Path(store.folder, f"{address}.entry")


def test_what_is_put_comes_back_under_its_address_only(store: Store) -> None:
    assert store.get(ONE) is None
    store.put(ONE, CONTENT)
    store.put(TWO, b"")
    assert (store.get(ONE), store.get(TWO), store.get("3" * 64)) == (CONTENT, b"", None)
    store.put(ONE, b"newer")
    assert store.get(ONE) == b"newer"


def test_an_entry_with_any_bit_flipped_is_not_there(store: Store) -> None:
    store.put(ONE, CONTENT)
    whole = entry(store).read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            entry(store).write_bytes(whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :])
            assert store.get(ONE) is None, (position, bit)
    entry(store).write_bytes(whole)
    assert store.get(ONE) == CONTENT


def test_an_entry_that_is_cut_or_continued_is_not_there(store: Store) -> None:
    store.put(ONE, CONTENT)
    whole = entry(store).read_bytes()
    for length in range(len(whole)):
        entry(store).write_bytes(whole[:length])
        assert store.get(ONE) is None, length
    for more in (b"\0", b"\n", b" ", whole):
        entry(store).write_bytes(whole + more)
        assert store.get(ONE) is None, more
    entry(store).write_bytes(whole[:64].upper() + whole[64:])
    assert store.get(ONE) is None


def test_an_entry_under_another_name_is_not_there(store: Store) -> None:
    store.put(ONE, CONTENT)
    entry(store, TWO).write_bytes(entry(store).read_bytes())
    assert store.get(TWO) is None


def test_an_entry_of_another_key_is_not_there(store: Store) -> None:
    Store(store.folder, b"K" * LENGTH).put(ONE, CONTENT)
    assert store.get(ONE) is None


@posix
def test_links_pipes_folders_and_huge_files_are_not_entries(store: Store, tmp_path: Path) -> None:
    store.put(ONE, CONTENT)
    entry(store).rename(tmp_path / "elsewhere")
    entry(store).symlink_to(tmp_path / "elsewhere")
    assert store.get(ONE) is None
    os.mkfifo(entry(store, TWO))
    assert store.get(TWO) is None
    entry(store, "3" * 64).mkdir()
    assert store.get("3" * 64) is None
    store.put("3" * 64, CONTENT)
    assert store.get("3" * 64) is None
    with open(entry(store, "4" * 64), "wb") as file:
        file.truncate(LARGEST_ENTRY + 1)
    assert store.get("4" * 64) is None
    store.put(ONE, b"newer")
    assert store.get(ONE) == b"newer"
    assert b"a verdict" in (tmp_path / "elsewhere").read_bytes()


@posix
def test_a_cache_folder_that_leads_elsewhere_is_neither_read_nor_written(store: Store, tmp_path: Path) -> None:
    outside = Store(str(tmp_path / "outside"), KEY)
    outside.put(ONE, CONTENT)
    before = sorted(os.listdir(outside.folder))
    os.symlink(outside.folder, store.folder)
    assert store.get(ONE) is None
    store.put(TWO, CONTENT)
    assert sorted(os.listdir(outside.folder)) == before


def test_a_cache_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nowhere" / "below"):
        store = Store(str(folder), KEY)
        store.put(ONE, CONTENT)
        assert store.get(ONE) is None
    assert sorted(os.listdir(tmp_path)) == ["file"]


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_folder_is_read(store: Store) -> None:
    store.put(ONE, CONTENT)
    os.chmod(store.folder, 0o500)
    store.put(TWO, CONTENT)
    assert (store.get(ONE), store.get(TWO)) == (CONTENT, None)
    os.chmod(store.folder, 0o700)


def test_a_write_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(ONE, CONTENT)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(os.listdir(store.folder))
    monkeypatch.setattr(os, "replace", full)
    store.put(TWO, CONTENT)
    assert sorted(os.listdir(store.folder)) == before
    store.put("3" * 64, b"x" * LARGEST_ENTRY)
    assert sorted(os.listdir(store.folder)) == before


@posix
def test_the_folder_is_left_out_of_version_control_and_backups(store: Store, tmp_path: Path) -> None:
    os.mkdir(store.folder)
    (tmp_path / "target").write_text("mine")
    Path(store.folder, "CACHEDIR.TAG").symlink_to(tmp_path / "target")
    store.put(ONE, CONTENT)
    assert Path(store.folder, ".gitignore").read_text() == "*\n"
    assert (tmp_path / "target").read_text() == "mine"
    assert store.get(ONE) == CONTENT


_WRITER = """
import sys
from tvlint.cache.store import Store
store = Store(sys.argv[1], b"k" * 32)
print("ready", flush=True)
while True:
    for number in range(8):
        store.put(f"{number}" * 64, f"{number}".encode() * 300_000)
"""


@posix
def test_a_run_that_is_killed_while_it_writes_leaves_whole_entries(store: Store) -> None:
    for delay in (0.005, 0.02, 0.04):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, store.folder], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for number in range(8):
            assert store.get(f"{number}" * 64) in (None, f"{number}".encode() * 300_000)
    store.put(ONE, CONTENT)
    assert store.get(ONE) == CONTENT


def test_what_a_killed_run_leaves_goes_after_an_hour(store: Store) -> None:
    store.put(ONE, CONTENT)
    old, new, other = (Path(store.folder, name) for name in (f".{'a' * 16}.new", f".{'b' * 16}.new", "notes.txt"))
    for path in (old, new, other):
        path.write_bytes(b"half an ent")
    for path in (old, other):
        os.utime(path, (1e9, 1e9))
    store.put(TWO, CONTENT)
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)
    assert store.get(ONE) == CONTENT


_SHARED = """
import sys
from tvlint.cache.store import Store
store = Store(sys.argv[1], b"k" * 32)
found = 0
for turn in range(60):
    address = f"{turn % 3}" * 64
    content = f"{turn % 3}".encode() * 50_000
    store.put(address, content)
    data = store.get(address)
    assert data in (None, content), "another content"
    found += data is not None
print(found)
"""


def test_parallel_runs_see_whole_entries_or_none(store: Store) -> None:
    command = [sys.executable, "-c", _SHARED, store.folder]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for run in runs:
        said, failed = run.communicate(timeout=60)
        assert run.returncode == 0, failed
        assert int(said) > 0
    assert all(store.get(f"{number}" * 64) == f"{number}".encode() * 50_000 for number in range(3))
    assert not [name for name in os.listdir(store.folder) if name.endswith(".new")]


@pytest.mark.parametrize("bound", ["LARGEST_FOLDER", "MOST_FILES"])
def test_of_too_much_that_goes_which_was_not_used_for_longest(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    for number in range(8):
        store.put(f"{number}" * 64, b"x" * 1000)
        os.utime(entry(store, f"{number}" * 64), (1e9 + number, 1e9 + number))
    assert store.get("0" * 64) is not None
    monkeypatch.setattr(store_module, bound, {"LARGEST_FOLDER": 8 * 1065, "MOST_FILES": 8}[bound])
    store.put("8" * 64, b"x" * 1000)
    left = [number for number in range(9) if store.get(f"{number}" * 64) is not None]
    assert left == [0, 4, 5, 6, 7, 8]


# the key


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's state folder; `keyed` asks for the key as a run in a project beside it does."""
    monkeypatch.delenv("TVLINT_CACHE_KEY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return tmp_path


def keyed(home: Path) -> bytes | None:
    return secret((home / "project",))


def key_file(home: Path) -> Path:
    [path] = home.rglob("cache-key")
    return path


def test_a_key_is_made_once_for_the_user_alone(home: Path) -> None:
    first = keyed(home)
    assert first is not None
    assert len(first) == LENGTH
    assert keyed(home) == first == key_file(home).read_bytes()
    assert os.listdir(key_file(home).parent) == ["cache-key"]
    if os.name == "posix":
        assert stat.S_IMODE(key_file(home).stat().st_mode) == 0o600
    key_file(home).unlink()
    assert keyed(home) not in (None, first)


def test_the_key_of_the_environment_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVLINT_CACHE_KEY", "a secret of sixteen and more")
    found = keyed(home)
    assert found is not None
    assert found == keyed(home)
    assert not list(home.rglob("cache-key"))
    monkeypatch.setenv("TVLINT_CACHE_KEY", "another secret of sixteen and more")
    assert keyed(home) not in (None, found)


def test_a_key_that_is_too_short_means_none_and_an_empty_one_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVLINT_CACHE_KEY", "off")
    assert keyed(home) is None
    monkeypatch.setenv("TVLINT_CACHE_KEY", "")
    assert keyed(home) == key_file(home).read_bytes()


def _readable_by_others(path: Path) -> None:
    path.chmod(0o640)


def _a_link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def _too_short(path: Path) -> None:
    path.write_bytes(b"k" * (LENGTH - 1))


def _too_long(path: Path) -> None:
    path.write_bytes(b"k" * (LENGTH + 1))


def _a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


@posix
@pytest.mark.parametrize("spoil", [_readable_by_others, _a_link, _too_short, _too_long, _a_pipe, _a_folder])
def test_a_key_file_that_may_be_anothers_is_no_key(home: Path, spoil: Callable[[Path], None]) -> None:
    assert keyed(home) is not None
    spoil(key_file(home))
    assert keyed(home) is None


@xdg
def test_a_key_inside_the_project_or_its_repository_is_no_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home / "project"
    monkeypatch.setenv("XDG_STATE_HOME", str(project / ".state"))
    assert keyed(home) is None
    (project / ".git").mkdir()
    (project / "below").mkdir()
    assert secret((project / "below",)) is None
    assert secret((home / "elsewhere", project / "below")) is None
    (home / "link").symlink_to(project)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "link" / "state"))
    assert keyed(home) is None
    assert not list(home.rglob("cache-key"))


@xdg
def test_a_relative_state_folder_is_not_believed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert keyed(home) is not None
    assert key_file(home) == home / "home" / ".local" / "state" / "tvlint" / "cache-key"


def test_where_no_key_can_be_made_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "state").write_text("a file where the folder should be")
    monkeypatch.setenv("HOME", str(home / "state"))
    assert keyed(home) is None


def test_runs_that_make_a_key_at_the_same_time_agree_afterwards(home: Path) -> None:
    program = "from pathlib import Path; from tvlint.cache.secret import secret; print(secret((Path('project'),)).hex())"
    command = [sys.executable, "-c", program]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home) for _ in range(4)]
    said = {run.communicate(timeout=60)[0].strip() for run in runs}
    agreed = keyed(home)
    assert agreed is not None
    assert agreed.hex() in said
    assert os.listdir(key_file(home).parent) == ["cache-key"]
