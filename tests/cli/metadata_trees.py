# SPDX-License-Identifier: MIT
"""Random metadata as cameras, phones and programs write them, and as nobody should: images at every place that may hold
one, and tags that must survive. A tree is drawn from a numpy generator."""
import base64
import hashlib
import struct
import zlib

import jpeg
from images import texture

TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 10: 8}


def marker_image(rng):
    """A small image file that must not be found in an output."""
    pixels = texture(rng, 3, 12, 12, 255).transpose(1, 2, 0)
    noise = rng.integers(1, 256, 300, dtype="u1").tobytes()
    kind = rng.integers(7)
    if kind < 3:
        return jpeg.make(pixels)
    if kind == 3:
        return b"\x89PNG\r\n\x1a\n" + noise
    if kind == 4:
        return b"RIFF" + struct.pack("<I", 308) + b"WEBPVP8 " + noise
    if kind == 5:
        return b"\0\0\0\x18ftypheic\0\0\0\0" + noise
    return b"BM" + struct.pack("<IIIII", 354, 0, 54, 40, 9) + noise


def windows(image):
    """Parts of it after the tables that all JPEG files share."""
    return [image[-56:-32], image[-30:-6]]


class Tree:
    """`images` must be gone, `kept` are the tags, as exiftool names them, that must have these values."""

    def __init__(self, rng):
        self.rng, self.images, self.kept = rng, [], {}

    def some(self, chance=0.5):
        return self.rng.random() < chance

    def image(self):
        self.images.append(marker_image(self.rng))
        return self.images[-1]

    def word(self, size=8):
        return "".join(self.rng.choice(list("abcdefghij KLMNO"), size)).strip() or "x"

    def shuffled(self, items):
        items = list(items)
        self.rng.shuffle(items)
        return items

    # --- Exif ------------------------------------------------------------------------------------

    def tiff(self):
        little = self.some()
        order = "<" if little else ">"
        pack = lambda form, *values: struct.pack(order + form, *values)
        text = lambda value: (2, value.encode() + b"\0")
        main, exif, gps = {}, {}, {}

        def keep(directory, tag, group, name, value, entry, chance=0.6):
            if self.some(chance):
                directory[tag] = entry
                self.kept[f"{group}:{name}"] = value

        orientation = int(self.rng.integers(1, 9))
        keep(main, 0x112, "IFD0", "Orientation", orientation, (3, pack("H", orientation)), 0.9)
        for tag, name in ((0x10F, "Make"), (0x110, "Model"), (0x13B, "Artist"), (0x8298, "Copyright"), (0x10E, "ImageDescription")):
            word = self.word(int(self.rng.integers(1, 200 if tag == 0x10E else 20)))
            keep(main, tag, "IFD0", name, word, text(word))
        keep(exif, 0x8827, "ExifIFD", "ISO", 200, (3, pack("H", 200)))
        keep(exif, 0x829D, "ExifIFD", "FNumber", 2.8, (5, pack("II", 28, 10)))
        keep(exif, 0xA434, "ExifIFD", "LensModel", "Lens 50", text("Lens 50"))
        keep(exif, 0x9286, "ExifIFD", "UserComment", "a comment", (7, b"ASCII\0\0\0a comment"))
        keep(gps, 1, "GPS", "GPSLatitudeRef", "N", text("N"))
        keep(gps, 2, "GPS", "GPSLatitude", 48.5, (5, pack("6I", 48, 1, 30, 1, 0, 1)))
        exif[0x9000] = (7, b"0232")
        blob = lambda: (7, self.rng.bytes(int(self.rng.integers(1, 50))) + self.image() + self.rng.bytes(int(self.rng.integers(50))))
        for directory, tags in ((main, (0x2BC, 0x8649, 0x83BB, 0xC4A5, 0xC634, 0x2E, 0x9999, 0x9C9C)),
                                (exif, (0x927C, 0x9286, 0xA40B, 0xA302, 0x8828, 0xEA1C, 0xFFFE)), (gps, (0x1B, 0x77))):
            for tag in tags:
                if self.some(0.15) and tag not in directory:
                    directory[tag] = blob()
        if self.some(0.2):
            main.setdefault(0x10D, text(base64.b64encode(self.image()).decode()))
        if self.some(0.2):
            main.setdefault(0x9C9E, (1, self.image().hex().encode("utf-16-le") + b"\0\0"))
        # An image that the main directory points to, one in the directory after it, one in a directory below.
        thumbnail = lambda: self.shuffled([(0x201, self.image()), (0x103, (3, pack("H", 6)))]) if self.some() else [(0x111, self.image())]
        below = [thumbnail() for _ in range(int(self.rng.integers(3)))]
        return self.lay_out(little, main, exif, gps, thumbnail() if self.some(0.7) else None, below, thumbnail() if self.some(0.15) else ())

    def lay_out(self, little, main, exif, gps, second, below, own):
        """The structure in a random order of its parts, with garbage between them."""
        order = "<" if little else ">"
        places, parts = {}, []

        def directory(name, entries, after=None):
            """Entries are (type, bytes) or a list of names of directories."""
            parts.append(("dir", name, entries, after))
            for tag, value in entries:
                if isinstance(value, bytes) or (isinstance(value, tuple) and len(value[1]) > 4):
                    parts.append(("data", (name, tag), value if isinstance(value, bytes) else value[1], None))

        directory("exif", list(exif.items()))
        if gps:
            directory("gps", list(gps.items()))
        for i, entries in enumerate(below):
            directory(f"below{i}", entries)
        if second is not None:
            directory("second", second)
        entries = [*main.items(), *own, (0x8769, ["exif"])]
        entries += [(0x8825, ["gps"])] if gps else []
        entries += [(0x14A, [f"below{i}" for i in range(len(below))])] if below else []
        directory("main", sorted(entries, key=lambda entry: entry[0]) if self.some(0.7) else self.shuffled(entries), "second" if second is not None else None)
        parts = self.shuffled(parts)
        at = 8
        for kind, name, content, _ in parts:
            at += int(self.rng.integers(3)) * 2
            places[name] = at
            at += 2 + 12 * sum(2 if isinstance(v, bytes) else 1 for _, v in content) + 4 + 8 * len(content) if kind == "dir" else len(content) + len(content) % 2
        out = bytearray(self.rng.bytes(at))
        out[:8] = (b"II*\0" if little else b"MM\0*") + struct.pack(order + "I", places["main"])
        for kind, name, content, after in parts:
            start = places[name]
            if kind == "data":
                out[start:start + len(content)] = content
                continue
            rows = []
            for tag, value in content:
                if isinstance(value, bytes):  # offset and size of an image
                    rows += [(tag, 4, 1, struct.pack(order + "I", places[name, tag])), (0x202 if tag == 0x201 else 0x117, 4, 1, struct.pack(order + "I", len(value)))]
                elif isinstance(value, list):
                    data = struct.pack(f"{order}{len(value)}I", *(places[v] for v in value))
                    if len(value) > 1:
                        extra = start + 2 + 12 * (len(content) + sum(isinstance(v, bytes) for _, v in content)) + 4
                        out[extra:extra + len(data)] = data
                        data = struct.pack(order + "I", extra)
                    rows.append((tag, 4, len(value), data))
                else:
                    type_, data = value
                    count = len(data) // TIFF_SIZES[type_]
                    rows.append((tag, type_, count, data.ljust(4, b"\0") if len(data) <= 4 else struct.pack(order + "I", places[name, tag])))
            packed = struct.pack(order + "H", len(rows)) + b"".join(struct.pack(order + "HHI", *row[:3]) + row[3] for row in rows)
            packed += struct.pack(order + "I", places[after] if after else 0)
            out[start:start + len(packed)] = packed
        return bytes(out)

    # --- XMP -------------------------------------------------------------------------------------

    def xmp(self, extension=b""):
        encoded = lambda: base64.b64encode(self.image()).decode()
        lines = lambda text, end: end.join(text[i:i + 76] for i in range(0, len(text), 76))
        spaces, attributes, elements = {}, [], []

        def name(uri, prefix):
            spaces.setdefault(uri, prefix if self.some(0.7) else f"{prefix}{len(spaces)}")
            return spaces[uri]

        def kept(group, tag, value, uri, prefix, plain=True):
            if not self.some(0.7):
                return
            p = name(uri, prefix)
            self.kept[f"{group}:{tag}"] = value
            local = {"Subject": "subject"}.get(tag, tag)
            if not plain:
                items = "".join(f"<rdf:li>{item}</rdf:li>" for item in value)
                elements.append(f"<{p}:{local}><rdf:Bag>{items}</rdf:Bag></{p}:{local}>")
            elif self.some():
                attributes.append(f'{p}:{local}="{value}"')
            else:
                elements.append(f"<{p}:{local}>{value}</{p}:{local}>")

        kept("XMP-xmp", "Rating", int(self.rng.integers(1, 6)), "http://ns.adobe.com/xap/1.0/", "xmp")
        kept("XMP-photoshop", "City", self.word(), "http://ns.adobe.com/photoshop/1.0/", "photoshop")
        kept("XMP-aux", "Lens", "Lens 50", "http://ns.adobe.com/exif/1.0/aux/", "aux")
        kept("XMP-dc", "Subject", ["one", "two", "größer"], "http://purl.org/dc/elements/1.1/", "dc", False)
        if self.some(0.4):
            x, g = name("http://ns.adobe.com/xap/1.0/", "xmp"), name("http://ns.adobe.com/xap/1.0/g/img/", "xmpGImg")
            inner = (f"<rdf:li rdf:parseType='Resource'><{g}:format>JPEG</{g}:format><{g}:image>{lines(encoded(), '&#xA;')}</{g}:image></rdf:li>" if self.some()
                     else f'<rdf:li {g}:format="JPEG" {g}:image="{lines(encoded(), "&#10;")}"/>')
            elements.append(f"<{x}:Thumbnails><rdf:Alt>{inner}</rdf:Alt></{x}:Thumbnails>")
        for uri, prefix, tag in (("http://ns.google.com/photos/1.0/image/", "GImage", "Data"), ("http://ns.google.com/photos/1.0/depthmap/", "GDepth", "Data"),
                                 ("http://ns.example.org/", "own", "preview"), ("http://ns.adobe.com/photoshop/1.0/", "photoshop", "Preview"),
                                 ("http://ns.xiaomi.com/photos/1.0/camera/", "MiCamera", "XMPMeta")):
            if self.some(0.25):
                p = name(uri, prefix)
                value = lines(encoded(), "\n") if self.some() else self.image().hex()
                (attributes if self.some() else elements).append(f'{p}:{tag}="{value}"')
                if elements and elements[-1].endswith('"'):
                    elements[-1] = f"<{p}:{tag}>{value}</{p}:{tag}>"
        if self.some(0.3):
            c, i = name("http://ns.google.com/photos/1.0/container/", "Container"), name("http://ns.google.com/photos/1.0/container/item/", "Item")
            elements.append(f'<{c}:Directory><rdf:Seq><rdf:li rdf:parseType="Resource"><{c}:Item {i}:Mime="video/mp4" {i}:Semantic="MotionPhoto" {i}:Length="5008"/></rdf:li></rdf:Seq></{c}:Directory>')
        if extension:
            attributes.append(f'{name("http://ns.adobe.com/xmp/note/", "xmpNote")}:HasExtendedXMP="{hashlib.md5(extension).hexdigest().upper()}"')
        declared = " ".join(f'xmlns:{prefix}="{uri}"' for uri, prefix in spaces.items())
        comment = f"<!-- {encoded()} -->" if self.some(0.1) else ""
        body = (f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" '
                f'{" ".join(self.shuffled([declared, *attributes]))}>{comment}{"".join(self.shuffled(elements))}</rdf:Description></rdf:RDF></x:xmpmeta>')
        if self.some():
            body = "<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>\n" + body + " " * int(self.rng.integers(99)) + "\n<?xpacket end='w'?>"
        return body.encode()

    # --- Photoshop -------------------------------------------------------------------------------

    def photoshop(self):
        def resource(number, data):
            name = self.word(int(self.rng.integers(1, 9))).encode() if self.some(0.2) else b""
            name = bytes((len(name),)) + name
            return b"8BIM" + struct.pack(">H", number) + name + bytes(len(name) % 2) + struct.pack(">I", len(data)) + data + bytes(len(data) % 2)

        captions = b"\x1c\x02\0\0\2\0\4"
        for number, tag in ((120, "Caption-Abstract"), (116, "CopyrightNotice"), (90, "City")):
            if self.some(0.7):
                word = self.word()
                self.kept[f"IPTC:{tag}"] = word
                captions += struct.pack(">BBBH", 0x1C, 2, number, len(word)) + word.encode()
        for record, number in ((2, 202), (2, 125), (8, 10), (2, 118)):
            if self.some(0.2):
                image = self.image()
                captions += struct.pack(">BBBH", 0x1C, record, number, len(image)) + image
        resources = [resource(0x404, captions)]
        for number in (0x409, 0x40C, 0x422, 0x424, 0x40F, 0x7D5, 0xFA0, 0x1234):
            if self.some(0.2):
                resources.append(resource(number, self.rng.bytes(28) + self.image()))
        return b"".join(self.shuffled(resources))

    def text(self):
        """(text, whether it survives)"""
        form = self.rng.integers(6)
        if form < 2:
            return self.word(30).encode(), True
        image = self.image()
        encoded = base64.b64encode(b"x" * int(self.rng.integers(3)) + image)
        return (b"data:image/jpeg;base64," + encoded, b'{"a": "' + encoded.replace(b"/", b"\\/") + b'"}', image.hex().encode(), image)[form - 2], False

    # --- files -----------------------------------------------------------------------------------

    def jpeg(self, pixels):
        segments = []
        if self.some(0.8):
            tiff = self.tiff()
            cut = int(self.rng.integers(9, len(tiff))) if self.some(0.2) else len(tiff)
            if tiff[cut:cut + 2] in (b"II", b"MM"):
                cut = len(tiff)
            prefix = b"Exif\0\0" * (2 if self.some(0.1) and cut == len(tiff) else 1)
            segments.append(jpeg.segment(0xE1, prefix + tiff[:cut]))
            if cut < len(tiff):
                segments.append(jpeg.segment(0xE1, b"Exif\0\0" + tiff[cut:]))
        if self.some(0.7):
            extension = b"<x>" + base64.b64encode(self.image()) + b"</x>" if self.some(0.3) else b""
            segments.append(jpeg.segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + self.xmp(extension)))
            if extension:
                guid = hashlib.md5(extension).hexdigest().upper().encode()
                segments.append(jpeg.segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + guid + struct.pack(">II", len(extension), 0) + extension))
        if self.some(0.6):
            blob = self.photoshop()
            cut = int(self.rng.integers(1, len(blob))) if self.some(0.3) else len(blob)
            segments += [jpeg.segment(0xED, b"Photoshop 3.0\0" + part) for part in (blob[:cut], blob[cut:]) if part]
        for _ in range(int(self.rng.integers(3))):
            text, survives = self.text()
            segments.append(jpeg.segment(0xFE, text))
        for code, head in ((0xE0, b"JFXX\0\x10"), (0xE2, b"MPF\0"), (0xE2, b"FPXR\0"), (0xEB, b"JP\0\1"), (0xE7, b"own")):
            if self.some(0.2):
                segments.append(jpeg.segment(code, head + self.image()))
        return jpeg.make(pixels, *segments) + (self.image() if self.some(0.3) else b"")

    def png(self, file):
        """Adds to the bytes of a PNG."""
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        def raw(name, data):
            digits = data.hex()
            text = f"\n{name}\n{len(data):8d}\n".encode() + b"\n".join(digits[i:i + 72].encode() for i in range(0, len(digits), 72)) + b"\n"
            return textual(b"Raw profile type " + name.encode(), text)

        def textual(keyword, text, international=False):
            kind = self.rng.integers(2)
            if international:
                return chunk(b"iTXt", keyword + (b"\0\1\0\0\0" + zlib.compress(text) if kind else b"\0\0\0\0\0" + text))
            return chunk(b"zTXt", keyword + b"\0\0" + zlib.compress(text)) if kind else chunk(b"tEXt", keyword + b"\0" + text)

        parts = []
        if self.some(0.8):
            tiff = b"Exif\0\0" * int(self.some(0.2)) + self.tiff()
            parts.append((chunk(b"eXIf", tiff), raw("exif", tiff), raw("APP1", b"Exif\0\0" + tiff))[self.rng.integers(3)])
        if self.some(0.7):
            xmp = self.xmp()
            parts.append((textual(b"XML:com.adobe.xmp", xmp, True), raw("xmp", xmp), raw("APP1", b"http://ns.adobe.com/xap/1.0/\0" + xmp))[self.rng.integers(3)])
        if self.some(0.5):
            parts.append(raw(("iptc", "8bim")[self.rng.integers(2)], self.photoshop()))
        for keyword in (b"Comment", b"Thumb::Image", b"parameters"):
            if self.some(0.4):
                text, _ = self.text()
                parts.append(textual(keyword, text, self.some(0.3)))
        if self.some(0.2):
            parts.append(raw("own", self.image()))
        if self.some(0.2):
            parts.append(chunk(b"ccCc", self.image() if self.some() else zlib.compress(self.image())))
        if self.some(0.2):
            parts.append(chunk(b"iTXt", b"Title\0\0\0" + base64.b64encode(self.image()) + b"\0\0text"))
        if self.some(0.2):
            parts.append(chunk(b"zTXt", b"Title\0\0" + zlib.compress(b"text") + self.image()))
        parts = self.shuffled(parts)
        cut = int(self.rng.integers(len(parts) + 1))
        return file[:33] + b"".join(parts[:cut]) + file[33:-12] + b"".join(parts[cut:]) + file[-12:]


