#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The numbers of auth_test.c, computed without our code and without OpenSSL: hashlib, hmac, zlib and
integers of Python only, from the text of NVMe Base 2.0, 8.13.5 and RFC 7919. Run it by hand and compare."""
import base64, hashlib, hmac, zlib
from fractions import Fraction

# The secret that the specification shows (8.13.5.8): the CRC-32 at its end is right.
raw = base64.b64decode("ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n")
secret, crc = raw[:-4], int.from_bytes(raw[-4:], "little")
assert zlib.crc32(secret) == crc
host, sub = b"nqn.2026-11.example:host", b"nqn.2026-11.example:volumes"
hashes = {1: hashlib.sha256, 2: hashlib.sha384, 3: hashlib.sha512}

# RFC 7919, appendix A.1: p = 2^2048 - 2^1984 + {[2^1918 * e] + 560316} * 2^64 - 1
e, term = Fraction(0), Fraction(1)
for i in range(1, 500):
    e += term
    term /= i
p = 2**2048 - 2**1984 + (int(2**1918 * e) + 560316) * 2**64 - 1
x, y = int.from_bytes(b"host's own value" * 4, "big"), int.from_bytes(b"target own value" * 4, "big")
shared = pow(pow(2, x, p), y, p).to_bytes(256, "big")
print("p      ", p.to_bytes(256, "big").hex())
print("g^y    ", pow(2, y, p).to_bytes(256, "big").hex())
print("shared ", shared.hex())

for number, h in hashes.items():
    hl = h().digest_size
    key = hmac.new(secret, host + b"NVMe-over-Fabrics", h).digest()
    print("transformed key, hash", number, key.hex())
    challenge = bytes(range(hl))
    seqnum, tid = (0x11223344).to_bytes(4, "little"), (0x5566).to_bytes(2, "little")
    text = seqnum + tid + b"\0" + b"HostHost" + host + b"\0" + sub
    print("response, null group    ", number, hmac.new(key, challenge + text, h).digest().hex())
    augmented = hmac.new(h(shared).digest(), challenge, h).digest()
    print("augmented challenge     ", number, augmented.hex())
    print("response, ffdhe2048     ", number, hmac.new(key, augmented + text, h).digest().hex())
    text = seqnum + tid + b"\0" + b"Controller" + sub + b"\0" + host
    print("of the target, hash 0   ", number, hmac.new(secret, challenge + text, h).digest().hex())
