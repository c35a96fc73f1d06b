"""Writes the files of ../corpus/office. It was run once, with the libraries that ../ORIGIN.md names.

All texts are invented. Libraries that people use wrote these files, unlike the documents that unit tests build by hand.
"""

import datetime
import sys
import zipfile
from pathlib import Path

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else ".")


def docx():
    from docx import Document
    from docx.shared import Inches  # noqa: F401

    document = Document()
    document.add_heading("Harbour report", 0)
    document.add_heading("Arrivals", 1)
    paragraph = document.add_paragraph("Three ships came in ")
    paragraph.add_run("late").bold = True
    paragraph.add_run(", one ")
    paragraph.add_run("early").italic = True
    paragraph.add_run(".")
    document.add_paragraph("Grain", style="List Bullet")
    document.add_paragraph("Timber", style="List Bullet")
    document.add_paragraph("Weigh", style="List Number")
    document.add_paragraph("Store", style="List Number")
    table = document.add_table(rows=3, cols=3)
    for row, cells in enumerate([["Ship", "Cargo", "Tons"], ["Anna", "Grain", "120"], ["Berta", "Timber", "80|90"]]):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    document.add_paragraph("Größe, naïve, 数字, عدد.")
    document.save(OUT / "harbour.docx")


def xlsx():
    from openpyxl import Workbook
    from openpyxl.comments import Comment

    book = Workbook()
    sheet = book.active
    sheet.title = "Budget"
    sheet.append(["Item", "Share", "Due", "At", "Sum"])
    sheet.append(["Rope", 0.125, datetime.date(2031, 3, 14), datetime.datetime(2031, 3, 14, 9, 30), 1e21])
    sheet.append(["Tar", 0.5, datetime.date(2031, 4, 1), datetime.time(9, 30), "=SUM(B2:B3)"])
    sheet.append(["Sail", 0.1 + 0.2, None, datetime.timedelta(hours=27, minutes=30), True])
    for row in range(2, 5):
        sheet.cell(row, 2).number_format = "0.0%"
    sheet["A2"].comment = Comment("Ask Ada", "Ben")
    sheet.merge_cells("A6:C6")
    sheet["A6"] = "merged"
    hidden = book.create_sheet("Notes")
    hidden.sheet_state = "hidden"
    hidden["C3"] = "far"
    book.create_sheet("Empty")
    book.save(OUT / "budget.xlsx")


def pptx():
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Plan"
    body = slide.placeholders[1].text_frame
    body.text = "First"
    deeper = body.add_paragraph()
    deeper.text = "Detail"
    deeper.level = 1
    slide.notes_slide.notes_text_frame.text = "Speak slowly"
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    low = slide.shapes.add_textbox(Inches(1), Inches(5), Inches(2), Inches(1))
    low.text_frame.text = "below"
    high = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(2), Inches(1))
    high.text_frame.text = "above"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for index, text in enumerate(["Port", "Depth", "North", "12"]):
        table.cell(index // 2, index % 2).text = text
    data = CategoryChartData()
    data.categories = ["Q1", "Q2"]
    data.add_series("Ships", (3, 4.5))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(5), Inches(6), Inches(3), Inches(2), data)
    deck.save(OUT / "plan.pptx")


def odf():
    from odf import draw, style, table, text
    from odf.opendocument import OpenDocumentPresentation, OpenDocumentSpreadsheet, OpenDocumentText

    document = OpenDocumentText()
    bold = style.Style(name="Bold", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(text.H(outlinelevel=1, text="Log"))
    paragraph = text.P(text="Wind ")
    paragraph.addElement(text.Span(stylename=bold, text="north"))
    paragraph.addText(" at noon.")
    document.text.addElement(paragraph)
    items = text.List()
    for word in ("one", "two"):
        item = text.ListItem()
        item.addElement(text.P(text=word))
        items.addElement(item)
    document.text.addElement(items)
    grid = table.Table(name="T")
    for cells in (("a", "b"), ("c", "d")):
        row = table.TableRow()
        for cell_text in cells:
            cell = table.TableCell()
            cell.addElement(text.P(text=cell_text))
            row.addElement(cell)
        grid.addElement(row)
    document.text.addElement(grid)
    document.save(str(OUT / "log.odt"))

    sheets = OpenDocumentSpreadsheet()
    grid = table.Table(name="Tides")
    for cells in ((("string", "Hour"), ("string", "Level")), (("float", "6"), ("percentage", "0.25"))):
        row = table.TableRow()
        for kind, value in cells:
            attributes = {} if kind == "string" else {"value": value}
            cell = table.TableCell(valuetype=kind, **attributes)
            cell.addElement(text.P(text=value))
            row.addElement(cell)
        grid.addElement(row)
    sheets.spreadsheet.addElement(grid)
    sheets.save(str(OUT / "tides.ods"))

    deck = OpenDocumentPresentation()
    layout = style.PageLayout(name="L")
    deck.automaticstyles.addElement(layout)
    master = style.MasterPage(name="M", pagelayoutname=layout)
    deck.masterstyles.addElement(master)
    page = draw.Page(name="p1", masterpagename=master)
    for top, words in (("8cm", "second"), ("2cm", "first")):
        frame = draw.Frame(x="1cm", y=top, width="5cm", height="2cm")
        box = draw.TextBox()
        box.addElement(text.P(text=words))
        frame.addElement(box)
        page.addElement(frame)
    deck.presentation.addElement(page)
    deck.save(str(OUT / "deck.odp"))


def xls():
    import xlwt

    book = xlwt.Workbook()
    sheet = book.add_sheet("Old")
    sheet.write(0, 0, "Name")
    sheet.write(0, 1, "Share")
    sheet.write(0, 2, "Day")
    sheet.write(1, 0, "Größe")
    sheet.write(1, 1, 0.125, xlwt.easyxf(num_format_str="0.0%"))
    sheet.write(1, 2, datetime.date(2031, 3, 14), xlwt.easyxf(num_format_str="yyyy-mm-dd"))
    sheet.write(2, 0, xlwt.Formula("1+1"))
    second = book.add_sheet("Gone")
    second.visibility = 1
    second.write(4, 3, True)
    book.save(str(OUT / "old.xls"))


def epub():
    chapters = {
        "OEBPS/ch one.xhtml": "<h1>Dawn</h1><p>The <em>first</em> light.</p>",
        "OEBPS/two.xhtml": "<h1>Noon</h1><ul><li>heat</li></ul>",
    }
    page = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body>{}</body></html>'
    with zipfile.ZipFile(OUT / "day.epub", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        book.writestr(
            "OEBPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="two" href="two.xhtml" media-type="application/xhtml+xml"/><item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/><item id="one" href="ch%20one.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="one"/><itemref idref="two"/></spine></package>',
        )
        book.writestr(
            "OEBPS/nav.xhtml",
            page.format('<nav><ol><li><a href="ch%20one.xhtml">Dawn</a></li><li><a href="two.xhtml#x">Noon</a></li></ol></nav>'),
        )
        for name, body in chapters.items():
            book.writestr(name, page.format(body))


for make in (docx, xlsx, pptx, odf, xls, epub):
    make()
