// SPDX-License-Identifier: MIT
// Exif metadata are a TIFF structure: directories of tags whose values are anywhere in it (Exif
// 3.0, 4.5). Thumbnails and previews are in other directories than the four that are kept here, and
// in MakerNote, which only its maker's programs can move.
#include <string.h>

#include "image/format.h"

#define PREFIX "Exif\0" // and another NUL
#define HEADER 8
#define ENTRY 12         // bytes of a directory's entry
#define BIG_ENTRY 20     // the same in BigTIFF, whose offsets and counts have 64 bits
#define MOST_ENTRIES 128 // more than there are tags in a directory's list
#define MOST_BINARY 64   // bytes of a value that is not text: six rationals take 48
#define MOST_TEXT 32768
#define CODE 8         // bytes
#define MOST_VISITS 64 // of directories

enum { MAIN, EXIF, GPS, INTEROP, DIRECTORIES };
enum { SUBFILE = 0x00FE, DESCRIPTION = 0x010E, ORIENTATION = 0x0112, COLOR_SPACE = 0xA001 };
enum { GDAL_METADATA = 0xA480, GDAL_NODATA = 0xA481, INTEROP_INDEX = 1 };
enum { BYTE = 1, ASCII, SHORT, LONG, RATIONAL, IFD = 13, LONG8 = 16, IFD8 = 18, UTF8 = 129 };

// Bytes of a value of each type.
static const uint8_t type_size[IFD8 + 1] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4,
                                            8, 4, 8, 4, 0, 0, 8, 8, 8};

// The tags that are kept. `child` is the directory to which a tag points, which is not MAIN.
enum text { PLAIN, UTF16, CODED }; // CODED: after a code of 8 bytes
static const struct rule {
    uint8_t directory, child, text;
    bool placed; // states places in the image as it is stored; of GeoTIFF and GDAL may be long
    uint16_t first, last;
} rules[] = {
    {.directory = MAIN, .first = 0x0100, .last = 0x0101}, // size
    {.directory = MAIN, .first = 0x010D, .last = 0x0110}, // document, description, make, model
    {.directory = MAIN, .first = ORIENTATION, .last = ORIENTATION},
    {.directory = MAIN, .first = 0x011A, .last = 0x011B}, // resolution
    {.directory = MAIN, .first = 0x011D, .last = 0x011D}, // page
    {.directory = MAIN, .first = 0x0128, .last = 0x0129},
    {.directory = MAIN, .first = 0x0131, .last = 0x0132}, // software, time
    {.directory = MAIN, .first = 0x013B, .last = 0x013C}, // artist, computer
    {.directory = MAIN, .first = 0x013E, .last = 0x013F}, // white point, primaries
    {.directory = MAIN, .first = 0x0211, .last = 0x0211},
    {.directory = MAIN, .first = 0x0213, .last = 0x0214},
    {.directory = MAIN, .first = 0x4746, .last = 0x4749},                 // rating
    {.directory = MAIN, .first = 0x8298, .last = 0x8298},                 // copyright
    {.directory = MAIN, .first = 0x830E, .last = 0x830E, .placed = true}, // ModelPixelScale
    {.directory = MAIN, .first = 0x8482, .last = 0x8482, .placed = true}, // ModelTiepoint
    {.directory = MAIN, .first = 0x85D8, .last = 0x85D8, .placed = true}, // ModelTransformation
    {.directory = MAIN, .first = 0x87AF, .last = 0x87B1, .placed = true}, // GeoKeyDirectory, ...
    {.directory = MAIN, .first = 0x8769, .last = 0x8769, .child = EXIF},
    {.directory = MAIN, .first = 0x8825, .last = 0x8825, .child = GPS},
    {.directory = MAIN, .first = 0x9003, .last = 0x9004}, // as in the next
    {.directory = MAIN, .first = 0x9C9B, .last = 0x9C9F, .text = UTF16},
    {.directory = MAIN, .first = GDAL_METADATA, .last = GDAL_NODATA, .placed = true},
    {.directory = EXIF, .first = 0x829A, .last = 0x829D}, // exposure
    {.directory = EXIF, .first = 0x8822, .last = 0x8824},
    {.directory = EXIF, .first = 0x8827, .last = 0x8835}, // sensitivity
    {.directory = EXIF, .first = 0x9000, .last = 0x9012}, // version, times
    {.directory = EXIF, .first = 0x9101, .last = 0x9101},
    {.directory = EXIF, .first = 0x9201, .last = 0x9213},                 // from shutter speed on
    {.directory = EXIF, .first = 0x9214, .last = 0x9214, .placed = true}, // subject area
    {.directory = EXIF, .first = 0x9286, .last = 0x9286, .text = CODED},
    {.directory = EXIF, .first = 0x9290, .last = 0x9292},
    {.directory = EXIF, .first = 0x9400, .last = 0x9405},
    {.directory = EXIF, .first = 0xA000, .last = 0xA004}, // version, colour space, size
    {.directory = EXIF, .first = 0xA005, .last = 0xA005, .child = INTEROP},
    {.directory = EXIF, .first = 0xA20B, .last = 0xA213},
    {.directory = EXIF, .first = 0xA214, .last = 0xA214, .placed = true}, // subject location
    {.directory = EXIF, .first = 0xA215, .last = 0xA217},
    {.directory = EXIF, .first = 0xA300, .last = 0xA302},
    {.directory = EXIF, .first = 0xA401, .last = 0xA40C},
    {.directory = EXIF, .first = 0xA420, .last = 0xA420},
    {.directory = EXIF, .first = 0xA430, .last = 0xA43C}, // owner, lens, editors
    {.directory = EXIF, .first = 0xA460, .last = 0xA462},
    {.directory = EXIF, .first = 0xA500, .last = 0xA500}, // gamma
    {.directory = GPS, .first = 0x00, .last = 0x1A},
    {.directory = GPS, .first = 0x1B, .last = 0x1C, .text = CODED},
    {.directory = GPS, .first = 0x1D, .last = 0x1F},
    {.directory = INTEROP, .first = INTEROP_INDEX, .last = 2},
};

