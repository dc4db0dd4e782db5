// SPDX-License-Identifier: MIT

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "array.h"
#include "files.h"
#include "interpreter.h"

namespace convpy
{

namespace
{

// --- large pages for large new blocks of memory --------------------------------------------------

struct MemoryRange {
    char *first;
    size_t size; // bytes
};

constexpr uintptr_t large_page = uintptr_t{2} << 20;
constexpr uintptr_t least_bytes = 4 * large_page; // below it there is little to gain

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // of Linux 6.1; older systems refuse it
#endif

// The pages that the range begins and ends in belong to malloc, too, which does no harm: this is
// advice on how to back memory that has not been used. All of it may be refused.
void advise(uintptr_t first, uintptr_t end, bool now)
{
    if (end - first < least_bytes)
        return;
    (void)madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE);
    uintptr_t from = (first + large_page - 1) / large_page * large_page;
    if (now)
        (void)madvise(reinterpret_cast<void *>(from), end / large_page * large_page - from,
                      MADV_COLLAPSE);
}

// Asks for pages of 2 MiB for blocks that have not been written to yet, also for neighbouring
// blocks together, such as those of malloc. The first access to a page of 4 KiB takes longer than
// copying into it. malloc and Python have written the ends of each block, so that in blocks below 4
// MiB no large page is possible until the system moves what is there: with `now` it does so at
// once, in the calling thread. That takes a quarter of the time of one thread that accesses each
// small page, and more than that of many.
void use_large_pages(std::vector<MemoryRange> blocks, bool now)
{
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    std::sort(blocks.begin(), blocks.end(),
              [](const MemoryRange &a, const MemoryRange &b) { return a.first < b.first; });
    uintptr_t first = 0, end = 0;
    for (const MemoryRange &block : blocks) {
        auto data = reinterpret_cast<uintptr_t>(block.first);
        uintptr_t begins = data / page * page;
        if (begins > end + page) {
            advise(first, end, now);
            first = begins;
        }
        end = (data + block.size + page - 1) / page * page;
    }
    advise(first, end, now);
}

// --- memory for files ----------------------------------------------------------------------------

// Largest block that glibc's limits follow: 32 MiB with its own overhead, in whole pages.
constexpr size_t most_block = (size_t{32} << 20) - (size_t{64} << 10);

// Makes malloc keep freed blocks for later calls, whose pages are then there already, and returns
// how many bytes at most. glibc begins with 128 KiB and raises that to twice the largest block that
// was freed, up to 64 MiB; this frees one that was never written to. Where the environment or the
// program sets the limit, it stays.
size_t keep_freed_blocks()
{
    static const bool raised = [] {
        void *volatile block = malloc(most_block); // volatile: compilers remove unused blocks
        free(block);
        return block != nullptr;
    }();
    (void)raised;
    return 2 * most_block;
}

// --- the call ------------------------------------------------------------------------------------

struct Encode {
    Format format = Format::png;
    std::vector<Tensor> tensors;
    std::vector<conv_image> images;
    Stream stream;
    int device = cpu;
    std::vector<conv_bytes> files;
    std::vector<conv_item> items;
    bool views = false;
    std::vector<nb::object> bytes; // without `views`: the memory of `files`
    Unlocked *unlocked = nullptr;  // while the library works
    size_t first = 0;              // image of the group that the library works on
    size_t longer = none;          // image whose bytes object is to be shrunk to its file
    bool waits = false;            // other threads use the GIL

