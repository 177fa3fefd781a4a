"""What the tools of the recorded run saw: the files of a small tea shop, its tests' output, a price list, a log.

Made up for `record_agent_run.py`; nothing here is run.
"""

from __future__ import annotations

import json

TEAS = (
    ("LJ-01", "西湖龙井", "West Lake Longjing", "green", 168.0),
    ("BLC-02", "洞庭碧螺春", "Biluochun", "green", 142.0),
    ("MF-03", "黄山毛峰", "Huangshan Maofeng", "green", 96.0),
    ("TGY-04", "安溪铁观音", "Tieguanyin", "oolong", 118.0),
    ("DHP-05", "武夷大红袍", "Da Hong Pao", "oolong", 236.0),
    ("FH-06", "凤凰单丛", "Phoenix Dancong", "oolong", 188.0),
    ("ZS-07", "正山小种", "Lapsang Souchong", "black", 88.0),
    ("QM-08", "祁门红茶", "Keemun", "black", 102.0),
    ("DH-09", "滇红金芽", "Dianhong Golden Buds", "black", 110.0),
    ("BH-10", "白毫银针", "Silver Needle", "white", 260.0),
    ("BMD-11", "白牡丹", "White Peony", "white", 128.0),
    ("PE-12", "普洱熟饼", "Ripe Pu'er Cake", "dark", 198.0),
)

INVENTORY = '''"""Stock of the shop: how many grams of each tea lie on the shelf, and what was promised to whom."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    sku: str
    on_hand: int      # grams
    reserved: int     # grams promised to open orders

    @property
    def available(self) -> int:
        return self.on_hand - self.reserved


class Inventory:
    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def level(self, sku: str) -> Level:
        row = self.db.execute(
            "SELECT on_hand, reserved FROM stock WHERE sku = ?", (sku,)
        ).fetchone()
        if row is None:
            raise KeyError(sku)
        return Level(sku, row[0], row[1])

    def levels(self) -> list[Level]:
        rows = self.db.execute("SELECT sku, on_hand, reserved FROM stock ORDER BY sku")
        return [Level(*row) for row in rows]

    def reserve(self, sku: str, grams: int) -> None:
        level = self.level(sku)
        if level.available < grams:
            raise OutOfStock(sku, level.available, grams)
        self.db.execute("UPDATE stock SET reserved = reserved + ? WHERE sku = ?", (grams, sku))

    def release(self, sku: str, grams: int) -> None:
        self.db.execute("UPDATE stock SET reserved = reserved - ? WHERE sku = ?", (grams, sku))

    def ship(self, sku: str, grams: int) -> None:
        """The parcel has left: the grams are gone, and no longer promised."""
        self.db.execute("UPDATE stock SET on_hand = on_hand - ? WHERE sku = ?", (grams, sku))

    def receive(self, sku: str, grams: int) -> None:
        self.db.execute("UPDATE stock SET on_hand = on_hand + ? WHERE sku = ?", (grams, sku))


class OutOfStock(Exception):
    def __init__(self, sku: str, available: int, wanted: int) -> None:
        super().__init__(f"{sku}: {wanted} g wanted, {available} g available")
        self.sku = sku
'''

ORDERS = '''"""Orders: placed, paid, packed, shipped, or cancelled at any point before shipping."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timezone

from tea_shop.inventory import Inventory

OPEN = ("placed", "paid", "packed")


class Orders:
    def __init__(self, db: sqlite3.Connection, inventory: Inventory) -> None:
        self.db = db
        self.inventory = inventory

    def place(self, customer: str, lines: list[tuple[str, int]]) -> int:
        with self.db:
            for sku, grams in lines:
                self.inventory.reserve(sku, grams)
            now = datetime.now(timezone.utc).isoformat()
            cursor = self.db.execute(
                "INSERT INTO orders (customer, state, placed_at) VALUES (?, 'placed', ?)", (customer, now)
            )
            order = int(cursor.lastrowid or 0)
            self.db.executemany(
                "INSERT INTO order_lines (order_id, sku, grams) VALUES (?, ?, ?)",
                [(order, sku, grams) for sku, grams in lines],
            )
        return order

    def cancel(self, order: int) -> None:
        with self.db:
            for sku, grams in self.lines(order):
                self.inventory.release(sku, grams)
            self.db.execute("UPDATE orders SET state = 'cancelled' WHERE id = ?", (order,))

    def ship(self, order: int) -> None:
        with self.db:
            for sku, grams in self.lines(order):
                self.inventory.release(sku, grams)
                self.inventory.ship(sku, grams)
            self.db.execute("UPDATE orders SET state = 'shipped' WHERE id = ?", (order,))

    def lines(self, order: int) -> list[tuple[str, int]]:
        return list(self.db.execute("SELECT sku, grams FROM order_lines WHERE order_id = ?", (order,)))
'''

