"""A second implementation of what the test vectors hold, written from the documentation alone.

Takes every vector apart with other libraries than the project's own and fails where one does not
come out as the file says. Then it bends each vector in every place, one at a time, and fails if
one of those is taken: a check that takes everything proves nothing.

    python3 -m venv venv && venv/bin/pip install --require-hashes -r requirements.txt
    venv/bin/python check.py

`cargo xtask vectors` does both. Sections are those of ../protocol.md and ../encryption.md.
"""

import base64
import copy
import hashlib
import hmac
import json
import pathlib
import sys
import unicodedata
import urllib.parse

import nacl.bindings
import nacl.exceptions
import nacl.signing
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HERE = pathlib.Path(__file__).resolve().parent
RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class Refused(Exception):
    """What a careful reader answers to a vector that is not right."""


def demand(holds, why):
    if not holds:
        raise Refused(why)


def read(name):
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def unbase64(text):
    """base64url, padded or not; a letter outside of the alphabet is refused."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as fault:
        raise Refused(f"base64url: {fault}") from fault


def field(data):
    """Protocol, section 5."""
    data = data.encode() if isinstance(data, str) else data
    return len(data).to_bytes(4, "big") + data


def number(value):
    demand(0 <= value < 1 << 64, "a number of eight bytes")
    return value.to_bytes(8, "big")


# --- protocol, section 2: names and graphs ---------------------------------------------------


def named(text):
    demand(1 <= len(text.encode()) <= 128, "a name has 1 to 128 bytes")
    demand(not any(unicodedata.category(c) == "Cc" for c in text), "a control character")
    demand(text.strip() == text, "white space at an end")
    return text


def escaped(name):
    return name.replace("%", "%25").replace(":", "%3A")


def unescaped(text):
    """The name that `escaped` writes so, and none that it writes otherwise."""
    name = text.replace("%3A", ":").replace("%25", "%")
    demand(escaped(name) == text, "an escape that is none")
    return named(name)


def storage_key(caller, graph):
    kind, colon, name = graph.partition(":")
    demand(colon and kind in ("g", "d"), "neither a group nor a pair")
    named(name)
    if kind == "g":
        return "g:" + escaped(name)
    low, high = sorted([caller.encode(), name.encode()])
    return "d:" + escaped(low.decode()) + ":" + escaped(high.decode())


def check_storage_key(key):
    kind, *names = key.split(":")
    demand((kind, len(names)) in (("g", 1), ("d", 2)), "neither a group's nor a pair's")
    names = [unescaped(name).encode() for name in names]
    demand(names == sorted(names), "the members are out of order")


def check_storage_case(case):
    demand(storage_key(case["caller"], case["graphId"]) == case["storageKey"], "another key")
    check_storage_key(case["storageKey"])
    demand(urllib.parse.unquote(case["pathSegment"]) == case["graphId"], "another segment")
    demand("/" not in case["pathSegment"] and "?" not in case["pathSegment"], "not one segment")


# --- protocol, section 5: what is signed -----------------------------------------------------


def verify(key, message, signature):
    """Strictly: libsodium takes no key of small order, no scalar above the group's order."""
    try:
        nacl.signing.VerifyKey(key).verify(message, signature)
    except (nacl.exceptions.CryptoError, ValueError, TypeError) as fault:
        raise Refused(f"signature: {fault}") from fault


def public_keys(encryption, signing):
    demand(len(encryption) == 32 and len(signing) == 32, "a secret has 32 bytes")
    return (
        X25519PrivateKey.from_private_bytes(encryption).public_key().public_bytes(*RAW),
        Ed25519PrivateKey.from_private_bytes(signing).public_key().public_bytes(*RAW),
    )


def proof_message(device):
    body = device["body"]
    parts = [device["memberId"], device["deviceId"], body["kind"], body["suite"]]
    keys = [unbase64(body["encryptionKey"]), unbase64(body["signingKey"])]
    return b"argala/device/v1" + b"".join(map(field, parts + keys))


def check_device(device):
    body, signing = device["body"], unbase64(device["signingSecretKey"])
    encryption_key, signing_key = public_keys(unbase64(device["encryptionSecretKey"]), signing)
    demand(encryption_key == unbase64(body["encryptionKey"]), "another encryption key")
    demand(signing_key == unbase64(body["signingKey"]), "another signing key")
    message = proof_message(device)
    demand(message.hex() == device["messageHex"], "other bytes are signed")
    verify(signing_key, message, unbase64(body["proof"]))
    signature = Ed25519PrivateKey.from_private_bytes(signing).sign(message)
    demand(signature == unbase64(body["proof"]), "Ed25519 signs one message in one way")


def record_message(graph, epoch, record, deleted, ciphertext):
    digest = hashlib.sha256(ciphertext).digest()
    parts = [graph, number(epoch), record, bytes([deleted]), digest]
    return b"argala/record/v1" + b"".join(map(field, parts))