    static constexpr size_t none = SIZE_MAX;
};

void add_image(Encode &call, nb::handle image, Layout layout, nb::handle device)
{
    Tensor tensor = import_array(image, call.stream, "images");
    bool jpeg = call.format == Format::jpeg;
    if (tensor.sample != CONV_SAMPLE_U8 && (jpeg || tensor.sample != CONV_SAMPLE_U16))
        raise_type("images: samples of type %s; %s", sample_name(tensor.sample),
                   jpeg ? "JPEG files have uint8" : "PNG files have uint8 or uint16");
    int place = place_of(tensor, device);
    if (!call.tensors.empty() && place != call.device)
        raise_value("the images of one call must all be on the same device");
    call.device = place;
    if (tensor.stream.given)
        call.stream = tensor.stream;
    append_images(call.images, tensor, layout, "images");
    call.tensors.push_back(std::move(tensor));
}

// _PyBytes_Resize, which is not in the stable ABI. NULL: this Python does not export it.
auto find_resize() noexcept
{
    using Resize = int (*)(PyObject **, Py_ssize_t);
    static const auto resize = reinterpret_cast<Resize>(dlsym(RTLD_DEFAULT, "_PyBytes_Resize"));
    return resize;
}

// Shrinks the bytes object that was reserved last. With the GIL.
void shrink_last(Encode &call) noexcept
{
    size_t i = call.longer;
    call.longer = Encode::none;
    if (i == Encode::none || call.files[i].size == 0) // 0: the item failed
        return;
    PyObject *bytes = call.bytes[i].release().ptr();
    if (find_resize()(&bytes, static_cast<Py_ssize_t>(call.files[i].size)) != 0) {
        PyErr_Clear();
        call.items[i].status = CONV_ERR_MEMORY;
        snprintf(call.items[i].message, sizeof call.items[i].message, "no memory for %zu bytes",
                 call.files[i].size);
    }
    call.bytes[i] = nb::steal(bytes);
}

// A thread that waits longer than this for the GIL does without it: files are then copied into
// bytes objects that are made together, after the last image.
constexpr std::chrono::microseconds most_wait{200};

// Makes a bytes object that the library encodes into. It is longer than the file.
void *reserve_bytes(void *user, int32_t index, size_t most) noexcept
{
    auto &call = *static_cast<Encode *>(user);
    if (call.waits)
        return nullptr;
    auto start = std::chrono::steady_clock::now();
    Relocked locked(*call.unlocked);
    call.waits = std::chrono::steady_clock::now() - start > most_wait;
    shrink_last(call);
    PyObject *bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(most));
    if (!bytes) {
        PyErr_Clear();
        return nullptr;
    }
    call.longer = call.first + static_cast<size_t>(index);
    call.bytes[call.longer] = nb::steal(bytes);
    return PyBytes_AsString(bytes);
}

// Threads that copy files into bytes objects: more of them are faster with small pages.
constexpr unsigned most_for_collapse = 4;

// Makes bytes objects, which the library fills before other code sees them.
void allocate_bytes(void *user, int count, const int32_t *indices, const size_t *sizes,
                    void **memory) noexcept
{
    auto &call = *static_cast<Encode *>(user);
    std::vector<MemoryRange> blocks;
    {
        Relocked locked(*call.unlocked);
        for (int i = 0; i < count; i++) {
            PyObject *bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(sizes[i]));
            memory[i] = bytes ? PyBytes_AsString(bytes) : nullptr;
            call.bytes[call.first + static_cast<size_t>(indices[i])] = nb::steal(bytes);
            if (bytes)
                blocks.push_back({static_cast<char *>(memory[i]), sizes[i]});
            else
                PyErr_Clear(); // the item says that there was no memory
        }
    }
    use_large_pages(std::move(blocks), call.device == cpu && cpu_threads() <= most_for_collapse);
}

// `options`: conv_encode_options or conv_jpeg_encode_options, for the function `encode`.
template <typename Options, typename Function>
void run(Encode &call, const Borrowed &context, Options options, Function encode, bool slow)
{
    if (!call.views) {
        options.allocate = allocate_bytes;
        options.user = &call;
        call.bytes.resize(call.images.size());
    }
    call.files.resize(call.images.size());
    call.items.resize(call.images.size());
    std::vector<uint64_t> samples;
    for (const conv_image &image : call.images)
        samples.push_back(samples_of(image));
    uint64_t most = group_samples(call.device, slow);
    // More than malloc keeps is new memory in every call, for which large pages are worth a copy.
    if (!call.views && find_resize() &&
        std::accumulate(samples.begin(), samples.end(), uint64_t{0}) <= keep_freed_blocks())
        options.reserve = reserve_bytes;
    Unlocked unlocked;
    call.unlocked = &unlocked;
    run_groups(context, unlocked, samples, most, call.items, [&](size_t first, int count) {
        call.first = first;
        return encode(context.get(), &call.images[first], count, &options, &call.files[first],
                      &call.items[first], call.stream.handle);
    });
}

// memoryviews of the library's memory.
nb::object view_of(const conv_bytes &file, const Borrowed &context)
{
    auto size = static_cast<int64_t>(file.size);
    Array array =
        own_array(context, CONV_HOST, const_cast<void *>(file.data), CONV_SAMPLE_U8, &size, 1);
    PyObject *view = PyMemoryView_FromObject(nb::cast(std::move(array)).ptr());
    if (!view)
        throw nb::python_error();
    return nb::steal(view);
}