struct entry {
    unsigned tag, type;
    uint32_t count;
    const uint8_t *value;
    size_t size;
    int child;
    uint64_t end; // of the value in the file; 0: it is in the entry
};

struct directory {
    struct entry entry[MOST_ENTRIES]; // by tag
    size_t count;
};

struct tree {
    const uint8_t *data;
    size_t size;
    bool little; // least significant byte first
    bool big;    // BigTIFF
    struct conv_cleaning cleaning;
    struct directory directory[DIRECTORIES];
    uint8_t orientation[2];
};

// --- reading -------------------------------------------------------------------------------------

static const struct rule *find_rule(int directory, unsigned tag)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].directory == directory && tag >= rules[i].first && tag <= rules[i].last)
            return &rules[i];
    return NULL;
}

static bool is_look(int directory, unsigned tag, int child)
{
    return child == EXIF || child == INTEROP || (directory == MAIN && tag == ORIENTATION) ||
           (directory == EXIF && tag == COLOR_SPACE) ||
           (directory == INTEROP && tag == INTEROP_INDEX);
}

// A code of 8 bytes: ASCII, JIS or none, with NULs or spaces after it.
static bool has_code(const uint8_t *value, size_t size)
{
    size_t at = size < CODE                      ? 0
                : memcmp(value, "ASCII", 5) == 0 ? 5
                : memcmp(value, "JIS", 3) == 0   ? 3
                                                 : 0;
    while (size >= CODE && at < CODE && (value[at] == 0 || value[at] == ' '))
        at++;
    return at == CODE;
}

static bool is_good_text(const struct tree *tree, const struct entry *entry, int text)
{
    const uint8_t *value = entry->value;
    size_t size = entry->size;
    if (text == UTF16)
        return entry->type != ASCII && conv_embedded_is_utf16(value, size, true);
    if (text != CODED)
        return conv_embedded_is_text(value, size);
    if (size < CODE || memcmp(value, "UNICODE", CODE) != 0)
        return has_code(value, size) && conv_embedded_is_text(value + CODE, size - CODE);
    return conv_embedded_is_utf16(value + CODE, size - CODE, tree->little) ||
           conv_embedded_is_utf16(value + CODE, size - CODE, !tree->little);
}

