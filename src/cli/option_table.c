// SPDX-License-Identifier: MIT
#include "cli/option_table.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

// --- commands ------------------------------------------------------------------------------------

#define RUN (1u << CONV_COMMAND_RUN)
#define SHOW (1u << CONV_COMMAND_SHOW)
#define VERIFY (1u << CONV_COMMAND_VERIFY)
#define LAYER (1u << CONV_COMMAND_LAYER)
#define KERNELS (1u << CONV_COMMAND_BENCH_KERNELS)
#define LAYERS (1u << CONV_COMMAND_BENCH_LAYERS)
#define STREAMS (1u << CONV_COMMAND_BENCH_STREAMS)
#define CODEC (1u << CONV_COMMAND_BENCH_CODEC)
#define MERGE (1u << CONV_COMMAND_REPORT_MERGE)
#define EVERY (~0u)
#define WORKING (EVERY & ~(1u << CONV_COMMAND_VERSION))

const struct conv_command_row conv_command_table[] = {
    {CONV_COMMAND_RUN, "FILTER", "INPUT... OUTPUT", "filter images"},
    {CONV_COMMAND_LIST, "list", "[filters|banks|kernels]",
     "list the filters, the filter banks, or the kernels"},
    {CONV_COMMAND_SHOW, "show", "FILTER",
     "explain a filter or bank and how it would run on this machine"},
    {CONV_COMMAND_VERIFY, "verify", "FILTER INPUT...",
     "filter with every kernel of every device and compare the pixels"},
    {CONV_COMMAND_LAYER, "layer", "WEIGHTS INPUT... OUTPUT",
     "run a convolution layer or a filter bank (gabor:4x8) over a tensor (.npy) or images"},
    {CONV_COMMAND_REPORT_MERGE, "report merge", "REPORT...",
     "add up the reports of several runs, and list the images that a job still lacks"},
    {CONV_COMMAND_BENCH_KERNELS, "bench kernels", "", "measure every kernel variant"},
    {CONV_COMMAND_BENCH_LAYERS, "bench layers", "",
     "measure every kernel variant of convolution layers"},
    {CONV_COMMAND_BENCH_STREAMS, "bench streams", "INPUT...",
     "compare 1, 2, 4, ... CUDA streams (without a GPU: worker threads)"},
    {CONV_COMMAND_BENCH_CODEC, "bench codec", "INPUT...",
     "measure speed and size of every PNG decoder and encoder"},
    {CONV_COMMAND_DEVICES, "devices", "", "list the GPUs and the CPU"},
    {CONV_COMMAND_HELP, "help", "[COMMAND]", "print this text, or the options of one command"},
    {CONV_COMMAND_VERSION, "version", "", "print the version"},
};
const size_t conv_command_count = sizeof conv_command_table / sizeof conv_command_table[0];

unsigned conv_command_bits(enum conv_command command)
{
    return command == CONV_COMMAND_BENCH ? KERNELS | LAYERS | STREAMS | CODEC : 1u << command;
}

const char *conv_command_name(char *text, size_t size, enum conv_command command)
{
    const char *words = "bench"; // without the word that says what to measure
    for (size_t i = 0; i < conv_command_count; i++)
        if (conv_command_table[i].command == command)
            words = conv_command_table[i].words;
    snprintf(text, size, "conv %s", words);
    return text;
}

// --- options -------------------------------------------------------------------------------------

#define NEUTRAL CONV_OPTION_NEUTRAL
#define DECIDES CONV_OPTION_DECIDES
#define PARSED CONV_OPTION_PARSED
#define MEMBERS CONV_OPTION_MEMBERS
#define ROW(EFFECT, NAME, LETTER, ARG, KIND, FIELD)                                                \
    .effect = EFFECT, .name = NAME, .letter = LETTER, .arg = ARG, .kind = KIND,                    \
    .offset = offsetof(struct conv_options, FIELD)
#define FLAG(EFFECT, NAME, LETTER, FIELD) ROW(EFFECT, NAME, LETTER, NULL, KIND_FLAG, FIELD)
#define STRING(EFFECT, NAME, LETTER, ARG, FIELD) ROW(EFFECT, NAME, LETTER, ARG, KIND_STRING, FIELD)
#define LIST(EFFECT, NAME, LETTER, ARG, FIELD) ROW(EFFECT, NAME, LETTER, ARG, KIND_LIST, FIELD)
#define SIZE(EFFECT, NAME, LETTER, ARG, FIELD) ROW(EFFECT, NAME, LETTER, ARG, KIND_SIZE, FIELD)
#define COUNT(EFFECT, NAME, LETTER, ARG, FIELD) ROW(EFFECT, NAME, LETTER, ARG, KIND_COUNT, FIELD)
#define INT(EFFECT, NAME, LETTER, ARG, FIELD, MIN, MAX)                                            \
    ROW(EFFECT, NAME, LETTER, ARG, KIND_INT, FIELD), .min = MIN, .max = MAX
