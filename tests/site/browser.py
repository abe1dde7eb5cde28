"""`python tests/site/browser.py SITE [CHROMIUM]`: a built site in a headless browser, wide and as on a phone.

Each page is opened at two widths: no error on the console, no file that does
not load or is another site's, no picture that is not drawn, nothing wider than
the screen (tables and code scroll in frames of their own), and no text below a
legible size.
Needs playwright; CHROMIUM is a browser's file where playwright has none of its own.
"""

import argparse
import contextlib
import functools
import http.server
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTHS = {"wide": (1440, 900), "phone": (390, 844)}
_SMALLEST = 9  # CSS pixels of text
_MEASURE = """smallest => {
    const seen = element => element.getClientRects().length && getComputedStyle(element).visibility !== "hidden";
    const texts = [...document.querySelectorAll("article *")].filter(
        e => seen(e) && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
    return {
        over: document.documentElement.scrollWidth - window.innerWidth,
        undrawn: [...document.images].filter(i => seen(i) && !(i.complete && i.naturalWidth)).map(i => i.src),
        wide: [...document.querySelectorAll("article img")].filter(
            i => i.getBoundingClientRect().right > window.innerWidth + 1).map(i => i.src),
        small: [...new Set(texts.filter(e => parseFloat(getComputedStyle(e).fontSize) < smallest)
            .map(e => e.tagName + " " + e.textContent.trim().slice(0, 30)))].slice(0, 3),
    };
}"""


@contextlib.contextmanager
def served(site: Path):
    """Serves a folder on 127.0.0.1; yields its address."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def faults_of(page, address: str, origin: str) -> list[str]:
    """Opens an address of the site at `origin`; returns what is wrong with what is shown."""
    wrong = []

    def noted(message):
        if message.type in ("error", "warning"):
            wrong.append(f"console: {message.text}")

    def requested(request):
        if not request.url.startswith((origin, "data:", "blob:")):
            wrong.append(f"asks another site: {request.url}")

    def answered(response):
        if response.status >= 400:
            wrong.append(f"{response.status}: {response.url}")

    page.on("console", noted)
    page.on("request", requested)
    page.on("response", answered)
    page.goto(address, wait_until="networkidle")
    page.evaluate("() => document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    measured = page.evaluate(_MEASURE, _SMALLEST)
    page.remove_listener("console", noted)
    page.remove_listener("request", requested)
    page.remove_listener("response", answered)
    if measured["over"] > 0:
        wrong.append(f"{measured['over']} pixels wider than the screen")
    wrong += [f"picture not drawn: {source}" for source in measured["undrawn"]]
    wrong += [f"picture beyond the screen: {source}" for source in measured["wide"]]
    return wrong + [f"text below {_SMALLEST} pixels: {text}" for text in measured["small"]]


def main(argv=None) -> int:
    """Parses the command line; returns 1 where a page has a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("chromium", nargs="?", help="the browser's file")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page at each width")
    args = parser.parse_args(argv)
    paths = sorted(path.parent.relative_to(args.site).as_posix() for path in args.site.rglob("index.html"))
    count = 0
    with served(args.site) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for name, (width, height) in WIDTHS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            for path in paths:
                for fault in faults_of(page, address + ("" if path == "." else path + "/"), address):
                    print(f"{name}, {path}: {fault}", file=sys.stderr)
                    count += 1
                if args.pictures:
                    args.pictures.mkdir(parents=True, exist_ok=True)
                    file = f"{name}_{path.replace('/', '_').replace('.', 'index')}.png"
                    page.screenshot(path=args.pictures / file, full_page=True)
            page.close()
        browser.close()
    print(f"{len(paths)} pages at {len(WIDTHS)} widths: {count} faults")
    return 1 if count or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
