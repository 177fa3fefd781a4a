"""Writes `agent_run.jsonl`: an agent at work in a small tea shop's project, as its log would have recorded it.

    python examples/record_agent_run.py

Made up, the same at each run, and broken where real logs are: a call with torn arguments, a call that was interrupted
and never answered, a result delivered twice, a user who writes twice, ids that a server numbers anew in each turn.
`agent_tools.json` are the tools that the agent had.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tea_shop_files as shop

HERE = Path(__file__).resolve().parent

SYSTEM = """You are the engineer of 云雾茶铺 (Yunwu Tea), a small shop in Hangzhou that sells tea by weight and takes \
bookings for tastings. You work in its repository with the tools you are given.

- Answer in the language of the message. 用户写中文，就用中文回答。
- Read before you change. Run the tests after each change, and say what they said.
- Stock is kept in grams. 一两是五十克。Prices are in yuan for 50 grams.
- Never touch data/shop.db but through the shop's own functions, and never import anything without a dry run first.
- Rules of the house are in 预约规则.md; where code and rules differ, the rules are right.
- Be brief: what was wrong, what you changed, what is left to do."""


def tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool(
        "list_files",
        "List the files of the repository under a folder.",
        folder="Path of the folder, . for all",
    ),
    tool("read_file", "Read a text file of the repository.", path="Path from the repository's root"),
    tool("search", "Search the repository for a word or a regular expression.", pattern="What to look for"),
    tool(
        "edit_file",
        "Replace one passage of a file.",
        path="The file",
        old="The passage as it is",
        new="As it shall be",
    ),
    tool("run_tests", "Run the tests; all, or those whose name holds a word.", select="A word, or nothing"),
    tool("query", "Run a read-only SQL query against data/shop.db.", sql="One SELECT statement"),
    tool("http_get", "Fetch a URL of the suppliers that data/suppliers.toml lists.", url="The URL"),
    tool(
        "import_prices",
        "Put a fetched price list into the shop's database.",
        source="Where it came from",
        dry_run="yes or no",
    ),
]


class Recording:
    """Messages in the order in which a client would have appended them."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
        self._calls = 0
        self._numbered = False

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def says(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    def numbered_from_zero(self) -> None:
        """From here on the server numbers the calls of each response from zero, as some do."""
        self._numbered = True

    def calls(self, *calls: tuple[str, dict[str, str] | str], text: str | None = None) -> list[str]:
        """One response with its calls; arguments given as a string are recorded as they are."""
        made = []
        for number, (name, arguments) in enumerate(calls):
            self._calls += 1
            call_id = f"call_{number}" if self._numbered else f"call_{self._calls * 7919 % 100_000:05d}"
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            made.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": written}})
        self.messages.append({"role": "assistant", "content": text, "tool_calls": made})
        return [call["id"] for call in made]

    def result(self, call_id: str, content: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def step(self, *calls: tuple[str, dict[str, str], str], text: str | None = None) -> None:
        """A response with its calls, and all their results."""
        ids = self.calls(*((name, arguments) for name, arguments, _ in calls), text=text)
        for call_id, (_, _, content) in zip(ids, calls, strict=True):
            self.result(call_id, content)


def record() -> list[dict[str, Any]]:
    run = Recording()
    negative_stock(run)
    double_bookings(run)
    price_list(run)
    interrupted_import(run)
    run.numbered_from_zero()
    slow_page(run)
    late_mail(run)
    two_languages(run)
    weekly_report(run)
    closing(run)
    return run.messages


def negative_stock(run: Recording) -> None:
    run.user(
        "The stock page shows minus 1,000 g of Longjing since yesterday. Please find out why, and mend it."
    )
    run.step(
        ("list_files", {"folder": "."}, shop.TREE),
        ("query", {"sql": "SELECT * FROM stock"}, shop.stock_table(wrong=True)),
        text="Let me look at the project and at the stock itself.",
    )
    run.step(
        ("read_file", {"path": "tea_shop/inventory.py"}, shop.INVENTORY),
        ("read_file", {"path": "tea_shop/orders.py"}, shop.ORDERS),
    )
    run.step(("query", {"sql": "SELECT * FROM orders JOIN order_lines"}, shop.orders_table()))
    run.step(
        (
            "search",
            {"pattern": r"\.cancel\("},
            "tea_shop/web/app.py:88:    orders.cancel(order)\ntests/test_orders.py:41:    orders.cancel(order)",
        ),
        (
            "search",
            {"pattern": r"state.*cancelled"},
            "tea_shop/orders.py:41:  \"UPDATE orders SET state = 'cancelled' WHERE id = ?\"",
        ),
    )
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/orders.py",
                "old": "        with self.db:\n            for sku, grams in self.lines(order):\n                self.inventory.release(sku, grams)\n            self.db.execute(\"UPDATE orders SET state = 'cancelled'",
                "new": "        with self.db:\n            if self.state(order) not in OPEN:\n                raise NotOpen(order)\n            for sku, grams in self.lines(order):\n                self.inventory.release(sku, grams)\n            self.db.execute(\"UPDATE orders SET state = 'cancelled'",
            },
            "1 passage replaced in tea_shop/orders.py",
        ),
        text="An order can be cancelled twice, and after it was shipped: each time its grams are released again.",
    )
    run.step(
        (
            "run_tests",
            {"select": ""},
            shop.failed(
                "test_orders.py::test_cancel_twice_releases_once",
                "    def test_cancel_twice_releases_once(shop):\n        order = shop.orders.place('Anna', [('LJ-01', 200)])\n        shop.orders.cancel(order)\n>       with pytest.raises(NotOpen):",
                "NameError: name 'NotOpen' is not defined",
                1.92,
            ),
        )
    )
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/orders.py",
                "old": 'OPEN = ("placed", "paid", "packed")\n',
                "new": 'OPEN = ("placed", "paid", "packed")\n\n\nclass NotOpen(Exception):\n    """The order is cancelled or shipped already."""\n',
            },
            "1 passage replaced in tea_shop/orders.py",
        ),
        (
            "edit_file",
            {
                "path": "tea_shop/orders.py",
                "old": "    def lines(self",
                "new": '    def state(self, order: int) -> str:\n        return str(self.db.execute("SELECT state FROM orders WHERE id = ?", (order,)).fetchone()[0])\n\n    def lines(self',
            },
            "1 passage replaced in tea_shop/orders.py",
        ),
    )
    run.step(("run_tests", {"select": ""}, shop.passed("test_cancel_twice_releases_once", seconds=1.88)))
    run.says(
        "The cause: `Orders.cancel` released the grams of an order again each time it was called, also after shipping. "
        "Order 1183 was cancelled three times by an impatient double click. It now refuses what is no longer open "
        "(`NotOpen`); 31 tests pass. Left to do: the 1,000 g in the database must be put right by hand, once."
    )


