# SPDX-License-Identifier: MIT
# fish completion for conv; made by tools/make-manual from src/cli/option_table.c and share/manual/; do not edit.

# What has been typed that is not an option: filter or command first.
function __conv_operands
    set -l with_value --include --exclude --limit --sample --seed --files-from --format --resume --shard \
        --shard-by --shard-of --kernel -k --size --divisor --bias --border --alpha --mix --roi \
        --output-type --output -o --suffix --to --quality -Q --encoder --compress -z --device \
        --decode-on --encode-on --streams --group --jobs -j --mem-limit --max-pixels --variant \
        --on-error --progress --report --trace --html --stride --padding --activation \
        --precision --range --pool --filter --image-size --images --depth --compare --stage \
        --shape --maps
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word $with_value
            set skip 1
        else if not string match -q -- '-?*' $word
            echo $word
        end
    end
end

# The list of filters, each after the text before the last comma.
function __conv_filters
    set -l typed (commandline -ct)
    set -l before (string match -r -- '^.*,' $typed)
    set -l program (commandline -opc)[1]
    for line in ($program list 2>/dev/null) 'custom  the kernel of --kernel'
        # A parametric filter is offered as its example, gaussian:2.5.
        set line (string replace -r '^\S+ +(.*) \(for example (.*)\)$' '$2 $1' -- $line)
        echo "$before"(string replace -r ' +' \t -- $line)
    end
end

function __conv_at_first
    test (count (__conv_operands)) = 0
end

function __conv_of
    set -l operands (__conv_operands)
    test (count $operands) -ge 1; and contains -- $operands[1] $argv
end

function __conv_after
    set -l operands (__conv_operands)
    test (count $operands) = 1; and contains -- $operands[1] $argv
end

complete -c conv -n __conv_at_first -a '(__conv_filters)'
complete -c conv -n '__conv_after show verify' -f -a '(__conv_filters)'
complete -c conv -n __conv_at_first -a list -d 'List the filters, the filter banks, or the kernels'
complete -c conv -n __conv_at_first -a show -d 'Explain a filter or bank and how it would run on this machine'
complete -c conv -n __conv_at_first -a verify -d 'Filter with every kernel of every device and compare the pixels'
complete -c conv -n __conv_at_first -a layer -d 'Run a convolution layer or a filter bank over a tensor or images'
complete -c conv -n __conv_at_first -a report -d 'Add up the reports of several runs'
complete -c conv -n __conv_at_first -a bench -d 'Measure kernels, layers, streams or codec'
complete -c conv -n __conv_at_first -a devices -d 'List the GPUs and the CPU'
complete -c conv -n __conv_at_first -a help -d 'Print this text, or the options of one command'
complete -c conv -n __conv_at_first -a version -d 'Print the version'
complete -c conv -n '__conv_after report' -f -a 'merge'
complete -c conv -n '__conv_after bench' -f -a 'kernels layers streams codec'
complete -c conv -n '__conv_after help' -f -a 'list show verify layer report bench devices version'
complete -c conv -n '__conv_after list devices version' -f

