"""A headless Chromium, driven through its DevTools pipe: no driver, no port, no package.

The pipe (--remote-debugging-pipe) carries one JSON message after the other, each ended by a NUL.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60  # seconds until an answer that never comes fails the test
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowDown": 40}


def find() -> str | None:
    """Return a Chromium or Chrome, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One process with one tab, and its errors and requests."""

    def __init__(self, program: str, profile: Path) -> None:
        """Start it, with a profile of its own."""
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        words += ["--disable-dev-shm-usage", "--disable-background-networking"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads from descriptor 3 and writes to 4, whatever ours are called
        bridge = f'exec 3<&{reads} 4>&{writes}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", bridge, "chromium", program, *words],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._count, self._rest = 0, b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, method: str, **params: Any) -> Any:
        """Send one command and return its answer; events on the way are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._hear(answer)

    def open(self, url: str, *, width: int = 1280, dark: bool = False) -> None:
        """Open an address and wait until it is loaded."""
        phone = {"mobile": width < 600, "deviceScaleFactor": 2 if width < 600 else 1}
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url="about:blank")
        self._events.clear()
        self.errors.clear()
        self.requests.clear()
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Await a JavaScript expression, and return its value; raises its exceptions."""
        how = {"returnByValue": True, "awaitPromise": True}
        done = self.send("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"]["description"])
        return done["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true, on this page or the one that is being opened."""

        def holds() -> Any:
            try:
                return self.run(script)
            except RuntimeError as error:
                if "navigated or closed" not in str(error):
                    raise
                return False

        self.until(holds, script)

    def until(self, holds: Callable[[], Any], what: str = "") -> None:
        """Wait until something holds."""
        latest = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > latest:
                raise TimeoutError(what)
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Press the left button in the middle of an element."""
        x, y = self._middle(selector)
        button = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", **button)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", **button)

    def hover(self, selector: str) -> None:
        """Move the pointer onto an element."""
        x, y = self._middle(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press and release a key."""
        event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def names(self) -> list[tuple[str, str]]:
        """Return role and name of everything that a screen reader reads."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def names_without_scripts(self, url: str, awaited: tuple[str, str]) -> list[tuple[str, str]]:
        """Return the `names` of a page whose scripts may not run, once they hold one."""
        self.open("data:text/html,")
        self.send("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.send("Page.navigate", url=url)
            self.until(lambda: awaited in self.names())
            return self.names()
        finally:
            self.send("Emulation.setScriptExecutionDisabled", value=False)

    def _middle(self, selector: str) -> tuple[float, float]:
        """Scroll an element into view, let the page hear of it, and return where it is."""
        place = self.run(
            f"new Promise(done => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            "requestAnimationFrame(() => requestAnimationFrame(() => {"
            "const r = e.getBoundingClientRect(); done([r.x + r.width / 2, r.y + r.height / 2]);"
            "})); })"
        )
        return place[0], place[1]

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _hear(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.errors.append(str(params["args"]))
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith("data:"):
                self.requests.append(params["request"]["url"])
