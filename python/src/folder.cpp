// SPDX-License-Identifier: MIT
// conv.filter_folder. The run has a thread of its own; the calling thread waits for it, calls the
// callback and looks for Ctrl-C a few times a second.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "interpreter.h"
#include "prepared.h"

namespace convpy
{

namespace
{

constexpr auto wait_for_signals = std::chrono::milliseconds(50);

// What the run has said since the calling thread looked last.
struct News {
    std::mutex lock;
    conv_folder_progress state = {};
    std::vector<std::pair<std::string, std::string>> failures; // paths and reasons
    bool some = false;
    std::atomic<bool> stop{false};
};

// Called on a thread of the run.
int note_progress(void *user, const conv_folder_progress *progress)
{
    News &news = *static_cast<News *>(user);
    std::lock_guard<std::mutex> guard(news.lock);
    news.state = *progress;
    if (progress->path)
        news.failures.push_back({progress->path, progress->message ? progress->message : ""});
    news.some = true;
    return news.stop ? 1 : 0;
}

nb::object progress_object(const conv_folder_progress &state, nb::handle failures)
{
    return helpers->progress(state.done, state.failed, state.skipped, state.found,
                             state.listed != 0, failures);
}

// Decodes a path like os.fsdecode: paths may hold bytes that are not UTF-8.
nb::object path_text(const std::string &path)
{
    PyObject *text =
        PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
    if (!text)
        throw nb::python_error();
    return nb::steal(text);
}

// Adds the news to `failures`, and calls the callback with them.
void tell(News &news, nb::handle callback, nb::list &failures)
{
    conv_folder_progress state;
    std::vector<std::pair<std::string, std::string>> failed;
    bool some;
    {
        std::lock_guard<std::mutex> guard(news.lock);
        state = news.state;
        failed.swap(news.failures);
        some = std::exchange(news.some, false);
    }
    for (const auto &[path, reason] : failed)
        failures.append(nb::make_tuple(path_text(path), message_text(reason)));
    if (PyErr_CheckSignals() != 0)
        throw nb::python_error();
    if (some && !callback.is_none())
        callback(progress_object(state, failures));
}

std::vector<std::string> paths_of(nb::handle paths)
{
    nb::object fspath = nb::module_::import_("os").attr("fsencode");
    std::vector<std::string> result;
    bool many = is_list(paths);
    auto append = [&](nb::handle path) {
        nb::bytes bytes = nb::cast<nb::bytes>(fspath(path));
        std::string text(static_cast<const char *>(bytes.data()), bytes.size());
        if (text.find('\0') != std::string::npos)
            raise_value("a path has a zero byte");
        result.push_back(std::move(text));
    };
    if (many) {
        for (nb::handle path : paths)
            append(path);
    } else {
        append(paths);
    }
    return result;
}

struct Job {
    std::string filter, output, device;
    std::vector<std::string> inputs;
    Texts texts;
    conv_filter_options chain = CONV_FILTER_OPTIONS_INIT;
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
};

// Returns the totals. Throws Failure.
conv_folder_progress run_job(const Job &job)
{
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    Settings settings = current_settings();
    options.device = job.device.c_str();
    options.threads = settings.threads;
    options.max_pixels = settings.max_pixels;
    char text[CONV_MESSAGE_SIZE] = "";
    conv_context *context;
    conv_status status = conv_context_create(&context, &options, text);
    if (status != CONV_OK)
        throw Failure{status, text};
    std::vector<const char *> inputs;
    for (const std::string &input : job.inputs)
        inputs.push_back(input.c_str());
    conv_folder_progress totals = {};
    totals.size = sizeof totals;
    status = conv_filter_folder(context, job.filter.c_str(), inputs.data(),
                                static_cast<int>(inputs.size()), job.output.c_str(), &job.options,
                                &totals);
    std::string message = conv_context_message(context);
    conv_context_destroy(context);
    if (status != CONV_OK)
        throw Failure{status, message};
    return totals;
}

// Fills in what the keyword arguments of filter_folder say.
void read_options(Job &job, const nb::dict &options)
{
    auto text = [&](const char *name) { return job.texts.keep(nb::object(options[name])); };
    job.chain.border = job.texts.keep_border(nb::object(options["border"]));
    job.chain.alpha = text("alpha");
    job.chain.kernel = text("kernel");
    job.chain.divisor = text("divisor");
    job.chain.bias = text("bias");
    job.chain.side = nb::cast<int>(options["side"]);
    job.chain.flip = nb::cast<bool>(options["flip"]);
    const std::pair<const char *, int32_t *> flags[] = {
        {"recursive", &job.options.recursive},
        {"skip_existing", &job.options.skip_existing},
        {"update", &job.options.update},
        {"archives", &job.options.archives},
        {"progressive", &job.options.progressive},
        {"optimize", &job.options.optimize},
        {"gray", &job.options.gray},
        {"luma", &job.options.luma},
        {"linear", &job.options.linear},
        {"auto_orient", &job.options.auto_orient}};
    for (auto [name, flag] : flags)
        *flag = nb::cast<bool>(options[name]);
    job.options.strip = nb::cast<int>(options["strip"]);
    job.options.level = options["level"].is_none() ? -1 : nb::cast<int>(options["level"]);
    job.options.quality =
        options["quality"].is_none() ? 0 : parse_int(options["quality"], "quality");
    job.options.to = text("to");
    auto [shard, shards, by_name] = nb::cast<std::tuple<int, int, bool>>(options["shard"]);
    job.options.shard = shard;
    job.options.shards = shards;
    job.options.shard_by_name = by_name;
}

} // namespace

nb::object filter_folder(nb::handle inputs, nb::handle output, nb::handle filter,
                         nb::handle progress, nb::handle device, nb::dict options)
{
    Job job;
    News news;
    job.inputs = paths_of(inputs);
    job.output = paths_of(output)[0];
    job.filter = parse_text(nb::cast<nb::str>(helper("joined")(filter)));
    job.device = (PyIndex_Check(device.ptr()) ? "cuda:" : "") + parse_text(device);
    read_options(job, options);
    job.options.filter = &job.chain;
    job.options.progress = note_progress;
    job.options.user = &news;

    nb::list failures;
    auto run = std::async(std::launch::async, run_job, std::cref(job));
    auto is_over = [&] {
        Unlocked unlocked;
        return run.wait_for(wait_for_signals) == std::future_status::ready;
    };
    try {
        while (!is_over())
            tell(news, progress, failures);
    } catch (...) { // Ctrl-C, or an exception of the callback
        news.stop = true;
        {
            Unlocked unlocked;
            run.wait();
        }
        throw;
    }
    tell(news, progress, failures);
    return progress_object(run.get(), failures);
}

void bind_folder(nb::module_ &module)
{
    using nb::arg;
    module.def("filter_folder", filter_folder, arg("inputs"), arg("output"), arg("filter"),
               arg("progress").none(), arg("device"), arg("options"));
}

} // namespace convpy
