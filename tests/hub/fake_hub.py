"""A Hugging Face Hub on 127.0.0.1, just large enough for the real client to push to and pull from.

It keeps one branch per model repository in memory. It knows no LFS (every file is uploaded "regular"), no
users and no other repository types.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

REPO = r"(?P<repo>[^/]+/[^/]+)"
USER = "tester"


class FakeHub(ThreadingHTTPServer):
    """`repos`: repo id -> path -> content. `commits`: repo id -> id of its last commit."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.commits: dict[str, str] = {}
        self.private: dict[str, bool] = {}
        self.unknown_requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo: str, additions: dict[str, bytes], deletions: list[str]) -> str:
        for path in deletions:
            del self.repos[repo][path]
        self.repos[repo].update(additions)
        content = repr((self.commits.get(repo), sorted(additions.items()), deletions))
        self.commits[repo] = hashlib.sha1(content.encode()).hexdigest()
        return self.commits[repo]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Silence: the default writes every request to stderr."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlparse(self.path).path)
        if path == "/api/repos/create":
            self._create_repo(json.loads(body))
        elif path == "/api/validate-yaml":
            self._json({"warnings": [], "errors": []})
        elif match := re.fullmatch(rf"/api/models/{REPO}/preupload/[^/]+", path):
            files = json.loads(body)["files"]
            self._json(
                {"files": [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in files]}
            )
        elif match := re.fullmatch(rf"/api/models/{REPO}/commit/[^/]+", path):
            self._commit(match["repo"], body)
        else:
            self._unknown()

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        if path == "/api/whoami-v2":
            self._json({"type": "user", "name": USER, "orgs": []})
        elif match := re.fullmatch(rf"/api/models/{REPO}/tree/[^/]+(/(?P<folder>.+))?", path):
            self._if_known(match["repo"], self._tree(match["repo"], match["folder"]))
        elif match := re.fullmatch(rf"/api/models/{REPO}(/revision/[^/]+)?", path):
            self._if_known(match["repo"], self._info(match["repo"]))
        elif match := re.fullmatch(rf"/{REPO}/resolve/[^/]+/(?P<file>.+)", path):
            self._file(match["repo"], match["file"])
        else:
            self._unknown()

    do_HEAD = do_GET

    def _create_repo(self, request: dict[str, Any]) -> None:
        name = request["name"]
        repo = f"{request.get('organization') or USER}/{name}" if "/" not in name else name
        known = repo in self.server.repos
        if not known:
            self.server.repos[repo] = {}
            self.server.private[repo] = request.get("visibility") == "private"
            self.server.commit(repo, {}, [])
        self._json(
            {"url": f"{self.server.url}/{repo}", "name": repo, "id": repo}, status=409 if known else 200
        )

    def _commit(self, repo: str, body: bytes) -> None:
        additions, deletions = {}, []
        for line in body.splitlines():
            item = json.loads(line)
            if item["key"] == "file":
                additions[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            elif item["key"] == "deletedFile":
                deletions.append(item["value"]["path"])
        commit = self.server.commit(repo, additions, deletions)
        self._json(
            {"success": True, "commitOid": commit, "commitUrl": f"{self.server.url}/{repo}/commit/{commit}"}
        )

    def _info(self, repo: str) -> dict[str, Any]:
        files = self.server.repos.get(repo, {})
        return {
            "_id": repo,
            "id": repo,
            "modelId": repo,
            "private": self.server.private.get(repo, False),
            "sha": self.server.commits.get(repo),
            "siblings": [{"rfilename": path} for path in files],
            "tags": [],
        }

    def _tree(self, repo: str, folder: str | None) -> list[dict[str, Any]]:
        return [
            {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for path, content in self.server.repos.get(repo, {}).items()
            if folder is None or path.startswith(f"{folder}/")
        ]

    def _file(self, repo: str, path: str) -> None:
        content = self.server.repos.get(repo, {}).get(path)
        if content is None:
            self._json({"error": "Entry not found"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
            return
        headers = {
            "X-Repo-Commit": self.server.commits[repo],
            "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
        }
        self._send(content, content_type="application/octet-stream", headers=headers)

    def _if_known(self, repo: str, answer: Any) -> None:
        if repo in self.server.repos:
            self._json(answer)
        else:
            self._json(
                {"error": "Repository not found"}, status=404, headers={"X-Error-Code": "RepoNotFound"}
            )

    def _unknown(self) -> None:
        self.server.unknown_requests.append(f"{self.command} {self.path}")
        self._json({"error": "Not found"}, status=404)

    def _json(self, answer: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(
            json.dumps(answer).encode(), content_type="application/json", status=status, headers=headers
        )

    def _send(
        self, content: bytes, *, content_type: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
