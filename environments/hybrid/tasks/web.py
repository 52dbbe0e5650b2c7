"""Define tasks with local linked pages: find and read them, and download, edit and upload their files."""

import random

from environments.hybrid.tasks.task import (
    CITIES,
    FAMILIES,
    ClickOn,
    Family,
    HybridGoal,
    HybridInstance,
    csv,
    limit,
    lines,
    text,
    words,
)
from environments.hybrid.web import HOME, Block, Download, HybridPage, Link, Upload, Web
from environments.hybrid.workspace import DOWNLOADS
from schemas.action import Finished, Navigate, Terminal, WriteFile

FAMILY = Family("web")
template = FAMILY.template


class _Shop:
    """Products with prices and makers, and makers with cities, on pages that link to each other."""

    def __init__(self, chance: random.Random, products: int = 6, makers: int = 3) -> None:
        self.chance = chance
        self.makers: dict[str, str] = dict(
            zip(chance.sample(FAMILIES, makers), chance.sample(CITIES, makers), strict=True)
        )
        prices = chance.sample(range(10, 200), products)
        self.prices = dict(zip(words(chance, products), prices, strict=True))
        names = sorted(self.makers)
        self.by = {name: names[at % makers] for at, name in enumerate(self.prices)}

    def of(self, maker: str) -> list[str]:
        """Lists a maker's products."""
        return sorted(name for name, its in self.by.items() if its == maker)

    def web(self, *more: Block) -> Web:
        """Makes the pages; `more` is added to the first page."""
        links = [Link(name, name) for name in self.prices] + [Link(maker, maker) for maker in self.makers]
        self.chance.shuffle(links)
        pages = {HOME: HybridPage("Catalogue", (*links[:5], *more, *links[5:]))}
        for name, price in self.prices.items():
            maker = Link(f"Made by {self.by[name]}", self.by[name])
            pages[name] = HybridPage(f"Product {name}", (("price", str(price)), maker, Link("Catalogue", HOME)))
        for maker, city in self.makers.items():
            made = tuple(Link(name, name) for name in self.of(maker))
            pages[maker] = HybridPage(f"Maker {maker}", (("city", city), *made, Link("Catalogue", HOME)))
        return pages


def _simple(chance: random.Random, *blocks: Block) -> Web:
    others = words(chance, 3)
    listed: list[Block] = [*blocks, *(Link(f"About {name}", name) for name in others)]
    chance.shuffle(listed)
    pages = {name: HybridPage(f"About {name}", (text(chance, 1, 2), Link("Home", HOME))) for name in others}
    return {HOME: HybridPage("Home", tuple(listed)), **pages}


@template("open", 'Open the page "{}".', "easy", 6)
def _open(chance: random.Random) -> HybridInstance:
    web = _simple(chance)
    page = chance.choice(sorted(set(web) - {HOME}))
    return HybridInstance((f"About {page}",), HybridGoal(page=page), (ClickOn(f"About {page}"),), web=web)


@template("open-product", 'Find the product "{}" and open its page.', "easy", 6)
def _open_product(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance, 5, 2)
    name = chance.choice(sorted(shop.prices))
    return HybridInstance((name,), HybridGoal(page=name), (Navigate(content=f"local://{name}"),), web=shop.web())


@template("download", 'Download the file "{}".', "easy", 6)
def _download(chance: random.Random) -> HybridInstance:
    given = {f"{name}.txt": text(chance).encode() for name in words(chance, 3)}
    name = chance.choice(sorted(given))
    web = _simple(chance, *(Download(one, content) for one, content in given.items()))
    return HybridInstance(
        (name,), HybridGoal({f"{DOWNLOADS}/{name}": given[name]}), (ClickOn(f"Download {name}"),), web=web
    )


@template("upload", 'Upload the file "{}" to the form "{}".', "easy", 8)
def _upload(chance: random.Random) -> HybridInstance:
    files = {f"{name}.txt": text(chance) for name in words(chance, 3)}
    name, form = chance.choice(sorted(files)), chance.choice(("Inbox", "Reports", "Drop box"))
    script = (ClickOn(name), ClickOn("browser"), ClickOn(f"Upload {name} to {form}"))
    return HybridInstance(
        (name, form), HybridGoal(uploads={form: files[name].encode()}), script, files, _simple(chance, Upload(form))
    )


@template("price", 'What is the price of "{}"? Finish with the number.', "medium", 8)
def _price(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance)
    name = chance.choice(sorted(shop.prices))
    answer = str(shop.prices[name])
    return HybridInstance((name,), HybridGoal(answer=answer), (ClickOn(name), Finished(content=answer)), web=shop.web())