// The first number from 1 to 8; programs write it in several types.
static bool take_orientation(struct tree *tree, struct entry *entry)
{
    bool whole = entry->type == BYTE || entry->type == SHORT || entry->type == LONG;
    uint32_t value = whole ? conv_bytes_get(entry->value, type_size[entry->type], tree->little) : 0;
    if (value < 1 || value > 8 || (tree->orientation[0] | tree->orientation[1]))
        return false;
    value = tree->cleaning.orientation > 1 ? 1 : value;
    conv_bytes_put(tree->orientation, 2, value, tree->little);
    *entry = (struct entry){ORIENTATION, SHORT, 1, tree->orientation, 2, 0, 0};
    return true;
}

static bool has(const struct entry *entry, const char *text)
{
    return memmem(entry->value, entry->size, text, strlen(text));
}

// Descriptions in which microscopes' programs state the size, depth and number of images: of OME,
// ImageJ, Bio-Formats, and tifffile, now and before 2016.
static bool states_shape(const struct entry *entry)
{
    return has(entry, "openmicroscopy.org/Schemas/") || has(entry, "\nimages=") ||
           has(entry, "\"shape\":") || has(entry, "shape=(");
}

// False for what turning, another shape of the image or filtering makes untrue.
static bool stays_true(const struct tree *tree, const struct entry *entry, const struct rule *rule)
{
    bool turned = tree->cleaning.orientation > 1, reshaped = turned || tree->cleaning.reshaped;
    if (rule->directory == MAIN && entry->tag == DESCRIPTION)
        return !reshaped || !states_shape(entry);
    if (rule->placed && entry->tag >= GDAL_METADATA) // which states values of samples
        return !reshaped && !has(entry, "STATISTICS_");
    return !rule->placed || !turned;
}

static bool is_good(struct tree *tree, struct entry *entry, const struct rule *rule)
{
    bool text = rule->text || entry->type == ASCII || entry->type == UTF8;
    bool is_long = text || (rule->placed && rule->directory == MAIN);
    if (entry->size == 0 || entry->size > (is_long ? MOST_TEXT : MOST_BINARY) ||
        (text && !is_good_text(tree, entry, rule->text)) || !stays_true(tree, entry, rule) ||
        conv_embedded_image(entry->value, entry->size))
        return false;
    return rule->directory != MAIN || entry->tag != ORIENTATION || take_orientation(tree, entry);
}

// Reads the entry at `p`; false if its value is not wholly inside.
static bool read_entry(const struct tree *tree, struct entry *entry, const uint8_t *p)
{
    unsigned type = (unsigned)conv_bytes_get(p + 2, 2, tree->little);
    size_t offset = tree->big ? 8 : 4; // bytes of an offset and of a count
    uint64_t count = conv_bytes_get(p + 4, offset, tree->little);
    size_t unit = type <= IFD8 ? type_size[type] : type == UTF8;
    *entry = (struct entry){.tag = (unsigned)conv_bytes_get(p, 2, tree->little),
                            .type = type,
                            .count = (uint32_t)count,
                            .value = p + 4 + offset};
    if (unit == 0 || count > UINT32_MAX)
        return false;
    entry->size = count * unit;
    if (entry->size <= offset)
        return true;
    uint64_t at = conv_bytes_get(entry->value, offset, tree->little);
    if (__builtin_add_overflow(at, entry->size, &entry->end) || entry->end > tree->size)
        return false;
    entry->value = tree->data + at;
    return true;
}

// The entries of the directory at `at`: sets *count and returns the first one; NULL: it is not
// wholly inside. The offset of the next directory follows them, if it is inside.
static const uint8_t *open_directory(const struct tree *tree, uint64_t at, size_t *count)
{
    size_t head = tree->big ? 8 : 2;
    if (at < HEADER || at > tree->size || tree->size - at < head)
        return NULL;
    uint64_t stated = conv_bytes_get(tree->data + at, head, tree->little);
    size_t whole = (tree->size - at - head) / (tree->big ? BIG_ENTRY : ENTRY);
    *count = stated < whole ? stated : whole;
    return tree->data + at + head;
}

// The first entry of each tag, wherever it is in the order.
static void add_entry(struct directory *directory, const struct entry *entry)
{
    size_t at = directory->count;
    while (at > 0 && directory->entry[at - 1].tag > entry->tag)
        at--;
    if (directory->count == MOST_ENTRIES || (at > 0 && directory->entry[at - 1].tag == entry->tag))
        return;
    memmove(&directory->entry[at + 1], &directory->entry[at],
            (directory->count - at) * sizeof *entry);
    directory->entry[at] = *entry;
    directory->count++;
}

