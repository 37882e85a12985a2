"""Identity files, key lines, fingerprints: what is accepted, and what a person is told when it is not."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from confide_crypto.errors import EXIT_KEYS, EXIT_STORAGE, KeyFileError, KeyTextError
from confide_crypto.keys import bech32m, private_files
from confide_crypto.keys.identity import (
    Identity,
    fingerprint_words,
    format_daemon_key,
    format_public_key,
    parse_daemon_key,
    parse_public_key,
    typed_words,
    verify,
)
from confide_crypto.keys.private_files import (
    check_private_dir,
    check_private_file,
    make_private_dir,
    read_private_file,
    write_private_file,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "identity.key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_identity_survives_saving_and_is_for_its_owner_alone(path: Path) -> None:
    made = Identity.generate()
    made.save(path)
    assert Identity.load(path) == made
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "no temporary file is left"


def test_permissions_do_not_depend_on_the_umask(path: Path) -> None:
    old = os.umask(0)
    try:
        Identity.generate().save(path)
    finally:
        os.umask(old)
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


def test_an_identity_is_never_overwritten(path: Path) -> None:
    first = Identity.generate()
    first.save(path)
    with pytest.raises(FileExistsError):
        Identity.generate().save(path)
    assert Identity.load(path) == first
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_file_that_others_can_touch_is_refused(path: Path, bits: int) -> None:
    Identity.generate().save(path)
    path.chmod(bits)
    with pytest.raises(KeyFileError, match="open to other users") as caught:
        Identity.load(path)
    assert "chmod 600" in (caught.value.hint or "")
    assert caught.value.exit_code == EXIT_KEYS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(path: Path) -> None:
    Identity.generate().save(path)
    os.chown(path, 12345, -1)
    with pytest.raises(KeyFileError, match="another user") as caught:
        Identity.load(path)
    assert "chown" in (caught.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(path: Path) -> None:
    make_private_dir(path.parent)
    os.chown(path.parent, 12345, -1)
    for check in (make_private_dir, check_private_dir):
        with pytest.raises(KeyFileError, match="another user") as caught:
            check(path.parent)
        assert "chown" in (caught.value.hint or "")


def test_a_link_is_refused_even_to_a_good_file(path: Path) -> None:
    Identity.generate().save(path)
    link = path.with_name("link.key")
    link.symlink_to(path)
    with pytest.raises(KeyFileError, match="is a link") as caught:
        Identity.load(link)
    assert caught.value.hint
    with pytest.raises(KeyFileError, match="is a link"):
        check_private_file(link)


def test_a_folder_or_a_pipe_is_not_a_key_file(tmp_path: Path) -> None:
    """A pipe must not make the program wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path):
        with pytest.raises(KeyFileError, match="not a plain file") as caught:
            Identity.load(path)
        assert f"mv {path}" in (caught.value.hint or "")


def test_a_missing_file_says_so(path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: no such file"):
        Identity.load(path)


def test_a_damaged_identity_is_refused_without_quoting_it(path: Path) -> None:
    """Every cut and every changed character of the secret line is noticed, and none of it is shown."""
    Identity.generate().save(path)
    good = path.read_bytes()
    line = good.splitlines()[1].decode()
    damaged = [b"", b"\n", good * 2, good[:-2], os.urandom(32), b"\xff" * 100, line.replace(line[40], "B").encode()]
    damaged += [
        bech32m.encode("confide-secret-key-", bytes(31)).encode(),
        bech32m.encode("confide", bytes(32)).encode(),
    ]
    for content in damaged:
        write_private_file(path, content, replace=True)
        with pytest.raises(KeyFileError, match="not an identity file") as caught:
            Identity.load(path)
        assert line[25:45].lower() not in (str(caught.value) + repr(caught.value)).lower()


def test_blanks_and_line_ends_around_the_line_do_not_matter(path: Path) -> None:
    """PROTOCOL.md 2.3: as an editor or a terminal leaves them."""
    identity = Identity.generate()
    for text in ("  {}  \r\n", "\t{}", "# ours\n\n   \n{}\n \n"):
        assert Identity.parse(path, text.format(identity.to_line()).encode()) == identity


def test_a_huge_file_is_not_read(path: Path) -> None:
    write_private_file(path, bytes(private_files.MAX_PRIVATE_FILE + 1))
    with pytest.raises(KeyFileError, match="too large"):
        read_private_file(path)


def test_an_ed25519_pem_is_taken_as_it_is(path: Path) -> None:
    """A key made by another program (PKCS#8) brings its Ed25519 identity along."""
    key = Ed25519PrivateKey.generate()
    write_private_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert Identity.load(path).public_key == key.public_key().public_bytes_raw()


def test_a_pem_of_another_kind_is_refused(path: Path) -> None:
    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (other, other[:80]):
        write_private_file(path, content, replace=True)
        with pytest.raises(KeyFileError, match="private key") as caught:
            Identity.load(path)
        assert caught.value.hint


def test_an_encrypted_pem_says_how_to_decrypt_it(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    protected = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    write_private_file(path, protected)
    with pytest.raises(KeyFileError, match="encrypted") as caught:
        Identity.load(path)
    assert f"openssl pkey -in {path}" in (caught.value.hint or "")
    openssh = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_private_file(path, openssh, replace=True)
    with pytest.raises(KeyFileError, match="OpenSSH") as caught:
        Identity.load(path)
    assert "PKCS#8" in (caught.value.hint or "")


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o755)
    with pytest.raises(KeyFileError, match="open to other users") as caught:
        make_private_dir(loose)
    assert "chmod 700" in (caught.value.hint or "")
    with pytest.raises(KeyFileError):
        Identity.generate().save(loose / "identity.key")


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyFileError, match="cannot be made") as caught:
        make_private_dir(tmp_path / "file")
    assert caught.value.hint is None


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets up with a read-only home learns which folder to look at."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "my home").mkdir()
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(KeyFileError, match="cannot be made: permission denied") as caught:
        make_private_dir(tmp_path / "my home" / ".local" / "share")
    assert caught.value.hint == f"the folder above it must be yours, and writable: ls -ld '{tmp_path}/my home'"


