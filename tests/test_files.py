"""Files and folders appear whole or not at all, however many jobs write the same one."""

import threading
from pathlib import Path

import pytest

from pahs.errors import PahsError
from pahs.files import whole, write_whole


def test_jobs_that_write_the_same_file_do_not_mix(tmp_path: Path) -> None:
    path, both = tmp_path / "kernel.bin", threading.Barrier(2, timeout=10)

    def write(letter: bytes) -> None:
        def slowly(partial: Path) -> None:
            with partial.open("wb") as file:
                file.write(letter * 1000)
                file.flush()
                both.wait()  # the other one has begun as well
                file.write(letter * 1000)

        write_whole(path, slowly)

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
        whole(partial.parent / "sequence.v2") as again,
    ):
        again.mkdir()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["sequence.v2"]
