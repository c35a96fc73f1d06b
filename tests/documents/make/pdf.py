#!/usr/bin/env python3
"""Writes tests/documents/corpus/pdf. Needs reportlab, fpdf2, pikepdf, uharfbuzz and the DejaVu fonts.

    python3 tests/documents/make/pdf.py

The files are the same on every run, except for encrypted ones, which have a random salt: existing ones are kept.
"""

import datetime
import io
import pathlib
import zlib

import pikepdf
from fpdf import FPDF
from reportlab import rl_config
from reportlab.lib import colors
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.lib.units import cm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    ListFlowable,
    ListItem,
    PageBreak,
    PageTemplate,
    Paragraph,
    SimpleDocTemplate,
    Spacer,
    Table,
    TableStyle,
)

from raw import Raw, show

rl_config.invariant = 1
HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent / "corpus" / "pdf"
FONTS = pathlib.Path("/usr/share/fonts/truetype/dejavu")

STYLES = getSampleStyleSheet()
BODY = ParagraphStyle("body", parent=STYLES["BodyText"], fontSize=10, leading=13, alignment=TA_JUSTIFY)

HARBOUR = (
    "The harbour at Ostermoor was dredged for the first time in the autumn of 1874, when the council had grown tired "
    "of losing coal barges to the sandbank. Two steam dredgers worked through the winter. By March the channel was "
    "deep enough for vessels of four metres draught, and the pilots, who had opposed the expense, asked for another."
)
TIDES = (
    "Tide tables were printed in the town itself from 1881. They gave high water at the bar, at the inner basin and at "
    "the timber dock, and a column for the moon. Fishermen bought them, farmers borrowed them, and the school used the "
    "spare sheets for arithmetic. No complete set is known to survive the flood of 1906."
)
LIGHT = (
    "A lighthouse had been proposed as early as 1802, but the cliff was judged too soft to carry a tower. The engineer "
    "who finally built one sank an iron frame eleven metres into the clay and hung the stones around it. The lamp "
    "burned colza oil, then paraffin, and was not electrified until 1938."
)


def write(name, data):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_bytes(data)


def platypus(name, story, pagesize=A4, **more):
    buffer = io.BytesIO()
    SimpleDocTemplate(buffer, pagesize=pagesize, title="", author="", **more).build(story)
    write(name, buffer.getvalue())


def canvas(name, draw, pagesize=LETTER, **more):
    buffer = io.BytesIO()
    page = Canvas(buffer, pagesize=pagesize, invariant=1, **more)
    draw(page)
    page.save()
    write(name, buffer.getvalue())


def report():
    """Headings of three levels, prose, lists, a ruled table between paragraphs."""
    ruled = TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black), ("FONTSIZE", (0, 0), (-1, -1), 9)])
    rows = [
        ["Year", "Vessels", "Tonnage", "Lost"],
        ["1874", "212", "18,400", "9"],
        ["1875", "268", "24,150", "2"],
        ["1876", "301", "27,985", "1"],
        ["1877", "295", "27,010", "0"],
    ]
    item = lambda text: ListItem(Paragraph(text, BODY))
    story = [
        Paragraph("The Ostermoor Harbour Papers", STYLES["Title"]),
        Paragraph("Dredging and trade", STYLES["Heading1"]),
        Paragraph(HARBOUR, BODY),
        Paragraph("Vessels by year", STYLES["Heading2"]),
        Paragraph("The harbour master counted every vessel of more than twenty tons.", BODY),
        Spacer(1, 8),
        Table(rows, colWidths=[3 * cm] * 4, style=ruled),
        Spacer(1, 8),
        Paragraph("Losses fell as soon as the bar was marked, and they never rose again.", BODY),
        Paragraph("What remains", STYLES["Heading2"]),
        ListFlowable([item("the iron mooring rings"), item("a crane of 1879"), item("the pilots' bench")],
                     bulletType="bullet", start="•"),
        Spacer(1, 6),
        ListFlowable([item("Survey the basin."), item("Lift the rings."), item("Record the crane.")], bulletType="1", bulletFormat="%s."),
        PageBreak(),
        Paragraph("The light", STYLES["Heading1"]),
        Paragraph(LIGHT, BODY),
        Paragraph(TIDES, BODY),
    ]
    platypus("report.pdf", story)