// Directories have numbers that grow with their depth, so none contains itself.
static void read_directory(struct tree *tree, int number, uint64_t at)
{
    struct directory *directory = &tree->directory[number];
    size_t count;
    const uint8_t *p = directory->count > 0 ? NULL : open_directory(tree, at, &count);
    for (size_t i = 0; p && i < count; i++, p += tree->big ? BIG_ENTRY : ENTRY) {
        struct entry entry;
        unsigned tag = (unsigned)conv_bytes_get(p, 2, tree->little);
        const struct rule *rule = find_rule(number, tag);
        if (!rule || (tree->cleaning.look && !is_look(number, tag, rule->child)) ||
            !read_entry(tree, &entry, p))
            continue;
        entry.child = rule->child;
        bool classic = entry.type <= IFD || entry.type == UTF8;
        if (!rule->child && classic && is_good(tree, &entry, rule))
            add_entry(directory, &entry);
        if (rule->child && (entry.size == 4 || (tree->big && entry.size == 8))) {
            read_directory(tree, rule->child,
                           conv_bytes_get(entry.value, entry.size, tree->little));
            entry = (struct entry){entry.tag, LONG, 1, entry.value, 4, entry.child, 0};
            add_entry(directory, &entry);
        }
    }
}

// --- turning -------------------------------------------------------------------------------------

static void drop_entry(struct directory *directory, struct entry *entry)
{
    directory->count--;
    memmove(entry, entry + 1,
            (size_t)(directory->entry + directory->count - entry) * sizeof *entry);
}

// Sizes and resolutions of both axes: the tag of y follows that of x.
static void exchange(struct directory *directory, unsigned tag)
{
    for (size_t i = 1; i < directory->count; i++) {
        struct entry *x = &directory->entry[i - 1], *y = &directory->entry[i], of_x = *x;
        if (x->tag != tag || y->tag != tag + 1)
            continue;
        *x = *y;
        *y = of_x;
        x->tag = tag;
        y->tag = tag + 1;
    }
}

static void turn(struct tree *tree)
{
    exchange(&tree->directory[MAIN], 0x0100);
    exchange(&tree->directory[MAIN], 0x011A);
    exchange(&tree->directory[EXIF], 0xA002);
    exchange(&tree->directory[EXIF], 0xA20E); // of the focal plane
}

// --- writing -------------------------------------------------------------------------------------

static size_t directory_size(const struct directory *directory)
{
    return directory->count == 0 ? 0 : 2 + directory->count * ENTRY + 4;
}

// Text ends with a NUL.
static bool needs_nul(const struct entry *entry)
{
    return entry->type == ASCII && entry->value[entry->size - 1] != 0;
}

static size_t value_size(const struct entry *entry)
{
    size_t size = entry->size + needs_nul(entry);
    return size <= 4 ? 0 : size + (size & 1);
}

static size_t tree_size(const struct tree *tree)
{
    size_t size = HEADER;
    for (int d = 0; d < DIRECTORIES; d++) {
        size += directory_size(&tree->directory[d]);
        for (size_t i = 0; i < tree->directory[d].count; i++)
            size += value_size(&tree->directory[d].entry[i]);
    }
    return size;
}

static void drop_longest(struct tree *tree)
{
    struct directory *from = NULL;
    struct entry *longest = NULL;
    for (int d = 0; d < DIRECTORIES; d++)
        for (size_t i = 0; i < tree->directory[d].count; i++) {
            struct entry *entry = &tree->directory[d].entry[i];
            if (!longest || entry->size > longest->size) {
                longest = entry;
                from = &tree->directory[d];
            }
        }
    drop_entry(from, longest);
}

static void drop_empty_children(struct tree *tree)
{
    for (int d = DIRECTORIES - 1; d >= 0; d--)
        for (size_t i = tree->directory[d].count; i-- > 0;) {
            struct entry *entry = &tree->directory[d].entry[i];
            if (entry->child && tree->directory[entry->child].count == 0)
                drop_entry(&tree->directory[d], entry);
        }
}

