"""MkDocs hook: links from docs to files outside of it.

Pages are also read in the repository, where such links work. On the site, pictures of
results are carried along, and other links become plain text.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

PICTURES = (
    "results/active_learning/*.png",
    "results/study/paper/figures/decomposition_variance.png",
)
ROOT = Path(__file__).parents[1]


def on_files(files, config):
    for path in sorted(p for pattern in PICTURES for p in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, **_):
    markdown = re.sub(r"(!\[[^\]]*\]\()\.\./results/", r"\1results/", markdown)
    # [text](../elsewhere) -> text
    return re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)
