"""What the daemon finds by words, this device finds in its own files: one tokenizer, one order, one score."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.tools.question import question
from confide_proxy.offline.local_corpus import LocalIndex

LEAST = 0.25
MUST_AGREE = 0.95

NOTES = {
    "zh-pay": "# 支付\n\n- 支付超时的原因是连接池太小，我们把它加到五十。\n- 最大重试次数为三次。\n",
    "zh-order": "# 订单\n\n- 订单服务的端口是 8010。\n- GitHub备份脚本上传失败，改用每周运行。\n- SSH铁律：服务器只接受密钥登录。\n",
    "ja-log": "# ログ\n\n- ログは30日保存します。\n- JWTを選んだのは検証が速いからです。\n- 会議は東京駅の近くで行われる。\n",
    "ja-server": "# サーバー\n\n- サーバーの再起動は毎週日曜日です。\n- りんごのアイコンはデザイナーが作った。\n",
    "ko": unicodedata.normalize(
        "NFD", "# 배치\n\n- 배치 작업은 밤에 돈다.\n- 배포는 목요일에 합니다.\n- 휴가는 스무 날이다.\n"
    ),
    "th": "# เซิร์ฟเวอร์\n\n- เซิร์ฟเวอร์หลักอยู่ที่แฟรงก์เฟิร์ต\n- รหัสผ่านเปลี่ยนทุกเดือน\n",
    "lo-km-my": "- ຂໍ້ມູນສຳຮອງທຸກຄືນ\n\n- ម៉ាស៊ីនមេនៅភ្នំពេញ\n\n- ဆာဗာသည်ရန်ကုန်မြို့တွင်ရှိသည်\n",
    "hi": "# सर्वर\n\n- मुख्य सर्वर फ्रैंकफर्ट में है।\n- बैकअप रात को चलता है।\n- ज़रूरी काग़ज़ तिजोरी में हैं।\n",
    "ta-te": "- முதன்மை சேவையகம் சென்னையில் உள்ளது.\n\n- బ్యాకప్ ప్రతి రాత్రి నడుస్తుంది.\n",
    "bn": "- প্রধান সার্ভার ঢাকায় আছে।\n- পাসওয়ার্ড প্রতি মাসে বদলায়।\n",
    "ar": "# الخادم\n\n- الخادم الرئيسي في فرانكفورت، والمدير هو أحمد.\n- مكتبة المشروع هنا.\n- الإصدار ٤٢ مستقر.\n",
    "fa": "# سرور\n\n- سرور اصلی در تهران است.\n- کلید در گاوصندوق می‌ماند.\n",
    "he": "# שרת\n\n- השרת הראשי נמצא בחיפה.\n- הסיסמה מתחלפת כל חודש.\n",
    "ru": "# Серверы\n\n- Серверы находятся во Франкфурте.\n- Резервные копии делаются ночью.\n- Ёлка стоит в офисе.\n",
    "uk-bg": "- Комп'ютер бухгалтерії стоїть у Львові.\n\n- Паролите се сменят всеки месец.\n",
    "el": "# Διακομιστής\n\n- Ο διακομιστής είναι στην Αθήνα.\n- Τα αντίγραφα γίνονται τη νύχτα.\n",
    "de": "# Büro\n\n- Die Schlüsselübergabe ist um neun in der Görlitzer Straße.\n- Größere Änderungen brauchen zwei Prüfer.\n",
    "fr-es": "- La réunion a lieu à l'hôtel près de la gare.\n\n- La contraseña del señor Muñoz caduca cada año.\n",
    "pl-tr-vi": (
        "- Biuro jest w Łodzi, klucz ma Małgorzata.\n\n- Toplantı İstanbul'da, ışıklar açık kalsın.\n\n"
        "- Văn phòng ở Đà Nẵng, bên bờ sông.\n"
    ),
    "marks": (
        "- we host at ＡＷＳ in Frankfurt\n\n- the con\u00adfig\u00adu\u00adra\u00adtion of nginx is in etc\n\n"
        "- the ﬁnance team meets on the oﬃce ﬂoor\n"
    ),
    "emoji": "- The mascot is 🦊.\n\n- 🔥 means a production incident.\n\n- naïve café façade\n",
    "code": (
        "# Code\n\n- fetch_user_by_id is slow without the index.\n- parseHTTPResponse drops trailing blanks.\n"
        "- the flag --max-upload-size limits attachments.\n- `src/billing/invoice_writer.py` writes the PDF.\n"
    ),
    "errors": "# Errors\n\n- ERR_CONN_42: the pool was empty.\n- ERR_CONN_41: the password had expired.\n- E1001 says the disk is full.\n",
    "tickets": (
        "# Tickets\n\n- SHOP-1234 is open: the cart loses coupons.\n- SHOP-123 is closed: the tax was wrong.\n"
        "- CVE-2024-3094 was patched.\n"
    ),
    "hosts": "# Hosts\n\n- The gateway is 10.0.0.12.\n- The printer is 10.0.0.1.\n- The router answers at 2001:db8::ff00:42:8329.\n",
    "ports": "# Ports\n\n- The metrics exporter uses port 8080.\n- The debug console uses port 808.\n",
    "versions": "# Releases\n\n- v1.2.3 broke the import.\n- v1.2.4 mended it.\n- Python 3.11 is the oldest that we test.\n",
    "hashes": "# Commits\n\n- a3f9c12 fixed the race in the queue.\n- 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b removed the old cache.\n",
    "people": (
        "# People\n\n- alice.smith@example.com owns billing.\n- bob.stone@example.com owns search.\n"
        "- The landlord is called Meyer.\n"
    ),
    "links": (
        "# Links\n\n- The runbook is at https://wiki.example.com/ops/runbook.\n"
        "- The contract is at https://wiki.example.com/legal/contract.\n"
    ),
    "plan": "# Plan\n\n- The small plan has 1,000 users, the large one 25,000.\n- Uploads are limited to 10 MB, backups to 3GB.\n",
    "english": (
        "# Decisions\n\n- We chose Postgres because row level security keeps tenants apart.\n"
        "- Deployments happen on Thursdays, never on Fridays.\n- Migrations are reviewed by two people.\n"
        "- The caches are invalidated after every release.\n- Retries back off exponentially.\n"
    ),
    "team": (
        "# Team\n\n- Anna is on parental leave until June.\n- Tom prefers tabs over spaces.\n"
        "- Standups take place at ten in the small meeting room.\n- New colleagues get a laptop on their first day.\n"
    ),
    "garden": "# Garden\n\n- The tomatoes were planted in April.\n- The dog's vet is Doctor Weber.\n",
}

ASKED = """
支付超时是什么原因|zh-pay
重试次数|zh-pay
订单服务用哪个端口|zh-order
GitHub备份|zh-order
备份脚本为什么失败|zh-order
SSH服务器怎么登录|zh-order
ログは何日保存しますか|ja-log
なぜJWTを選んだのか|ja-log
東京|ja-log
ｻｰﾊﾞｰの再起動|ja-server
リンゴのアイコン|ja-server
배치 작업은 언제 도나요|ko
배포 요일|ko
휴가|ko
เซิร์ฟเวอร์อยู่ที่ไหน|th
รหัสผ่าน|th
ຂໍ້ມູນສຳຮອງ|lo-km-my
ម៉ាស៊ីនមេ|lo-km-my
ဆာဗာ|lo-km-my
मुख्य सर्वर कहाँ है|hi
बैकअप कब चलता है|hi
जरूरी कागज|hi
சேவையகம் எங்கே|ta-te
బ్యాకప్ ఎప్పుడు|ta-te
প্রধান সার্ভার কোথায়|bn
পাসওয়ার্ড|bn
أين الخادم الرئيسي|ar
مکتبة المشروع|ar
الإصدار 42|ar
سرور اصلي كجاست|fa
کلید گاوصندوق|fa
איפה השרת הראשי|he
где находится сервер|ru
резервная копия|ru
елка|ru
комп’ютер бухгалтерії|uk-bg
паролите|uk-bg
διακομιστης|el
ΑΝΤΊΓΡΑΦΑ|el
Schluesseluebergabe|de
Görlitzer Strasse|de
welche Änderungen brauchen Prüfer|de
reunion hotel|fr-es
contrasena senor Munoz|fr-es
Lodz biuro|pl-tr-vi
istanbul toplanti|pl-tr-vi
Da Nang|pl-tr-vi
AWS|marks
nginx configuration|marks
finance office floor|marks
🦊|emoji
what does 🔥 mean|emoji
cafe facade|emoji
fetchUserById|code
parse_http_response|code
max-upload-size|code
src/billing/invoice_writer.py|code
invoice_writer|code
ERR_CONN_42|errors
what does ERR_CONN_41 mean|errors
E1001|errors
SHOP-123|tickets
SHOP-1234|tickets
is CVE-2024-3094 patched|tickets
10.0.0.1|hosts
10.0.0.12|hosts
2001:db8::ff00:42:8329|hosts
what uses port 808|ports
port 8080|ports
v1.2.3|versions
what mended 1.2.4|versions
python 3.11|versions
a3f9c12b7d44|hashes
9f86d081884c|hashes
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08|hashes
alice.smith@example.com|people
who owns search|people
wiki.example.com/ops/runbook|links
where is the contract|links
1000 users|plan
10MB uploads|plan
backups 3 GB|plan
why did we choose postgres|english
when do we deploy|english
who reviews a migration|english
invalidating the cache|english
exponential retry|english
is Anna on leave|team
tabs or spaces|team
standup room|team
laptop for a new colleague|team
planting tomatoes|garden
the vet of the dog|garden
Which Kubernetes version do we run?|
SHOP-12|
10.0.0.125|
a3f9c13|
какая погода завтра|
quantum chromodynamics|
""".strip()
QUESTIONS = [tuple(line.split("|")) for line in ASKED.split("\n")]


async def by_the_daemon(folder: Path) -> dict[str, str]:
    """The note of the first hit for each question, "" without any."""
    shared = SpaceShared(IndexSettings(), LoadedModel.none())
    space = await Space.open(folder / "space.db", os.urandom(32), shared, space_id="words")
    try:
        for name, text in NOTES.items():
            await space.documents.put("p", f"memory/{name}.md", text, base=0, author="test")
        found = {}
        for asked, _ in QUESTIONS:
            hits = (await space.index.searcher.search(SearchQuery(asked, min_score=LEAST))).hits
            found[asked] = Path(hits[0].path).stem if hits else ""
        return found
    finally:
        await space.close()


def by_the_device() -> dict[str, str]:
    """The same, of this device's files alone."""
    index, found = LocalIndex(), {}
    for name, text in NOTES.items():
        index.put(("p", f"memory/{name}.md"), text)
    for asked, _ in QUESTIONS:
        shown = [hit[0][1] for hit in index.search(question(asked)) if hit[2] >= LEAST]
        found[asked] = Path(shown[0]).stem if shown else ""
    index.close()
    return found


async def test_first_hits_are_the_same(tmp_path: Path) -> None:
    """Of questions in many scripts and forms, with names and numbers, and of some that have no answer."""
    online, offline = await by_the_daemon(tmp_path), by_the_device()
    others = [(asked, online[asked], offline[asked]) for asked in online if online[asked] != offline[asked]]
    assert len(others) <= (1 - MUST_AGREE) * len(QUESTIONS), others
    wrong = [(asked, note, online[asked]) for asked, note in QUESTIONS if online[asked] != note]
    assert len(wrong) <= (1 - MUST_AGREE) * len(QUESTIONS), wrong
