// SPDX-License-Identifier: MIT
// XMP is RDF in XML: properties are elements or attributes. The packet is copied tag by tag, and
// properties that may not remain are not copied. Everything that XMP does not need (DOCTYPE, CDATA,
// a prefix for two namespaces) and everything that is not well-formed gives up the packet.
#include <ctype.h>
#include <string.h>

#include "image/format.h"

#define COMMENT "<!-\x2D"
#define MOST_DEPTH 64
#define MOST_NAMESPACES 96
#define MOST_ATTRIBUTES 256           // of an element
#define MOST_PACKET ((size_t)1 << 20) // bytes; a small PNG may hold one that expands far
#define MOST_INSTRUCTION 128          // bytes of <?xpacket begin="..." id="..."?>

struct text {
    const char *at;
    size_t size;
};

struct element {
    struct text name;
    size_t start, content; // in the output: of the tag, and after it
    bool leaf;             // has no elements so far
};

struct packet {
    const char *at, *end; // what is left to read
    struct conv_buffer out;
    struct {
        struct text prefix, uri;
        size_t depth; // of the outermost open element that declares it, from 1; 0: none
        bool used;    // in the tag that is read
    } space[MOST_NAMESPACES];
    size_t spaces;
    struct text attribute[MOST_ATTRIBUTES]; // names in that tag
    size_t attributes;
    struct element open[MOST_DEPTH];
    size_t depth;
    size_t skipped; // elements that are open inside one that is not copied, and that one
    bool turned, names_only, no_memory, root;
    bool unbound; // a prefix in the tag is declared nowhere
};

static bool equals(struct text text, const char *other)
{
    return text.size == strlen(other) && memcmp(text.at, other, text.size) == 0;
}

static bool starts(struct text text, const char *with)
{
    return text.size >= strlen(with) && memcmp(text.at, with, strlen(with)) == 0;
}

static bool same(struct text a, struct text b)
{
    return a.size == b.size && memcmp(a.at, b.at, a.size) == 0;
}

// --- what is dropped -----------------------------------------------------------------------------

// Gain maps, depth, motion photos, and lists of the images in a file. Other makers of phones use
// /photos/ in the same way. Faces and panoramas are still true.
static bool is_dropped_space(struct text uri)
{
    static const char *const dropped[] = {
        "http://ns.adobe.com/xap/1.0/g/img/",
        "http://ns.adobe.com/xmp/note/",
        "http://ns.adobe.com/hdr-gain-map/",
        "http://ns.apple.com/",
        "http://c2pa.org/",
        "urn:iso:std:iso:ts:21496",
    };
    if (starts(uri, "http://ns.google.com/photos/1.0/panorama/") ||
        starts(uri, "http://ns.apple.com/faceinfo/"))
        return false;
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        if (starts(uri, dropped[i]))
            return true;
    for (size_t i = 0; i + 8 <= uri.size; i++)
        if (memcmp(uri.at + i, "/photos/", 8) == 0)
            return true;
    return false;
}

// A name is a prefix, a colon and a local name; without a colon the prefix is empty.
static struct text cut_prefix(struct text *name)
{
    const char *colon = memchr(name->at, ':', name->size);
    struct text prefix = {name->at, colon ? (size_t)(colon - name->at) : 0};
    if (colon)
        *name = (struct text){colon + 1, name->size - prefix.size - 1};
    return prefix;
}

static struct text uri_of(struct packet *packet, struct text prefix)
{
    for (size_t i = 0; i < packet->spaces; i++)
        if (same(packet->space[i].prefix, prefix)) {
            packet->space[i].used = true;
            return packet->space[i].uri;
        }
    packet->unbound |= prefix.size > 0 && !equals(prefix, "xml");
    return (struct text){"", 0};
}