def double_bookings(run: Recording) -> None:
    run.user("另外，周六下午「竹」那张茶席被两拨客人同时订了：14:00 一拨，14:30 一拨。预约模块是不是有漏洞？")
    run.step(
        ("read_file", {"path": "tea_shop/booking.py"}, shop.BOOKING),
        ("read_file", {"path": "预约规则.md"}, shop.RULES),
        (
            "search",
            {"pattern": "start = "},
            "tea_shop/booking.py:41:  \"SELECT tea_table FROM bookings WHERE start = ? AND state = 'held'\"",
        ),
    )
    torn = '{"path": "tea_shop/booking.py", "old": "WHERE start = ? AND state = \'held\'", "new": "WHERE start < ? AND'
    (call,) = run.calls(("edit_file", torn), text="问题找到了：只比较开始时间是否相同，没有检查时段重叠。")
    run.result(call, "error: the arguments are no valid JSON (unterminated string at column 73)")
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/booking.py",
                "old": "WHERE start = ? AND state = 'held'\", (start.isoformat(),)",
                "new": "WHERE start < ? AND start > ? AND state = 'held'\",\n                ((start + SLOT).isoformat(), (start - SLOT).isoformat()),",
            },
            "1 passage replaced in tea_shop/booking.py",
        )
    )
    (call,) = run.calls(("run_tests", {"select": "booking"}))
    report = shop.passed("test_overlapping_slots_conflict", "test_back_to_back_is_fine", seconds=0.71)
    run.result(call, report)
    run.result(call, report)  # the worker lost its connection and delivered once more
    run.says(
        "确实有漏洞：`free()` 只看开始时间是否相同，所以 14:00 和 14:30 不算冲突。按《预约规则》第 3 条，时段重叠就是冲突。"
        "已改为检查重叠；前一席 14:00–15:30、后一席 15:30 开始仍然可以。预约测试全部通过。"
        "周六的两位客人需要您打电话协调：「兰」在 14:30 还空着，也是四人席。"
    )
    run.user("好的，我打电话。")
    run.user("以后 14:30 这种情况，页面上应该直接推荐空着的茶席，记一下，下周再做。")
    run.says("记下了：预约冲突时，在页面上推荐同一时段、坐得下的空席，下周做。")


