"""`python tests/site/links.py SITE`: every link of a built site leads somewhere, and nothing is fetched from elsewhere.

Pages, files and anchors of the site itself are looked up; links to other
sites are counted, not followed. Links from the root, which `404.html` has, are
those of the address SITE_URL, as in mkdocs.yml. Needs nothing but Python.
"""

import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_NOT_FETCHED = ("canonical", "prev", "next", "edit")  # relations that a browser only knows of


class Page(HTMLParser):
    """The anchors and the links of a page.

    Attributes:
        anchors: What `#...` may name.
        links: Pairs of a target and whether a browser fetches it by itself.
    """

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        for name in ("href", "src"):
            if values.get(name):
                known = tag == "link" and any(word in (values.get("rel") or "") for word in _NOT_FETCHED)
                self.links.append((values[name], (tag, name) in _FETCHED and not known))


def faults(site: Path, root: str = "/") -> tuple[list[str], int, int]:
    """Returns what is wrong, and the numbers of links inside the site and out of it; `root` is the site's path."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong, inside, outside = [], 0, 0
    for path, page in pages.items():
        for link, fetched in page.links:
            place = urlsplit(link)
            if place.scheme in ("mailto", "javascript", "data"):
                continue
            if place.scheme or place.netloc:
                outside += 1
                if fetched:
                    wrong.append(f"{path.relative_to(site)}: fetched from elsewhere: {link}")
                continue
            inside += 1
            reason = _broken(site, pages, path, place, root)
            if reason:
                wrong.append(f"{path.relative_to(site)}: {link}: {reason}")
    return wrong, inside, outside


def _broken(site, pages, path, place, root) -> str:
    """Why a link leads nowhere; empty where it does not."""
    absolute = place.path.startswith("/")
    if absolute and not place.path.startswith(root):
        return f"not below {root}, where the site is"
    start, rest = (site, place.path.removeprefix(root)) if absolute else (path.parent, place.path)
    target = (start / unquote(rest)).resolve() if place.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "no such page or file"
    if place.fragment and target in pages and unquote(place.fragment) not in pages[target].anchors:
        return "no such anchor"
    return ""


def main(argv) -> int:
    """Prints what is wrong; returns 1 where something is."""
    site = Path(argv[0]).resolve()
    wrong, inside, outside = faults(site, urlsplit(os.environ.get("SITE_URL", "")).path.rstrip("/") + "/")
    for line in wrong:
        print(line, file=sys.stderr)
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages, {inside} links inside, {len(wrong)} broken; {outside} links to other sites, not followed")
    return 1 if wrong or not inside else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
