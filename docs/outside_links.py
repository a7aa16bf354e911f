"""A hook of MkDocs: links from docs/ to other files of the repository lead to the repository's own page, or are plain text."""

import os.path
import re

LINK = re.compile(
    r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((\.\./[^)\s#]+|quickstart\.ipynb)(#[^)\s]*)?\)"
)


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Rewrite the links that leave the folder of the documents."""
    address = (config.repo_url or "").rstrip("/")

    def outside(link: re.Match) -> str:
        text, path, anchor = link.group(1), link.group(2), link.group(3) or ""
        place = os.path.normpath(os.path.join("docs", os.path.dirname(page.file.src_uri), path))
        return f"[{text}]({address}/blob/main/{place}{anchor})" if address else text

    return LINK.sub(outside, markdown)