// Returns encoded files to the pool however the call ends.
struct Encoded {
    Encode &call;
    const Borrowed &context;
    ~Encoded()
    {
        if (!call.views)
            return;
        for (const conv_bytes &file : call.files)
            if (file.data)
                context->free(CONV_HOST, const_cast<void *>(file.data));
    }
};

nb::list results_of(Encode &call, const Borrowed &context)
{
    nb::list results;
    for (size_t i = 0; i < call.files.size(); i++) {
        if (call.items[i].status != CONV_OK) {
            results.append(image_error(call.format, i, call.items[i]));
        } else if (call.views) {
            conv_bytes file = call.files[i];
            call.files[i].data = nullptr; // now the view's
            results.append(view_of(file, context));
        } else {
            results.append(std::move(call.bytes[i]));
        }
    }
    return results;
}

// Takes the arguments that all formats have, calls `work(context)`, and returns the files.
template <typename Work>
nb::object encode(Format format, nb::handle images, nb::handle layout, nb::handle device,
                  nb::handle stream, nb::handle errors, bool views, Work work)
{
    Layout order = parse_layout(layout);
    bool raise = parse_errors(errors);
    Encode call;
    call.format = format;
    call.stream = parse_stream(stream);
    call.views = views;
    bool many = is_list(images);
    if (many) {
        for (nb::handle image : images)
            add_image(call, image, order, device);
        if (call.images.size() != call.tensors.size())
            raise_value("a list holds single images; pass a batch by itself");
    } else {
        add_image(call, images, order, device);
        many = call.tensors[0].dimensions > (order == Layout::hw ? 2 : 3);
    }
    if (call.images.empty())
        return nb::list();
    Borrowed context(call.device, call.stream.handle);
    Encoded owner{call, context};
    work(call, context);
    shrink_last(call);
    for (size_t i = 0; raise && i < call.items.size(); i++)
        if (call.items[i].status != CONV_OK)
            raise_now(image_error(format, i, call.items[i]));
    nb::list results = results_of(call, context);
    return many ? nb::object(results) : nb::object(results[0]);
}

nb::object encode_png(nb::handle images, nb::handle layout, nb::handle level, nb::handle device,
                      nb::handle stream, nb::handle errors, bool views)
{
    conv_encode_options options = CONV_ENCODE_OPTIONS_INIT;
    options.level = level.is_none() ? -1 : parse_int(level, "level");
    if (options.level < -1 || options.level > 12)
        raise_value("level must be 0 to 12, not %d", options.level);
    return encode(Format::png, images, layout, device, stream, errors, views,
                  [&](Encode &call, const Borrowed &context) {
                      run(call, context, options, conv_encode_png, options.level > 1);
                  });
}

// "4:2:0" as the library takes it, 420.
int parse_sampling(nb::handle sampling)
{
    if (sampling.is_none())
        return 0;
    std::string text = parse_text(sampling);
    for (int known : {444, 422, 420})
        if (text == "4:" + std::to_string(known / 10 % 10) + ":" + std::to_string(known % 10))
            return known;
    raise_value("sampling must be '4:4:4', '4:2:2' or '4:2:0', not %R", sampling.ptr());
}

nb::object encode_jpeg(nb::handle images, nb::handle layout, nb::handle quality,
                       nb::handle sampling, bool progressive, bool optimize, nb::handle device,
                       nb::handle stream, nb::handle errors, bool views)
{
    conv_jpeg_encode_options options = CONV_JPEG_ENCODE_OPTIONS_INIT;
    options.quality = parse_int(quality, "quality");
    if (options.quality < 1 || options.quality > 100)
        raise_value("quality must be 1 to 100, not %d", options.quality);
    options.sampling = parse_sampling(sampling);
    options.progressive = progressive;
    options.optimize = optimize;
    return encode(Format::jpeg, images, layout, device, stream, errors, views,
                  [&](Encode &call, const Borrowed &context) {
                      run(call, context, options, conv_encode_jpeg, progressive);
                  });
}

} // namespace

void bind_encode(nb::module_ &module)
{
    auto any = nb::arg().none();
    module.def("encode_png", encode_png, any, any, any, any, any, any, nb::arg());
    module.def("encode_jpeg", encode_jpeg, any, any, any, any, nb::arg(), nb::arg(), any, any, any,
               nb::arg());
}

} // namespace convpy