def columns():
    """Two justified columns under a line over both, with running heads and page numbers."""
    buffer = io.BytesIO()
    width, height = A4

    def edges(page, document):
        page.setFont("Helvetica", 8)
        page.drawString(2 * cm, height - 1.2 * cm, "Proceedings of the Ostermoor Society")
        page.drawRightString(width - 2 * cm, 1 * cm, f"{document.page}")

    column = (width - 5 * cm) / 2
    frames = [
        Frame(2 * cm, 2 * cm, column, height - 5 * cm, id="left"),
        Frame(3 * cm + column, 2 * cm, column, height - 5 * cm, id="right"),
    ]
    document = BaseDocTemplate(buffer, pagesize=A4, title="", author="")
    document.addPageTemplates([PageTemplate(id="two", frames=frames, onPage=edges)])
    small = ParagraphStyle("small", parent=BODY, fontSize=9, leading=11, spaceAfter=5)
    story = []
    for number in range(1, 8):
        story.append(Paragraph(f"Section {number}", STYLES["Heading3"]))
        for text in (HARBOUR, TIDES, LIGHT):
            story.append(Paragraph(text, small))
        story.append(Paragraph(f"The end of section {number} comes before the section that follows it.", small))
    document.build(story)
    write("columns.pdf", buffer.getvalue())


def hyphens():
    """Words divided at line ends, a compound name, a range of years, a paragraph that ends short."""
    lines = [
        "The committee considered the inter-",
        "national agreements on navigation and the extraor-",
        "dinary costs of dredging; it heard Mrs Harding-",
        "Jones and the pilots of the years 1880 -",
        "1895 before it came to a conclusion that satis-",
        "fied nobody.",
    ]

    def draw(page):
        page.setFont("Times-Roman", 12)
        for at, line in enumerate(lines):
            page.drawString(72, 700 - at * 14, line)
        page.drawString(90, 700 - len(lines) * 14, "A second paragraph begins here, further in, and goes")
        page.drawString(72, 686 - len(lines) * 14, "on at the edge without any wider gap between.")

    canvas("hyphens.pdf", draw)


def invoice():
    """An invoice: an address, labels with values, a table without rules."""
    rows = [
        ("Item", "Quantity", "Price", "Amount"),
        ("Mooring line, 40 m", "4", "85.00", "340.00"),
        ("Fender, cork", "12", "19.50", "234.00"),
        ("Anchor chain, galvanised", "1", "612.25", "612.25"),
        ("Lamp oil", "30", "2.10", "63.00"),
        ("Signal flags, full set", "1", "148.00", "148.00"),
    ]

    def draw(page):
        page.setFont("Helvetica", 10)
        for at, line in enumerate(["Hartwig Chandlery", "Quay Street 14", "29411 Ostermoor"]):
            page.drawString(72, 730 - at * 12, line)
        for at, line in enumerate(["Invoice number: 2024-0117", "Date: 2024-03-14", "Customer: 88210"]):
            page.drawString(380, 730 - at * 12, line)
        for at, row in enumerate(rows):
            y = 640 - at * 18
            page.drawString(72, y, row[0])
            for x, text in zip((320, 420, 520), row[1:]):
                page.drawRightString(x, y, text)
        page.setFont("Helvetica-Bold", 10)
        page.drawString(72, 520, "Total due: 1,397.25 EUR")

    canvas("invoice.pdf", draw)


def wide_table():
    """A ruled table over three pages with the header repeated, wrapped cells and a spanned one."""
    rows = [["No.", "Station", "Remarks", "Depth"]]
    for number in range(1, 91):
        remark = "sounding taken twice because the lead fouled on weed" if number % 7 == 0 else "clear bottom"
        rows.append([str(number), f"Station {number:03}", Paragraph(remark, BODY), f"{number / 10:.1f} m"])
    rows.append(["Sum of all stations", "", "", "409.5 m"])
    style = TableStyle([
        ("GRID", (0, 0), (-1, -1), 0.5, colors.black),
        ("SPAN", (0, -1), (2, -1)),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ])
    table = Table(rows, colWidths=[1.5 * cm, 4 * cm, 7 * cm, 2.5 * cm], repeatRows=1, style=style)
    platypus("soundings.pdf", [Paragraph("Soundings", STYLES["Heading1"]), table])