def check_record_signature(case):
    names = [case[name] for name in ("storageKey", "epoch", "id", "deleted")]
    message = record_message(*names, unbase64(case["ciphertext"]))
    verify(unbase64(case["signingKey"]), message, unbase64(case["sig"]))
    # Last, so that a tampered record is refused by its signature and not by this hint.
    demand(message.hex() == case["messageHex"], "other bytes are signed")


# --- the reference encryption ----------------------------------------------------------------


def hkdf(key, info):
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)


def graph_info(graph):
    return field(graph["storageKey"]) + field(number(graph["epoch"]))


def xchacha_open(key, nonce, associated, sealed):
    try:
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, associated, nonce, key
        )
    except nacl.exceptions.CryptoError as fault:
        raise Refused("does not open") from fault


def hpke_open_auth(secret, sender, encapsulated, info, sealed):
    """RFC 9180, single shot, mode auth: the three suites of the documentation, empty aad."""
    kem = b"KEM" + (0x0020).to_bytes(2, "big")
    suite = b"HPKE" + b"".join(n.to_bytes(2, "big") for n in (0x0020, 0x0001, 0x0003))

    def extract(suite_id, salt, label, ikm):
        return hmac.digest(salt, b"HPKE-v1" + suite_id + label + ikm, "sha256")

    def expand(suite_id, prk, label, about, length):
        about = length.to_bytes(2, "big") + b"HPKE-v1" + suite_id + label + about
        block, out = b"", b""
        while len(out) < length:
            block = hmac.digest(prk, block + about + bytes([len(out) // 32 + 1]), "sha256")
            out += block
        return out[:length]

    private = X25519PrivateKey.from_private_bytes(secret)
    own = private.public_key().public_bytes(*RAW)
    try:
        shared = b"".join(
            private.exchange(X25519PublicKey.from_public_bytes(key))
            for key in (encapsulated, sender)
        )
    except ValueError as fault:
        raise Refused(f"X25519: {fault}") from fault
    prk = extract(kem, b"", b"eae_prk", shared)
    secret = expand(kem, prk, b"shared_secret", encapsulated + own + sender, 32)
    context = b"\x02" + extract(suite, b"", b"psk_id_hash", b"")
    context += extract(suite, b"", b"info_hash", info)
    prk = extract(suite, secret, b"secret", b"")
    key = expand(suite, prk, b"key", context, 32)
    nonce = expand(suite, prk, b"base_nonce", context, 12)
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, b"")
    except InvalidTag as fault:
        raise Refused("the wrap does not open") from fault


def device_of(name):
    for device in read("devices.json")["devices"]:
        if (device["memberId"], device["deviceId"]) == (name["memberId"], name["deviceId"]):
            return device
    raise Refused("no such device")


def check_wrap(wrap):
    parts = [n[k] for n in (wrap["to"], wrap["by"]) for k in ("memberId", "deviceId")]
    info = b"argala/wrap/v1" + graph_info(wrap["graph"]) + b"".join(map(field, parts))
    sealed = unbase64(wrap["wrap"])
    demand(len(sealed) == 81 and sealed[0] == 1, "not a wrap")
    secret = unbase64(device_of(wrap["to"])["encryptionSecretKey"])
    giver = unbase64(device_of(wrap["by"])["body"]["encryptionKey"])
    key = hpke_open_auth(secret, giver, sealed[1:33], info, sealed[33:])
    demand(key == unbase64(wrap["graph"]["key"]), "another key was wrapped")


def check_sealed_record(vectors):
    record, graph = vectors["record"], vectors["graph"]
    key = hkdf(unbase64(graph["key"]), b"argala/record-key/v1" + graph_info(graph))
    associated = b"argala/sealed-record/v1" + graph_info(graph)
    associated += field(record["id"]) + field(bytes([record["deleted"]]))
    sealed = unbase64(record["ciphertext"])
    payload = xchacha_open(key, sealed[:24], associated, sealed[24:])
    expected = b"\x01" + field(record["kind"]) + number(record["counter"])
    demand(payload == expected + record["text"].encode(), "another payload was sealed")


def check_label(vectors):
    label, graph = vectors["label"], vectors["graph"]
    own = {"storageKey": label["storageKey"], "epoch": graph["epoch"]}
    key = hkdf(unbase64(graph["key"]), b"argala/label-key/v1" + graph_info(own))
    sealed = unbase64(label["sealed"])
    demand(sealed[:9] == b"\x01" + number(graph["epoch"]), "not a name of that epoch")
    text = xchacha_open(key, sealed[9:33], b"", sealed[33:])
    demand(text == label["text"].encode(), "another name was sealed")


class BlobCipher:
    """A blob's two keys, and both directions."""

    CHUNK = 64 * 1024

    def __init__(self, graph, blob_id):
        about = graph_info(graph) + field(blob_id)
        key = unbase64(graph["key"])
        self.key = hkdf(key, b"argala/blob-key/v1" + about)
        self.nonce_key = hkdf(key, b"argala/blob-nonce/v1" + about)
        self.start = b"\x01" + number(graph["epoch"])

    def header(self, plain):
        return self.start + hmac.digest(self.nonce_key, plain, "sha256")[:19]

    @staticmethod
    def chunks(data, size):
        """An empty file has one empty chunk; a full one that is the last is followed by none."""
        pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        for at, piece in enumerate(pieces):
            yield at.to_bytes(4, "big") + bytes([at + 1 == len(pieces)]), piece

    def seal(self, plain):
        header = sealed = self.header(plain)
        for place, piece in self.chunks(plain, self.CHUNK):
            sealed += nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
                piece, header, header[9:] + place, self.key
            )
        return sealed

    def open(self, sealed):
        header = sealed[:28]
        demand(header[:9] == self.start, "not a blob of that epoch")
        plain = b"".join(
            xchacha_open(self.key, header[9:] + place, header, piece)
            for place, piece in self.chunks(sealed[28:], self.CHUNK + 16)
        )
        demand(self.header(plain) == header, "another nonce prefix")
        return plain


def check_blob(vectors):
    blob = vectors["blob"]
    cipher = BlobCipher(vectors["graph"], blob["blobId"])
    sealed = unbase64(blob["sealed"])
    demand(cipher.open(sealed) == blob["text"].encode(), "another file was sealed")
    demand(cipher.seal(blob["text"].encode()) == sealed, "a file seals in one way")


def check_large_blob(vectors):
    blob = vectors["blob"]
    cipher = BlobCipher(vectors["graph"], blob["blobId"])
    demand(blob["repeated"], "nothing to repeat")
    plain = (blob["repeated"].encode() * (blob["size"] // len(blob["repeated"]) + 1))[
        : blob["size"]
    ]
    sealed = cipher.seal(plain)
    demand(len(sealed) == blob["sealedSize"], "another size")
    demand(hashlib.sha256(sealed).digest() == unbase64(blob["sealedSha256"]), "another blob")
    demand(cipher.open(sealed) == plain, "does not open as it was sealed")
    if len(sealed) > 28 + 16:
        for bent in (sealed[:-1], sealed[: 28 + BlobCipher.CHUNK + 16], sealed + b"\0"):
            if bent != sealed:
                try:
                    cipher.open(bent)
                except Refused:
                    continue
                raise Refused("a blob that was cut or lengthened is taken")


def check_fingerprint(vectors):
    told = vectors["fingerprint"]
    body = device_of(told)["body"]
    parts = [told["memberId"], told["deviceId"]]
    parts += [unbase64(body["encryptionKey"]), unbase64(body["signingKey"])]
    digest = hashlib.sha256(b"argala/fingerprint/v1" + b"".join(map(field, parts))).digest()
    shown = digest[:16].hex()
    shown = " ".join(shown[at : at + 4] for at in range(0, 32, 4))
    demand(shown == told["fingerprint"], "another fingerprint")


def check_recovery(vectors):
    recovery = vectors["recovery"]
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    code = recovery["code"].upper().replace("-", "").replace(" ", "")
    code = code.replace("O", "0").replace("I", "1").replace("L", "1")
    demand(len(code) == 32 and set(code) <= set(alphabet), "not a recovery code")
    bits = 0
    for letter in code:
        bits = bits << 5 | alphabet.index(letter)
    code = bits.to_bytes(20, "big")
    seed, checksum = code[:17], code[17:]
    expected = hashlib.sha256(b"argala/recovery-checksum/v1" + field(seed)).digest()[:3]
    demand(checksum == expected, "the checksum is another")
    salt = hashlib.sha256(b"argala/recovery/v1" + field(recovery["memberId"])).digest()
    derived = Argon2id(salt=salt, length=64, iterations=3, lanes=1, memory_cost=64 * 1024).derive(
        seed
    )
    keys = public_keys(derived[:32], derived[32:])
    told = tuple(unbase64(recovery[name]) for name in ("encryptionKey", "signingKey"))
    demand(keys == told, "other keys come from the code")


# --- bending ---------------------------------------------------------------------------------


def bent_text(text):
    """The same text with its last character, first character or length another."""
    yield text + "x"
    if text:
        for at in {0, len(text) // 2, len(text) - 1}:
            other = chr(ord(text[at]) ^ 1)
            yield text[:at] + other + text[at + 1 :]
            yield text[:at] + text[at + 1 :]


def bent_bytes(text):
    """The same bytes with a bit flipped here and there, shortened, and lengthened."""
    data = unbase64(text)
    outcomes = [data + b"\0"]
    if data:
        outcomes.append(data[:-1])
        for at in {0, 1, len(data) // 3, len(data) // 2, len(data) - 1} & set(range(len(data))):
            outcomes.append(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for outcome in outcomes:
        yield base64.urlsafe_b64encode(outcome).rstrip(b"=").decode()


BYTES = {
    "ciphertext", "encryptionKey", "encryptionSecretKey", "key", "proof", "sealed",
    "sealedSha256", "sig", "signingKey", "signingSecretKey", "wrap",
}  # fmt: skip
# The secret of X25519 is clamped: three bits of its first byte and two of its last do not count.
CLAMPED = {"encryptionSecretKey"}


def places(value, path=()):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    else:
        yield path, value


def bends(vector):
    """Every vector that is this one but for a change in one place, and what was changed."""
    for path, value in places(vector):
        if isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [value - 1 if value else 1, value + 1]
        elif path[-1] in BYTES:
            others = bent_bytes(value)
        elif path[-1] == "code":
            # Hyphens are for the eye alone.
            others = bent_text(value.replace("-", ""))
        else:
            others = bent_text(value)
        for other in others:
            if path[-1] in CLAMPED and len(unbase64(other)) == 32:
                first, was = unbase64(other), unbase64(value)
                if first[1:31] == was[1:31]:
                    continue
            bent = copy.deepcopy(vector)
            inner = bent
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = other
            yield ".".join(path), bent


class Tally:
    """What was taken and refused as it should be, and what was not."""

    def __init__(self):
        self.good, self.bent, self.faults = 0, 0, []

    def taken(self, what, check, vector):
        try:
            check(vector)
            self.good += 1
        except Refused as why:
            self.faults.append(f"{what}: refused: {why}")

    def refused(self, what, check, vector):
        try:
            check(vector)
        except Refused:
            self.bent += 1
        else:
            self.faults.append(f"{what}: taken, and should not be")

    def both(self, what, check, vector, harmless=()):
        """Takes the vector, and none of its neighbours; `harmless` are what no check reads."""
        self.taken(what, check, vector)
        seen = 0
        for place, bent in bends(vector):
            if place not in harmless:
                self.refused(f"{what}, {place} bent", check, bent)
                seen += 1
        if not seen:
            self.faults.append(f"{what}: nothing was bent")


def check_all(tally):
    keys = read("storage-keys.json")
    for case in keys["cases"]:
        # A group's key is the same whoever asks.
        harmless = ("caller",) if case["graphId"].startswith("g:") else ()
        tally.both(f"storage key {case['storageKey']}", check_storage_case, case, harmless)
    for graph in keys["graphIdsRefused"]:
        tally.refused(f"graph id {graph!r}", lambda graph: storage_key("sam", graph), graph)
    for key in keys["notStorageKeys"]:
        tally.refused(f"storage key {key!r}", check_storage_key, key)

    for device in read("devices.json")["devices"]:
        tally.both(f"device {device['deviceId']}", check_device, device)

    records = read("records.json")
    for case in records["cases"]:
        # A record's signature does not name its device: `by` tells whose key to look up.
        by = ("by.memberId", "by.deviceId")
        tally.both(f"record {case['id']}", check_record_signature, case, by)
        demand(device_of(case["by"])["body"]["signingKey"] == case["signingKey"], "whose key?")
    for case in records["refused"]:
        tally.refused(f"record: {case['why']}", check_record_signature, case)

    sealed = read("encryption.json")
    graph = sealed["graph"]
    for wrap in sealed["wraps"]:
        tally.both(f"wrap of {wrap['graph']['storageKey']}", check_wrap, wrap)
    for name in ("record", "tombstone"):
        tally.both(name, check_sealed_record, {"graph": graph, "record": sealed[name]})
    tally.both("blob", check_blob, {"graph": graph, "blob": sealed["blob"]})
    for blob in sealed["largeBlobs"]:
        # Of an empty file nothing is repeated.
        harmless = () if blob["size"] else ("blob.repeated",)
        vector = {"graph": graph, "blob": blob}
        tally.both(f"blob of {blob['size']} bytes", check_large_blob, vector, harmless)
    # A name is sealed in the member's own graph, whatever graph the others are of.
    vector = {"graph": graph, "label": sealed["label"]}
    tally.both("label", check_label, vector, ("graph.storageKey",))
    tally.both("fingerprint", check_fingerprint, {"fingerprint": sealed["fingerprint"]})
    tally.both("recovery", check_recovery, {"recovery": sealed["recovery"]})


def main():
    tally = Tally()
    check_all(tally)
    for fault in tally.faults:
        print(fault, file=sys.stderr)
    print(f"{tally.good} vectors taken, {tally.bent} bent or bad ones refused")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
