"""Define tasks with spreadsheets as CSV: sum, filter, sort, group, join."""

import random
from collections.abc import Sequence

from environments.hybrid.tasks.task import (
    CITIES,
    REGIONS,
    Family,
    HybridGoal,
    HybridInstance,
    csv,
    limit,
    lines,
    person,
    words,
)
from schemas.action import Terminal, WriteFile

FAMILY = Family("tables")
template = FAMILY.template
OUT, SALES = "result.csv", "sales.csv"
HEADER = ("id", "product", "region", "quantity", "price")
Row = tuple[int, str, str, int, int]


def _sales(chance: random.Random, count: int = 14) -> list[Row]:
    """Draws rows with distinct ids and prices, so that every order and every maximum is unique. Some prices have two
    digits and some three, so that their order differs from that of their texts."""
    products = words(chance, 5)
    prices = [*chance.sample(range(20, 100), count - 2), *chance.sample(range(100, 200), 2)]
    chance.shuffle(prices)
    return [
        (101 + at, chance.choice(products), chance.choice(REGIONS), chance.randint(1, 9), price)
        for at, price in enumerate(prices)
    ]


def _awk(program: str, out: str = OUT) -> tuple[Terminal, ...]:
    return (Terminal(command=f"awk -F, '{program}' {SALES} > {out}"),)


def _table(rows: Sequence[Sequence[object]], header: Sequence[str] = HEADER) -> HybridGoal:
    return HybridGoal({OUT: csv(header, rows)})


def _made(
    words_: tuple[object, ...], goal: HybridGoal, script: tuple[Terminal, ...], rows: Sequence[Row]
) -> HybridInstance:
    return HybridInstance(words_, goal, script, {SALES: csv(HEADER, rows)})


@template("sum", 'Write the sum of the column "{}" of "sales.csv" into "result.txt".', "medium", 8)
def _sum(chance: random.Random) -> HybridInstance:
    rows, column = _sales(chance), chance.choice((3, 4))
    goal = HybridGoal({"result.txt": str(sum(int(row[column]) for row in rows))})
    return _made((HEADER[column],), goal, _awk(f"NR>1{{s+=${column + 1}}}END{{print s}}", "result.txt"), rows)


@template("mean", 'Write the mean of the column "price" of "{}", with two decimals, into "result.txt".', "medium", 8)
def _mean(chance: random.Random) -> HybridInstance:
    rows = _sales(chance, 7)  # a mean of seven never has two possible roundings
    goal = HybridGoal({"result.txt": f"{sum(row[4] for row in rows) / len(rows):.2f}"})
    return _made((SALES,), goal, _awk('NR>1{s+=$5}END{printf "%.2f\\n",s/(NR-1)}', "result.txt"), rows)


@template("highest", 'Write the product of the row of "{}" with the highest price into "result.txt".', "medium", 8)
def _highest(chance: random.Random) -> HybridInstance:
    rows = _sales(chance)
    goal = HybridGoal({"result.txt": max(rows, key=lambda row: row[4])[1]})
    return _made((SALES,), goal, _awk("NR>1&&$5>m{m=$5;p=$2}END{print p}", "result.txt"), rows)


@template(
    "filter", 'Write the rows of "sales.csv" whose price is above {}, with the header, into "result.csv".', "medium", 8
)
def _filter(chance: random.Random) -> HybridInstance:
    rows = _sales(chance)
    least = limit(chance, [row[4] for row in rows])
    kept = [row for row in rows if row[4] > least]
    return _made((least,), _table(kept), _awk(f"NR==1||$5>{least}"), rows)


@template(
    "region", 'Write the rows of "sales.csv" of the region "{}", with the header, into "result.csv".', "medium", 8
)
def _region(chance: random.Random) -> HybridInstance:
    rows = _sales(chance)
    region = chance.choice(rows)[2]
    return _made((region,), _table([row for row in rows if row[2] == region]), _awk(f'NR==1||$3=="{region}"'), rows)


@template("columns", 'Write the columns "{}" and "{}" of "sales.csv", in this order, into "result.csv".', "medium", 8)
def _columns(chance: random.Random) -> HybridInstance:
    rows = _sales(chance, 8)
    one, other = chance.sample(range(5), 2)
    goal = _table([(row[one], row[other]) for row in rows], (HEADER[one], HEADER[other]))
    return _made((HEADER[one], HEADER[other]), goal, _awk(f'{{print ${one + 1} "," ${other + 1}}}'), rows)


@template("sort", 'Sort the rows of "sales.csv" by price, {} first, below the header, into "result.csv".', "hard", 8)
def _sort(chance: random.Random) -> HybridInstance:
    rows, falling = _sales(chance, 9), chance.random() < 0.5
    goal = _table(sorted(rows, key=lambda row: row[4], reverse=falling))
    command = f"head -n 1 {SALES} > {OUT}; tail -n +2 {SALES} | sort -t, -k5,5n{'r' if falling else ''} >> {OUT}"
    return _made(("highest" if falling else "lowest",), goal, (Terminal(command=command),), rows)


@template("add-column", 'Add to "{}" a last column "total", quantity times price, into "result.csv".', "hard", 8)
def _add_column(chance: random.Random) -> HybridInstance:
    rows = _sales(chance, 8)
    goal = _table([(*row, row[3] * row[4]) for row in rows], (*HEADER, "total"))
    return _made((SALES,), goal, _awk('NR==1{print $0 ",total";next}{print $0 "," $4*$5}'), rows)


@template(
    "group", 'For each region of "{}", by name, write a line "REGION,QUANTITY" (summed) into "result.txt".', "hard", 8
)
def _group(chance: random.Random) -> HybridInstance:
    rows = _sales(chance)
    totals = {region: sum(row[3] for row in rows if row[2] == region) for region in sorted({row[2] for row in rows})}
    command = f"awk -F, 'NR>1{{t[$3]+=$4}}END{{for(r in t)print r \",\" t[r]}}' {SALES} | sort > result.txt"
    goal = HybridGoal({"result.txt": lines(f"{region},{total}" for region, total in totals.items())})
    return _made((SALES,), goal, (Terminal(command=command),), rows)


@template(
    "no-copies",
    'Some rows of "{}" stand there twice. Write it without their second copies, else as it is, into "result.csv".',
    "medium",
    8,
)
def _no_copies(chance: random.Random) -> HybridInstance:
    rows = _sales(chance, 8)
    doubled = rows + chance.sample(rows, 3)
    chance.shuffle(doubled)
    return _made((SALES,), _table(list(dict.fromkeys(doubled))), _awk("!seen[$0]++"), doubled)


@template(
    "join",
    'Write "person,city" for each row of "people.csv", the city from "cities.csv" by "{}", into "result.csv".',
    "hard",
    10,
)
def _join(chance: random.Random) -> HybridInstance:
    cities = {f"c{number}": city for number, city in enumerate(chance.sample(CITIES, 5), 1)}
    people = [(person(chance), chance.choice(sorted(cities))) for _ in range(7)]
    files = {
        "people.csv": csv(("person", "city_id"), people),
        "cities.csv": csv(("city_id", "city"), list(cities.items())),
    }
    script = (
        WriteFile(
            path="join.awk",
            content='BEGIN{FS=OFS=","}NR==FNR{c[$1]=$2;next}FNR==1{print "person,city";next}{print $1,c[$2]}\n',
        ),
        Terminal(command=f"awk -f join.awk cities.csv people.csv > {OUT}"),
    )
    goal = HybridGoal({OUT: csv(("person", "city"), [(name, cities[city]) for name, city in people])})
    return HybridInstance(("city_id",), goal, script, files)