def test_replacing_keeps_the_old_file_when_the_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves what was there, and says storage, not permissions."""
    write_private_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyFileError, match="no space left") as caught:
        write_private_file(path, b"new", replace=True)
    assert caught.value.exit_code == EXIT_STORAGE
    assert path.read_bytes() == b"old"
    assert len(list(path.parent.iterdir())) == 1


def test_no_secret_in_text_forms() -> None:
    identity = Identity.generate()
    assert identity.seed.hex() not in repr(identity)
    assert repr(identity) == str(identity) == "Identity()"


def test_a_label_separates_signatures() -> None:
    identity = Identity.generate()
    signature = identity.sign(b"one", b"data")
    assert verify(identity.public_key, b"one", b"data", signature)
    assert not verify(identity.public_key, b"two", b"data", signature)
    assert not verify(identity.public_key, b"one", b"other", signature)
    assert not verify(Identity.generate().public_key, b"one", b"data", signature)
    assert not verify(identity.public_key[:-1], b"one", b"data", signature)
    with pytest.raises(ValueError, match="zero byte"):
        identity.sign(b"on\0e", b"")


def test_fingerprints_are_six_common_words() -> None:
    words = Path(private_files.__file__).with_name("words.txt").read_text().split()
    assert len(words) == len(set(words)) == 2048
    assert all(3 <= len(word) <= 8 and word.islower() and word.isascii() for word in words)
    assert len({word[:4] for word in words}) == 2048, "four letters tell two words apart"
    seen = {fingerprint_words(Identity.generate().public_key) for _ in range(50)}
    assert len(seen) == 50
    assert all(len(fingerprint.split("-")) == 6 for fingerprint in seen)


def test_key_lines_round_trip() -> None:
    identity = Identity.generate()
    line = format_public_key(identity.public_key, "my laptop")
    assert line.startswith("confide-ed25519 confide1")
    assert parse_public_key(f"  {line}\n") == (identity.public_key, "my laptop")
    assert parse_public_key(format_public_key(identity.public_key, "")) == (identity.public_key, "")
    pin = format_daemon_key(identity.static_key)
    assert pin.startswith("confided1")
    assert parse_daemon_key(pin) == parse_daemon_key(pin.upper()) == identity.static_key


def test_lines_that_are_no_keys_say_why() -> None:
    identity = Identity.generate()
    good = format_public_key(identity.public_key, "laptop")
    key = good.split()[1]
    pin = format_daemon_key(identity.static_key)
    for line, why in (
        ("", "must begin with"),
        (f"ssh-ed25519 {key} laptop", "must begin with"),
        (good.replace(key, key[:-1]), "checksum"),
        (good.replace(key, key.replace(key[20], "b")), "character"),
        (good.replace(key, pin), "not a public key"),
        (good.replace(key, bech32m.encode("confide", bytes(31))), "not a public key"),
        (good + "x" * 64, "longer"),
        (good + "\x1b[2J", "not printable"),
    ):
        with pytest.raises(KeyTextError, match=why):
            parse_public_key(line)
    with pytest.raises(KeyTextError, match="not a daemon key"):
        parse_daemon_key(key)


def test_words_are_taken_as_people_type_them() -> None:
    words = fingerprint_words(bytes(32))
    assert {typed_words(words), typed_words(words.upper().replace("-", " ")), typed_words(f" {words}\n")} == {words}


def test_folders_above_a_private_one_are_private_too(tmp_path: Path) -> None:
    """One of them may have to be: whoever makes the inner one first would leave it open."""
    make_private_dir(tmp_path / "state" / "seats" / "inner")
    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("state", "state/seats")] == [0o700, 0o700]
    make_private_dir(tmp_path / "state")
