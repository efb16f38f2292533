"""A page as a person sees it: headless chromium, driven over a pipe by its own protocol."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

PLUGGED = """
import fcntl, os, sys
given = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for plug, number in zip((3, 4), given, strict=True):
    os.dup2(number, plug)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads its commands from descriptor 3 and answers on 4."""


class Screen:
    """One page of one browser."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._ours_out = os.pipe()
        self._ours_in, theirs_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1500,1700"]
        options += [f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._browser = subprocess.Popen(
            [sys.executable, "-c", PLUGGED, str(theirs_in), str(theirs_out), CHROMIUM, *options],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._answers = os.fdopen(self._ours_in, "rb")
        self._asked = 0
        self._session: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.kill()
        self._browser.wait()
        self._answers.close()
        os.close(self._ours_out)

    def open(self, url: str) -> None:
        target = self._ask("Target.createTarget", url=url)["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def text(self) -> str:
        return self._evaluate("document.body.innerText")

    def follow(self, link: str) -> None:
        links = f"[...document.querySelectorAll('a')].find(a => a.innerText.includes({json.dumps(link)}))"
        self._evaluate(f"{links}.click()")

    def _evaluate(self, expression: str) -> str:
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return str(answer["result"].get("value", ""))

    def wait(self, holds: Callable[[str], bool], seconds: float = 30) -> str:
        """The page's text, once it holds."""
        until = time.monotonic() + seconds
        while not holds(shown := self.text()):
            assert time.monotonic() < until, f"the page shows:\n{shown}"
            time.sleep(0.3)
        return shown

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._asked += 1
        asked = {"id": self._asked, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._ours_out, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._asked:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            message += byte
        found: dict[str, Any] = json.loads(message)
        return found
