# SPDX-License-Identifier: LGPL-2.1-or-later
"""The values that a cache is filled with: item number i always has the same key and value.

So nothing needs to be kept to know, after a restart, what every item must hold.  The mix is what
web caches hold: records in JSON, pieces of HTML, counters, and thumbnails or other data that is
compressed already.  With lz4 it shrinks to a little over half.
"""
import random
import string
from base64 import b64encode

_WORDS = [
    "".join(random.Random(i).choices(string.ascii_lowercase, k=3 + i % 8)) for i in range(6000)
]


def _pool(make, n):
    rng = random.Random(make.__name__)
    return [make(rng).encode() for _ in range(n)]


def _text(rng, low, high):
    return " ".join(rng.choices(_WORDS, k=rng.randint(low, high)))


def _json_field(rng):
    name = rng.choice(("name", "city", "mail", "status", "note", "url", "tags", "parent"))
    return f'"{name}":"{_text(rng, 1, 9)}",'


def _html_piece(rng):
    tag = rng.choice(("p", "li", "td", "h2", "span"))
    return f'<{tag} class="{rng.choice(_WORDS)}">{_text(rng, 4, 24)}</{tag}>\n'


_JSON = _pool(_json_field, 800)
_HTML = _pool(_html_piece, 250)


def key(i):
    """The key of item i; its first part tells what the item holds."""
    return b"%s:%09d" % ((b"user", b"page", b"hits", b"image")[_kind(i)], i)


def _kind(i):
    # Of 20 items: 9 records, 4 pages, 3 counters, 4 images.
    return (0, 1, 2, 3, 0, 0, 1, 0, 3, 0, 2, 0, 1, 3, 0, 0, 2, 1, 3, 0)[i % 20]


def value(i):
    """The value of item i."""
    rng = random.Random(i)
    kind = _kind(i)
    if kind == 0:
        parts = []
        for field in rng.choices(_JSON, k=8 + int(90 * rng.random() ** 3)):
            parts.append(field)
            parts.append(b'"t":17%08d,"id":"%s",' % (rng.getrandbits(26), b64encode(rng.randbytes(15))))
        return b'{"item":%d,' % i + b"".join(parts) + b'"end":true}'
    if kind == 1:
        return b"<!doctype html>\n" + b"".join(rng.choices(_HTML, k=12 + int(150 * rng.random() ** 3)))
    if kind == 2:
        return b"%d" % rng.getrandbits(40)
    return b"\xff\xd8\xff\xe0" + rng.randbytes(500 + int(12000 * rng.random() ** 2))
