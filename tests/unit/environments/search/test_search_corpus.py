"""A corpus of the user's: a folder or a ZIM file, whose text is found, and is found anew when it changes."""

import logging
import sys
from pathlib import Path

import pytest

from environments.search import index as indexing
from environments.search.corpus import FolderCorpus, GeneratedCorpus, ZimCorpus, decoded, open_corpus, text_of, title_of
from environments.search.encyclopedia import encyclopedia_of
from environments.search.index import BEGIN, END, Index
from schemas.failure import FlywheelError

KEY = "environments.search.corpus"
PAGES = {
    "index.html": "<title>Lamps &amp; more</title><p>All <b>lamp</b>s: <a href='sub/brass.html'>brass</a>.",
    "sub/brass.html": "<h1>Brass</h1><table><tr><td>Weight</td><td>4 kg</td></tr></table><script>var hidden;</script>",
    "sub/café.htm": "<title>Café</title>Lamps of the café",
    "empty.html": "<title>Empty</title><script>1</script>",
    "notes.txt": "lamp",
}


def folder(path: Path) -> Path:
    for name, text in PAGES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def found(index: Index, query: str) -> list[str]:
    return [hit.key for hit in index.search(query, 0, 10)[0]]


def test_a_folder_is_searched_by_its_words_and_never_by_its_scripts(tmp_path: Path) -> None:
    corpus = FolderCorpus(folder(tmp_path / "pages"), KEY)
    index = Index(corpus, tmp_path / "index")
    assert list(corpus.listed()) == ["empty.html", "index.html", "sub/brass.html", "sub/café.htm"]
    assert found(index, "LAMP cafe") == ["sub/café.htm"] and found(index, "weight kg") == ["sub/brass.html"]
    assert found(index, "hidden") == [] == found(index, "") == found(index, '"*()?') == found(index, "_")
    assert set(found(index, "lamp nowhere")) == {"index.html", "sub/café.htm"}
    (hit,), more = index.search("lamp brass", 0, 10)
    assert hit.title == "Lamps & more" and f"{BEGIN}lamps{END}" in hit.snippet and not more
    assert index.search("lamp", 0, 1)[1] and not index.search("lamp", 1, 1)[1]
    assert index.search("lamp", 0, 10, without={"index.html"})[0][0].key == "sub/café.htm"
    assert found(index, " ".join(["lamp"] * 5000)) and found(index, 'lamp" OR title:*') != []
    index.close()


SPACELESS = {
    "zh.html": "<title>北京大学</title>他住在北京。价格五元，Python教程",
    "ja.html": "<title>東京</title>東京タワーはとても高いです。",
    "th.html": "<title>ไทย</title>ภาษาไทยเป็นภาษาที่มีระดับเสียง",
    "lo.html": "<title>ລາວ</title>ພາສາລາວເປັນພາສາ",
    "km.html": "<title>ខ្មែរ</title>ភាសាខ្មែរគឺជាភាសា",
    "my.html": "<title>မြန်မာ</title>မြန်မာဘာသာစကား",
    "en.html": "<title>Lamps</title>Lamps of Beijing were running",
}


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("北京", ["zh.html"]), ("京", ["ja.html", "zh.html"]), ("价格", ["zh.html"]), ("格价", []),
        ("python", ["zh.html"]), ("Python教程", ["zh.html"]), ("教程 北京", ["zh.html"]), ("北京的价格", ["zh.html"]),
        ("タワー", ["ja.html"]), ("高い", ["ja.html"]), ("ไทย", ["th.html"]), ("ที่", ["th.html"]), ("ทู", []),
        ("ພາສາ", ["lo.html"]), ("ខ្មែរ", ["km.html"]), ("ဘာသာ", ["my.html"]), ("lamp run", ["en.html"]),
    ],
)  # fmt: skip
def test_scripts_without_spaces_are_found_by_words_within_a_sentence(
    tmp_path: Path, query: str, pages: list[str]
) -> None:
    for name, text in SPACELESS.items():
        (tmp_path / name).write_text(text)
    index = Index(FolderCorpus(tmp_path, KEY), tmp_path / "index")
    assert sorted(found(index, query)) == pages
    hits = index.search(query, 0, 10)[0]
    assert all(BEGIN in hit.snippet and SPACELESS[hit.key].endswith(_plain(hit.snippet)) for hit in hits)
    assert all(f"<title>{hit.title}</title>" in SPACELESS[hit.key] for hit in hits)


def test_a_snippet_of_a_long_text_without_spaces_shows_the_found_word(tmp_path: Path) -> None:
    (tmp_path / "long.html").write_text(f"{'山' * 5000}北京{'水' * 5000}")
    ((hit,), _) = Index(FolderCorpus(tmp_path, KEY), tmp_path / "index").search("北京", 0, 10)
    assert f"{BEGIN}北京{END}" in hit.snippet and len(hit.snippet) < 250


def _plain(snippet: str) -> str:
    return snippet.replace(BEGIN, "").replace(END, "")


