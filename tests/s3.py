"""A small server that speaks as much of S3 as the store uses, with faults on demand.

with s3.serve() as server: the environment of a client is `server.environment()`.
"""

import hashlib
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from socket import SO_LINGER, SOL_SOCKET
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

WAYS = ("503", "reset", "lost")  # of spoiling a request
PAGE = 3  # objects in one page of a listing, so that tests meet several pages


@dataclass
class Bucket:
    """The objects of the server's only bucket, and how the server misbehaves."""

    name: str = "bucket"
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and object
    denied: set[str] = field(default_factory=set)  # methods that the credentials do not allow
    truncated: set[str] = field(default_factory=set)  # objects whose answer is cut in half, once
    lost_answers: set[str] = field(default_factory=set)  # PUTs that succeed with a 500, once
    outage: float = 0.0  # until this time of `time.monotonic`, all requests are spoilt
    spoilt: float = 0.0  # the share of the other requests that are: see `_spoil`
    spoilings: Counter[str] = field(default_factory=Counter)  # by way
    ways: tuple[str, ...] = WAYS  # of spoiling them
    random: Random = field(default_factory=lambda: Random(0))
    is_unconditional: bool = False  # If-None-Match is ignored, as old servers do
    guard: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0  # 0: a free one at the first start

    @property
    def url(self) -> str:
        """Where a store can be opened."""
        return f"s3://{self.name}/some/prefix"

    def environment(self) -> dict[str, str]:
        """The variables that make obstore call this server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Listen at the port."""
        handler = type("Handler", (_Handler,), {"bucket": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections; those that exist stay."""
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def serve() -> Iterator[Bucket]:
    """Run a server with an empty bucket, at a free port, until the block ends."""
    bucket = Bucket()
    bucket.start()
    try:
        yield bucket
    finally:
        bucket.stop()


class _Handler(BaseHTTPRequestHandler):
    bucket: Bucket
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    is_lost = False  # whether nothing is answered on this connection any more

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):  # the client was killed
            self.close_connection = True
        if self.is_lost:
            self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())  # before the server ends the connection in order

    def do_GET(self) -> None:
        name, query = self._parse()
        if name is None:
            return
        if not name:
            self._list(query)
            return
        found = self.bucket.objects.get(name)
        if found is None:
            self._fail(404, "NoSuchKey")
            return
        content, modified = found
        status, more = 200, {}
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = min(int(last or len(content)), len(content) - 1)
            more = {"Content-Range": f"bytes {first}-{end}/{len(content)}"}
            status, content = 206, content[int(first) : end + 1]
        self._head(status, len(content), _tag(found[0]), modified, more)
        if self.command == "HEAD" or self.is_lost:
            return
        if name in self.bucket.truncated:
            self.bucket.truncated.discard(name)
            content = content[: len(content) // 2]
            self.close_connection = True
        self.wfile.write(content)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name, query = self._parse()
        if name is None:
            return
        if "uploadId" in query:
            self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = content
            self._answer(200, b"", _tag(content))
            return
        with self.bucket.guard:
            there = self.bucket.objects.get(name)
            is_new = self.headers.get("If-None-Match") == "*" and not self.bucket.is_unconditional
            if is_new and there:
                self._fail(412, "PreconditionFailed")
                return
            self.bucket.objects[name] = (content, datetime.now(UTC))
        if name in self.bucket.lost_answers:
            self.bucket.lost_answers.discard(name)
            self._fail(500, "InternalError")
            return
        self._answer(200, b"", _tag(content))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name, query = self._parse()
        if name is None:
            return
        if "delete" in query:
            keys = [part.split("</Key>")[0] for part in content.decode().split("<Key>")[1:]]
            for key in keys:
                self.bucket.objects.pop(key, None)
            done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())
        elif "uploads" in query:
            upload = uuid4().hex
            self.bucket.uploads[upload] = {}
            made = f"<UploadId>{upload}</UploadId>"
            xml = f"<InitiateMultipartUploadResult>{made}</InitiateMultipartUploadResult>"
            self._answer(200, xml.encode())
        else:
            parts = self.bucket.uploads.pop(query["uploadId"])
            whole = b"".join(parts[number] for number in sorted(parts))
            self.bucket.objects[name] = (whole, datetime.now(UTC))
            tag = f"<ETag>{_tag(whole)}</ETag>"
            xml = f"<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>"
            self._answer(200, xml.encode())

    def do_DELETE(self) -> None:
        name, _ = self._parse()
        if name is not None:
            self.bucket.objects.pop(name, None)
            self._answer(204, b"")

    def _parse(self) -> tuple[str | None, dict[str, str]]:
        """Return the object's name, "" for the bucket; None if an error was answered."""
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        self.bucket.requests.append((self.command, name))
        if self._spoil():
            return None, {}
        if self.command in self.bucket.denied:
            self._fail(403, "AccessDenied")
            return None, {}
        if bucket != self.bucket.name:
            self._fail(404, "NoSuchBucket")
            return None, {}
        return name, query

    def _spoil(self) -> bool:
        """Perhaps spoil a request: answer 503, or reset its connection before or after it.

        With the last, the request is carried out, and the connection reset instead of an answer.
        """
        with self.bucket.guard:
            is_out = time.monotonic() < self.bucket.outage
            is_spoilt = is_out or self.bucket.random.random() < self.bucket.spoilt
            way = self.bucket.random.choice(self.bucket.ways) if is_spoilt else ""
            self.bucket.spoilings[way] += bool(way)
        if way == "503":
            self._fail(503, "SlowDown")
        elif way:
            self.close_connection = self.is_lost = True
        return way in ("503", "reset")

    def _list(self, query: dict[str, str]) -> None:
        after = query.get("continuation-token") or query.get("start-after", "")
        with self.bucket.guard:
            names = sorted(n for n in self.bucket.objects if n.startswith(query.get("prefix", "")))
            page = [name for name in names if name > after][:PAGE]
            found = [(name, *self.bucket.objects[name]) for name in page]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{modified.isoformat()}"
            f"</LastModified><ETag>{_tag(content)}</ETag><Size>{len(content)}</Size></Contents>"
            for name, content, modified in found
        )
        more = bool(page) and page[-1] != names[-1]
        next_page = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        )
        xml = (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{rows}{next_page}"
            "</ListBucketResult>"
        )
        self._answer(200, xml.encode())

    def _fail(self, status: int, code: str) -> None:
        self._answer(
            status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        )

    def _answer(self, status: int, content: bytes, tag: str = "") -> None:
        self._head(status, len(content), tag, datetime.now(UTC), {})
        if self.command != "HEAD" and not self.is_lost:
            self.wfile.write(content)

    def _head(
        self, status: int, size: int, tag: str, modified: datetime, more: dict[str, str]
    ) -> None:
        if self.is_lost:
            return
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("Last-Modified", format_datetime(modified, usegmt=True))
        if tag:
            self.send_header("ETag", tag)
        for key, value in more.items():
            self.send_header(key, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'