def price_list(run: Recording) -> None:
    run.user(
        "Now fetch the supplier's new price list and tell me which of our twelve teas get dearer. Don't import it yet."
    )
    run.step(
        (
            "read_file",
            {"path": "data/suppliers.toml"},
            '[yunwu]\nname = "云雾茶业"\nprices = "https://prices.example.com/v2/lots.json"\nunit = "liang"   # 一两 = 50 g\n',
        ),
        ("read_file", {"path": "tea_shop/prices.py"}, shop.PRICES),
    )
    run.step(("http_get", {"url": "https://prices.example.com/v2/lots.json"}, shop.price_list()))
    run.step(
        (
            "query",
            {"sql": "SELECT sku, per_50g, valid_from FROM prices ORDER BY sku"},
            "\n".join(f"{sku:<7} | {price * 0.98:>7.2f} | 2025-05-01" for sku, _, _, _, price in shop.TEAS),
        )
    )
    run.says(
        "Of 84 lots, those of this year's harvest for our twelve teas: dearer are Da Hong Pao (+4 %), Silver Needle (+3 %) "
        "and Longjing (+2 %); cheaper are Keemun (−2 %) and Tieguanyin (−1 %); the others stay within one per cent. "
        "The list is priced by the liang, which is our 50 g, so no conversion is needed. Nothing was imported."
    )


def interrupted_import(run: Recording) -> None:
    run.user("Good. Import the prices of this year's harvest, valid from the first of December.")
    run.step(
        (
            "import_prices",
            {"source": "yunwu", "dry_run": "yes"},
            "dry run: 12 prices would be set, 0 would be replaced, 72 lots skipped (older harvest)",
        )
    )
    run.calls(("import_prices", {"source": "yunwu", "dry_run": "no"}))
    # the program was stopped here: no result was ever recorded
    run.user("等等，先停一下！十二月一号之前的订单还要按旧价。导入有没有真的执行？")
    run.step(
        (
            "query",
            {"sql": "SELECT count(*), min(valid_from) FROM prices WHERE source = 'yunwu'"},
            "count(*) | min(valid_from)\n12       | 2025-12-01",
        )
    )
    run.says(
        "导入已经执行了：12 条价格已写入，但都从 2025-12-01 起生效。`Prices.current` 按日期取价，"
        "所以十二月一号之前的订单仍按旧价计算，不会受影响。无需回滚。"
    )


def slow_page(run: Recording) -> None:
    run.user(
        "The page /api/levels takes more than two seconds. Here is a piece of the log; what makes it slow?\n\n"
        + shop.access_log()
    )
    run.step(
        (
            "search",
            {"pattern": "api/levels"},
            'tea_shop/web/app.py:104:@app.get("/api/levels")\ntea_shop/web/app.py:105:def levels(sku: str) -> dict[str, int]:',
        ),
        ("read_file", {"path": "data/schema.sql"}, shop.SCHEMA),
    )
    run.step(
        (
            "read_file",
            {"path": "tea_shop/web/app.py"},
            (
                '@app.get("/api/levels")\ndef levels(sku: str) -> dict[str, int]:\n    orders = Orders(db, inventory)\n'
                '    promised = sum(\n        grams\n        for (order,) in db.execute("SELECT id FROM orders")\n'
                "        for line_sku, grams in orders.lines(order)\n        if line_sku == sku and orders.state(order) in OPEN\n    )\n"
                '    level = inventory.level(sku)\n    return {"on_hand": level.on_hand, "promised": promised}\n'
            ),
        )
    )
    run.step(("query", {"sql": "SELECT count(*) FROM order_lines"}, "count(*)\n48210"))
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/web/app.py",
                "old": "    promised = sum(…)",
                "new": "    promised = level.reserved",
            },
            "1 passage replaced in tea_shop/web/app.py",
        ),
        (
            "edit_file",
            {
                "path": "data/schema.sql",
                "old": "CREATE TABLE bookings",
                "new": "CREATE INDEX lines_by_order ON order_lines (order_id);\nCREATE TABLE bookings",
            },
            "1 passage replaced in data/schema.sql",
        ),
        text="It asks the database once for every order there ever was, twice.",
    )
    run.step(("run_tests", {"select": ""}, shop.passed("test_levels_asks_once", seconds=1.64)))
    run.says(
        "`/api/levels` read all 48,210 order lines with two queries an order, to find what `stock.reserved` holds already. "
        "It now reads that one number, and `order_lines` has an index for the other pages. 31 tests pass."
    )


