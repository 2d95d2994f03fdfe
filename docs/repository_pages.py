"""Gives the site a page for every file outside ``docs/`` that a page links to.

On a code host such links lead to the file itself. The site has only ``docs/``, so this hook of
mkdocs copies the file under ``repository/`` (a program as a page with its text) and turns the link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)((?:#[^)\s]*)?\))")
# The tests name examples after the language of a fence. mkdocs takes no such fence for one.
NAMED_FENCE = re.compile(r"^( *```\w+) [^\n]+$", re.M)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".conf": "properties", ".sql": "sql"}
OWN_PAGES = {"README.md": "index.md"}


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _source(page: str) -> str:
    """The path of a page in the repository."""
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def _page(path: str, root: Path) -> str:
    """The page of a path in the repository."""
    if (root / path).is_dir():
        path = f"{path}/README.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in OWN_PAGES:
        return OWN_PAGES[path]
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def _targets(text: str, page: str) -> set[str]:
    folder = posixpath.dirname(_source(page))
    return {posixpath.normpath(posixpath.join(folder, name)) for _, name, _ in LINK.findall(text)}


def _text(path: str, root: Path) -> str:
    text = (root / path).read_text()
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n````{language}\n{text}````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and those that they link to in turn."""
    root = _root(config)
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    known = {uri for uri, _ in waiting}
    while waiting:
        page, text = waiting.pop()
        for path in sorted(_targets(text, page)):
            uri = _page(path, root)
            source = root / path / "README.md" if (root / path).is_dir() else root / path
            if uri in known or not uri.startswith("repository/") or not source.is_file():
                continue
            known.add(uri)
            content = _text(source.relative_to(root).as_posix(), root)
            added = File.generated(config, uri, content=content)
            added.inclusion = type(added.inclusion).NOT_IN_NAV
            files.append(added)
            waiting.append((uri, content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to their pages."""
    root, here = _root(config), page.file.src_uri
    folder = posixpath.dirname(_source(here))

    def turned(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        uri = _page(path, root)
        if files.get_file_from_path(uri) is None:
            return link[0]
        return link[1] + posixpath.relpath(uri, posixpath.dirname(here) or ".") + link[3]

    return LINK.sub(turned, NAMED_FENCE.sub(r"\1", markdown))