// Writes a directory and its values at *at, which is moved after them. Its children follow it.
static void write_directory(const struct tree *tree, int number, uint8_t *out, size_t *at)
{
    const struct directory *directory = &tree->directory[number];
    uint8_t *p = out + *at;
    *at += directory_size(directory);
    conv_bytes_put(p, 2, (uint32_t)directory->count, tree->little);
    p += 2;
    for (size_t i = 0; i < directory->count; i++, p += ENTRY) {
        const struct entry *entry = &directory->entry[i];
        bool nul = needs_nul(entry);
        conv_bytes_put(p, 2, entry->tag, tree->little);
        conv_bytes_put(p + 2, 2, entry->type, tree->little);
        conv_bytes_put(p + 4, 4, entry->count + nul, tree->little);
        if (!entry->child)
            memcpy(entry->size + nul <= 4 ? p + 8 : out + *at, entry->value, entry->size);
        if (value_size(entry) > 0)
            conv_bytes_put(p + 8, 4, (uint32_t)*at, tree->little);
        *at += value_size(entry);
    }
}

static void write_tree(struct tree *tree, uint8_t *out)
{
    size_t at = HEADER, start[DIRECTORIES];
    memcpy(out, tree->little ? "II*" : "MM\0*", 4);
    conv_bytes_put(out + 4, 4, HEADER, tree->little);
    for (int d = 0; d < DIRECTORIES; d++) {
        start[d] = at;
        if (tree->directory[d].count > 0)
            write_directory(tree, d, out, &at);
    }
    for (int d = 0; d < DIRECTORIES; d++)
        for (size_t i = 0; i < tree->directory[d].count; i++)
            if (tree->directory[d].entry[i].child)
                conv_bytes_put(out + start[d] + 2 + i * ENTRY + 8, 4,
                               (uint32_t)start[tree->directory[d].entry[i].child], tree->little);
}

// The offset of the first directory; 0 if there is no header.
static uint64_t open_tree(struct tree *tree, const uint8_t *data, size_t size)
{
    tree->data = data;
    tree->size = size;
    while (tree->size >= sizeof PREFIX && memcmp(tree->data, PREFIX, sizeof PREFIX) == 0) {
        tree->data += sizeof PREFIX;
        tree->size -= sizeof PREFIX;
    }
    if (tree->size < HEADER)
        return 0;
    tree->little = memcmp(tree->data, "II", 2) == 0;
    unsigned version = (unsigned)conv_bytes_get(tree->data + 2, 2, tree->little);
    tree->big = version == 43;
    if ((!tree->little && memcmp(tree->data, "MM", 2) != 0) || (version != 42 && !tree->big) ||
        (tree->big &&
         (tree->size < 2 * HEADER || conv_bytes_get(tree->data + 4, 2, tree->little) != 8)))
        return 0;
    return tree->big ? conv_bytes_get(tree->data + 8, 8, tree->little)
                     : conv_bytes_get(tree->data + 4, 4, tree->little);
}

static uint64_t number(const struct tree *tree, const struct entry *list, size_t i)
{
    size_t unit = list->size / list->count;
    return conv_bytes_get(list->value + i * unit, unit, tree->little);
}

// Finds a tag in the directory at *at, which becomes the offset of the next one; 0: there is none.
static bool find_in(const struct tree *tree, uint64_t *at, unsigned tag, struct entry *entry)
{
    size_t count, link = tree->big ? 8 : 4;
    const uint8_t *p = open_directory(tree, *at, &count);
    bool found = false;
    for (; p && count > 0; count--, p += tree->big ? BIG_ENTRY : ENTRY)
        found = found || (conv_bytes_get(p, 2, tree->little) == tag && read_entry(tree, entry, p));
    bool ends = !p || (size_t)(tree->data + tree->size - p) < link;
    *at = ends ? 0 : conv_bytes_get(p, link, tree->little);
    return found;
}

bool conv_exif_find(const uint8_t *data, size_t size, unsigned tag, struct conv_exif_tag *found)
{
    struct tree tree;
    struct entry entry;
    uint64_t at = open_tree(&tree, data, size);
    if (!at || !find_in(&tree, &at, tag, &entry))
        return false;
    *found = (struct conv_exif_tag){
        .type = entry.type, .value = entry.value, .size = entry.size, .little = tree.little};
    return true;
}