def rotated():
    """A page turned by /Rotate, a page with text drawn upwards, one upside down."""

    def draw(page):
        page.setPageRotation(90)
        page.setFont("Helvetica", 12)
        page.saveState()
        page.translate(300, 100)
        page.rotate(90)
        page.drawString(0, 0, "This page is turned a quarter and reads upright on screen.")
        page.drawString(0, -16, "Its second line follows the first.")
        page.restoreState()
        page.showPage()
        page.setPageRotation(0)
        page.setFont("Helvetica", 12)
        page.drawString(72, 700, "An upright line stands above.")
        page.saveState()
        page.translate(60, 200)
        page.rotate(90)
        page.drawString(0, 0, "A caption runs up the margin.")
        page.restoreState()
        page.showPage()
        page.setPageRotation(180)
        page.setFont("Helvetica", 12)
        page.saveState()
        page.translate(500, 200)
        page.rotate(180)
        page.drawString(0, 0, "The scanner was fed this page upside down.")
        page.restoreState()

    canvas("rotated.pdf", draw)


def form():
    """A form with filled fields."""

    def draw(page):
        page.setFont("Helvetica", 12)
        page.drawString(72, 740, "Application for a berth")
        field = page.acroForm
        field.textfield(name="name", tooltip="Name of the vessel", value="Marigold", x=200, y=690, width=200)
        field.textfield(name="length", tooltip="Length in metres", value="11.4", x=200, y=660, width=200)
        field.textfield(name="empty", tooltip="Remarks", value="", x=200, y=630, width=200)
        field.checkbox(name="insured", tooltip="Insured", checked=True, x=200, y=600)
        field.checkbox(name="engine", tooltip="Engine", checked=False, x=200, y=580)
        field.choice(name="berth", tooltip="Berth", value="North quay", options=["North quay", "South quay"],
                     x=200, y=550, width=120, height=18)
        field.radio(name="pay", tooltip="Payment", value="cash", selected=True, x=200, y=520)
        field.radio(name="pay", tooltip="Payment", value="transfer", selected=False, x=240, y=520)

    canvas("form.pdf", draw)


def cjk():
    """Chinese, Japanese and Korean through predefined character maps, no font embedded."""
    for name in ("STSong-Light", "HeiseiMin-W3", "HYSMyeongJo-Medium"):
        pdfmetrics.registerFont(UnicodeCIDFont(name))

    def draw(page):
        lines = [
            ("STSong-Light", "港口在一八七四年秋天第一次疏浚。"),
            ("STSong-Light", "议会不愿再失去运煤船。"),
            ("HeiseiMin-W3", "灯台は一九三八年に電化された。カタカナも読める。"),
            ("HYSMyeongJo-Medium", "등대는 늦게 전기를 공급받았다."),
        ]
        for at, (font, line) in enumerate(lines):
            page.setFont(font, 14)
            page.drawString(72, 700 - at * 40, line)

    canvas("cjk.pdf", draw)


def right_to_left():
    """Hebrew and shaped Arabic, with Latin words and digits among them."""
    pdf = FPDF()
    pdf.set_creation_date(datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc))
    pdf.add_font("DejaVu", fname=FONTS / "DejaVuSans.ttf")
    pdf.set_font("DejaVu", size=14)
    pdf.set_text_shaping(True)
    pdf.add_page()
    for line in [
        "שלום עולם, זהו מסמך בעברית.",
        "הנמל נפתח בשנת 1874 על ידי Ostermoor Ltd ונסגר מאוחר יותר.",
        "مرحبا بالعالم، هذا مستند باللغة العربية.",
        "افتتح الميناء سنة 1874 وأغلق لاحقا.",
        "لا إله إلا الله والأمل لا يموت",
    ]:
        pdf.cell(0, 12, line, align="R", new_x="LMARGIN", new_y="NEXT")
    write("right-to-left.pdf", bytes(pdf.output()))


