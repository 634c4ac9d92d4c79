"""What the book of docs/ needs beside mdBook, which runs it as a preprocessor (docs/book.toml).

Pages link to each other and to files of this repository by paths, as they are read where the repository
is published. In the book, a link to a page leads to that page, and a link to any other file to where it is
published. The page about the API gets its list of operations from openapi/openapi.json.

    python3 scripts/book.py check target/book

looks at each link of the pages that mdBook made, anchors too. `scripts/book` runs it.
"""

import json
import pathlib
import posixpath
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

OPERATIONS = "<!-- operations -->"


def chapters(items):
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            yield chapter
            yield from chapters(chapter["sub_items"])


def operations(root):
    """A table of what openapi/openapi.json describes."""
    document = json.loads((root / "openapi/openapi.json").read_text())
    rows = ["| operation | what it does |", "|---|---|"]
    for path, item in document["paths"].items():
        for method in ("get", "post", "put", "delete"):
            if operation := item.get(method):
                summary = " ".join(operation["summary"].split()).partition(". ")[0].rstrip(".")
                rows.append(f"| `{method.upper()} {path}` | {summary} |")
    return "\n".join(rows)


def preprocess():
    context, book = json.load(sys.stdin)
    root = pathlib.Path(context["root"]).resolve().parent
    published = context["config"]["output"]["html"]["git-repository-url"]

    def in_repository(path, *, beside="docs/SUMMARY.md"):
        return posixpath.normpath(posixpath.join(posixpath.dirname(beside), path))

    # Where a file is in the book: what is in docs/ comes first.
    pages = {in_repository(c["source_path"]): c for c in chapters(book["items"])}
    for chapter in pages.values():
        chapter["path"] = in_repository(chapter["path"]).removeprefix("docs/")

    def link(source, target):
        path, hash_sign, anchor = target.partition("#")
        if not path or urlsplit(target).scheme:
            return target
        file = in_repository(path, beside=source)
        if not (root / file).exists():
            sys.exit(f"{source} links to {target}, which doesn't exist")
        page = pages[source]["path"]
        if file in pages:
            place = pages[file]["path"]
        elif file.startswith("docs/") and (root / file).suffix not in ("", ".md"):
            place = file.removeprefix("docs/")
        else:
            kind = "tree" if (root / file).is_dir() else "blob"
            return f"{published}/{kind}/main/{file}{hash_sign}{anchor}"
        return posixpath.relpath(place, posixpath.dirname(page) or ".") + hash_sign + anchor

    for source, chapter in pages.items():
        text = chapter["content"].replace(OPERATIONS, operations(root))
        # Blocks of code are left as they are.
        parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
        parts[::2] = (
            re.sub(r"\]\(([^)\s]+)\)", lambda m: f"]({link(source, m[1])})", part) for part in parts[::2]
        )
        chapter["content"] = "".join(parts)
    json.dump(book, sys.stdout)


class Page(HTMLParser):
    """The links of a page, and what can be linked to in it."""

    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if id := attrs.get("id"):
            self.anchors.add(id)
        if target := attrs.get("href") or attrs.get("src"):
            self.links.append(target)


def check(folder):
    files = {file.resolve(): Page(file) for file in folder.rglob("*.html")}
    broken = []
    for file, page in files.items():
        # Its addresses begin at the root of a web server.
        if file.name == "404.html":
            continue
        for target in page.links:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            place = (file.parent / unquote(url.path)).resolve() if url.path else file
            anchor_is_there = place not in files or url.fragment in files[place].anchors
            if not place.is_file() or (url.fragment and not anchor_is_there):
                broken.append(f"{file.relative_to(folder.resolve())}: {target}")
    if broken:
        sys.exit("the book has links that lead nowhere:\n" + "\n".join(sorted(set(broken))))
    print(f"{len(files)} pages, and each link of them leads somewhere")


match sys.argv[1:]:
    case ["supports", renderer]:
        sys.exit(renderer != "html")
    case ["check", folder]:
        check(pathlib.Path(folder))
    case []:
        preprocess()
    case _:
        sys.exit(__doc__)