static bool is_dropped(struct packet *packet, struct text name)
{
    static const char *const dropped[] = {"Thumbnails", "Thumbnail", "NativeDigest",
                                          "LegacyIPTCDigest", "HasExtendedXMP"};
    struct text prefix = cut_prefix(&name), uri = uri_of(packet, prefix);
    static const char *const sizes[] = {"Orientation", "ImageWidth", "ImageLength",
                                        "PixelXDimension", "PixelYDimension"};
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        if (equals(name, dropped[i]))
            return true;
    bool camera =
        starts(uri, "http://ns.adobe.com/tiff/") || starts(uri, "http://ns.adobe.com/exif/");
    for (size_t i = 0; packet->turned && camera && i < sizeof sizes / sizeof sizes[0]; i++)
        if (equals(name, sizes[i]))
            return true;
    return is_dropped_space(uri) ||
           (equals(name, "provenance") && starts(uri, "http://purl.org/dc/terms/"));
}

// --- reading -------------------------------------------------------------------------------------

static bool copy(struct packet *packet, const char *from, const char *to)
{
    if (packet->names_only || packet->skipped > 0)
        return true;
    packet->no_memory =
        !conv_buffer_append(&packet->out, (const uint8_t *)from, (size_t)(to - from));
    return !packet->no_memory;
}

static void skip_space(struct packet *packet)
{
    while (packet->at < packet->end && isspace((unsigned char)*packet->at))
        packet->at++;
}

// Names are of ASCII.
static bool take_name(struct packet *packet, struct text *name)
{
    const char *from = packet->at;
    bool start = true, good = true; // of the name or of its part after the colon
    int colons = 0;
    for (; packet->at < packet->end; packet->at++) {
        int c = (unsigned char)*packet->at;
        if (!isalnum(c) && (c == 0 || !strchr("_:.-", c)))
            break;
        good = good && (!start || isalpha(c) || c == '_');
        start = c == ':';
        colons += start;
    }
    *name = (struct text){from, (size_t)(packet->at - from)};
    return good && !start && colons <= 1;
}

// "#65;" or "#x41;", of a character that XML allows.
static bool is_character(struct text rest)
{
    bool hex = starts(rest, "#x");
    unsigned long value = 0;
    size_t first = hex ? 2 : 1, i = first;
    for (; i < rest.size && i < 10 && isxdigit((unsigned char)rest.at[i]); i++) {
        int c = (unsigned char)rest.at[i] | 0x20;
        if (!hex && c > '9')
            return false;
        value = value * (hex ? 16 : 10) + (unsigned)(c >= 'a' ? c - 'a' + 10 : (c & 15));
    }
    return i > first && i < rest.size && rest.at[i] == ';' &&
           (value == '\t' || value == '\n' || value == '\r' || (value >= 0x20 && value < 0xD800) ||
            (value >= 0xE000 && value < 0xFFFE) || (value >= 0x10000 && value < 0x110000));
}

// Character data without tags; references have to be complete.
static bool is_good_data(struct text data)
{
    static const char *const names[] = {"amp;", "lt;", "gt;", "quot;", "apos;"};
    const char *end = data.at + data.size;
    for (size_t i = 0; i < data.size; i++)
        if (data.at[i] == '<' ||
            ((unsigned char)data.at[i] < 0x20 && !strchr("\t\n\r", data.at[i])) ||
            data.at[i] == 0 || (data.size - i >= 3 && memcmp(data.at + i, "]]>", 3) == 0))
            return false;
    for (const char *p = data.at; (p = memchr(p, '&', (size_t)(end - p))) != NULL;) {
        struct text rest = {p + 1, (size_t)(end - p - 1)};
        bool good = false;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            good |= starts(rest, names[i]);
        good = good || (starts(rest, "#") && is_character(rest));
        if (!good)
            return false;
        p++;
    }
    return true;
}

static bool add_space(struct packet *packet, struct text prefix, struct text uri)
{
    size_t i = 0;
    while (i < packet->spaces && !same(packet->space[i].prefix, prefix))
        i++;
    if (i == MOST_NAMESPACES || (i < packet->spaces && !same(packet->space[i].uri, uri)))
        return false;
    packet->spaces += i == packet->spaces;
    packet->space[i].prefix = prefix;
    packet->space[i].uri = uri;
    if (packet->space[i].depth == 0)
        packet->space[i].depth = packet->depth + 1;
    return true;
}

