"""Takes a picture of the page of reports: PYTHONPATH=tests/support python docs/report_page.py

Needs a headless Chromium. The reports are made up.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import browser
from PIL import Image
from report_lines import slow_brokers

from spark_kafka_sink.__main__ import main

PICTURE = Path(__file__).with_suffix(".png")

with tempfile.TemporaryDirectory() as folder:
    reports, page = Path(folder) / "orders", Path(folder) / "orders.html"
    reports.mkdir()
    (reports / "report-0.jsonl").write_bytes(b"".join(slow_brokers()))
    main(["report", str(reports), "--html", str(page)])
    shown = page.read_text(encoding="utf-8").replace(str(reports), "/data/reports/orders")
    page.write_text(shown, encoding="utf-8")
    browser.run(page, "--window-size=1200,1500", "--hide-scrollbars", f"--screenshot={PICTURE}")

Image.open(PICTURE).quantize(128).save(PICTURE, optimize=True)  # half the size