bool conv_exif_has_pages(const uint8_t *data, size_t size)
{
    struct tree tree;
    struct entry entry;
    uint64_t at = open_tree(&tree, data, size);
    for (int i = 0; i < MOST_VISITS && at; i++) {
        bool known = find_in(&tree, &at, SUBFILE, &entry) && entry.size == 4;
        if (i > 0 && !(known && number(&tree, &entry, 0) & 1)) // no smaller version of another
            return true;
    }
    return at;
}

// A file of which the first part is there.
struct reach {
    struct tree tree;
    uint64_t end;     // of what its directories refer to
    uint64_t numbers; // of the lists that were read: not more than the file has bytes
    int visits;
};

// Extends the file; true if these bytes are there.
static bool reaches(struct reach *reach, uint64_t at, uint64_t bytes)
{
    uint64_t end;
    if (__builtin_add_overflow(at, bytes, &end))
        end = INT64_MAX;
    reach->end = end > reach->end ? end : reach->end;
    return end <= reach->tree.size;
}

// Extends the file to the end of a directory and those after and below it.
static bool visit(struct reach *reach, uint64_t at)
{
    const struct tree *tree = &reach->tree;
    size_t head = tree->big ? 8 : 2, unit = tree->big ? BIG_ENTRY : ENTRY, link = tree->big ? 8 : 4;
    struct entry entry, places = {0};
    if (at == 0 || ++reach->visits > MOST_VISITS)
        return true;
    if (!reaches(reach, at, head))
        return false;
    const uint8_t *p = tree->data + at;
    uint64_t count = conv_bytes_get(p, head, tree->little);
    if (count > UINT16_MAX || !reaches(reach, at + head, count * unit + link))
        return false;
    for (p += head; count > 0; count--, p += unit) {
        bool whole = read_entry(tree, &entry, p);
        unsigned tag = entry.tag;
        bool sizes = tag == 0x0117 || tag == 0x0145 || tag == 0x0202; // of strips, tiles, a preview
        bool below = tag == 0x014A || tag == 0x8769 || tag == 0x8825 || tag == 0xA005;
        uint32_t followed = whole && (sizes || below) ? entry.count : 0;
        if (!reaches(reach, entry.end, 0) || (reach->numbers += followed) > tree->size)
            return false;
        for (uint32_t i = 0; i < followed; i++) {
            if (below && !visit(reach, number(tree, &entry, i)))
                return false;
            if (sizes && i < places.count)
                reaches(reach, number(tree, &places, i), number(tree, &entry, i));
        }
        if (whole && (tag == 0x0111 || tag == 0x0144 || tag == 0x0201))
            places = entry;
    }
    return visit(reach, conv_bytes_get(p, link, tree->little));
}

bool conv_exif_extent(const uint8_t *data, size_t size, size_t *, uint64_t *bytes)
{
    struct reach reach = {.end = 2 * HEADER};
    uint64_t first = size < reach.end ? 0 : open_tree(&reach.tree, data, size);
    bool found = first && visit(&reach, first);
    *bytes = found || reach.end > size ? reach.end : 0;
    return found;
}

int conv_exif_orientation(const uint8_t *exif, size_t size)
{
    struct tree tree = {.cleaning = {.look = true}};
    read_directory(&tree, MAIN, open_tree(&tree, exif, size));
    int stated = tree.orientation[0] | tree.orientation[1]; // one of them is 0
    return stated ? stated : 1;
}

bool conv_clean_exif(struct conv_buffer *exif, const uint8_t *data, size_t size,
                     struct conv_cleaning cleaning)
{
    struct tree tree = {.cleaning = cleaning};
    read_directory(&tree, MAIN, open_tree(&tree, data, size));
    if (cleaning.orientation >= 5)
        turn(&tree);
    exif->size = 0;
    while (tree_size(&tree) > CONV_CLEAN_EXIF_MOST)
        drop_longest(&tree);
    drop_empty_children(&tree);
    if (tree.directory[MAIN].count == 0)
        return true;
    size_t needed = tree_size(&tree);
    struct conv_buffer out = {0};
    if (!conv_buffer_reserve(&out, needed))
        return false;
    memset(out.data, 0, needed);
    write_tree(&tree, out.data);
    out.size = needed;
    conv_buffer_free(exif);
    *exif = out;
    return true;
}
