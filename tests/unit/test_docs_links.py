"""Every relative link in the documentation leads to something that is there, and so does every name of a test."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets of all links, without those in examples."""
    return _LINK.findall(_CODE.sub("", text))


def anchors(text: str) -> set[str]:
    """The names under which the headings of a page can be linked to."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def is_missing(link: str, page: Path) -> bool:
    target = urlsplit(link)
    if target.scheme:
        return False
    path = page.parent / unquote(target.path) if target.path else page
    if not path.exists():
        return True
    return bool(target.fragment) and target.fragment not in anchors(path.read_text(encoding="utf-8"))


def missing(page: Path) -> list[str]:
    return [link for link in links(page.read_text(encoding="utf-8")) if is_missing(link, page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert not missing(page)


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here it is!\n[a](page.md#here-it-is) [b](gone.md) [c](#nowhere) `[d](code.md)`", "utf-8")
    assert missing(page) == ["gone.md", "#nowhere"]


PROOF = (ROOT / "docs" / "proof.md").read_text("utf-8")
SENTENCES = PROOF.partition("## Sentence by sentence")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def tests() -> str:
    files = [*ROOT.glob("tests/**/*.py"), ROOT / "src/turnlane/testing/conformance.py"]
    return "\n".join(re.findall(r"def (test_\w+)", "\n".join(file.read_text("utf-8") for file in files)))


@pytest.mark.parametrize("row", re.findall(r"^\| (?!sentence|---)(.+) \|$", SENTENCES, re.MULTILINE))
def test_every_sentence_has_a_test(row: str, tests: str) -> None:
    names = re.findall(r"`([a-z0-9_]+)`", row.partition(" | ")[2])
    assert names
    assert [name for name in names if name not in tests] == []
    assert [path for path in re.findall(r"`(tests/\S+)`", row) if not (ROOT / path).exists()] == []
