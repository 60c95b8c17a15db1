# SPDX-License-Identifier: Apache-2.0
"""Extends mkdocs.yml: makes pages of files outside docs/, which lie where readers of the sources look for them.

Each README.md of a folder becomes the page folders/<folder>.md, under "Folders" in the navigation, without being listed
anywhere; so do the files of ROOT_PAGES, under "The project". A link to one of them is written as a path in the
repository (`../../src/core/README.md`), which the forge follows, and becomes a link to the page. In these files a link
to a file without a page, such as a source, becomes its text. A link to a missing file stays as it is, and mkdocs
reports it.

Each cell of a table gets its column's name, which stylesheets/site.css shows where the screen is too narrow for columns.
"""

import html
import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

TOP = pathlib.Path(__file__).resolve().parents[2]
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changes.md"}
# Neither generated files nor existing pages; models of examples/ are data, where a README only keeps a folder.
SKIPPED = {"build", "site", "docs", "examples/models", "examples/python/models"}
LINK = re.compile(r"\[(?P<text>(?:[^\[\]\n]|\n(?!\n)|\[[^\[\]\n]*\])*)\]\((?P<target>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")


def folders_with_readme():
    for folder, inner, files in os.walk(TOP):
        here = pathlib.Path(folder).relative_to(TOP).as_posix()
        inner[:] = sorted(name for name in inner if name[0] != "." and posixpath.normpath(f"{here}/{name}") not in SKIPPED)
        if here != "." and "README.md" in files:
            yield here


PAGES = {f"{folder}/README.md": f"folders/{folder}.md" for folder in folders_with_readme()}
PAGES |= {path: uri for path, uri in ROOT_PAGES.items() if (TOP / path).exists()}
PATHS = {uri: path for path, uri in PAGES.items()}


def on_config(config):
    config.nav += [
        {"Folders": [{path.removesuffix("/README.md"): uri} for path, uri in PAGES.items() if path not in ROOT_PAGES]},
        {"The project": [uri for path, uri in PAGES.items() if path in ROOT_PAGES]},
    ]
    config.watch += [str(TOP / path) for path in PAGES]
    return config


def on_files(files, config):
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(TOP / path)))
    return files


def uri_of(path):
    """The page of a file of the repository, or None."""
    if path == "README.md":
        return "index.md"
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)


def on_page_markdown(markdown, page, **_):
    here = page.file.src_uri
    source = PATHS.get(here, f"docs/{here}")

    def rewritten(match):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        uri = uri_of(path)
        if uri:
            return f"[{match['text']}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{match['anchor'] or ''})"
        return match["text"] if here in PATHS and (TOP / path).exists() else match[0]

    return LINK.sub(rewritten, markdown)


def with_labels(table):
    """The table, with data-label in each cell of its rows. A cell without text is left empty."""
    head, _, body = table.partition("</thead>")
    labels = [html.escape(html.unescape(re.sub("<[^>]+>", "", cell)).strip(), quote=True) for cell in re.findall("<th[^>]*>(.*?)</th>", head, re.DOTALL)]

    def labelled(row):
        names = iter(labels)
        return re.sub("<td(?=[ >])", lambda _: f'<td data-label="{name}"' if (name := next(names, "")) else "<td", row[0])

    return head + "</thead>" + re.sub("<tr>.*?</tr>", labelled, body, flags=re.DOTALL)


def on_page_content(content, **_):
    return re.sub("<table>.*?</table>", lambda table: with_labels(table[0]), content, flags=re.DOTALL)