#define CHOICE(EFFECT, NAME, LETTER, ARG, FIELD, CHOICES)                                          \
    ROW(EFFECT, NAME, LETTER, ARG, KIND_CHOICE, FIELD), .choices = CHOICES

#define FILTERING (RUN | SHOW | VERIFY | KERNELS | STREAMS | CODEC)
#define READING (RUN | VERIFY | LAYER | STREAMS | CODEC)

static const char *const shard_choices[] = {"bytes", "name", NULL};          // enum conv_shard_by
static const char *const shard_of_choices[] = {"archives", "members", NULL}; // conv_shard_of
static const char *const strip_choices[] = {"none", "most", "all", NULL};    // enum conv_strip
static const char *const coder_choices[] = {"cpu", "auto", "gpu", NULL};
static const char *const error_choices[] = {"copy", "skip", "stop", NULL};
static const char *const others_choices[] = {"skip", "copy", NULL};
static const char *const depth_choices[] = {"8", "16", "32", NULL};
static const char *const stage_choices[] = {"all", "device", NULL};
static const char *const when_choices[] = {"auto", "always", "never", NULL};
static const char *const range_choices[] = {"1", "255", NULL};
static const char *const output_type_choices[] = {"same", "u8", "u16", "f32", "f16", NULL};

const struct conv_option conv_option_table[] = {
    {FLAG(NEUTRAL, "batch", 'b', inputs.batch), .commands = RUN, .section = "Which images",
     .help = "INPUT and OUTPUT are folders (implied if INPUT is one)"},
    {FLAG(MEMBERS, "recursive", 'r', inputs.recursive), .commands = READING,
     .help = "also filter the folders below INPUT; OUTPUT gets the same tree"},
    {LIST(MEMBERS, "include", 0, "GLOB", inputs.include), .commands = READING,
     .help = "take only names that match; can be repeated (default: images by their extension, in "
             "upper or lower case); GLOB: * ? [a-z] {a,b}, ** for any folders; with a slash it is "
             "the path below INPUT"},
    {LIST(MEMBERS, "exclude", 0, "GLOB", inputs.exclude), .commands = READING,
     .help = "skip names that match; can be repeated; GLOB/ matches folders only"},
    {FLAG(MEMBERS, "no-ignore", 0, inputs.no_ignore), .commands = READING,
     .help = "also take names in folders that are ignored otherwise: ._*, .thumb* and @eaDir"},
    {COUNT(MEMBERS, "limit", 0, "N", inputs.limit), .commands = RUN | LAYER,
     .help = "take the first N images only, in sorted order"},
    {COUNT(MEMBERS, "sample", 0, "N", inputs.sample), .commands = RUN | LAYER,
     .help = "take N random images only; the same ones each time, until --seed changes"},
    {COUNT(MEMBERS, "seed", 0, "N", inputs.seed), .commands = RUN | LAYER,
     .help = "choose another --sample (default: 0)"},
    {STRING(NEUTRAL, "files-from", 0, "FILE", inputs.files_from), .commands = RUN | LAYER,
     .help = "read the names of the inputs from FILE, one per line; - is standard input"},
    {STRING(NEUTRAL, "base", 0, "DIR", inputs.base), .commands = RUN | LAYER,
     .help = "names in --files-from are below DIR: outputs get their paths from there, also of "
             "names with '..' and absolute ones"},
    {FLAG(NEUTRAL, "null", '0', inputs.nul), .commands = RUN | LAYER,
     .help = "names in --files-from end in NUL, as find -print0 writes them"},
    {FLAG(NEUTRAL, "watch", 0, inputs.watch), .commands = RUN,
     .help = "keep running until Ctrl-C, filtering images as they arrive in the input folders"},
    {STRING(MEMBERS, "format", 0, "FORMAT", outputs.format_text), .commands = RUN,
     .values = "tar files",
     .help = "archives: the format of standard input and output (tar, zip, tar.gz, ...); if OUTPUT "
             "is a folder, each input becomes an archive of its name in it; files: write their "
             "members as files"},
    {CHOICE(MEMBERS, "others", 0, "WHAT", inputs.others, others_choices), .commands = RUN,
     .help = "files in the input folders that are not images: skip (default), or copy unchanged"},
    {FLAG(MEMBERS, "images-only", 0, outputs.images_only), .commands = RUN,
     .help = "archives: drop members that are not images (default: copy them unchanged)"},
    {FLAG(NEUTRAL, "skip-existing", 0, outputs.skip_existing), .commands = RUN | LAYER,
     .help = "skip images whose output exists"},
    {FLAG(NEUTRAL, "no-clobber", 'n', outputs.skip_existing), .commands = RUN | LAYER,
     .help = "the same as --skip-existing"},
    {FLAG(NEUTRAL, "update", 'u', outputs.update), .commands = RUN | LAYER,
     .help = "skip images whose output is not older than the input"},
    {STRING(NEUTRAL, "resume", 0, "FILE", outputs.resume_path), .commands = RUN | LAYER,
     .help = "record finished images in the journal FILE and skip those that it lists as done with "
             "the same settings and unchanged since"},
    {FLAG(NEUTRAL, "dry-run", 0, outputs.dry_run), .commands = RUN | LAYER,
     .help = "print what would be done and why; write nothing"},
    {STRING(PARSED, "shard", 0, "SHARD", inputs.shard_text), .commands = RUN | LAYER,
     .values = "auto",
     .help =
         "process only the images of shard I of N, counted from 0: I/N, or auto: as Slurm or MPI "
         "number the tasks. {shard} in names of output files stands for I"},
    {CHOICE(MEMBERS, "shard-by", 0, "WHAT", inputs.shard.by, shard_choices),
     .commands = RUN | LAYER,
     .help = "divide the images by bytes (default) or by name; bytes makes shards of equal size "
             "and needs the same inputs in every task; with name an image's shard depends on its "
             "name alone"},
    {CHOICE(MEMBERS, "shard-of", 0, "WHAT", inputs.shard_of, shard_of_choices),
     .commands = RUN | LAYER,
     .help = "divide archives as a whole (default for several of them), or the members of each "
             "(default for one); members of one sample stay together"},
    {STRING(PARSED, "kernel", 'k', "SPEC", filter.settings.kernel), .commands = FILTERING | LAYERS,
     .section = "Filter",
     .help = "the kernel of the filter 'custom': '3x3: -2,-1,0 -1,1,1 0,1,2', '1 2 1 2 4 2 1 2 1', "
             "or @FILE in libvips' matrix format; bench layers: its size, N or HEIGHTxWIDTH"},
    {STRING(PARSED, "size", 0, "3|5", filter.size_text), .commands = FILTERING, .values = "3 5",
     .help = "use the 3x3 or 5x5 version of the filter (default: as its name says)"},
    {STRING(PARSED, "divisor", 0, "N|sum", filter.settings.divisor), .commands = FILTERING,
     .values = "sum",
     .help = "divide by N, or by the sum of the coefficients (default: the filter's own divisor)"},
    {STRING(PARSED, "bias", 0, "N", filter.settings.bias), .commands = FILTERING | LAYER,
     .help = "add N, on the scale of 8-bit samples (default: the filter's own bias); conv layer: "
             "FILE with one number per map, in a format of WEIGHTS"},
    {FLAG(PARSED, "flip", 0, filter.settings.flip), .commands = FILTERING,
     .help = "rotate the kernel by 180 degrees: convolution instead of correlation"},
    {STRING(PARSED, "border", 0, "MODE", filter.border_text), .commands = FILTERING | LAYER,
     .values = "replicate reflect reflect101 wrap constant",
     .help = "pixels outside the image: replicate (default; also edge, clamp, nearest, copy), "
             "reflect, reflect101, wrap (tile, repeat), constant[:V] (black; default of conv "
             "layer: constant:0)"},
    {CHOICE(PARSED, "alpha", 0, "MODE", filter.alpha, conv_alpha_names),
     .commands = RUN | VERIFY | STREAMS, .section = "Output",
     .help = "the alpha channel: premultiply (default where flat areas stay as they are: blur, "
             "sharpen), keep (default otherwise) or filter"},
    {FLAG(DECIDES, "gray", 0, filter.blend.gray), .commands = RUN | LAYER,
     .help = "use the luminance of colour images (BT.601) as a single channel"},
    {FLAG(DECIDES, "luma", 0, filter.blend.luma), .commands = RUN,
     .help = "filter the luminance of colour images (BT.601) and keep their chroma; from JPEG to "
             "JPEG, chroma is not even encoded again"},
    {FLAG(DECIDES, "linear", 0, filter.blend.linear), .commands = RUN,
     .help = "filter in linear light, with 16 bits inside: samples follow sRGB's curve, or the "
             "gamma that a PNG states"},
    {STRING(PARSED, "mix", 0, "P", filter.mix_text), .commands = RUN,
     .help = "blend the results: P per cent of the result and the rest of the original"},
    {STRING(PARSED, "roi", 0, "WxH+X+Y", filter.roi_text), .commands = RUN,
     .help = "filter this region only; the rest of the pixels stay unchanged (but JPEG is encoded "
             "again)"},
    {CHOICE(PARSED, "output-type", 0, "TYPE", outputs.type, output_type_choices),
     .commands = RUN | LAYER,
     .help = "type of the results: same (default), u8 or u16: 8 or 16 bits per sample; f32: .npy "
             "files of float32, neither rounded nor clamped; conv layer: f32 (default) or f16"},
    {ROW(DECIDES, "strip", 0, NULL, KIND_CHOICE, outputs.strip), .choices = strip_choices,
     .implied = "most", .commands = RUN | STREAMS,
     .help = "drop metadata except colour space and orientation; --strip=all: everything (default: "
             "keep what stays true after filtering)"},
    {FLAG(DECIDES, "auto-orient", 0, outputs.auto_orient), .commands = RUN,
     .help = "turn images upright as Exif says before they are filtered (default: keep the tag)"},
    {FLAG(NEUTRAL, "first-frame", 0, inputs.first_frame), .commands = RUN | LAYER,
     .help = "take the first of several images (default: refuse a file, filter all of a pipe)"},
    {FLAG(DECIDES, "preserve", 'p', outputs.preserve), .commands = RUN,
     .help = "give the output the input's permissions and times; members of archives: mode, less "
             "the umask, and time"},
    {STRING(NEUTRAL, "output", 'o', "OUTPUT", outputs.path), .commands = RUN | LAYER,
     .help = "write to this folder (or file, if the name has an extension such as .png); all "
             "operands are then inputs"},
    {FLAG(NEUTRAL, "beside", 0, outputs.beside), .commands = RUN | LAYER,
     .help = "write each result next to its input, with --suffix or --output-type f32; there is no "
             "OUTPUT"},
    {STRING(MEMBERS, "suffix", 0, "TEXT", outputs.suffix), .commands = RUN | LAYER,
     .help = "insert TEXT into the names of results: a_sharp.png for a.png and _sharp; with "
             "--beside, images with such names are skipped as results"},
    {FLAG(NEUTRAL, "in-place", 0, outputs.in_place), .commands = RUN,
     .help = "replace each input by its output; there is no OUTPUT"},
    {ROW(NEUTRAL, "backup", 0, NULL, KIND_STRING, outputs.backup), .implied = "~", .commands = RUN,
     .help = "keep each file that is replaced as NAME~, or with --backup=SUFFIX; an older backup "
             "stays as it is"},
    {FLAG(NEUTRAL, "force", 0, outputs.force), .commands = RUN | LAYER,
     .help = "replace write-protected files as well (default: refuse to)"},
    {FLAG(NEUTRAL, "fsync", 0, outputs.fsync), .commands = RUN | LAYER,
     .help = "flush each output to the disk before it gets its name"},
    {STRING(PARSED, "to", 0, "FORMAT", outputs.to_text), .commands = RUN,
     .values = "png jpg tif webp pnm ppm pgm pam",
     .help = "write png, jpg, tif, webp, pnm, ppm, pgm or pam (default: by the name of the output, "
             "or as the input)"},
    {STRING(PARSED, "quality", 'Q', "N|keep", outputs.quality_text), .commands = RUN,
     .values = "keep 60 75 85 90 95 100",
     .help = "quality of JPEG and lossy WebP: keep (default: that of JPEG input, else 90), or "
             "1 (smallest) to 100; JPEG has colours at full resolution from 90 on"},
    {FLAG(DECIDES, "progressive", 0, outputs.codec.progressive), .commands = RUN,
     .help = "write progressive JPEG (default: only if the input is progressive)"},
    {FLAG(DECIDES, "optimize", 0, outputs.codec.optimize), .commands = RUN,
     .help = "write JPEG with Huffman codes made for each image: smaller files, slower"},
    {STRING(PARSED, "encoder", 0, "NAME", outputs.encoder_text), .commands = RUN | STREAMS | CODEC,
     .values = "fast libpng stb", .help = "PNG encoder: fast (default), libpng or stb"},
    {INT(DECIDES, "compress", 'z', "N", outputs.codec.level, 0, 12),
     .commands = RUN | STREAMS | CODEC, .values = "0 1 2 3 4 5 6 7 8 9 10 11 12",
     .help = "PNG compression: 0 (fastest) to 12 (smallest); libpng and stb: to 9 (default: 1; "
             "stb: 8)"},
    {FLAG(DECIDES, "reproducible", 0, outputs.reproducible), .commands = RUN,
     .help = "write the same file bytes on every machine, by encoding PNG on the CPU"},
    {STRING(NEUTRAL, "device", 0, "DEVICE", machine.device_text),
     .commands = RUN | LAYER | VERIFY | KERNELS | LAYERS | STREAMS | CODEC, .section = "Machine",
     .values = "auto cpu cuda all",
     .help = "where to filter: auto (default: a GPU for large jobs, else the CPU), cpu, cuda, "
             "cuda:N, all (every GPU), or a list such as cuda:0,cuda:1"},
    {CHOICE(NEUTRAL, "decode-on", 0, "WHERE", machine.decode_on, coder_choices),
     .commands = RUN | STREAMS,
     .help = "decode images on cpu, on gpu, or auto (default: on whichever finishes first)"},
    {CHOICE(DECIDES, "encode-on", 0, "WHERE", machine.encode_on, coder_choices),
     .commands = RUN | STREAMS,
     .help = "encode images on cpu, on gpu, or auto (default: on the GPU for large jobs)"},
    {INT(NEUTRAL, "streams", 0, "N", machine.streams, 1, 64), .commands = RUN,
     .help = "CUDA streams per GPU (default: 4, up to 8 while images wait for the GPU; if the GPU "
             "also decodes PNG 6, up to 8, or up to 12 with several GPUs or less than 35 GB)"},
    {SIZE(NEUTRAL, "group", 0, "SIZE", machine.group_bytes), .commands = RUN | STREAMS,
     .help = "bytes of images copied to the GPU together (default: 16M; 32M if the GPU also "
             "decodes PNG)"},
    {INT(NEUTRAL, "jobs", 'j', "N", machine.jobs, 1, 1024),
     .commands = RUN | LAYER | LAYERS | STREAMS | CODEC,
     .help = "worker threads (default: one per core; bench layers --network: one)"},
    {SIZE(NEUTRAL, "mem-limit", 0, "SIZE", machine.mem_limit), .commands = READING,
     .help = "staging memory for images in flight (default: half of the memory; less in a limited "
             "container or job)"},
    {SIZE(NEUTRAL, "max-pixels", 0, "SIZE", inputs.max_pixels), .commands = READING,
     .help = "refuse larger images (default: 256M)"},
    {STRING(NEUTRAL, "variant", 0, "NAME", machine.variant),
     .commands = RUN | LAYER | SHOW | KERNELS | LAYERS | STREAMS,
     .help = "use this kernel variant (conv bench kernels and conv bench layers list them); bench "
             "layers: auto measures what conv layer would choose, and other libraries"},
    {FLAG(NEUTRAL, "no-save", 0, outputs.no_save), .commands = RUN | LAYER,
     .help = "do everything except writing the outputs, to measure speed"},
    {FLAG(NEUTRAL, "fail-fast", 0, outputs.fail_fast), .commands = RUN | LAYER,
     .help = "stop at the first image that fails"},
    {CHOICE(MEMBERS, "on-error", 0, "ACTION", outputs.on_error, error_choices), .commands = RUN,
     .help =
         "what to do after an image fails: skip it (default), copy it unchanged from archive to "
         "archive, or stop"},
    {CHOICE(NEUTRAL, "progress", 0, "WHEN", report.progress, when_choices), .commands = RUN | LAYER,
     .section = "Messages", .help = "show progress: auto (default: on a terminal), always, never"},
    {FLAG(NEUTRAL, "quiet", 'q', report.quiet),
     .commands = RUN | LAYER | MERGE | VERIFY | KERNELS | LAYERS | STREAMS,
     .help = "print failures only"},
    {FLAG(NEUTRAL, "verbose", 'v', report.verbose), .commands = RUN | LAYER,
     .help = "print each image and the kernel variant in use"},
    {FLAG(NEUTRAL, "json", 0, report.json), .commands = WORKING,
     .help = "print JSON on standard output, one object per line"},
    {STRING(NEUTRAL, "report", 0, "FILE", report.path), .commands = RUN | LAYER | MERGE,
     .help = "write the lines of --json into FILE"},
    {STRING(NEUTRAL, "trace", 0, "FILE", report.trace_path), .commands = RUN | LAYER,
     .help = "write a timeline of every thread and stream, for Perfetto or chrome://tracing"},
    {STRING(NEUTRAL, "html", 0, "FILE", report.html_path),
     .commands = RUN | LAYER | KERNELS | LAYERS | STREAMS,
     .help = "write a page about the run or the benchmark, in one self-contained file"},
    {FLAG(NEUTRAL, "help", 'h', help), .commands = EVERY,
     .help = "print this text, or the options of the command before it; -h: the short form"},
    {FLAG(NEUTRAL, "version", 'V', version), .commands = EVERY, .help = "print the version"},
    {STRING(PARSED, "stride", 0, "N", filter.layer.stride_text), .commands = LAYER | LAYERS,
     .section = "conv layer",
     .help = "compute every Nth output of both axes (default: 1), or HEIGHTxWIDTH"},
    {STRING(PARSED, "padding", 0, "MODE", filter.layer.padding), .commands = LAYER | LAYERS,
     .values = "valid same same_upper same_lower",
     .help =
         "samples around the input: valid (default), same (the output is as large as the "
         "input), same_upper, same_lower, N on each side, HEIGHTxWIDTH, or TOP:BOTTOMxLEFT:RIGHT"},
    {STRING(PARSED, "dilation", 0, "N", filter.layer.dilation_text), .commands = LAYER | LAYERS,
     .help = "samples from one tap of the kernel to the next (default: 1), or HEIGHTxWIDTH"},
    {INT(PARSED, "groups", 0, "N", filter.layer.groups, 1, 1 << 20), .commands = LAYER | LAYERS,
     .help = "divide channels and maps into N groups; a map reads the channels of its group"},
    {CHOICE(PARSED, "activation", 0, "NAME", filter.layer.activation, conv_layer_activations),
     .commands = LAYER, .help = "apply to each output: none (default), relu, tanh or abs"},
    {CHOICE(PARSED, "precision", 0, "MODE", filter.layer.precision, conv_layer_precisions),
     .commands = LAYER | LAYERS,
     .help =
         "how results may deviate: exact (default), with the same bits on every device; fast, with "
         "float32 products in any order; tf32, fp16 or bf16, by cuDNN where that is installed and "
         "faster; bench layers: only variants that deliver this (with --variant auto: and more "
         "precise ones)"},
    {CHOICE(DECIDES, "range", 0, "MAX", filter.layer.range, range_choices), .commands = LAYER,
     .help = "scale integer samples to 0..1 or 0..255 (default: 1 for images)"},
    {STRING(PARSED, "pool", 0, "KINDS", filter.layer.pool), .commands = LAYER,
     .values = "mean std max energy mean,std",
     .help =
         "write features of a filter bank instead of maps: mean, std, max, energy of every map, or "
         "of each cell of a grid of N x N (mean,std:4)"},
    {STRING(NEUTRAL, "filter", 0, "FILTER", bench.filter), .commands = KERNELS | STREAMS | CODEC,
     .section = "conv bench", .help = "the filter to measure with (default: emboss)"},
    {STRING(NEUTRAL, "image-size", 0, "SIZE", bench.image_size_text), .commands = KERNELS,
     .values = "mix uniform standard",
     .help = "bench kernels: WIDTHxHEIGHT (default: 4096x4096); mix or uniform: 1x1 to 4000x3000; "
             "standard: four workloads"},
    {INT(NEUTRAL, "images", 0, "N", bench.images, 1, 100000), .commands = KERNELS | CODEC,
     .help = "bench kernels: images per launch (default: 1; mix, uniform: 500); bench codec "
             "--device cuda: images in flight"},
    {CHOICE(NEUTRAL, "depth", 0, "BITS", bench.depth, depth_choices), .commands = KERNELS,
     .help = "bench kernels: 8 (default) or 16 bits per sample, or float32 samples"},
    {STRING(NEUTRAL, "compare", 0, "FILE", bench.compare_path), .commands = KERNELS,
     .help = "bench kernels: compare with an earlier run, whose --json output is in FILE"},
    {CHOICE(NEUTRAL, "stage", 0, "STAGE", bench.stage, stage_choices), .commands = STREAMS,
     .help = "bench streams: run all stages (default), or device: images start in pinned memory "
             "and results are discarded"},
    {STRING(NEUTRAL, "shape", 0, "SHAPE", bench.shape_text), .commands = LAYERS,
     .values = "lenet-1 lenet-2 net28-1 net64-1 net70-1 net70-2 vgg-1 resnet-1",
     .help = "bench layers: the input, BATCHxCHANNELSxHEIGHTxWIDTH, or one of the layers lenet-1, "
             "lenet-2, net28-1, net64-1, net70-1, net70-2, vgg-1, resnet-1 (default: all of them)"},
    {INT(NEUTRAL, "maps", 0, "N", bench.layer.maps, 1, 65536), .commands = LAYERS,
     .help = "bench layers: output maps"},
    {STRING(NEUTRAL, "network", 0, "NAME", bench.network), .commands = LAYERS,
     .values = "all resnet18 resnet50 vgg16 alexnet unet mobilenetv2 efficientnet convnext",
     .help = "bench layers: measure what is chosen for the layers of a network, or of all of them, "
             "beside cuDNN and cuBLAS"},
    {INT(NEUTRAL, "batch-size", 0, "N", bench.batch, 1, 65536), .commands = LAYERS,
     .help = "bench layers --network: images at a time (default: 1, 16, 64 and 256, one after the "
             "other)"},
    {FLAG(NEUTRAL, "csv", 0, bench.csv), .commands = KERNELS | LAYERS | STREAMS,
     .help = "bench kernels, bench layers and bench streams: print comma-separated values"},
    {FLAG(NEUTRAL, "svg", 0, bench.svg), .commands = LAYERS,
     .help = "bench layers: print a bar chart in SVG"},
};

