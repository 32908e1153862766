"""Tests of SHA256SUMS files: every line that sha256sum writes is read, and any other line is refused by its number."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.storage import sha256sums
from ome_operator.storage.hashes import SIZE_ONLY, Hash
from ome_operator.storage.listing import RemoteFile, RequestRefused, is_inside, make_listing
from tests.support.sha256sums import line, sums_file

ODD = {"config.json": b"{}", "sub/a ü b.txt": b"", " lead": b"1", "*star": b"2", "back\\slash": b"3", "new\nline\r": b"4"}
ONE, OTHER = "a" * 64, "b" * 64
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda name: is_inside(name) and not name.startswith("./")
)


def shas(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


@given(st.dictionaries(NAMES, st.sampled_from([ONE, OTHER])), st.sampled_from(" *"))
def test_written_sums_are_parsed_back(named: dict[str, str], mark: str) -> None:
    assert sha256sums.parse_sums("".join(line(name, value, mark) for name, value in named.items()).encode()) == named


@given(st.binary(max_size=200))
def test_any_sums_file_is_parsed_or_refused_by_line(data: bytes) -> None:
    try:
        sha256sums.parse_sums(data)
    except RequestRefused as error:
        assert str(error).startswith("line ")


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum here")
def test_documented_command_writes_a_parsable_sums_file(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[3] / "docs" / "models-agent.md").read_text()
    command = next(one for one in docs.splitlines() if "sha256sum > SHA256SUMS" in one).partition(" && ")[2]
    for name, data in ODD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    data = (tmp_path / sha256sums.NAME).read_bytes()
    assert sha256sums.parse_sums(data) == shas(ODD)
    assert sha256sums.parse_sums(sums_file(ODD)) == shas(ODD)


def test_comments_and_other_spellings_are_parsed() -> None:
    text = f"# made by hand\r\n\r\n{ONE.upper()} *a\r\n{ONE}  ././b\n{ONE}  .//c\n{ONE}  a"
    assert sha256sums.parse_sums(text.encode()) == dict.fromkeys("abc", ONE)


@pytest.mark.parametrize(
    "bad",
    [
        f"SHA256 (a) = {ONE}", f"{ONE} a", f"{ONE[1:]}  a", f"{ONE}  ", f"{ONE}\ta", "<html>", f" {ONE}  a",
        f"{ONE}  ../a", f"{ONE}  /a", f"{ONE}  a\0{ONE}  b", f"\\{ONE}  a\\t", f"\\{ONE}  a\\", f"\\{ONE}  ..\\\\../../a",
        f"{ONE}  \udcff", f"{'a' * 40}  a", f"{ONE}  ./",
    ],
)  # fmt: skip
def test_invalid_line_is_reported_by_number(bad: str) -> None:
    with pytest.raises(RequestRefused, match="line 2 of SHA256SUMS is not <64 hexadecimal digits>  <name"):
        sha256sums.parse_sums(f"{ONE}  good\n{bad}\n{ONE}  good\n".encode(errors="surrogateescape"))


def test_two_sums_of_one_file_are_refused() -> None:
    with pytest.raises(RequestRefused, match="line 2 of SHA256SUMS has a different SHA-256 for 'a' than an earlier line"):
        sha256sums.parse_sums(f"{ONE}  a\n{OTHER}  ./a\n".encode())


def files(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, 1, SIZE_ONLY if name != "md5" else Hash("md5", "0" * 32)) for name in names]


def test_sums_override_store_hashes_and_other_files_keep_theirs() -> None:
    data = f"{ONE}  md5\n{OTHER}  weak\n".encode()
    found = {
        one.name: str(one.hash) for one in sha256sums.with_hashes(files("md5", "weak", "README.md", sha256sums.NAME), data)
    }
    own = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert found == {"md5": f"sha256:{ONE}", "weak": f"sha256:{OTHER}", "README.md": "size:", sha256sums.NAME: own}


def test_changed_sums_give_another_revision() -> None:
    def revision(value: str) -> str:
        return make_listing(sha256sums.with_hashes(files("a", sha256sums.NAME), f"{value}  a\n".encode())).revision

    assert revision(ONE) == revision(ONE) != revision(OTHER)


def test_files_missing_in_the_store_are_counted() -> None:
    with pytest.raises(RequestRefused, match=r"lists 'b' \(and 2 more files\), which is not in the object store: check"):
        sha256sums.with_hashes(files("a", sha256sums.NAME), "".join(f"{ONE}  {one}\n" for one in "dcba").encode())


@pytest.mark.parametrize("data", [b"", b"\n# nothing\n", f"{ONE}  {sha256sums.NAME}\n".encode()])
def test_sums_file_without_files_is_refused(data: bytes) -> None:
    with pytest.raises(RequestRefused, match="SHA256SUMS lists no file"):
        sha256sums.with_hashes(files("a", sha256sums.NAME), data)


def test_line_about_the_sums_file_itself_is_ignored() -> None:
    data = f"{ONE}  a\n{hashlib.sha256(b'').hexdigest()}  {sha256sums.NAME}\n".encode()
    own = sha256sums.with_hashes(files("a", sha256sums.NAME), data)[1]
    assert own.hash == Hash("sha256", hashlib.sha256(data).hexdigest())