def late_mail(run: Recording) -> None:
    run.user("Guests say that confirmations arrive an hour late. The worker's log is in logs/outbox.log.")
    run.step(
        ("read_file", {"path": "logs/outbox.log"}, shop.mail_log()),
        ("read_file", {"path": "tea_shop/mail.py"}, shop.MAIL),
        (
            "search",
            {"pattern": "send_all"},
            "tea_shop/worker.py:22:    outbox.send_all()\ntests/test_mail.py:31:    assert outbox.send_all() == 2",
        ),
    )
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/mail.py",
                "old": "            except OSError:\n                time.sleep(60)\n                continue\n",
                "new": "            except OSError:\n                self.later(number, seconds=60)\n                continue\n",
            },
            "1 passage replaced in tea_shop/mail.py",
        ),
        (
            "edit_file",
            {
                "path": "tea_shop/mail.py",
                "old": "    def send_all(self)",
                "new": '    def later(self, number: int, seconds: int) -> None:\n        """This one again after so many seconds; the others need not wait for it."""\n        with self.db:\n            self.db.execute("UPDATE outbox SET not_before = unixepoch() + ? WHERE id = ?", (seconds, number))\n\n    def send_all(self)',
            },
            "1 passage replaced in tea_shop/mail.py",
        ),
        text="One time-out holds up every mail behind it for 90 seconds, and a fifth of them time out.",
    )
    run.step(("run_tests", {"select": "mail"}, shop.passed("test_a_time_out_holds_up_nobody", seconds=0.44)))
    run.says(
        "The worker slept a minute after each time-out, with all other mail waiting behind it. A mail that fails is now put "
        "off by itself and the rest goes out; tests pass. Why a fifth of the connections time out is a question for the mail host."
    )


def two_languages(run: Recording) -> None:
    run.user("库存页面现在只有英文，店里的伙计看不惯。改成中英文都有，词条放在 words.toml 里。")
    run.step(
        ("read_file", {"path": "tea_shop/web/templates/stock.html"}, shop.STOCK_PAGE),
        ("read_file", {"path": "tea_shop/web/words.toml"}, shop.WORDS),
    )
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/web/templates/stock.html",
                "old": "<tr><th>Tea</th><th>Kind</th>…",
                "new": '<tr><th>{{ w.tea }}</th><th>{{ w.kind }}</th><th class="n">{{ w.on_hand }}</th><th class="n">{{ w.promised }}</th><th class="n">{{ w.available }}</th></tr>',
            },
            "1 passage replaced in tea_shop/web/templates/stock.html",
        ),
        (
            "edit_file",
            {
                "path": "tea_shop/web/words.toml",
                "old": '[zh]\nstock = "库存"\n',
                "new": '[zh]\nstock = "库存"\ntea = "茶名"\nkind = "茶类"\n',
            },
            "1 passage replaced in tea_shop/web/words.toml",
        ),
    )
    run.step(
        (
            "run_tests",
            {"select": "web"},
            shop.failed(
                "test_web.py::test_every_word_has_both_languages",
                "    def test_every_word_has_both_languages(words):\n>       assert set(words['zh']) == set(words['en'])",
                "AssertionError: assert {'tea', 'kind'} only in 'zh'",
                0.39,
            ),
        )
    )
    run.step(
        (
            "edit_file",
            {
                "path": "tea_shop/web/words.toml",
                "old": '[en]\nstock = "Stock"\n',
                "new": '[en]\nstock = "Stock"\ntea = "Tea"\nkind = "Kind"\n',
            },
            "1 passage replaced in tea_shop/web/words.toml",
        )
    )
    run.step(
        ("run_tests", {"select": "web"}, shop.passed("test_every_word_has_both_languages", seconds=0.41))
    )
    run.says(
        "库存页面已支持中英文，按浏览器语言显示，词条都在 `words.toml` 里。先漏了两条英文词条，被测试拦下，已补上；网页测试全部通过。"
    )