_Static_assert(sizeof conv_option_table / sizeof conv_option_table[0] <= CONV_OPTIONS_MOST,
               "the parser's arrays hold every option");
const size_t conv_option_count = sizeof conv_option_table / sizeof conv_option_table[0];

const struct conv_option *conv_option_next(size_t *at, unsigned commands, const char **section)
{
    while (*at < conv_option_count) {
        const struct conv_option *row = &conv_option_table[(*at)++];
        if (row->section && section)
            *section = row->section;
        if (row->commands & commands)
            return row;
    }
    return NULL;
}

const struct conv_option *conv_option_find(const char *name)
{
    for (size_t i = 0; i < conv_option_count; i++)
        if (strcmp(conv_option_table[i].name, name) == 0)
            return &conv_option_table[i];
    return NULL;
}

#define DEFAULT_MAX_PIXELS ((uint64_t)1 << 28) // 16384 x 16384

void conv_options_set_defaults(struct conv_options *options)
{
    *options = (struct conv_options){
        .inputs = {.max_pixels = DEFAULT_MAX_PIXELS},
        .outputs = {.on_error = CONV_ON_ERROR_SKIP, .codec = {.level = -1}},
        .filter = {.layer = {.groups = 1,
                             .stride_y = 1,
                             .stride_x = 1,
                             .dilation_y = 1,
                             .dilation_x = 1}},
        .machine = {.decode_on = CONV_CODER_AUTO, .encode_on = CONV_CODER_AUTO},
        .bench = {.filter = "emboss", .width = 4096, .height = 4096},
    };
}

