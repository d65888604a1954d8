"""What MkDocs needs to know about this repository.

The hooks treat links from docs to files outside of it. People also read the pages in
the repository, where such links work. The site carries the linked pictures of results
along and turns the other links into plain text.

The extension shows the defaults of settings on the API page. The code has
`width: float = setting(0.05, positive)`, a default and its check; users give numbers.
"""

import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File

PICTURES = ("results/active_learning/*.png",)
ROOT = Path(__file__).parents[1]


def on_files(files, config):
    for path in sorted(p for pattern in PICTURES for p in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    inside = "../" * page.file.src_uri.count("/")  # from the page to docs
    outside = re.escape(f"{inside}../")  # from the page to the repository
    markdown = re.sub(
        rf"(!\[[^\]]*\]\(){outside}results/", rf"\1{inside}results/", markdown
    )
    # [text](a file outside docs) -> text
    return re.sub(rf"(?<!!)\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)


class DefaultsOfSettings(griffe.Extension):
    def on_attribute_instance(self, *, attr, **_):
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "setting":
            attr.value = value.arguments[0]
