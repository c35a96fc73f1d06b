#!/usr/bin/env python3
"""Measures how fast and how completely documents are read, compared with reference extractions and markitdown.

    measure.py --binary target/release/examples/documents [--no-markitdown]

Reads tests/documents/corpus and tests/documents/hostile. References are pdftotext (poppler-utils) and, from PyPI,
pdfplumber, python-docx, openpyxl, python-pptx, xlrd, striprtf; a format without its reference is only timed. Recall is
the share of the reference's words that the conversion has too, each counted as often as it occurs; cells are compared
as a whole. The exit code does not depend on the results.
"""

import argparse
import collections
import csv
import email
import email.policy
import html.parser
import io
import json
import logging
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import unicodedata
import zipfile
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 15
MARKS = re.compile("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\u00ad]")
WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
MAX_SECONDS, MAX_KIB = 20.0, 1 << 20


# Words and cells


def words(text):
    text = MARKS.sub("", unicodedata.normalize("NFKC", text)).lower().replace("_", " ")
    return collections.Counter(WORD.findall(text))


def share(reference, converted):
    """The share of a multiset that another one has too; None for an empty one."""
    total = sum(reference.values())
    return sum((reference & converted).values()) / total if total else None


def cell(text):
    return " ".join(MARKS.sub("", unicodedata.normalize("NFKC", str(text))).split())


def cells(markdown):
    """All cells of all pipe tables, without the marks of Markdown."""
    found = collections.Counter()
    for line in markdown.splitlines():
        line = line.strip()
        if not line.startswith("|") or re.fullmatch(r"[|:\- ]+", line):
            continue
        for part in re.split(r"(?<!\\)\|", line)[1:-1]:
            part = re.sub(r"\\([\\|*_`~<>\[\]#])", r"\1", part.replace("<br>", " "))
            part = re.sub(r"\*\*|~~", "", part)
            if cell(part):
                found[cell(part)] += 1
    return found


def rows_of(rows):
    return collections.Counter(cell(value) for row in rows for value in row if value is not None and cell(value))


# References: (text, cells or None) of a file; None where there is no reference


def pdf(path):
    if not shutil.which("pdftotext"):
        return None
    ran = subprocess.run(["pdftotext", "-enc", "UTF-8", str(path), "-"], capture_output=True, timeout=60)
    if ran.returncode != 0:
        return None
    # pdftotext does not rejoin words that are divided at line ends.
    text = re.sub(r"(?<=[^\W\d_])[-\u2010]\n(?=[^\W\d_])", "", ran.stdout.decode("utf-8", "replace"))
    try:
        import pdfplumber
    except ImportError:
        return text, None
    found = collections.Counter()
    with pdfplumber.open(path) as file:
        for page in file.pages[:5]:
            for table in page.extract_tables():
                found += rows_of(table)
    return text, found


def docx(path):
    import docx as library

    document = library.Document(str(path))
    body = document.element.body
    text = "\n".join("".join(t.text or "" for t in p.iter() if t.tag.endswith("}t")) for p in body.iter() if p.tag.endswith("}p"))
    found = collections.Counter()
    for table in document.tables:
        for row in table.rows:
            seen = set()
            for its in row.cells:
                if id(its._tc) not in seen and cell(its.text):
                    found[cell(its.text)] += 1
                seen.add(id(its._tc))
    return text, found


def xlsx(path):
    import openpyxl

    book = openpyxl.load_workbook(path, data_only=True)
    strings = collections.Counter()
    for sheet in book.worksheets:
        for row in sheet.iter_rows(values_only=True):
            strings.update(cell(value) for value in row if isinstance(value, (str, int)) and not isinstance(value, bool) and cell(value))
    return "\n".join(strings.elements()), strings


def xls(path):
    import xlrd

    book = xlrd.open_workbook(path)
    strings = collections.Counter()
    for sheet in book.sheets():
        for row in range(sheet.nrows):
            strings.update(cell(value) for value in sheet.row_values(row) if isinstance(value, str) and cell(value))
    return "\n".join(strings.elements()), strings


def pptx(path):
    import pptx as library

    text, found = [], collections.Counter()

    def shape(its):
        if its.shape_type == 6:
            for inner in its.shapes:
                shape(inner)
        if its.has_text_frame:
            text.append(its.text_frame.text)
        if getattr(its, "has_table", False):
            rows = [[c.text for c in row.cells] for row in its.table.rows]
            found.update(rows_of(rows))
            text.extend(value for row in rows for value in row)

    for slide in library.Presentation(str(path)).slides:
        for its in slide.shapes:
            shape(its)
        if slide.has_notes_slide:
            text.append(slide.notes_slide.notes_text_frame.text)
    return "\n".join(text), found