def test_an_index_is_built_once_and_again_when_a_page_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = list[str]()
    build = indexing._build
    monkeypatch.setattr(indexing, "_build", lambda corpus, *more: (built.append(corpus.name), build(corpus, *more)))
    monkeypatch.setattr(indexing, "LOG_INTERVAL", 2)
    pages = folder(tmp_path / "pages")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            Index(FolderCorpus(pages, KEY), tmp_path / "index").close()
    assert built == [str(pages)] and "Indexed 2 pages" in caplog.text
    (pages / "index.html").write_text("<p>Chairs only, and many of them")
    assert found(Index(FolderCorpus(pages, KEY), tmp_path / "index"), "chairs") == ["index.html"]
    (file,) = (tmp_path / "index").glob("*.sqlite")
    file.write_bytes(b"torn")
    assert found(Index(FolderCorpus(pages, KEY), tmp_path / "index"), "chairs") == ["index.html"]
    assert len(built) == 3


def test_nothing_outside_the_folder_is_a_page_or_a_picture(tmp_path: Path) -> None:
    pages = folder(tmp_path / "pages")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "secret.png").write_bytes(b"png")
    (pages / "link.html").symlink_to(tmp_path / "secret.html")
    (pages / "own.png").write_bytes(b"png")
    corpus = FolderCorpus(pages, KEY)
    assert "link.html" not in list(corpus.listed())
    assert corpus.page("../secret.html") is corpus.page("link.html") is corpus.page("notes.txt") is None
    assert corpus.picture("../secret.png") is corpus.picture("notes.txt") is None
    assert corpus.picture("a\0b.png") is corpus.picture(f"{'a' * 3000}.png") is None
    assert corpus.picture("own.png") == (b"png", "image/png")


@pytest.mark.parametrize("pages", [{}, {"notes.txt": "text"}, {"a.html": "<script>1</script>"}])
def test_a_corpus_without_pages_or_text_is_refused_with_its_name(tmp_path: Path, pages: dict[str, str]) -> None:
    (tmp_path / "pages").mkdir()
    for name, text in pages.items():
        (tmp_path / "pages" / name).write_text(text)
    why = "none of its 1 pages has text" if "a.html" in pages else "it has no page"
    with pytest.raises(FlywheelError, match=f"{tmp_path}/pages cannot be searched: {why}"):
        Index(FolderCorpus(tmp_path / "pages", KEY), tmp_path / "index")
    assert not list((tmp_path / "index").glob("*.sqlite"))


def test_documents_are_decoded_by_the_set_that_they_declare() -> None:
    assert decoded("é".encode()) == "é"
    assert decoded(b'<meta charset="iso-8859-2">\xe8') == '<meta charset="iso-8859-2">č'
    assert decoded(b'<meta charset="none-such">\xe9') == '<meta charset="none-such">é'
    assert decoded(b"\x93a\x94") == "“a”"


def test_the_text_of_a_document_keeps_its_words_apart() -> None:
    html = "<title>A &amp;\nB</title><p>one<b>two</b><br>three<td>4</td><td>5</td><script>6</script>"
    assert (title_of(html), text_of(html)) == ("A & B", "onetwo three 4 5")
    assert (title_of("<p>no title"), text_of("<title>A")) == ("", "")


def test_the_generated_encyclopedia_finds_every_page_by_its_title(tmp_path: Path) -> None:
    corpus = GeneratedCorpus(encyclopedia_of(0, 200))
    index = Index(corpus, tmp_path)
    assert [key for key in corpus.listed() if found(index, key)[0] != key] == []


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    writer = pytest.importorskip("libzim.writer")

    class Entry(writer.Item):
        def __init__(self, path: str, title: str, mime: str, content: str) -> None:
            super().__init__()
            self.fields = path, title, mime, content

        def get_path(self) -> str:
            return self.fields[0]

        def get_title(self) -> str:
            return self.fields[1]

        def get_mimetype(self) -> str:
            return self.fields[2]

        def get_contentprovider(self) -> object:
            return writer.StringProvider(self.fields[3])

        def get_hints(self) -> dict[object, bool]:
            return {writer.Hint.FRONT_ARTICLE: self.fields[2] == "text/html"}

    file = tmp_path / "lamps.zim"
    with writer.Creator(file) as made:
        made.add_item(Entry("Lamp", "Lamp", "text/html", "<p>A lamp of <a href='Brass'>brass</a>"))
        made.add_item(Entry("Brass", "Brass", "text/html", "<p>An alloy"))
        made.add_item(Entry("picture.svg", "", "image/svg+xml", "<svg/>"))
        made.add_redirection("Light", "Light", "Lamp", {})
    return file


def test_a_zim_file_is_read_with_its_redirects_and_pictures(tmp_path: Path, archive: Path) -> None:
    corpus = open_corpus(archive, KEY)
    assert sorted(corpus.listed()) == ["Brass", "Lamp"]
    assert corpus.target("Light") == "Lamp" and corpus.target("picture.svg") is corpus.target("None") is None
    page = corpus.page("Light")
    assert page is not None and (page.key, page.title, page.text) == ("Lamp", "Lamp", "A lamp of brass")
    assert corpus.picture("picture.svg") == (b"<svg/>", "image/svg+xml") and corpus.picture("Lamp") is None
    assert found(Index(corpus, tmp_path / "index"), "alloy") == ["Brass"]


def test_a_zim_file_without_its_package_or_its_form_is_refused(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = tmp_path / "torn.zim"
    torn.write_bytes(b"no archive")
    with pytest.raises(FlywheelError, match=rf"`{KEY}`: {torn} is no ZIM file"):
        open_corpus(torn, KEY)
    monkeypatch.setitem(sys.modules, "libzim.reader", None)
    with pytest.raises(FlywheelError, match="the package libzim is missing") as refused:
        ZimCorpus(archive, KEY)
    assert "flywheel[zim]" in refused.value.hint