BOOKING = '''"""预约: 一张茶席在一个时段只能有一位客人。 Tastings: one party, one table, one slot."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta

TABLES = {"竹": 4, "兰": 4, "梅": 2, "菊": 6}
SLOT = timedelta(minutes=90)


class TableTaken(Exception):
    pass


@dataclass(frozen=True)
class Booking:
    id: int
    table: str
    guest: str
    party: int
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + SLOT


class Bookings:
    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def free(self, start: datetime, party: int) -> list[str]:
        """能坐下这么多人, 且这个时段还空着的茶席。"""
        taken = {
            row[0]
            for row in self.db.execute(
                "SELECT tea_table FROM bookings WHERE start = ? AND state = 'held'", (start.isoformat(),)
            )
        }
        return [table for table, seats in TABLES.items() if seats >= party and table not in taken]

    def book(self, table: str, guest: str, party: int, start: datetime) -> int:
        if table not in self.free(start, party):
            raise TableTaken(f"{table} {start:%m-%d %H:%M}")
        with self.db:
            cursor = self.db.execute(
                "INSERT INTO bookings (tea_table, guest, party, start, state) VALUES (?, ?, ?, ?, 'held')",
                (table, guest, party, start.isoformat()),
            )
        return int(cursor.lastrowid or 0)

    def cancel(self, booking: int) -> None:
        with self.db:
            self.db.execute("UPDATE bookings SET state = 'cancelled' WHERE id = ?", (booking,))
'''

TREE = """tea_shop/
  __init__.py
  inventory.py      58 lines
  orders.py         49 lines
  booking.py        57 lines
  prices.py         41 lines
  web/app.py       133 lines
  web/templates/   stock.html bookings.html base.html
tests/
  test_inventory.py test_orders.py test_booking.py test_prices.py
data/
  shop.db  suppliers.toml  schema.sql
pyproject.toml  README.md  预约规则.md"""

SCHEMA = """CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand INTEGER NOT NULL, reserved INTEGER NOT NULL DEFAULT 0);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, state TEXT NOT NULL, placed_at TEXT NOT NULL);
CREATE TABLE order_lines (order_id INTEGER REFERENCES orders, sku TEXT REFERENCES stock, grams INTEGER NOT NULL);
CREATE TABLE bookings (id INTEGER PRIMARY KEY, tea_table TEXT, guest TEXT, party INTEGER, start TEXT, state TEXT);
CREATE TABLE prices (sku TEXT REFERENCES stock, per_50g REAL NOT NULL, valid_from TEXT NOT NULL, source TEXT);"""

RULES = """# 预约规则

1. 每个时段九十分钟，前后两位客人之间不留空档。
2. 时段可以从任何一刻钟开始：10:00、10:15、10:30……最后一席 20:30。
3. 一张茶席在同一时刻只能有一位客人。**时段有重叠就算冲突**，不是只有开始时间相同才算。
4. 四人以上请安排「菊」；两人优先安排「梅」。
5. 客人迟到二十分钟以上，可以释放茶席，但要先打电话。
6. 取消的预约不占茶席，但要保留记录，月底对账要用。"""

