"""Draws path_of_a_row.svg, the picture in concepts.md: ``python docs/path_of_a_row.py``.

Needs ``pip install 'spark-kafka-sink[test]'``.
"""

from __future__ import annotations

from pathlib import Path

import drawsvg

WIDTH, HEIGHT = 960, 520
INK, LINE = "#1f2933", "#52606d"
DRIVER, EXECUTOR, PYTHON, KAFKA = "#eef2ff", "#f3f4f6", "#e6f4ea", "#fff4e5"


def drawing() -> drawsvg.Drawing:
    picture = drawsvg.Drawing(WIDTH, HEIGHT, font_family="sans-serif")
    picture.append(drawsvg.Rectangle(0, 0, WIDTH, HEIGHT, fill="white"))
    lane(picture, 20, 20, 640, 120, DRIVER, "Driver")
    lane(picture, 20, 170, 640, 330, EXECUTOR, "Executor")
    lane(picture, 265, 200, 380, 285, PYTHON, "Python worker")
    lane(picture, 690, 20, 250, 480, KAFKA, "Kafka")

    step(picture, 40, 55, 190, 70, "1 Plan", "checks options, columns,", "brokers, login and topic")
    step(picture, 362, 55, 190, 70, "7 Commit", "adds up and logs", "the tasks' reports")
    step(picture, 40, 215, 190, 80, "2 Spark task", "produces the rows", "of one partition")
    step(picture, 40, 365, 190, 80, "3 Arrow batch", "usually up to", "10,000 rows")
    step(picture, 285, 365, 150, 80, "4 Check", "every row, then its", "topic and partition")
    step(picture, 475, 365, 150, 80, "5 Send buffer", "until the brokers", "have acknowledged")
    step(picture, 362, 235, 190, 70, "6 Report", "every record: delivered", "or failed")
    step(picture, 715, 235, 200, 70, "Metadata", "partitions of topics,", "and their leaders")
    step(picture, 715, 365, 200, 80, "Topics", "one request", "per partition")

    arrow(picture, 135, 125, 135, 215)
    arrow(picture, 135, 295, 135, 365)
    arrow(picture, 230, 405, 285, 405)
    arrow(picture, 435, 405, 475, 405)
    arrow(picture, 625, 390, 715, 390)
    arrow(picture, 715, 425, 625, 425)
    arrow(picture, 510, 365, 510, 305)
    arrow(picture, 457, 235, 457, 125)
    arrow(picture, 715, 290, 600, 365, stroke_dasharray="6 4")
    label(picture, 674, 382, "records")
    label(picture, 674, 441, "acks")
    label(picture, 600, 325, "in the")
    label(picture, 600, 340, "background")
    label(picture, 257, 395, "socket")
    return picture


def lane(
    picture: drawsvg.Drawing, x: int, y: int, width: int, height: int, color: str, title: str
) -> None:
    picture.append(drawsvg.Rectangle(x, y, width, height, rx=10, fill=color, stroke="#cbd2d9"))
    picture.append(drawsvg.Text(title, 15, x + 14, y + 23, fill=LINE, font_weight="bold"))


def step(
    picture: drawsvg.Drawing, x: int, y: int, width: int, height: int, title: str, *lines: str
) -> None:
    picture.append(drawsvg.Rectangle(x, y, width, height, rx=6, fill="white", stroke=LINE))
    middle = x + width / 2
    centered = {"fill": INK, "text_anchor": "middle"}
    picture.append(drawsvg.Text(title, 15, middle, y + 24, font_weight="bold", **centered))
    for number, line in enumerate(lines):
        picture.append(drawsvg.Text(line, 13, middle, y + 43 + 17 * number, **centered))


def arrow(
    picture: drawsvg.Drawing, from_x: int, from_y: int, to_x: int, to_y: int, **style: str
) -> None:
    head = drawsvg.Marker(-0.9, -0.5, 0.1, 0.5, scale=9, orient="auto")
    head.append(drawsvg.Lines(-0.9, -0.5, 0, 0, -0.9, 0.5, close=True, fill=LINE))
    picture.append(drawsvg.Line(from_x, from_y, to_x, to_y, stroke=LINE, marker_end=head, **style))


def label(picture: drawsvg.Drawing, x: int, y: int, text: str) -> None:
    picture.append(drawsvg.Text(text, 12, x, y, fill=LINE, text_anchor="middle"))


if __name__ == "__main__":
    drawing().save_svg(str(Path(__file__).with_suffix(".svg")))