complete -c conv -s b -l batch -d 'INPUT and OUTPUT are folders'
complete -c conv -s r -l recursive -d 'Also filter the folders below INPUT'
complete -c conv -l include -x -d 'Take only names that match'
complete -c conv -l exclude -x -d 'Skip names that match'
complete -c conv -l no-ignore -d 'Also take names in folders that are ignored otherwise: ._*, .thumb*'
complete -c conv -l limit -x -d 'Take the first N images only, in sorted order'
complete -c conv -l sample -x -d 'Take N random images only'
complete -c conv -l seed -x -d 'Choose another --sample'
complete -c conv -l files-from -r -d 'Read the names of the inputs from FILE, one per line'
complete -c conv -s 0 -l null -d 'Names in --files-from end in NUL, as find -print0 writes them'
complete -c conv -l watch -d 'Keep running until Ctrl-C'
complete -c conv -l format -x -a 'tar files' -d 'Archives: the format of standard input and output'
complete -c conv -l images-only -d 'Archives: drop members that are not images'
complete -c conv -l skip-existing -d 'Skip images whose output exists'
complete -c conv -s u -l update -d 'Skip images whose output is not older than the input'
complete -c conv -l resume -r -d 'Record finished images in the journal FILE'
complete -c conv -l dry-run -d 'Print what would be done and why'
complete -c conv -l shard -x -a 'auto' -d 'Process only the images of shard I of N, counted from 0: I/N, or auto'
complete -c conv -l shard-by -x -a 'bytes name' -d 'Divide the images by bytes or by name'
complete -c conv -l shard-of -x -a 'archives members' -d 'Divide archives as a whole, or the members of each'
complete -c conv -s k -l kernel -r -d 'The kernel of the filter \'custom\': \'3x3: -2,-1,0 -1,1,1 0,1,2\''
complete -c conv -l size -x -a '3 5' -d 'Use the 3x3 or 5x5 version of the filter'
complete -c conv -l divisor -x -a 'sum' -d 'Divide by N, or by the sum of the coefficients'
complete -c conv -l bias -x -d 'Add N, on the scale of 8-bit samples'
complete -c conv -l flip -d 'Rotate the kernel by 180 degrees: convolution instead of correlation'
complete -c conv -l border -x -a 'replicate reflect reflect101 wrap constant' -d 'Pixels outside the image: replicate, reflect, reflect101, wrap, constant[:V]'
complete -c conv -l alpha -x -a 'keep filter premultiply' -d 'The alpha channel: keep, filter or premultiply'
complete -c conv -l gray -d 'Use the luminance of colour images as a single channel'
complete -c conv -l mix -x -d 'Blend the results: P % of the result and the rest of the original'
complete -c conv -l roi -x -d 'Filter this region only'
complete -c conv -l output-type -x -a 'same u8 u16 f32 f16' -d 'Type of the results: same, u8 or u16: 8 or 16 bits per sample'
complete -c conv -l strip -d 'Drop metadata except colour space and orientation'
complete -c conv -l first-frame -d 'Take the first of several images in a file or pipe'
complete -c conv -s p -l preserve -d 'Give the output the input\'s permissions and times'
complete -c conv -s o -l output -r -d 'Write to this folder'
complete -c conv -l beside -d 'Write each result next to its input, with --suffix or --output-type f32'
complete -c conv -l suffix -x -d 'Insert TEXT into the names of results: a_sharp.png for a.png and _sharp'
complete -c conv -l in-place -d 'Replace each input by its output'
complete -c conv -l force -d 'Replace write-protected files as well'
complete -c conv -l fsync -d 'Flush each output to the disk before it gets its name'
complete -c conv -l to -x -a 'png jpg' -d 'Write png or jpg'
complete -c conv -s Q -l quality -x -a '60 75 85 90 95 100' -d 'JPEG quality: 1 to 100'
complete -c conv -l encoder -x -a 'fast libpng stb' -d 'PNG encoder: fast, libpng or stb'
complete -c conv -s z -l compress -x -a '0 1 2 3 4 5 6 7 8 9 10 11 12' -d 'PNG compression: 0 to 12'
complete -c conv -l reproducible -d 'Write the same file bytes on every machine, by encoding on the CPU'
complete -c conv -l device -x -a 'auto cpu cuda all' -d 'Where to filter: auto, cpu, cuda, cuda:N, all'
complete -c conv -l decode-on -x -a 'cpu auto gpu' -d 'Decode PNG on cpu, on gpu, or auto'
complete -c conv -l encode-on -x -a 'cpu auto gpu' -d 'Encode PNG on cpu, on gpu, or auto'
complete -c conv -l streams -x -d 'CUDA streams per GPU'
complete -c conv -l group -x -d 'Bytes of images copied to the GPU together'
complete -c conv -s j -l jobs -x -d 'Worker threads'
complete -c conv -l mem-limit -x -d 'Staging memory for images in flight'
complete -c conv -l max-pixels -x -d 'Refuse larger images'
complete -c conv -l variant -x -d 'Use this kernel variant'
complete -c conv -l no-save -d 'Do everything except writing the outputs, to measure speed'
complete -c conv -l fail-fast -d 'Stop at the first image that fails'
complete -c conv -l on-error -x -a 'copy skip stop' -d 'What to do after an image fails: skip it'
complete -c conv -l progress -x -a 'auto always never' -d 'Show progress: auto, always, never'
complete -c conv -s q -l quiet -d 'Print failures only'
complete -c conv -s v -l verbose -d 'Print each image and the kernel variant in use'
complete -c conv -l json -d 'Print JSON on standard output, one object per line'
complete -c conv -l report -r -d 'Write the lines of --json into FILE'
complete -c conv -l trace -r -d 'Write a timeline of every thread and stream, for Perfetto'
complete -c conv -l html -r -d 'Write a page about the run or the benchmark, in one self-contained file'
complete -c conv -s h -l help -d 'Print this text, or the options of the command before it'
complete -c conv -s V -l version -d 'Print the version'
complete -c conv -n '__conv_of layer' -l stride -x -d 'Compute every Nth output of both axes'
complete -c conv -n '__conv_of layer' -l padding -x -a 'valid same' -d 'Samples around the input: valid, same, or N on each side'
complete -c conv -n '__conv_of layer' -l activation -x -a 'none relu tanh abs' -d 'Apply to each output: none, relu, tanh or abs'
complete -c conv -n '__conv_of layer bench' -l precision -x -a 'exact fast tf32 fp16' -d 'How results may deviate: exact, with the same bits on every device'
complete -c conv -n '__conv_of layer' -l range -x -a '1 255' -d 'Scale integer samples to 0..1 or 0..255'
complete -c conv -n '__conv_of layer' -l pool -x -a 'mean std max energy mean,std' -d 'Write features of a filter bank instead of maps: mean, std, max'
complete -c conv -n '__conv_of bench' -l filter -x -a '(__conv_filters)' -d 'The filter to measure with'
complete -c conv -n '__conv_of bench' -l image-size -x -a 'mix uniform standard' -d 'WIDTHxHEIGHT'
complete -c conv -n '__conv_of bench' -l images -x -d 'Images per launch'
complete -c conv -n '__conv_of bench' -l depth -x -a '8 16' -d '8 or 16 bits per sample'
complete -c conv -n '__conv_of bench' -l compare -r -d 'Compare with an earlier run, whose --json output is in FILE'
complete -c conv -n '__conv_of bench' -l stage -x -a 'all device' -d 'Run all stages, or device: images start in pinned memory'
complete -c conv -n '__conv_of bench' -l shape -x -a 'lenet-1 lenet-2 net28-1 net64-1 net70-1 net70-2 vgg-1 resnet-1' -d 'The input, BATCHxCHANNELSxHEIGHTxWIDTH, or one of the layers lenet-1'
complete -c conv -n '__conv_of bench' -l maps -x -d 'Output maps'
complete -c conv -n '__conv_of bench' -l csv -d 'Print comma-separated values'
complete -c conv -n '__conv_of bench' -l svg -d 'Print a bar chart in SVG'