def views(data):
    """The bytes of a file, those of its compressed and of its hexadecimal parts."""
    found = [data]
    if data[:4] == b"\x89PNG":
        at = 8
        while at < len(data):
            size, kind = struct.unpack_from(">I4s", data, at)
            part = data[at + 8:at + 8 + size]
            at += 12 + size
            for start in range(len(part)) if kind in (b"zTXt", b"iTXt", b"iCCP") else ():
                if part[start:start + 1] == b"\x78":
                    try:
                        found.append(zlib.decompressobj().decompress(part[start:]))
                    except zlib.error:
                        pass
    plain = [b"".join(view.replace(b"&#xA;", b"").replace(b"&#10;", b"").replace(b"\\", b"").replace(b"\0", b"").split()) for view in found]
    digits = [bytes(c for c in view if c in b"0123456789abcdefABCDEF") for view in plain[1:]]
    return found + plain + [bytes.fromhex(view[shift:len(view) - (len(view) - shift) % 2].decode()) for view in digits for shift in (0, 1)]


def is_shown(image, data_views):
    """True if a part of the image is in one of the views, as it is or encoded."""
    for window in windows(image):
        forms = [window, window.hex().encode(), window.hex().upper().encode()]
        forms += [base64.b64encode(window[shift:shift + 18])[2:-2] for shift in range(3)]
        if any(form in view for form in forms for view in data_views):
            return True
    return False