def weekly_report(run: Recording) -> None:
    run.user("请做一份本周的简报：各茶叶库存、本周订单、周末的预约。")
    run.step(
        ("query", {"sql": "SELECT * FROM stock ORDER BY sku"}, shop.stock_table(wrong=False)),
        ("query", {"sql": "SELECT * FROM orders WHERE placed_at >= '2025-11-10'"}, shop.orders_table(30)),
        (
            "query",
            {"sql": "SELECT * FROM bookings WHERE start >= '2025-11-15'"},
            "id | 茶席 | 客人 | 人数 | 开始 | 状态\n77 | 竹 | 王丽 | 4 | 11-15 14:00 | held\n78 | 兰 | Marco | 3 | 11-15 14:30 | held\n79 | 梅 | 陈晨 | 2 | 11-15 16:00 | held\n80 | 菊 | 赵敏 | 6 | 11-16 10:15 | held\n81 | 梅 | Anna | 2 | 11-16 15:30 | cancelled",
        ),
    )
    run.says(
        "本周简报（11 月 10–14 日）：\n1. 库存：十二种茶均为正数，可售最少的是普洱熟饼（510 克），建议补货。\n"
        "2. 订单：30 单，其中 12 单已发货，6 单已付款待发，6 单取消。\n"
        "3. 预约：周末五席，一席已取消；周六 14:00「竹」王丽四位，14:30「兰」Marco 三位，已错开。"
    )
    run.user("普洱的可售量再核对一下，我记得仓库里还有两饼没入账。")
    run.step(
        (
            "query",
            {"sql": "SELECT on_hand, reserved FROM stock WHERE sku = 'PE-12'"},
            "on_hand | reserved\n1250    | 740",
        ),
        ("search", {"pattern": "PE-12"}, 'tests/test_inventory.py:17:    ("PE-12", 357),   # 一饼 357 g'),
    )
    run.says(
        "账上普洱熟饼 1,250 克，已预订 740 克，可售 510 克。两饼是 714 克；若确实未入账，入账后可售 1,224 克。需要我登记入库吗？"
    )
    run.user("登记两饼，入库。")
    run.step(
        (
            "edit_file",
            {
                "path": "data/receipts.csv",
                "old": "sku,grams,on\n",
                "new": "sku,grams,on\nPE-12,714,2025-11-14\n",
            },
            "1 passage replaced in data/receipts.csv",
        )
    )
    run.step(("run_tests", {"select": "inventory"}, shop.passed("test_receipts_are_read_once", seconds=0.58)))
    run.says("已登记：PE-12 入库 714 克（两饼），库存测试通过。现在可售 1,224 克。")


def closing(run: Recording) -> None:
    run.user(
        "Last thing for today: what did we change this week, and what is left? I want to hand it to Chen Chen."
    )
    run.step(
        (
            "search",
            {"pattern": "TODO|下周"},
            "tea_shop/booking.py:46:    # TODO 下周: 推荐空席\nREADME.md:31:TODO: put the 1,000 g of LJ-01 right",
        )
    )
    run.says(
        "Changed: cancelling twice no longer releases twice; overlapping tastings conflict; December's prices are in; "
        "/api/levels reads one number; two cakes of Pu'er were received. "
        "Left: put LJ-01 right by hand (1,000 g); recommend a free table on conflict (next week)."
    )
    run.user("Thanks! 辛苦了。Did the price import really happen only once?")


def main() -> None:
    lines = [json.dumps(message, ensure_ascii=False) for message in record()]
    (HERE / "agent_run.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tools = json.dumps(TOOLS, ensure_ascii=False, indent=2)
    (HERE / "agent_tools.json").write_text(tools + "\n", encoding="utf-8")
    print(f"{len(lines)} messages written to {HERE / 'agent_run.jsonl'}")


if __name__ == "__main__":
    main()