def scripts():
    """Greek, Cyrillic, accents, symbols and ligatures in an embedded font."""
    pdfmetrics.registerFont(TTFont("DejaVu", FONTS / "DejaVuSans.ttf"))

    def draw(page):
        page.setFont("DejaVu", 12)
        for at, line in enumerate([
            "Το λιμάνι άνοιξε το φθινόπωρο.",
            "Гавань открыли осенью, маяк зажгли зимой.",
            "Příliš žluťoučký kůň úpěl ďábelské ódy.",
            "10 m² at ½ price, 25 °C, 7 € — “quoted” … done",
            "The o\ufb03cer \ufb01led the \ufb02oor plan of the co\ufb00ee house.",
        ]):
            page.drawString(72, 700 - at * 20, line)

    canvas("scripts.pdf", draw)


def image(width, height):
    """Grey noise that is the same each time."""
    value, out = 7, bytearray()
    for _ in range(width * height):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(200 + (value >> 16) % 40)
    return zlib.compress(bytes(out), 9)


def scan(text):
    """A page that is one image; with `text` over it invisibly, as text recognition leaves it."""
    raw = Raw()
    draw = "q 612 0 0 792 0 0 cm /Im Do Q\n"
    if text:
        draw += "BT 3 Tr /F1 14 Tf 1 0 0 1 72 700 Tm (Recognised text of a scanned page.) Tj "
        draw += "1 0 0 1 72 680 Tm (It is invisible over the image.) Tj ET"
    raw.page(draw, "<< /Font << /F1 5 0 R >> /XObject << /Im 6 0 R >> >>")
    raw.put(6, b"<< /Type /XObject /Subtype /Image /Width 64 /Height 64 /ColorSpace /DeviceGray /BitsPerComponent 8 "
               b"/Filter /FlateDecode /Length %d >>\nstream\n" % len(image(64, 64)) + image(64, 64) + b"\nendstream")
    return raw.build()


def kerned():
    """Words whose letters are placed one by one, and words apart by position alone."""
    raw = Raw()
    words = "Every glyph of this sentence is placed by hand and no space is ever shown".split()
    out, y = "BT /F1 11 Tf ", 700
    x = 72.0
    widths = pdfmetrics.stringWidth
    for word in words:
        if x + widths(word, "Helvetica", 11) > 400:
            x, y = 72.0, y - 14
        for letter in word:
            out += f"1 0 0 1 {x:.2f} {y} Tm ({letter}) Tj "
            x += widths(letter, "Helvetica", 11)
        x += 3.06
    out += "1 0 0 1 72 600 Tm [(K)80(erned)-278(by)-278(an)-278(arra)20(y)] TJ ET"
    write("kerned.pdf", raw.page(out).build())


def tagged():
    """Two columns drawn row by row; only the structure tree knows the order and what is a heading."""
    raw = Raw()
    left = ["First the left column begins", "and it goes on down here", "until it ends with apples."]
    right = ["Then the right column begins", "and it goes on as well", "until it ends with pears."]
    content = "/H1 << /MCID 0 >> BDC " + show("A tagged leaflet", 72, 740) + " EMC\n"
    for at in range(3):
        y = 700 - at * 14
        content += f"/P << /MCID {1 + at} >> BDC " + show(left[at], 72, y) + " EMC\n"
        content += f"/P << /MCID {4 + at} >> BDC " + show(right[at], 232, y) + " EMC\n"
    content += "/Artifact << /Type /Pagination >> BDC " + show("Page 1 of 1", 280, 40) + " EMC\n"
    raw.page(content, more="/StructParents 0")
    raw.put(1, "<< /Type /Catalog /Pages 2 0 R /MarkInfo << /Marked true >> /StructTreeRoot 10 0 R >>")
    raw.put(10, "<< /Type /StructTreeRoot /K [11 0 R] /ParentTree 12 0 R >>")
    raw.put(11, "<< /Type /StructElem /S /Document /P 10 0 R /K [13 0 R 14 0 R 15 0 R] >>")
    raw.put(12, "<< /Nums [0 [13 0 R 14 0 R 14 0 R 14 0 R 15 0 R 15 0 R 15 0 R]] >>")
    raw.put(13, "<< /Type /StructElem /S /H1 /P 11 0 R /Pg 3 0 R /K [0] >>")
    raw.put(14, "<< /Type /StructElem /S /P /P 11 0 R /Pg 3 0 R /K [1 2 3] >>")
    raw.put(15, "<< /Type /StructElem /S /P /P 11 0 R /Pg 3 0 R /K [4 5 6] >>")
    write("tagged.pdf", raw.build())