PRICES = '''"""Prices: in yuan for 50 grams, each with the day from which it holds."""

from __future__ import annotations

import sqlite3
from datetime import date


class Prices:
    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def current(self, sku: str, on: date) -> float:
        row = self.db.execute(
            "SELECT per_50g FROM prices WHERE sku = ? AND valid_from <= ? ORDER BY valid_from DESC LIMIT 1",
            (sku, on.isoformat()),
        ).fetchone()
        if row is None:
            raise KeyError(f"no price for {sku} on {on}")
        return float(row[0])

    def set(self, sku: str, per_50g: float, valid_from: date, source: str) -> None:
        if per_50g <= 0:
            raise ValueError(f"{sku}: {per_50g} is no price")
        self.db.execute(
            "INSERT INTO prices (sku, per_50g, valid_from, source) VALUES (?, ?, ?, ?)",
            (sku, per_50g, valid_from.isoformat(), source),
        )
'''

MAIL = '''"""Mail to guests and customers: written to a queue in the same transaction, sent by a worker."""

from __future__ import annotations

import smtplib
import sqlite3
import time
from email.message import EmailMessage


class Outbox:
    def __init__(self, db: sqlite3.Connection, host: str) -> None:
        self.db = db
        self.host = host

    def put(self, to: str, subject: str, text: str) -> None:
        self.db.execute("INSERT INTO outbox (recipient, subject, text, state) VALUES (?, ?, ?, 'new')", (to, subject, text))

    def send_all(self) -> int:
        """Send what is new, oldest first; how many went out."""
        sent = 0
        for number, to, subject, text in self.db.execute(
            "SELECT id, recipient, subject, text FROM outbox WHERE state = 'new' ORDER BY id"
        ).fetchall():
            message = EmailMessage()
            message["To"], message["Subject"] = to, subject
            message["From"] = "茶铺 <hello@yunwu.example.com>"
            message.set_content(text)
            try:
                with smtplib.SMTP(self.host, timeout=30) as server:
                    server.send_message(message)
            except OSError:
                time.sleep(60)
                continue
            with self.db:
                self.db.execute("UPDATE outbox SET state = 'sent' WHERE id = ?", (number,))
            sent += 1
        return sent
'''

STOCK_PAGE = """{% extends "base.html" %}
{% block title %}Stock{% endblock %}
{% block content %}
<h1>Stock</h1>
<p class="note">Updated every minute. Numbers are grams; what is promised to open orders is not available.</p>
<table class="stock">
  <thead>
    <tr><th>Tea</th><th>Kind</th><th class="n">On hand</th><th class="n">Promised</th><th class="n">Available</th></tr>
  </thead>
  <tbody>
  {% for level in levels %}
    <tr class="{{ 'low' if level.available < 500 else '' }}">
      <td><a href="/teas/{{ level.sku }}">{{ teas[level.sku].name_en }}</a></td>
      <td>{{ teas[level.sku].kind }}</td>
      <td class="n">{{ level.on_hand }}</td>
      <td class="n">{{ level.reserved }}</td>
      <td class="n">{{ level.available }}</td>
    </tr>
  {% else %}
    <tr><td colspan="5">There is no tea. This cannot be.</td></tr>
  {% endfor %}
  </tbody>
</table>
{% if low %}
<p class="warning">Low: {{ low | map(attribute="sku") | join(", ") }}. Order before {{ next_delivery }}.</p>
{% endif %}
{% endblock %}"""

WORDS = """[zh]
stock = "库存"
on_hand = "在库"
promised = "已预订"
available = "可售"
updated = "每分钟更新。单位为克；已预订的不可售。"
low = "库存偏低"
order_before = "请在 {date} 前补货"
green = "绿茶"
oolong = "乌龙茶"
black = "红茶"
white = "白茶"
dark = "黑茶"

[en]
stock = "Stock"
on_hand = "On hand"
promised = "Promised"
available = "Available"
updated = "Updated every minute, in grams; what is promised is not available."
low = "Low"
order_before = "Order before {date}"
green = "green"
oolong = "oolong"
black = "black"
white = "white"
dark = "dark"
"""


def mail_log(lines: int = 30) -> str:
    rows = []
    for number in range(lines):
        minute = 4 + number * 2 % 50
        if number % 5 == 2:
            text = (
                f"outbox[88] 4{number:02d}: connection to mail.example.com timed out after 30 s; waiting 60 s"
            )
        else:
            text = f"outbox[88] 4{number:02d}: sent to guest{number * 3 % 17}@example.com in {180 + number * 11 % 90} ms"
        rows.append(f"2025-11-14T09:{minute:02d}:{number * 17 % 60:02d}Z {text}")
    return "\n".join(rows)