def opendocument(path):
    """Paragraphs and headings of the body, without tracked deletions."""
    with zipfile.ZipFile(path) as file:
        root = ElementTree.fromstring(file.read("content.xml"))
    for parent in root.iter():
        for child in list(parent):
            if child.tag.endswith("}tracked-changes"):
                parent.remove(child)
    body = next(e for e in root.iter() if e.tag.endswith("}body"))
    return "\n".join("".join(e.itertext()) for e in body.iter() if e.tag.rsplit("}", 1)[-1] in ("p", "h")), None


class Page(html.parser.HTMLParser):
    HIDDEN = ("script", "style", "head", "template", "noscript")

    def __init__(self):
        super().__init__()
        self.text, self.depth = [], 0

    def handle_starttag(self, tag, attributes):
        self.depth += tag in self.HIDDEN
        if tag in ("p", "div", "td", "th", "li", "br", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd", "caption"):
            self.text.append("\n")

    def handle_endtag(self, tag):
        self.depth -= tag in self.HIDDEN

    def handle_data(self, data):
        if self.depth <= 0:
            self.text.append(data)


def page(text):
    parser = Page()
    parser.feed(text)
    return "".join(parser.text)


def web(path):
    return page(decoded(path)), None


def epub(path):
    with zipfile.ZipFile(path) as file:
        names = [n for n in file.namelist() if n.endswith((".xhtml", ".html", ".htm")) and "nav" not in n and "toc" not in n]
        return "\n".join(page(file.read(name).decode("utf-8", "replace")) for name in names), None


def decoded(path):
    data = path.read_bytes()
    for encoding in ("utf-8-sig", "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "cp1252", "latin-1"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return ""


def plain(path):
    return decoded(path), None


def table(path):
    text = decoded(path)
    try:
        dialect = csv.Sniffer().sniff(text[:4096], ",;\t|")
    except csv.Error:
        dialect = csv.excel_tab if path.suffix == ".tsv" else csv.excel
    return text, rows_of(csv.reader(io.StringIO(text), dialect))


def rtf(path):
    from striprtf.striprtf import rtf_to_text

    return rtf_to_text(path.read_bytes().decode("latin-1"), errors="ignore"), None


def mail(path):
    message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    body = message.get_body(("plain", "html"))
    text = "" if body is None else body.get_content()
    return f"{message['subject']}\n{message['from']}\n{page(text) if body is not None and body.get_content_subtype() == 'html' else text}", None


REFERENCES = {
    ".pdf": pdf, ".docx": docx, ".xlsx": xlsx, ".xlsm": xlsx, ".xls": xls, ".pptx": pptx, ".odt": opendocument,
    ".ods": opendocument, ".odp": opendocument, ".html": web, ".htm": web, ".epub": epub, ".csv": table, ".tsv": table,
    ".rtf": rtf, ".eml": mail, ".json": plain, ".xml": plain, ".txt": plain, ".md": plain,
}


def reference(path):
    read = REFERENCES.get(path.suffix.lower())
    if read is None:
        return None
    try:
        return read(path)
    except Exception:  # a file that the reference cannot read has no reference
        return None


# Converters


def ours(binary, path, rounds):
    """Runs one process for one file. Returns its result, or a text about its failure."""
    started = time.monotonic()
    try:
        ran = subprocess.run([binary, "--rounds", str(rounds), str(path)], capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return {"failure": "did not end", "seconds": time.monotonic() - started}
    if ran.returncode != 0:
        return {"failure": f"ended with {ran.returncode}", "seconds": time.monotonic() - started}
    return json.loads(ran.stdout) | {"seconds": time.monotonic() - started}


class Markitdown:
    """Imported once and used several times, as in a service."""

    def __init__(self):
        from markitdown import MarkItDown

        self.converter = MarkItDown(enable_plugins=False)

    def convert(self, path):
        times, text = [], ""
        for _ in range(3):
            started = time.perf_counter()
            try:
                text = self.converter.convert(str(path)).text_content
            except Exception:
                return None
            times.append(time.perf_counter() - started)
            if times[-1] > 1:
                break
        return {"text": text, "millis": statistics.median(times) * 1000}


# The report


def files(kind):
    root = HERE / kind
    return sorted(p for p in root.rglob("*") if p.is_file() and p.name != "expect.toml")


def mean(values):
    values = [v for v in values if v is not None]
    return statistics.mean(values) if values else None


def percent(value):
    return "-" if value is None else f"{value * 100:.1f}"


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def measure(binary, other, path):
    answer = ours(binary, path, ROUNDS)
    row = {"file": path, "answer": answer, "theirs": other.convert(path) if other else None}
    ref = reference(path)
    if ref is None or "failure" in answer:
        return row
    text, tables = ref
    markdown = answer["converted"]["markdown"]
    for name, its in (("ours", markdown), ("theirs", row["theirs"]["text"] if row["theirs"] else "")):
        row[f"words_{name}"] = share(words(text), words(its))
        row[f"cells_{name}"] = share(tables, cells(its)) if tables else None
    if row["theirs"] is None:
        row["words_theirs"] = row["cells_theirs"] = 0.0 if other and row["words_ours"] is not None else None
    return row


def table_of(rows):
    print(f"{'format':<7}{'files':>6} {'words % ours/markitdown':>25} {'cells % ours/markitdown':>25}"
          f" {'median ms ours/markitdown':>27} {'times':>8} {'peak MiB':>9}")
    formats = collections.defaultdict(list)
    for row in rows:
        formats[row["file"].suffix.lower().lstrip(".")].append(row)
    for name, its in sorted(formats.items()):
        fine = [r for r in its if "failure" not in r["answer"]]
        own = [r["answer"]["micros"] / 1000 for r in fine]
        both = [r for r in fine if r["theirs"]]
        ratios = [r["theirs"]["millis"] / max(r["answer"]["micros"] / 1000, 0.001) for r in both]
        peak = max((r["answer"].get("peak_kib") or 0 for r in fine), default=0) / 1024
        pair = lambda key, show: f"{show(mean(r.get(f'{key}_ours') for r in its))} / {show(mean(r.get(f'{key}_theirs') for r in its))}"
        theirs = statistics.median(r["theirs"]["millis"] for r in both) if both else None
        print(f"{name:<7}{len(its):>6} {pair('words', percent):>25} {pair('cells', percent):>25}"
              f" {number(statistics.median(own) if own else None) + ' / ' + number(theirs):>27}"
              f" {number(statistics.median(ratios) if ratios else None, 0):>8} {peak:>9.1f}")


def print_goals(rows, hostile):
    print_goal = lambda goal, met, found: print(f"  {goal}: {found}: {'met' if met else 'MISSED'}")
    fine = [r for r in rows if "failure" not in r["answer"]]
    middle = statistics.median(r["answer"]["micros"] / 1000 for r in fine)
    print_goal("median under 10 ms", middle < 10, f"{middle:.2f} ms")
    for row in fine:
        if row["file"].name == "pages-140.pdf":
            seconds = row["answer"]["micros"] / 1e6
            print_goal("140 pages of PDF under 1 s", seconds < 1, f"{seconds:.3f} s")
    for name in sorted({r["file"].suffix for r in fine}):
        its = [r for r in fine if r["file"].suffix == name]
        we, they = mean(r.get("words_ours") for r in its), mean(r.get("words_theirs") for r in its)
        if we is not None and they is not None:
            print_goal(f"words of {name} at least markitdown's", we >= they, f"{percent(we)} and {percent(they)}")
        ratios = [r["theirs"]["millis"] / max(r["answer"]["micros"] / 1000, 0.001) for r in its if r["theirs"]]
        if ratios:
            ratio = statistics.median(ratios)
            print_goal(f"{name} ten times as fast", ratio >= 10, f"{ratio:.0f} times")
    everything = [(r["file"].name, r["answer"]) for r in fine] + hostile
    slow = max(everything, key=lambda e: e[1].get("slowest", e[1]["seconds"] * 1e6))
    seconds = slow[1].get("slowest", slow[1]["seconds"] * 1e6) / 1e6
    print_goal("nothing above 20 s, hostile files included", seconds <= MAX_SECONDS, f"{seconds:.2f} s for {slow[0]}")
    large = max(everything, key=lambda e: e[1].get("peak_kib") or 0)
    print_goal("nothing above 1 GiB, hostile files included", (large[1].get("peak_kib") or 0) <= MAX_KIB,
         f"{(large[1].get('peak_kib') or 0) / 1024:.0f} MiB for {large[0]}")
    failed = [name for name, answer in everything if "failure" in answer]
    failed += [r["file"].name for r in rows if "failure" in r["answer"]]
    print_goal("every file has an answer without a worker's help", not failed, ", ".join(failed) or "all of them")


def bounded():
    """Children that convert get the worker's address space and time."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def hostile(binary):
    found = []
    for path in files("hostile"):
        started = time.monotonic()
        try:
            ran = subprocess.run([binary, str(path)], capture_output=True, timeout=25, preexec_fn=bounded)
            answer = json.loads(ran.stdout) if ran.returncode == 0 else {"failure": f"ended with {ran.returncode}"}
        except subprocess.TimeoutExpired:
            answer = {"failure": "did not end"}
        found.append((path.name, answer | {"seconds": time.monotonic() - started}))
    return found


def lowest(rows):
    """Files in which words are missing, so that a reader sees where."""
    missing = sorted((r for r in rows if (r.get("words_ours") or 1) < 0.97), key=lambda r: r["words_ours"])
    for row in missing[:12]:
        print(f"  {row['file'].name}: words {percent(row['words_ours'])}, markitdown {percent(row.get('words_theirs'))}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--no-markitdown", action="store_true")
    chosen = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    other = None
    if not chosen.no_markitdown:
        try:
            other = Markitdown()
        except ImportError as error:
            print(f"markitdown is not there ({error.name}); its columns stay empty")
    rows = [measure(chosen.binary, other, path) for path in files("corpus")]
    table_of(rows)
    print("words missing most:")
    lowest(rows)
    print("aims:")
    print_goals(rows, hostile(chosen.binary))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