static bool add_attribute(struct packet *packet, struct text name)
{
    for (size_t i = 0; i < packet->attributes; i++)
        if (same(packet->attribute[i], name))
            return false;
    if (packet->attributes == MOST_ATTRIBUTES)
        return false;
    packet->attribute[packet->attributes++] = name;
    return true;
}

// All prefixes of a tag have to be declared in it or around it. In the first pass they may be
// declared later.
static bool check_spaces(struct packet *packet)
{
    bool good = packet->names_only || !packet->unbound;
    for (size_t i = 0; i < packet->spaces; i++) {
        good = good && (packet->names_only || !packet->space[i].used ||
                        packet->space[i].depth > 0 || packet->space[i].prefix.size == 0);
        packet->space[i].used = false;
    }
    packet->unbound = false;
    return good;
}

static void end_spaces(struct packet *packet)
{
    for (size_t i = 0; i < packet->spaces; i++)
        if (packet->space[i].depth == packet->depth + 1)
            packet->space[i].depth = 0;
}

// Reads an attribute and copies it with the white space before it.
static bool take_attribute(struct packet *packet)
{
    const char *from = packet->at;
    struct text name, value, local;
    skip_space(packet);
    bool spaced = packet->at > from;
    if (!take_name(packet, &name) || !spaced || !add_attribute(packet, name))
        return false;
    skip_space(packet);
    if (packet->end - packet->at < 2 || *packet->at++ != '=')
        return false;
    skip_space(packet);
    const char *quote = packet->at, *close = NULL;
    if (quote < packet->end && (*quote == '"' || *quote == '\''))
        close = memchr(quote + 1, *quote, (size_t)(packet->end - quote - 1));
    if (!close)
        return false;
    packet->at = close + 1;
    value = (struct text){quote + 1, (size_t)(close - quote - 1)};
    if (!is_good_data(value))
        return false;
    local = name;
    bool space = equals(cut_prefix(&local), "xmlns") || equals(name, "xmlns");
    if (space && (value.size == 0 || starts(local, "xml")) && !equals(name, "xmlns"))
        return false;
    if (space && !add_space(packet, equals(name, "xmlns") ? (struct text){"", 0} : local, value))
        return false;
    bool image = conv_embedded_image(value.at, value.size);
    if (space && image)
        return false;
    if (image || (space ? is_dropped_space(value) : is_dropped(packet, name)))
        return true;
    return copy(packet, from, packet->at);
}

static bool take_start(struct packet *packet)
{
    const char *from = packet->at;
    struct text name;
    size_t start = packet->out.size;
    packet->at++;
    if (!take_name(packet, &name) || packet->depth == MOST_DEPTH ||
        (packet->depth == 0 && packet->root))
        return false;
    packet->root = true;
    packet->attributes = 0;
    bool dropped = is_dropped(packet, name);
    if (packet->skipped > 0 || dropped)
        packet->skipped++;
    if ((packet->depth == 0 && packet->skipped > 0) || !copy(packet, from, packet->at))
        return false; // nothing would remain
    for (;;) {
        const char *rest = packet->at;
        while (rest < packet->end && isspace((unsigned char)*rest))
            rest++;
        if (rest == packet->end)
            return false;
        if (*rest == '>' || *rest == '/')
            break;
        if (!take_attribute(packet))
            return false;
    }
    from = packet->at;
    skip_space(packet);
    bool empty = *packet->at == '/';
    packet->at += empty;
    if (packet->at == packet->end || *packet->at++ != '>' || !copy(packet, from, packet->at) ||
        !check_spaces(packet))
        return false;
    if (packet->depth > 0)
        packet->open[packet->depth - 1].leaf = false;
    packet->open[packet->depth] = (struct element){name, start, packet->out.size, true};
    if (empty)
        end_spaces(packet);
    packet->depth += !empty;
    packet->skipped -= empty && packet->skipped > 0;
    return true;
}

