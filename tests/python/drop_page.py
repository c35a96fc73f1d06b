"""Opens the page of an upload ticket in Chromium, sends a file with its form, and prints the visible texts as JSON.

    python drop_page.py {script,plain} URL [FILE]

`plain` is a browser in which scripts are disabled. Without a file the page is only opened. The browser is driven over
the WebDriver protocol (https://www.w3.org/TR/webdriver2/) with the standard library.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request

# How long the browser may take for anything, in milliseconds.
BROWSER_TIMEOUT_MS = 60_000
# How a WebDriver names an element in JSON.
ELEMENT_KEY = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One session of a browser, which ends with the `with` block."""

    def __init__(self, has_script):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.base = f"http://127.0.0.1:{self.driver_port()}"
        arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={self.profile.name}",
        ]
        preferences = {} if has_script else {"profile.managed_default_content_settings.javascript": 2}
        capabilities = {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments, "prefs": preferences},
            "timeouts": {"implicit": BROWSER_TIMEOUT_MS, "pageLoad": BROWSER_TIMEOUT_MS},
        }
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{session['sessionId']}"

    def driver_port(self):
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip().rstrip(".").rsplit(" ", 1)[1])
        raise RuntimeError("chromedriver ended")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=2 * BROWSER_TIMEOUT_MS / 1000) as response:
            return json.load(response)["value"]

    def ask(self, method, path, body=None):
        return self.call(method, self.session + path, body)

    def element(self, selector):
        return self.ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT_KEY]

    def text(self, selector):
        return self.ask("GET", f"/element/{self.element(selector)}/text")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.profile.cleanup()


def main(mode, url, file=None):
    with Browser(mode == "script") as browser:
        browser.ask("POST", "/url", {"url": url})
        report = {"title": browser.ask("GET", "/title"), "limits": None}
        if file:
            report["limits"] = browser.text("#limits")
            browser.ask("POST", f"/element/{browser.element('#file')}/value", {"text": file})
            browser.ask("POST", f"/element/{browser.element('button')}/click", {})
        # The page has this attribute when the upload has ended, with and without the script.
        status = browser.element("#status[data-state]")
        report["state"] = browser.ask("GET", f"/element/{status}/attribute/data-state")
        report["text"] = browser.ask("GET", f"/element/{status}/text")
        report["heading"] = browser.text("h1")
        entries = browser.ask("POST", "/se/log", {"type": "browser"})
        report["violations"] = [entry["message"] for entry in entries if "Content Security Policy" in entry["message"]]
        # Only the script shows the progress element.
        progress = browser.ask("POST", "/elements", {"using": "css selector", "value": "progress:not([hidden])"}) \
            if mode == "script" and file else []
        report["progress"] = len(progress)
    print(json.dumps(report))


main(*sys.argv[1:])
