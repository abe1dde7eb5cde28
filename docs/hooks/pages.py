"""Add pages to the site that are not in `docs/`: README, changelog and notebooks. Fix links to other files.

The README is the start page. A page links to `[text](../zoo/...)`, as GitHub
reads it. The site links to that file at `repo_url`, or shows its path if there
is no `repo_url`.
"""

import base64
import json
import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
_PICTURE = re.compile(r"^(!\[[^\]]*\]\(([^)]+)\)(?:\{[^}]*\})?)$", re.M)
_BADGE = re.compile(r"!\[([^\]]*)\]\(https?://[^)]+\)")  # a picture that a reader's browser would fetch from elsewhere
_ABOVE = re.compile(r"(\]\()\.\./(docs/)?")  # the start of a notebook's link: its page lies a folder deeper, in `docs`
_README_LINK = re.compile(r"(\]\(|src=\")(?!https?:|#)(docs/)?")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files, config):
    """Add the start page, the changelog, and a page with pictures for each notebook."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    readme = (ROOT / "README.md").read_text("utf-8").replace("](CHANGELOG.md)", "](docs/changelog.md)")
    readme = _README_LINK.sub(lambda start: start[1] + ("" if start[2] else "../"), readme)
    files.append(File.generated(config, "index.md", content=readme))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Send links that leave `docs/` to the repository, and make pictures links to themselves, for phones."""
    here = (ROOT / "docs" / page.file.src_uri).parent

    def there(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        path = (here / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return match[0]
        if not path.is_relative_to(ROOT) or not path.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {target}, which the repository does not have.")
        place = path.relative_to(ROOT).as_posix()
        notebook = place.removesuffix(".ipynb") + ".md"
        if notebook in files.src_uris and notebook != page.file.src_uri:  # a notebook's page links to its file
            return f"[{text}]({os.path.relpath(notebook, os.path.dirname(page.file.src_uri))})"
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{place}{anchor})"
        return text if text.strip("`") == place else f"{text} (`{place}`)"

    return _PICTURE.sub(r"[\1](\2)", _OUTSIDE.sub(there, markdown))


def on_post_page(output, page, config):
    """Leaves the repository's link without the script that asks GitHub for its stars: no request leaves the site."""
    return output.replace(' data-md-component="source"', "")


def on_post_template(output_content, template_name, config):
    """Do the same for pages that come from no Markdown."""
    return output_content.replace(' data-md-component="source"', "")


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and the pictures that it shows by their names."""
    parts, pictures = [], {}
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            source = _ABOVE.sub(lambda start: start[1] + ("../" if start[2] else "../../"), source)
            parts.append(_BADGE.sub(r"\1", source))
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            for place, output in enumerate(cell["outputs"]):
                name = f"{path.stem}_{number}_{place}.png"
                parts.append(_shown(output, name, pictures))
    where = f"*This page is [`notebooks/{path.name}`](../../notebooks/{path.name}) with its results.*"
    title, *rest = [part for part in parts if part]
    first_line, _, introduction = title.partition("\n")
    return "\n\n".join([first_line, where, introduction.strip(), *rest]), pictures


def _shown(output, name, pictures) -> str:
    """Return an output of a cell as Markdown; a picture's bytes go into `pictures`."""
    data = output.get("data", {})
    if "image/png" in data:
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![Output of the cell above]({name})"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{_COLOURS.sub('', text).rstrip()}\n```" if text.strip() else ""