// The end of an element. Text that may hold an image takes the element with it.
static bool take_end(struct packet *packet)
{
    const char *from = packet->at;
    struct text name;
    packet->at += 2;
    if (!take_name(packet, &name) || packet->depth == 0)
        return false;
    const struct element *element = &packet->open[--packet->depth];
    end_spaces(packet);
    skip_space(packet);
    if (packet->at == packet->end || *packet->at++ != '>' || !same(element->name, name))
        return false;
    if (packet->skipped > 0) {
        packet->skipped--;
        return true;
    }
    if (!packet->names_only && element->leaf &&
        conv_embedded_image(packet->out.data + element->content,
                            packet->out.size - element->content)) {
        packet->out.size = element->start;
        return packet->depth > 0;
    }
    return copy(packet, from, packet->at);
}

// Comments and instructions of other programs are dropped.
static bool take_other(struct packet *packet)
{
    struct text rest = {packet->at, (size_t)(packet->end - packet->at)};
    const char *end = NULL;
    bool comment = starts(rest, COMMENT), keep = starts(rest, "<?xpacket ");
    if (!comment && !starts(rest, "<?"))
        return false;
    for (const char *p = packet->at + (comment ? 4 : 2); !end && packet->end - p >= 3; p++)
        end = comment ? (memcmp(p, "-\x2D>", 3) == 0 ? p + 3 : NULL)
                      : (memcmp(p, "?>", 2) == 0 ? p + 2 : NULL);
    if (!end && !comment && rest.size >= 4 && memcmp(packet->end - 2, "?>", 2) == 0)
        end = packet->end;
    if (!end)
        return false;
    const char *from = packet->at;
    packet->at = end;
    keep = keep && packet->depth == 0 && end - from <= MOST_INSTRUCTION;
    return !keep || copy(packet, from, end);
}

static bool take_data(struct packet *packet)
{
    const char *from = packet->at, *end = memchr(from, '<', (size_t)(packet->end - from));
    packet->at = end ? end : packet->end;
    struct text data = {from, (size_t)(packet->at - from)};
    for (size_t i = 0; i < data.size && packet->depth == 0; i++)
        if (!isspace((unsigned char)data.at[i]))
            return false;
    return is_good_data(data) && copy(packet, from, packet->at);
}

static bool read_packet(struct packet *packet, const char *data, size_t size)
{
    packet->at = data;
    packet->end = data + size;
    packet->root = false;
    while (packet->at < packet->end) {
        size_t left = (size_t)(packet->end - packet->at);
        char next = left >= 2 ? packet->at[1] : 0;
        bool good = *packet->at != '<'           ? take_data(packet)
                    : next == '/'                ? take_end(packet)
                    : next == '!' || next == '?' ? take_other(packet)
                                                 : take_start(packet);
        if (!good)
            return false;
    }
    return packet->depth == 0 && packet->root;
}

// The size without white space and NULs at the end.
static size_t trim(const uint8_t *data, size_t size)
{
    while (size > 0 && (data[size - 1] == 0 || isspace(data[size - 1])))
        size--;
    return size;
}

bool conv_clean_xmp(struct conv_buffer *xmp, bool turned)
{
    static const uint8_t mark[] = {0xEF, 0xBB, 0xBF};
    const uint8_t *data = xmp->data;
    size_t size = trim(data, xmp->size);
    struct packet packet = {.turned = turned, .names_only = true};
    if (size >= sizeof mark && memcmp(data, mark, sizeof mark) == 0) {
        data += sizeof mark;
        size -= sizeof mark;
    }
    bool good = size <= MOST_PACKET && conv_embedded_is_text(data, size) &&
                conv_embedded_is_utf8(data, size) && read_packet(&packet, (const char *)data, size);
    packet.names_only = false;
    good = good && read_packet(&packet, (const char *)data, size) &&
           !conv_embedded_image(packet.out.data, packet.out.size);
    packet.out.size = good ? trim(packet.out.data, packet.out.size) : 0;
    conv_buffer_free(xmp);
    *xmp = packet.out;
    return !packet.no_memory;
}
