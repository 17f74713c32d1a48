"""Files and folders appear whole or not at all, however many jobs write the same one."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pahs.errors import PahsError
from pahs.files import Partial, whole


def test_jobs_that_write_the_same_file_do_not_mix(tmp_path: Path) -> None:
    path, both = tmp_path / "kernel.bin", threading.Barrier(2, timeout=10)

    def write(letter: bytes) -> None:
        with whole(path) as partial, partial.open("wb") as file:
            file.write(letter * 1000)
            file.flush()
            both.wait()  # the other one has begun as well
            file.write(letter * 1000)

    jobs = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert path.read_bytes() in (b"a" * 2000, b"b" * 2000)
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.bin"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["table.md"]


def test_a_folder_is_whole_too(tmp_path: Path) -> None:
    with whole(tmp_path / "new" / "sequence.v2") as partial:
        partial.mkdir()
        (partial / "0.png").touch()
        assert not (tmp_path / "new" / "sequence.v2").exists()
    assert [p.name for p in (tmp_path / "new" / "sequence.v2").iterdir()] == ["0.png"]
    with (
        pytest.raises(PahsError, match=r"sequence\.v2: cannot be written"),
        whole(tmp_path / "new" / "sequence.v2") as again,
    ):
        again.mkdir()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["sequence.v2"]


def test_the_second_job_on_one_result_is_refused(tmp_path: Path) -> None:
    first = Partial(tmp_path / "out.mp4")
    first.path.write_text("first")
    with pytest.raises(PahsError, match=r"out\.mp4: another job is writing it"):
        Partial(tmp_path / "out.mp4")
    Partial(tmp_path / "out.mkv").discard()
    first.finish()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out.mp4", "first")]
    Partial(tmp_path / "out.mp4").discard()
    assert (tmp_path / "out.mp4").read_text() == "first"


@pytest.mark.parametrize("same", [True, False])
def test_what_a_killed_job_left_is_removed_by_the_next_one_in_that_folder(tmp_path: Path, same: bool) -> None:
    code = (
        "import sys, time; from pathlib import Path; from pahs.files import Partial\n"
        "for name in ('out.mp4', 'images'):\n"
        "    p = Partial(Path(sys.argv[1]) / name); globals()[name] = p\n"
        "p.path.mkdir(); (p.path / '1.png').touch(); print('ready', flush=True); time.sleep(60)"
    )
    job = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert job.stdout is not None and job.stdout.readline() == b"ready\n"
    (tmp_path / ".notes.partial").touch()  # somebody else's
    running = sorted(tmp_path.iterdir())
    Partial(tmp_path / "other.mp4").discard()
    assert sorted(tmp_path.iterdir()) == running
    job.send_signal(signal.SIGKILL)
    job.communicate()
    Partial(tmp_path / ("out.mp4" if same else "other.mp4")).discard()
    assert [p.name for p in tmp_path.iterdir()] == [".notes.partial"]


def test_jobs_start_and_end_while_others_tidy_up(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                partial = Partial(tmp_path / f"{number}.bin")
                partial.path.write_bytes(bytes([turn]) * 1000)
                partial.finish()
        except BaseException as error:
            failures.append(error)

    jobs = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert failures == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.bin", "1.bin", "2.bin", "3.bin"]
    assert all(p.read_bytes() == bytes([29]) * 1000 for p in tmp_path.iterdir())


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr("pahs.files.fcntl.flock", unsupported)
    first = Partial(tmp_path / "out.mp4")
    first.path.touch()
    with pytest.raises(PahsError, match="another job is writing it"):
        Partial(tmp_path / "out.mp4")
    Partial(tmp_path / "other.mp4").discard()
    first.finish()
    assert [p.name for p in tmp_path.iterdir()] == ["out.mp4"]
