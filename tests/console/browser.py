"""Chromium without a window, driven as a person would."""

import os
import shutil
import sys

os.environ.setdefault("SE_OFFLINE", "true")

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients"))
from harness.waiting import wait_until  # noqa: E402
from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

SETTLED_LOOKS = 15


def executable(*names):
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise RuntimeError(f"none of {', '.join(names)} is installed: scripts/setup.sh console")


class Browser:
    """One window."""

    def __init__(self, width=1280, height=900, theme="light", insecure=False):
        options = webdriver.ChromeOptions()
        options.binary_location = executable("chromium", "chromium-browser", "google-chrome")
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        if insecure:
            # The test's own authority is not one that browsers know.
            options.accept_insecure_certs = True
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable("chromedriver", "chromium.chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.size(width, height)
        self.theme(theme)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def size(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url):
        self.driver.get("about:blank")
        self.driver.get(url)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition, what):
        """What the condition returns once that is true."""
        try:
            return wait_until(what, condition, passing=(StaleElementReferenceException, WebDriverException))
        except AssertionError as error:
            shown = self.script("return document.body.innerText")
            raise AssertionError(f"{error}; the page shows:\n{shown[:3000]}") from error

    def until_settled(self):
        """Waits until the page is loaded, and has the same elements in several looks."""
        state = "return document.readyState === 'complete' && document.querySelectorAll('*').length"
        seen = []

        def is_settled():
            seen.append(self.script(state))
            return seen[-1] and seen[-SETTLED_LOOKS:] == SETTLED_LOOKS * seen[-1:]

        self.until(is_settled, "a page that does not change")

    def find(self, selector, text=None):
        """The first visible element, which may have to contain a text."""

        def found():
            for one in self.all(selector):
                if one.is_displayed() and (text is None or text in one.text):
                    return one
            return None

        return self.until(found, f"{selector} {text or ''}")

    def click(self, selector, text=None):
        def clicked():
            one = self.find(selector, text)
            self.script("arguments[0].scrollIntoView({block: 'center'})", one)
            one.click()
            return True

        self.until(clicked, f"a click on {selector} {text or ''}")

    def type(self, selector, text):
        one = self.find(selector)
        one.clear()
        one.send_keys(text)

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def text(self):
        return self.script("return document.body.innerText")

    def complaints(self):
        """What the browser has written to its console: errors, refused loads."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]


__all__ = ["Browser", "Keys"]
