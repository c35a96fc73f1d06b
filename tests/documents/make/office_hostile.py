"""Writes ../hostile/office: packages with wrong sizes, loops, decompression bombs and missing ends. Needs Python alone.

    python3 tests/documents/make/office_hostile.py
"""

import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "corpus" / "office"
OUT = HERE.parent / "hostile" / "office"

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
ODF = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in (("office", "office"), ("text", "text"), ("table", "table"))
)
PARAGRAPH = "<w:p><w:r><w:t>before</w:t></w:r></w:p>"


def pack(name, parts):
    with zipfile.ZipFile(OUT / name, "w", zipfile.ZIP_DEFLATED) as package:
        for part, content in parts.items():
            info = zipfile.ZipInfo(part, (2031, 3, 14, 9, 30, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(info, content)


def docx(name, body, head="", more=None):
    document = f"{head}<w:document {WORD}><w:body>{body}</w:body></w:document>"
    pack(name, {"word/document.xml": document, **(more or {})})


def xlsx(name, rows, strings="<sst/>"):
    relation = f'<Relationship Type="{RELATIONS}/%s" Id="%s" Target="%s"/>'
    pack(
        name,
        {
            "xl/workbook.xml": f'<workbook xmlns:r="{RELATIONS}"><sheets><sheet name="S" sheetId="1" r:id="a"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": "<Relationships>"
            + relation % ("worksheet", "a", "sheet.xml")
            + relation % ("sharedStrings", "b", "strings.xml")
            + "</Relationships>",
            "xl/sheet.xml": f"<worksheet><sheetData>{rows}</sheetData></worksheet>",
            "xl/strings.xml": strings,
        },
    )


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    docx("bomb.docx", PARAGRAPH + " " * (70 << 20))
    docx("deep.docx", PARAGRAPH + "<w:tbl><w:tr><w:tc>" * 20_000 + "</w:tc></w:tr></w:tbl>" * 20_000)
    docx(
        "entities.docx",
        "<w:p><w:r><w:t>&a;&lol9;&file;</w:t></w:r></w:p>",
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY lol9 "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY file SYSTEM "file:///etc/passwd">]>',
    )
    cell = f'<w:tc><w:tcPr><w:gridSpan w:val="1000000000"/></w:tcPr>{PARAGRAPH}</w:tc>'
    docx("spans.docx", f"<w:tbl>{'<w:tr>' + cell * 100 + '</w:tr>'}</w:tbl>")
    docx(
        "circles.docx",
        '<w:p><w:pPr><w:pStyle w:val="A"/></w:pPr><w:r><w:t>before</w:t></w:r></w:p>',
        more={
            "word/_rels/document.xml.rels": f'<Relationships><Relationship Type="{RELATIONS}/styles" Id="a" Target="styles.xml"/><Relationship Type="{RELATIONS}/comments" Id="b" Target="document.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles {WORD}><w:style w:styleId="A"><w:basedOn w:val="B"/></w:style><w:style w:styleId="B"><w:basedOn w:val="A"/></w:style></w:styles>',
        },
    )
    whole = (CORPUS / "harbour.docx").read_bytes()
    (OUT / "truncated.docx").write_bytes(whole[: len(whole) // 2])
    pack("empty.docx", {"[Content_Types].xml": "<Types/>"})
    xlsx("far.xlsx", '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>')
    xlsx("claims.xlsx", '<row><c t="s"><v>0</v></c></row>', '<sst count="99999999999" uniqueCount="99999999999"><si><t>one</t></si></sst>')
    xlsx("long.xlsx", '<row><c t="s"><v>0</v></c></row>', f"<sst><si><t>{'x' * 100_000_000}</t></si></sst>")
    xlsx("echo.xlsx", '<row><c t="s"><v>0</v></c></row>' + '<row><c t="s"><v>1</v></c></row>' * 500, f"<sst><si><t>before</t></si><si><t>{'x' * 100_000}</t></si></sst>")
    repeat = '<table:table-cell table:number-columns-repeated="1000000000"%s><text:p>x</text:p></table:table-cell>'
    pack(
        "repeat.ods",
        {
            "content.xml": f'<office:document-content {ODF}><office:body><office:spreadsheet><table:table table:name="T"><table:table-row table:number-rows-repeated="1000000000"><table:table-cell><text:p>x</text:p></table:table-cell></table:table-row><table:table-row>{repeat % ""}</table:table-row></table:table></office:spreadsheet></office:body></office:document-content>'
        },
    )
    pack(
        "encrypted.odt",
        {
            "META-INF/manifest.xml": '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry m:full-path="content.xml"><m:encryption-data/></m:file-entry></m:manifest>',
            "content.xml": b"\x8f\x01\x02",
        },
    )


main()
