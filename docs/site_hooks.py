"""What the site needs beside mkdocs: pages that stand at the root of the project, links to files, equations.

`README.md`, `CONVENTIONS.md` and their like are pages of the site, under the names of `ROOT_PAGES`; a link from or to
one of them, as it works in a checkout, works in the site as well, and so does one to an example, which leads to its
place in the gallery. Other files of the project that pages link to, such as notebooks, come along in `files/`. A block
`math` becomes MathML, which browsers draw by themselves.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "CONVENTIONS.md": "conventions.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
SOURCES = {page: source for source, page in ROOT_PAGES.items()}
# A link or picture, outside of code: `[text](target)` with an anchor or not.
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def display_equation(source: str, language, css_class, options, md, **_) -> str:
    """A block `math` as MathML, one row for each of its lines."""
    rows = (convert(line, display="block") for line in source.splitlines() if line.strip())
    return f'<div class="equation">{"".join(rows)}</div>'


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.copyright = f"dynax {project['version']}"  # at the foot of each page
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "equation", "format": display_equation}]
    }
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of a checkout as links of the site."""
    here = page.file.src_uri
    stands = SOURCES.get(here, f"docs/{here}")  # in the checkout

    def moved(match: re.Match) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(stands), target))
        if path in ROOT_PAGES:
            path = ROOT_PAGES[path]
        elif path.startswith("examples/"):
            path, anchor = "gallery.md", f"#{posixpath.basename(path).removesuffix('.py')}"
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        elif (ROOT / path).is_dir():
            return text
        elif (ROOT / path).is_file():
            path = _along(path, files, config)
        else:
            return match[0]  # strict mode refuses it
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(moved, markdown)


def _along(path: str, files: Files, config: MkDocsConfig) -> str:
    """Where a file of the project stands in the site, which has it from now on."""
    place = f"files/{path}" if posixpath.splitext(path)[1] else f"files/{path}.txt"
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, content=(ROOT / path).read_bytes()))
    return place
