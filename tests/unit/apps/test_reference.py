from apps.reference import DOCS, config_page, tables_page


def test_the_reference_pages_say_what_the_code_says():
    for name, page in (("tables.md", tables_page()), ("config.md", config_page())):
        assert (DOCS / name).read_text() == page, f"docs/{name} is old: run `python -m apps.reference`"