def passed(*names: str, seconds: float) -> str:
    lines = [
        "============================= test session starts =============================",
        "collected 31 items",
        "",
    ]
    lines += [
        f"tests/test_{name}.py {'.' * count} [{share:>3}%]"
        for name, count, share in zip(
            ("booking", "inventory", "orders", "prices"), (9, 8, 8, 6), (29, 54, 80, 100), strict=True
        )
    ]
    lines += ["", *(f"  new: {name} PASSED" for name in names), ""]
    return "\n".join(
        [*lines, f"============================= 31 passed in {seconds:.2f}s ============================="]
    )


def failed(test: str, code: str, error: str, seconds: float) -> str:
    return f"""============================= test session starts =============================
collected 31 items

tests/test_booking.py .........                                          [ 29%]
tests/test_inventory.py ........                                         [ 54%]
tests/test_orders.py .....F..                                            [ 80%]
tests/test_prices.py ......                                              [100%]

================================== FAILURES ===================================
{test:_^79}

{code}
E   {error}

=========================== short test summary info ===========================
FAILED tests/{test} - {error}
======================== 1 failed, 30 passed in {seconds:.2f}s ========================="""


def price_list(count: int = 84) -> str:
    """The supplier's answer: one object a lot, far more than the shop sells."""
    lots = []
    for number in range(count):
        sku, chinese, english, kind, price = TEAS[number % len(TEAS)]
        harvest = 2021 + number // len(TEAS) % 5
        lots.append(
            {
                "lot": f"YW-{harvest}-{number:04d}",
                "sku": sku,
                "name": {"zh": chinese, "en": english},
                "kind": kind,
                "harvest": harvest,
                "unit": "liang",
                "price": round(price * (1 + (number * 7 % 11 - 5) / 100), 2),
                "min_order": (1 + number % 4) * 5,
                "in_stock": number % 9 != 0,
            }
        )
    return json.dumps({"supplier": "云雾茶业", "currency": "CNY", "lots": lots}, ensure_ascii=False)


def stock_table(wrong: bool) -> str:
    rows = ["sku     | name                 | on_hand | reserved | available"]
    for number, (sku, _, english, _, _) in enumerate(TEAS):
        on_hand = 4_000 - number * 250
        reserved = 300 + number * 40
        if wrong and sku == "LJ-01":
            on_hand, reserved = 150, 1_150
        rows.append(f"{sku:<7} | {english:<20} | {on_hand:>7,} | {reserved:>8,} | {on_hand - reserved:>9,}")
    return "\n".join(rows)


def access_log(lines: int = 36) -> str:
    rows = []
    for number in range(lines):
        second = number * 7 % 60
        path = ("/stock", "/bookings", "/orders/new", "/api/levels?sku=LJ-01")[number % 4]
        status = 500 if number % 12 == 7 else 200
        time = 2300 + number % 5 * 37 if path.startswith("/api") else 18 + number % 9
        rows.append(
            f'2025-11-14T10:{12 + number // 9:02d}:{second:02d}Z web[211] "GET {path}" {status} {time}ms'
        )
    return "\n".join(rows)


def orders_table(lines: int = 40) -> str:
    rows = ["id   | 客人 | state     | sku    | grams | placed_at"]
    guests = ("王丽", "陈晨", "Anna", "李雷", "Marco", "赵敏", "周洲")
    states = ("shipped", "shipped", "paid", "cancelled", "packed")
    for number in range(lines):
        sku = TEAS[number * 5 % len(TEAS)][0]
        rows.append(
            f"{1180 + number:<4} | {guests[number % 7]} | {states[number % 5]:<9} | {sku:<6} | "
            f"{50 + number * 50 % 300:>5} | 2025-11-{8 + number // 8:02d}T{9 + number % 10:02d}:{number * 13 % 60:02d}"
        )
    return "\n".join(rows)
