"""Archives of arrays that are not what they say: nothing large is unpacked, and each reader names
its file.
"""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from jaxtrade.advisor.table import read_snapshot
from jaxtrade.data.read.tabular import joined_days
from jaxtrade.errors import DataError
from jaxtrade.evaluation.records import read_records
from jaxtrade.evaluation.run_days import read_walk_days
from jaxtrade.storage.archives import FAULTS, SMALL, read_arrays
from tests.messages import refused

GIANT = SMALL << 4


def header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "|i1", "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A few hundred kilobytes that unpack to 256 MiB of zeros."""
    path = tmp_path_factory.mktemp("bomb") / "records.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.npy", header((GIANT,)) + bytes(GIANT))
    return path


@pytest.mark.slow
def test_a_small_archive_of_much_is_not_unpacked(bomb, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(ValueError, match=f"{GIANT:,}|{GIANT + 128:,}"):
        read_arrays(bomb)


@pytest.mark.parametrize("says", [0, 1_000])
def test_no_more_is_unpacked_than_a_header_says(tmp_path, says):
    """An entry of 64 MB of zeros, whose header says less."""
    path = tmp_path / "some.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.npy", bytes(64 << 20))
    size = (64 << 20).to_bytes(4, "little")
    content = path.read_bytes()
    assert content.count(size) == 2  # of the entry, and of the list of all entries
    path.write_bytes(content.replace(size, says.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(FAULTS):
            read_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_header_that_says_more_than_there_is_makes_no_room(tmp_path, monkeypatch):
    """The archive is small and says so; the array in it claims 2^50 bytes."""
    with zipfile.ZipFile(tmp_path / "some.npz", "w") as archive:
        archive.writestr("meta.npy", header((1 << 50,)) + bytes(8))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("room was made"))
    with refused("in 8 bytes", kind=ValueError):
        read_arrays(tmp_path / "some.npz")


def test_objects_are_never_read(tmp_path):
    np.savez(tmp_path / "some.npz", a=np.array([{}], object))
    with pytest.raises(FAULTS):
        read_arrays(tmp_path / "some.npz")


@pytest.mark.slow
@pytest.mark.parametrize("read", [read_records, read_walk_days, read_snapshot])
def test_each_reader_names_the_file(bomb, read):
    with refused("records.npz", "unpacks to", kind=DataError):
        read(bomb)


def test_a_day_of_lean_has_a_limit_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "20131007_trade.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("20131007_spy_minute_trade.csv", bytes(65 << 20))
    with refused("20131007_trade.zip", "unpacks to", kind=DataError):
        joined_days(tmp_path)
