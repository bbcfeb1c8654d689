"""A client of the Language Server Protocol: JSON-RPC over the standard streams of a process of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

SILENCE = 60.0
"""Seconds without a word after which the server counts as hung."""


class Client:
    """A session with `tvlint lsp` in a folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.number = 0
        self.diagnostics: dict[str, list[Any]] = {}
        command = [sys.executable, "-m", "tvlint", "lsp", "--stdio", *options]
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.unread = b""

    def __enter__(self) -> Client:
        root = self.folder.as_uri()
        self.capabilities = self.ask("initialize", {"processId": None, "rootUri": root, "capabilities": {}})["capabilities"]
        self.tell("initialized", {})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.ask("shutdown", None)
                self.tell("exit", None)
                self.process.wait(SILENCE)
        finally:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                assert stream is not None
                stream.close()

    def open(self, name: str, text: str, language: str = "shellscript") -> list[Any]:
        """Open a text and return the diagnostics that come for it."""
        document = {"uri": self.uri(name), "languageId": language, "version": 1, "text": text}
        return self.published(name, "textDocument/didOpen", {"textDocument": document})

    def change(self, name: str, text: str, version: int) -> list[Any]:
        """Replace a text and return the diagnostics that come for it."""
        document = {"uri": self.uri(name), "version": version}
        return self.published(name, "textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def published(self, name: str, method: str, parameters: Any) -> list[Any]:
        self.diagnostics.pop(self.uri(name), None)
        self.tell(method, parameters)
        while self.uri(name) not in self.diagnostics:
            self._receive()
        return self.diagnostics[self.uri(name)]

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def tell(self, method: str, parameters: Any) -> None:
        self._send({"method": method, "params": parameters})

    def ask(self, method: str, parameters: Any) -> Any:
        self.number += 1
        self._send({"id": self.number, "method": method, "params": parameters})
        while True:
            answer = self._receive()
            if answer.get("id") == self.number and "method" not in answer:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        head, _, self.unread = self._until(b"\r\n\r\n").partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        while len(self.unread) < length:
            self._read()
        body, self.unread = self.unread[:length], self.unread[length:]
        message: dict[str, Any] = json.loads(body)
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        return message

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.unread:
            self._read()
        return self.unread

    def _read(self) -> None:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], SILENCE)
        data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
        assert data, "the server says nothing more"
        self.unread += data