def lying_font():
    """A font whose map to Unicode differs from the characters that its glyphs show."""
    raw = Raw().page(show("Uif tijq jt tbgf", 72, 700))
    lines = "\n".join(f"<{code:02X}> <{code - 1:04X}>" for code in list(range(0x42, 0x5B)) + list(range(0x62, 0x7B)))
    cmap = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Lie def /CMapType 2 def\n"
        "1 begincodespacerange <00> <FF> endcodespacerange\n"
        f"51 beginbfchar <20> <0020>\n{lines}\nendbfchar endcmap end end"
    )
    raw.stream(6, cmap)
    raw.put(5, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding /ToUnicode 6 0 R >>")
    write("lying-font.pdf", raw.build())


def mute_font():
    """A composite font without a mapping of its glyphs to characters, beside a readable line."""
    raw = Raw()
    codes = "".join(f"{code:04X}" for code in range(600, 640))
    content = show("Only this line can be read.", 72, 740)
    content += f"BT /F2 12 Tf 1 0 0 1 72 700 Tm <{codes}> Tj ET"
    raw.page(content, "<< /Font << /F1 5 0 R /F2 6 0 R >> >>")
    raw.put(6, "<< /Type /Font /Subtype /Type0 /BaseFont /Mute /Encoding /Identity-H /DescendantFonts [7 0 R] >>")
    raw.put(7, "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Mute /DW 600 /FontDescriptor 8 0 R "
               "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>")
    raw.put(8, "<< /Type /FontDescriptor /FontName /Mute /Flags 4 /FontBBox [0 0 1000 1000] /Ascent 800 /Descent -200 "
               "/CapHeight 700 /ItalicAngle 0 /StemV 80 >>")
    write("mute-font.pdf", raw.build())


def outside():
    """Text beyond the page, in a layer that is off, and white on white."""
    raw = Raw()
    content = show("Visible on the page.", 72, 700) + show("Nobody sees this beyond the edge.", 900, 700)
    content += "/OC /Off BDC " + show("This layer is switched off.", 72, 650) + "EMC\n"
    content += "1 1 1 rg " + show("White letters are text as well.", 72, 600)
    raw.page(content, "<< /Font << /F1 5 0 R >> /Properties << /Off 6 0 R >> >>")
    raw.put(1, "<< /Type /Catalog /Pages 2 0 R /OCProperties << /OCGs [6 0 R] /D << /OFF [6 0 R] >> >> >>")
    raw.put(6, "<< /Type /OCG /Name (Off) >>")
    write("outside.pdf", raw.build())


def broken_page():
    """Three pages; the content of the second cannot be decompressed."""
    raw = Raw().page(show("The first page is whole.", 72, 700))
    raw.put(2, "<< /Type /Pages /Kids [3 0 R 6 0 R 8 0 R] /Count 3 >>")
    raw.put(6, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> >> "
               "/Contents 7 0 R >>")
    raw.put(7, b"<< /Length 12 /Filter /FlateDecode >>\nstream\nnot deflated\nendstream")
    raw.put(8, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> >> "
               "/Contents 9 0 R >>")
    raw.stream(9, show("The third page is whole, too.", 72, 700))
    write("broken-page.pdf", raw.build())


def markup():
    """Text that would be Markdown if it were not escaped."""
    raw = Raw()
    lines = ["# not a heading", "> not a quote", "1. not a list alone", "a * b * c and 2*3*4 and _under_", "<b>not bold</b>",
             "![x](data:image/png;base64,AAAA)", "| a | b |", "```"]
    content = "".join(show(line, 72, 700 - at * 40) for at, line in enumerate(lines))
    write("markup.pdf", raw.page(content).build())


def variants():
    """One document in several forms that must give the same text."""
    plain = (OUT / "report.pdf").read_bytes()

    def saved(name, **how):
        if "encryption" in how and (OUT / name).exists():
            return
        with pikepdf.open(io.BytesIO(plain)) as pdf:
            pdf.save(OUT / name, deterministic_id="encryption" not in how, **how)

    saved("object-streams.pdf", object_stream_mode=pikepdf.ObjectStreamMode.generate)
    saved("linearized.pdf", linearize=True)
    no_user_password = dict(user="", owner="harbour")
    legacy = dict(aes=False, metadata=False)
    saved("encrypted-rc4-40.pdf", encryption=pikepdf.Encryption(**no_user_password, R=2, **legacy))
    saved("encrypted-rc4-128.pdf", encryption=pikepdf.Encryption(**no_user_password, R=3, **legacy))
    saved("encrypted-aes-128.pdf", encryption=pikepdf.Encryption(**no_user_password, R=4, aes=True))
    saved("encrypted-aes-256.pdf", encryption=pikepdf.Encryption(**no_user_password, R=6))
    saved("encrypted-aes-256-r5.pdf", encryption=pikepdf.Encryption(**no_user_password, R=5))
    saved("password-aes-256.pdf", encryption=pikepdf.Encryption(user="secret", owner="harbour", R=6))
    saved("password-rc4-128.pdf", encryption=pikepdf.Encryption(user="secret", owner="harbour", R=3, **legacy))
    start = plain.rindex(b"startxref")
    write("xref-nowhere.pdf", plain[:start] + b"startxref\n99999999\n%%EOF\n")
    table = plain.rindex(b"\nxref\n")
    write("xref-gone.pdf", plain[:table] + b"\n%%EOF\n")
    shifted = plain[:table] + plain[table:start].replace(b" 00000 n", b" 00000 n") + plain[start:]
    lines = shifted[table:start].split(b"\n")
    moved = [b"%010d" % (int(line[:10]) + 3) + line[10:] if line.endswith(b"n ") else line for line in lines]
    write("xref-shifted.pdf", plain[:table] + b"\n".join(moved) + plain[start:])
    write("leading-bytes.pdf", b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n" + plain)
    write("no-end.pdf", plain[:table])


def long():
    """140 pages that share 14 contents: the file is small and takes as long to read as 140 distinct pages."""
    raw = Raw()
    raw.put(1, "<< /Type /Catalog /Pages 2 0 R >>")
    raw.font(5)
    contents = []
    words = (HARBOUR + " " + TIDES + " " + LIGHT).split()
    for kind in range(14):
        lines, line, at = [], "", kind * 7
        while len(lines) < 52:
            word = words[at % len(words)]
            at += 1
            if len(line) + len(word) > 88:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        content = show(f"Chapter {kind + 1}", 72, 740, 18)
        content += "".join(show(text, 72, 715 - row * 12.5, 10) for row, text in enumerate(lines))
        raw.stream(10 + kind, content)
        contents.append(10 + kind)
    kids = []
    for number in range(140):
        page_number = 100 + number
        kids.append(f"{page_number} 0 R")
        raw.put(page_number,
                f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> >> "
                     f"/Contents {contents[number % 14]} 0 R >>")
    raw.put(2, f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count 140 >>")
    write("pages-140.pdf", raw.build())


def main():
    for make in (report, columns, hyphens, invoice, wide_table, rotated, form, cjk, right_to_left, scripts, kerned,
                 tagged, lying_font, mute_font, outside, broken_page, markup, variants, long):
        make()
    write("scan.pdf", scan(False))
    write("scan-recognised.pdf", scan(True))


if __name__ == "__main__":
    main()