bool conv_options_given(const struct conv_options *options, const char *name)
{
    const struct conv_option *row = conv_option_find(name);
    return row && options->given[row - conv_option_table];
}

#define ALLOWS(NAME, ...) .name = NAME, .relation = OPTION_ALLOWS, .others = {__VA_ARGS__}
#define EXCLUDES(NAME, ...) .name = NAME, .relation = OPTION_EXCLUDES, .others = {__VA_ARGS__}

#define REPLACES "results replace the images"
#define RESULTS "results lie next to the images"

// --- rules ---------------------------------------------------------------------------------------

const struct conv_option_rule conv_option_rules[] = {
    {ALLOWS("files-from", "null", "base")},
    {EXCLUDES("in-place", "base", "output", "beside", "suffix"), .reason = REPLACES},
    {EXCLUDES("beside", "base", "output"), .reason = RESULTS},
    {EXCLUDES("files-from", "others", "recursive", "include", "exclude", "no-ignore"),
     .reason = "the list names the images"},
    {EXCLUDES("others", "beside"), .choice = "copy", .commands = RUN, .reason = RESULTS},
    {EXCLUDES("others", "in-place"), .choice = "copy", .commands = RUN, .reason = REPLACES},
    {EXCLUDES("others", "sample"), .choice = "copy", .commands = RUN,
     .reason = "it has images only"},
    {EXCLUDES("others", "watch"), .choice = "copy", .commands = RUN, .reason = "images arrive"},
    {EXCLUDES("watch", "files-from"), .reason = "folders are watched"},
    {EXCLUDES("watch", "in-place", "beside"), .reason = "each result would be a new arrival"},
    {EXCLUDES("watch", "dry-run", "sample", "limit"), .reason = "a watch has no end"},
    {EXCLUDES("watch", "shard"), .reason = "arriving images are not divided"},
    {EXCLUDES("gray", "luma")},
    {ALLOWS("shard", "shard-by", "shard-of")},
    {EXCLUDES("shard", "beside"), .reason = "other processes would list the results"},
    {EXCLUDES("shard", "limit", "sample"), .reason = "each process lists all images"},
    {EXCLUDES("limit", "sample")},
    {ALLOWS("sample", "seed")},
    {EXCLUDES("skip-existing", "update", "resume")},
    {EXCLUDES("update", "resume")},
    {EXCLUDES("output-type", "mix", "roi", "luma", "linear"), .choice = "f32", .commands = RUN,
     .reason = "float32 results are not blended with samples"},
    {EXCLUDES("output-type", "in-place", "encoder", "compress", "encode-on", "strip", "to",
              "quality", "progressive", "optimize", "html"),
     .choice = "f32", .commands = RUN, .reason = "results are .npy files"},
    {EXCLUDES("in-place", "to"), .reason = "the name of an image says its format"},
    {EXCLUDES("in-place", "skip-existing", "update"), .reason = "every output exists"},
    {EXCLUDES("in-place", "first-frame"), .reason = "the other frames would be lost"},
    {EXCLUDES("dry-run", "no-save")},
    {EXCLUDES("reproducible", "encode-on"), .reason = "--reproducible encodes PNG on the CPU"},
    {EXCLUDES("encode-on", "encoder", "compress"), .choice = "gpu",
     .reason = "the GPU has its own encoder"},
    {EXCLUDES("encode-on", "progressive", "optimize"), .choice = "gpu", .commands = RUN,
     .reason = "the GPU writes sequential JPEG with standard codes; without --encode-on gpu the "
               "CPU encodes"},
    {EXCLUDES("quiet", "verbose")},
    {EXCLUDES("in-place", "format"), .reason = "archives cannot be replaced"},
    {EXCLUDES("on-error", "fail-fast")},
    {EXCLUDES("on-error", "in-place"), .choice = "copy", .commands = RUN,
     .reason = "an image that fails stays as it is"},
    {EXCLUDES("json", "csv", "svg")},
    {EXCLUDES("csv", "svg")},
    {ALLOWS("shape", "maps", "kernel", "html", "svg", "stride", "padding", "dilation", "groups"),
     .commands = LAYERS},
    {ALLOWS("network", "batch-size", "jobs"), .commands = LAYERS},
    {EXCLUDES("network", "shape", "variant", "precision", "csv")},
    // conv bench codec without --jobs times each coder alone, on the images as they are.
    {ALLOWS("jobs", "filter", "kernel", "size", "divisor", "bias", "flip", "border", "encoder"),
     .commands = CODEC},
    {EXCLUDES("stage", "decode-on", "encode-on", "encoder", "compress", "strip"),
     .choice = "device", .commands = STREAMS, .reason = "it does not decode or encode images"},
};
const size_t conv_option_rule_count = sizeof conv_option_rules / sizeof conv_option_rules[0];

// --- synonyms ------------------------------------------------------------------------------------

#define REPLACED "existing outputs are replaced, unless --skip-existing or --update is given"

const struct conv_option_synonym conv_option_synonyms[] = {
    {"out", 0, "use --output OUTPUT, or give it as the last operand"},
    {"target-directory", 0, "use --output FOLDER"},
    {"dir", 0, "use --output FOLDER"},
    {"threads", 't', "use --jobs N"},
    {"workers", 0, "use --jobs N"},
    {NULL, 'f', REPLACED "; --force replaces write-protected ones, too"},
    {"overwrite", 0, REPLACED},
    {"level", 0, "use --compress N"},
    {"gpu", 0, "use --device cuda"},
    {"cpu", 0, "use --device cpu"},
    {"silent", 's', "use --quiet"},
    {"list", 0, "conv list prints the filters"},
};
const size_t conv_option_synonym_count =
    sizeof conv_option_synonyms / sizeof conv_option_synonyms[0];
