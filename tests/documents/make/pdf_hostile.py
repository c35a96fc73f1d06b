#!/usr/bin/env python3
"""Writes tests/documents/hostile/pdf: files with wrong lengths, loops, decompression bombs and missing ends.

    python3 tests/documents/make/pdf_hostile.py

Needs Python and the files of tests/documents/corpus/pdf. The files are the same on every run.
"""

import io
import pathlib
import zipfile
import zlib

from raw import Raw, show

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE.parent / "corpus" / "pdf"
OUT = HERE.parent / "hostile" / "pdf"
TEXT = "BT /F1 11 Tf 1 0 0 1 72 700 Tm "


def write(name, data):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_bytes(data)


def compress_twice(data):
    """Compresses data twice, so that a decompression bomb is small on disk."""
    return zlib.compress(zlib.compress(data, 9), 9)


def bomb(name, content, resources="<< /Font << /F1 5 0 R >> >>"):
    """One page whose content is compressed twice."""
    raw = Raw().page("", resources)
    packed = compress_twice(content if isinstance(content, bytes) else content.encode())
    raw.put(4, b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n" % len(packed) + packed + b"\nendstream")
    write(name, raw.build())


def ends():
    report = (CORPUS / "report.pdf").read_bytes()
    write("truncated.pdf", report[: len(report) // 3])
    write("header-only.pdf", b"%PDF-1.7\n")
    write("noise.pdf", b"%PDF-1.7\n" + bytes((i * i * 7 + i) & 0xFF for i in range(6000)))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(zipfile.ZipInfo("inside.txt"), "a second face")
    write("polyglot-zip.pdf", report + archive.getvalue())
    write("polyglot-html.pdf", b"<html><script>/*\n" + report + b"\n*/</script></html>\n")
    scripted = Raw().page(show("A file with a script.", 72, 700))
    scripted.put(1, "<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >> "
                    "/AA << /WC << /S /Launch /F (calc.exe) >> >> >>")
    write("script.pdf", scripted.build())


def trees():
    raw = Raw().page(show("The only page of a circle.", 72, 700))
    raw.put(2, "<< /Type /Pages /Kids [3 0 R 2 0 R 2 0 R] /Count 3 >>")
    write("page-tree-cycle.pdf", raw.build())

    raw = Raw().page(show("Deep down.", 72, 700))
    for level in range(100, 1000):
        raw.put(level, f"<< /Type /Pages /Kids [{level + 1} 0 R] /Count 1 >>")
    raw.put(2, "<< /Type /Pages /Kids [100 0 R] /Count 1 >>")
    raw.put(1000, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
    write("page-tree-deep.pdf", raw.build())

    raw = Raw().page("")
    raw.put(2, "<< /Type /Pages /Kids [] /Count 2000000000 >>")
    write("page-count-lies.pdf", raw.build())

    kid = "<</Type/Page>>"
    raw = Raw().page("")
    raw.put(2, f"<< /Type /Pages /MediaBox [0 0 9 9] /Kids [{kid * 6000}] /Count 6000 >>")
    write("many-pages.pdf", raw.build())

    raw = Raw().page(show("Structure in a circle.", 72, 700), more="/StructParents 0")
    raw.put(1, "<< /Type /Catalog /Pages 2 0 R /StructTreeRoot 10 0 R >>")
    raw.put(10, "<< /Type /StructTreeRoot /K [11 0 R] /ParentTree 12 0 R /RoleMap << /A /B /B /A >> >>")
    raw.put(11, "<< /Type /StructElem /S /A /P 11 0 R /Pg 3 0 R /K [11 0 R 11 0 R] >>")
    raw.put(12, "<< /Kids [12 0 R 12 0 R] /Nums [0 [11 0 R]] /Limits [0 0] >>")
    write("structure-cycle.pdf", raw.build())

    raw = Raw().page(show("A form in a circle.", 72, 700))
    raw.put(1, "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [10 0 R 10 0 R] >> >>")
    raw.put(10, "<< /T (a) /FT /Tx /V (value) /Kids [10 0 R 11 0 R] /Parent 11 0 R >>")
    raw.put(11, "<< /T (b) /Kids [10 0 R] /Parent 10 0 R >>")
    write("form-fields-cycle.pdf", raw.build())


def tables():
    report = (CORPUS / "report.pdf").read_bytes()
    start = report.rindex(b"startxref")
    place = report.rindex(b"\nxref\n") + 1
    looped = report.replace(b"trailer\n<<", b"trailer\n<< /Prev %d" % place, 1)
    write("xref-loop.pdf", looped)
    huge = report.replace(b"\nxref\n0 ", b"\nxref\n0 99999999999", 1)
    write("xref-huge-count.pdf", huge)
    raw = Raw().page(show("Behind a stream of places.", 72, 700))
    raw.put(9, "<< /Type /XRef /Size 4294967295 /W [8 8 8] /Index [0 4294967295] /Root 1 0 R /Length 24 >>\nstream\n"
               + "\0" * 24 + "\nendstream")
    built = raw.build()
    at = built.index(b"9 0 obj")
    write("xref-stream-lies.pdf", built[: built.rindex(b"startxref")] + b"startxref\n%d\n%%%%EOF\n" % at)
    write("reference-chain.pdf", chain())
    for name, length in (("length-long", "999999999"), ("length-negative", "-5"), ("length-itself", "4 0 R"),
                         ("length-short", "3")):
        raw = Raw().page("")
        raw.put(4, f"<< /Length {length} >>\nstream\n{show('Its length is a lie.', 72, 700)}\nendstream")
        write(f"{name}.pdf", raw.build())
    raw = Raw().page(show("Kept in a bag within itself.", 72, 700))
    inner = "10 0 11 0 << /Type /ObjStm >> << >>"
    raw.put(10, f"<< /Type /ObjStm /N 999999999 /First 999999 /Extends 10 0 R /Length {len(inner)} >>\nstream\n{inner}\nendstream")
    write("object-stream-itself.pdf", raw.build())


def chain():
    """References that lead through a thousand others, and one that leads to itself."""
    raw = Raw().page(show("At the end of a chain.", 72, 700))
    raw.put(3, "<< /Type /Page /Parent 2 0 R /MediaBox 100 0 R /Resources << /Font 2000 0 R >> /Contents 4 0 R >>")
    for number in range(100, 1100):
        raw.put(number, f"{number + 1} 0 R")
    raw.put(1100, "[0 0 612 792]")
    raw.put(2000, "2000 0 R")
    return raw.build()


def nesting():
    deep = 12000
    raw = Raw().page(show("Beside a deep array.", 72, 700))
    raw.put(3, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> >> "
               f"/Contents 4 0 R /Deep {'[' * deep}{']' * deep} >>")
    write("array-deep.pdf", raw.build())
    raw = Raw().page(show("Beside a deep dictionary.", 72, 700))
    raw.put(6, f"{'<< /A ' * deep}1{'>>' * deep}")
    write("dictionary-deep.pdf", raw.build())
    bomb("content-deep.pdf", "[" * 500_000 + "]" * 500_000 + " TJ " + show("After a deep array.", 72, 700))


def bombs():
    bomb("blank-bomb.pdf", b" " * 12_000_000 + show("Never reached.", 72, 700).encode())
    bomb("text-bomb.pdf", (TEXT + "(word) Tj 0 -1 Td " * 400_000).encode())
    bomb("one-string.pdf", (TEXT + "(" + "a" * 2_000_000 + ") Tj ET").encode())
    bomb("save-bomb.pdf", show("Before the pile.", 72, 700).encode() + b"q " * 3_000_000)
    bomb("mark-bomb.pdf", show("Before the marks.", 72, 700).encode() + b"/A BMC " * 1_000_000)
    lines = "".join(f"{x} {y} m {x + 9} {y} l S {x} {y} m {x} {y + 9} l S\n" for x in range(0, 600, 4) for y in range(0, 790, 4))
    bomb("lines.pdf", lines + show("Behind the lines.", 72, 700))
    cells = "".join(show(f"{row}.{column}", 20 + column * 6, 780 - row * 3, 2) for row in range(250) for column in range(95))
    bomb("cells.pdf", cells)
    grid = "".join(f"0 {y} m 600 {y} l S\n" for y in range(0, 790, 3)) + "".join(f"{x} 0 m {x} 790 l S\n" for x in range(0, 600, 6))
    bomb("grid.pdf", grid + cells)
    scattered = "".join(show("x", (i * 7919) % 600, (i * 104729) % 790, 1 + i % 40) for i in range(6000))
    bomb("scattered.pdf", scattered)
    repeated = "".join(show("same", 100, 100) for _ in range(15000))
    bomb("redrawn.pdf", repeated)
    run = zlib.compress(b"\x81a" * 50_000, 9)
    raw = Raw().page("")
    raw.put(4, b"<< /Length %d /Filter [/FlateDecode /RunLengthDecode] >>\nstream\n" % len(run) + run + b"\nendstream")
    write("run-length-bomb.pdf", raw.build())
    raw = Raw().page("")
    raw.put(4, b"<< /Length 8 /Filter /FlateDecode /DecodeParms << /Predictor 15 /Columns 2000000000 /Colors 255 "
               b"/BitsPerComponent 16 >> >>\nstream\nabcdefgh\nendstream")
    write("predictor-lies.pdf", raw.build())
    raw = Raw().page(show("Filters without end.", 72, 700))
    raw.put(4, f"<< /Length 4 /Filter [{'/ASCIIHexDecode ' * 3000}] >>\nstream\n4142\nendstream")
    write("filter-chain.pdf", raw.build())
    many = Raw().page("")
    many.stream(6, b" " * 3_000_000)
    many.put(3, f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents [{'6 0 R ' * 2000}] >>")
    write("contents-repeated.pdf", many.build())


def forms():
    use = "<< /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >>"
    raw = Raw().page(show("A form that draws itself.", 72, 700) + " /X Do", use)
    raw.stream(6, "/X Do " + show("again", 72, 600), f"/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources {use}")
    write("form-itself.pdf", raw.build())
    raw = Raw().page("/X0 Do", "<< /Font << /F1 5 0 R >> /XObject << /X0 10 0 R >> >>")
    for level in range(12):
        inside = f"<< /Font << /F1 5 0 R >> /XObject << /X{level + 1} {11 + level} 0 R >> >>"
        raw.stream(10 + level, f"/X{level + 1} Do " * 10 + show(f"level {level}", 72, 700 - level * 12),
                   f"/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources {inside}")
    raw.stream(22, show("bottom", 72, 100), "/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Resources << /Font << /F1 5 0 R >> >>")
    write("form-fan.pdf", raw.build())


def boxes():
    line = show("On a page of no size.", 72, 700)
    for name, box in (("box-huge", f"[-{'9' * 38} -{'9' * 38} {'9' * 38} {'9' * 38}]"), ("box-nothing", "[0 0 0 0]"),
                      ("box-backwards", "[612 792 0 0]"), ("box-words", "[(a) /b null true]")):
        write(f"{name}.pdf", Raw().page(line, box=box).build())
    big = "9" * 38
    odd = TEXT + f"{big} 0 0 {big} {big} {big} Tm (far) Tj 0 0 0 0 0 0 Tm (flat) Tj ET " + line
    odd += "BT /F1 999999999999999999 Tf (large) Tj /F1 -11 Tf 1 0 0 1 72 650 Tm (mirrored) Tj ET"
    write("matrices.pdf", Raw().page(odd).build())


def fonts():
    cmaps = {
        "cmap-range": "1 beginbfrange <0000> <FFFF> <0041> endbfrange",
        "cmap-long": "1 beginbfchar <41> <" + "0042" * 20000 + "> endbfchar",
        "cmap-space": "1 begincodespacerange <00000000> <FFFFFFFF> endcodespacerange 1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange",
        "cmap-itself": "/Loop usecmap",
    }
    for name, body in cmaps.items():
        raw = Raw().page(TEXT + "(A) Tj " * 300 + "ET" + show("Beside a strange font.", 72, 500).replace("/F1", "/F2"),
                         "<< /Font << /F1 5 0 R /F2 7 0 R >> >>")
        extra = " /UseCMap 6 0 R" if name == "cmap-itself" else ""
        raw.stream(6, f"/CMapName /Loop def {body}", extra)
        raw.put(5, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>")
        raw.font(7)
        write(f"{name}.pdf", raw.build())
    raw = Raw().page(TEXT + "<41> Tj ET " + show("Beside a font in a circle.", 72, 500).replace("/F1", "/F2"),
                     "<< /Font << /F1 5 0 R /F2 7 0 R >> >>")
    raw.put(5, "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [5 0 R] /ToUnicode 5 0 R >>")
    raw.font(7)
    write("font-itself.pdf", raw.build())
    raw = Raw().page("BT /F1 11 Tf 72 700 Td (a) Tj ET")
    raw.put(5, "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] /FirstChar 97 /LastChar 97 "
               "/Widths [1] /Encoding << /Differences [97 /a] >> /CharProcs << /a 6 0 R >> /Resources << /Font << /F1 5 0 R >> >> >>")
    raw.stream(6, "BT /F1 11 Tf (a) Tj ET")
    write("type3-itself.pdf", raw.build())
    widths = "<< /Type /Font /Subtype /Type0 /BaseFont /W /Encoding /Identity-H /DescendantFonts [6 0 R] >>"
    raw = Raw().page(TEXT + "<0041> Tj ET " + show("Beside wide letters.", 72, 500).replace("/F1", "/F2"),
                     "<< /Font << /F1 5 0 R /F2 7 0 R >> >>")
    raw.put(5, widths)
    raw.put(6, "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /W /W [0 4294967295 1000 0 2147483647 500] "
               "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>")
    raw.font(7)
    write("widths-range.pdf", raw.build())


def locks():
    line = show("Locked with nonsense.", 72, 700)
    for name, entry in (
        ("encrypt-nonsense", "<< /Filter /Standard /V 99 /R 99 /O (x) /U (y) /P -1 >>"),
        ("encrypt-short", "<< /Filter /Standard /V 5 /R 6 /Length 256 /O (x) /U (y) /OE (z) /UE () /P -1 >>"),
        ("encrypt-elsewhere", "<< /Filter /Vendor.Lock /V 4 >>"),
        ("encrypt-itself", "9 0 R"),
    ):
        raw = Raw().page(line)
        raw.put(9, "9 0 R")
        write(f"{name}.pdf", raw.build(trailer=f"/Encrypt {entry} /ID [(a) (b)]"))
    locked = (CORPUS / "encrypted-aes-256.pdf").read_bytes()
    write("encrypted-truncated.pdf", locked[: len(locked) * 2 // 3])
    broken = bytearray(locked)
    for index in range(200, 1500, 7):
        broken[index] ^= 0x55
    write("encrypted-garbage.pdf", bytes(broken))


def letters():
    raw = Raw()
    hebrew = "".join(f"{code:04X}" for code in [0x05D0, 0x05D1] * 20000)
    raw.page(f"BT /F2 1 Tf 1 0 0 1 72 700 Tm <{hebrew}> Tj ET", "<< /Font << /F1 5 0 R /F2 6 0 R >> >>")
    raw.put(6, "<< /Type /Font /Subtype /Type0 /BaseFont /H /Encoding /Identity-H /DescendantFonts [7 0 R] /ToUnicode 8 0 R >>")
    raw.put(7, "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /H /DW 10 /CIDSystemInfo << /Registry (Adobe) "
               "/Ordering (Identity) /Supplement 0 >> >>")
    raw.stream(8, "1 begincodespacerange <0000> <FFFF> endcodespacerange 1 beginbfrange <0000> <FFFF> <0000> endbfrange")
    write("right-to-left-long.pdf", raw.build())


def main():
    for make in (ends, trees, tables, nesting, bombs, forms, boxes, fonts, locks, letters):
        make()


if __name__ == "__main__":
    main()
