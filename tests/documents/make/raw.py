"""Builds PDF files byte by byte, for content that libraries do not write."""

import zlib


class Raw:
    """Objects by number, and the cross-reference table of their offsets."""

    def __init__(self):
        self.objects = {}

    def put(self, number, body):
        """Sets an object; text is encoded as Latin-1."""
        self.objects[number] = body if isinstance(body, bytes) else body.encode("latin-1")

    def stream(self, number, data, entries="", pack=True):
        """A stream, compressed unless requested otherwise."""
        data = data if isinstance(data, bytes) else data.encode("latin-1")
        if pack:
            data = zlib.compress(data, 9)
            entries += " /Filter /FlateDecode"
        self.put(number, f"<< /Length {len(data)} {entries} >>\nstream\n".encode() + data + b"\nendstream")

    def page(self, content, resources="<< /Font << /F1 5 0 R >> >>", box="[0 0 612 792]", more=""):
        """A document of one page: catalog 1, tree 2, page 3, content 4, font 5."""
        self.put(1, f"<< /Type /Catalog /Pages 2 0 R >>")
        self.put(2, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>")
        self.put(3, f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Resources {resources} /Contents 4 0 R {more} >>")
        self.stream(4, content)
        self.font(5)
        return self

    def font(self, number, base="Helvetica"):
        self.put(number, f"<< /Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding /WinAnsiEncoding >>")

    def build(self, trailer="", root=1):
        """The bytes of the file."""
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        offsets = {}
        for number in sorted(self.objects):
            offsets[number] = len(out)
            out += f"{number} 0 obj\n".encode() + self.objects[number] + b"\nendobj\n"
        start = len(out)
        size = max(self.objects) + 1
        out += f"xref\n0 {size}\n0000000000 65535 f \n".encode()
        for number in range(1, size):
            if number in offsets:
                out += f"{offsets[number]:010} 00000 n \n".encode()
            else:
                out += b"0000000000 65535 f \n"
        out += f"trailer\n<< /Size {size} /Root {root} 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
        return bytes(out)


def show(text, x, y, size=11):
    """Operators that show one line."""
    text = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n"