@template("maker-city", 'In which city is the maker of "{}"? Finish with its name.', "medium", 10)
def _maker_city(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance)
    name = chance.choice(sorted(shop.prices))
    maker = shop.by[name]
    script = (ClickOn(name), ClickOn(f"Made by {maker}"), Finished(content=shop.makers[maker]))
    return HybridInstance((name,), HybridGoal(answer=shop.makers[maker]), script, web=shop.web())


@template("cheapest", 'Which product of the maker "{}" is the cheapest? Finish with its name.', "hard", 14)
def _cheapest(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance, 8, 3)
    maker = chance.choice(sorted(shop.makers))
    answer = min(shop.of(maker), key=lambda name: shop.prices[name])
    looks = [Navigate(content=name) for name in shop.of(maker)]
    return HybridInstance(
        (maker,), HybridGoal(answer=answer), (ClickOn(maker), *looks, Finished(content=answer)), web=shop.web()
    )


@template(
    "collect",
    'Write the names of all products of the maker "{}", one a line, by name, into "products.txt".',
    "hard",
    12,
)
def _collect(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance, 8, 3)
    maker = chance.choice(sorted(shop.makers))
    wanted = lines(shop.of(maker))
    script = (ClickOn(maker), WriteFile(path="products.txt", content=wanted))
    return HybridInstance((maker,), HybridGoal({"products.txt": wanted}), script, web=shop.web())


@template("price-list", 'Write "NAME,PRICE" of the products {}, one a line, by name, into "prices.csv".', "hard", 14)
def _price_list(chance: random.Random) -> HybridInstance:
    shop = _Shop(chance)
    chosen = sorted(chance.sample(sorted(shop.prices), 3))
    wanted = lines(f"{name},{shop.prices[name]}" for name in chosen)
    script = (*(Navigate(content=name) for name in chosen), WriteFile(path="prices.csv", content=wanted))
    return HybridInstance((", ".join(chosen),), HybridGoal({"prices.csv": wanted}), script, web=shop.web())


def _orders(chance: random.Random) -> list[tuple[str, int]]:
    return list(zip(words(chance, 9), chance.sample(range(1, 41), 9), strict=True))


def _worked(chance: random.Random, name: str, content: str, form: str) -> Web:
    return _simple(chance, Download(name, content.encode()), Upload(form))


@template(
    "sum-upload",
    'Download "orders.csv", write the sum of its column "count" into "{}", and upload that to "{}".',
    "hard",
    14,
)
def _sum_upload(chance: random.Random) -> HybridInstance:
    rows, out, form = _orders(chance), f"sum-{chance.randint(1, 9)}.txt", chance.choice(("Results", "Accounts"))
    script = (
        ClickOn("Download orders.csv"),
        Terminal(command=f"awk -F, 'NR>1{{s+=$2}}END{{print s}}' {DOWNLOADS}/orders.csv > {out}"),
        ClickOn(".."), ClickOn(out), ClickOn("browser"), ClickOn(f"Upload {out} to {form}"),
    )  # fmt: skip
    goal = HybridGoal(uploads={form: str(sum(count for _, count in rows))})
    return HybridInstance(
        (out, form), goal, script, web=_worked(chance, "orders.csv", csv(("name", "count"), rows), form)
    )


@template(
    "filter-upload",
    'Download "orders.csv", keep the header and the rows with a count above {}, and upload them to "{}".',
    "hard",
    14,
)
def _filter_upload(chance: random.Random) -> HybridInstance:
    rows, form = _orders(chance), chance.choice(("Results", "Large orders"))
    least = limit(chance, [count for _, count in rows])
    wanted = csv(("name", "count"), [row for row in rows if row[1] > least])
    script = (
        ClickOn("Download orders.csv"),
        Terminal(command=f"cd {DOWNLOADS} && awk -F, 'NR==1||$2>{least}' orders.csv > large.csv"),
        ClickOn("large.csv"), ClickOn("browser"), ClickOn(f"Upload {DOWNLOADS}/large.csv to {form}"),
    )  # fmt: skip
    web = _worked(chance, "orders.csv", csv(("name", "count"), rows), form)
    return HybridInstance((least, form), HybridGoal(uploads={form: wanted}), script, web=web)


@template("sort-upload", 'Download "names.txt", sort its lines, and upload the sorted file to "{}".', "hard", 14)
def _sort_upload(chance: random.Random) -> HybridInstance:
    each, form = words(chance, 10), chance.choice(("Sorted", "Lists"))
    script = (
        ClickOn("Download names.txt"),
        Terminal(command=f"sort {DOWNLOADS}/names.txt > {DOWNLOADS}/sorted.txt"),
        ClickOn("sorted.txt"), ClickOn("browser"), ClickOn(f"Upload {DOWNLOADS}/sorted.txt to {form}"),
    )  # fmt: skip
    web = _worked(chance, "names.txt", lines(each), form)
    return HybridInstance((form,), HybridGoal(uploads={form: lines(sorted(each))}), script, web=web)
