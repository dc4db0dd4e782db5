# SPDX-License-Identifier: MIT
# fish completion for conv.

# What has been typed that is no option: filter or command first.
function __conv_operands
    set -l with_value --limit --sample --seed --suffix --output -o --include --exclude --files-from --format --on-error --resume --shard --shard-by --kernel -k --size --divisor --bias --border \
        --alpha --to --quality -Q --encoder --compress -z --device --decode-on --encode-on --streams --group --jobs -j --mem-limit \
        --max-pixels --variant --stride --padding --activation --precision --output-type --mix --roi --range --pool --progress --report --trace --html --filter --image-size --images --depth --stage --shape --maps
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

# The list of filters, each behind what stands before the last comma.
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
complete -c conv -n __conv_at_first -a list -d 'List the filters'
complete -c conv -n __conv_at_first -a show -d 'Explain a filter and how it would run on this machine'
complete -c conv -n __conv_at_first -a verify -d 'Filter with every kernel of every device and compare the results'
complete -c conv -n __conv_at_first -a layer -d 'Run a convolution layer over a tensor or images'
complete -c conv -n __conv_at_first -a bench -d 'Measure kernels, layers, streams or PNG coders'
complete -c conv -n __conv_at_first -a report -d 'Add up the reports of several runs'
complete -c conv -n '__conv_after report' -f -a merge
complete -c conv -n __conv_at_first -a devices -d 'List the GPUs and the CPU'
complete -c conv -n __conv_at_first -a help -d 'Print all options, or those of one command'
complete -c conv -n __conv_at_first -a version -d 'Print the version'
complete -c conv -n '__conv_after bench' -f -a 'kernels layers streams codec'
complete -c conv -n '__conv_after help' -f -a 'list show verify layer report bench devices version'
complete -c conv -n '__conv_after list devices version' -f

complete -c conv -s b -l batch -d 'Input and output are folders'
complete -c conv -s r -l recursive -d 'Also filter the folders below the input'
complete -c conv -l include -x -d 'Take only names that match'
complete -c conv -l exclude -x -d 'Skip names that match'
complete -c conv -l no-ignore -d 'Also take ._*, .thumb* and @eaDir'
complete -c conv -l limit -x -d 'Take the first N images only'
complete -c conv -l sample -x -d 'Take N random images only'
complete -c conv -l seed -x -d 'Choose another sample'
complete -c conv -l files-from -r -d 'Read the names of the inputs from a file'
complete -c conv -s 0 -l null -d 'Names in the list end in NUL'
complete -c conv -l watch -d 'Filter images as they arrive, until Ctrl-C'
complete -c conv -l skip-existing -d 'Skip images whose output exists'
complete -c conv -s u -l update -d 'Skip images whose output is not older than the input'
complete -c conv -l resume -r -d 'Skip what this journal lists as done'
complete -c conv -l dry-run -d 'Print what would be done and why'
complete -c conv -l shard -x -a auto -d 'Process one of several parts of the images'
complete -c conv -l shard-by -x -a 'bytes name' -d 'Divide by bytes or by name'
complete -c conv -s k -l kernel -r -d 'The kernel of the filter custom'
complete -c conv -l size -x -a '3 5' -d 'Use the filter of this size'
complete -c conv -l divisor -x -a sum -d 'Divide by a number, or by the sum of the coefficients'
complete -c conv -l bias -x -d 'Add a number, on the scale of 8-bit samples'
complete -c conv -l flip -d 'Rotate the kernel by 180 degrees'
complete -c conv -l border -x -a 'replicate reflect reflect101 wrap constant' -d 'Pixels outside the image'
complete -c conv -l alpha -x -a 'keep filter premultiply' -d 'What happens to alpha'
complete -c conv -l strip -d 'Drop metadata'
complete -c conv -l reproducible -d 'Write the same file bytes on every machine'
complete -c conv -l first-frame -d 'Take the first image of an animated PNG'
complete -c conv -s p -l preserve -d 'Keep mode and times of the input'
complete -c conv -s o -l output -r -d 'Write to this folder or file'
complete -c conv -l beside -d 'Write each result next to its input'
complete -c conv -l suffix -x -d 'Insert a text into the names of results'
complete -c conv -l in-place -d 'Replace each input by its output'
complete -c conv -l fsync -d 'Flush each output to the disk before it gets its name'
complete -c conv -l to -x -a 'png jpg' -d 'Write this format'
complete -c conv -s Q -l quality -x -a '60 75 85 90 95 100' -d 'JPEG: 1 is smallest, 100 best'
complete -c conv -l encoder -x -a 'fast libpng stb' -d 'PNG encoder'
complete -c conv -s z -l compress -x -a '(seq 0 12)' -d '0 is fastest, 12 smallest'
complete -c conv -l device -x -a 'auto cpu cuda all' -d 'Where to filter'
complete -c conv -l decode-on -x -a 'auto cpu gpu' -d 'Where to decode PNG'
complete -c conv -l encode-on -x -a 'auto cpu gpu' -d 'Where to encode PNG'
complete -c conv -l streams -x -d 'CUDA streams per GPU'
complete -c conv -l group -x -d 'Bytes of images copied to the GPU together'
complete -c conv -s j -l jobs -x -d 'Worker threads'
complete -c conv -l mem-limit -x -d 'Staging memory'
complete -c conv -l max-pixels -x -d 'Refuse larger images'
complete -c conv -l variant -x -d 'Use this kernel variant'
complete -c conv -l no-save -d 'Do everything except writing the outputs'
complete -c conv -l fail-fast -d 'Stop at the first failure'
complete -c conv -l on-error -x -a 'skip copy stop' -d 'An image that fails'
complete -c conv -l format -x -a 'tar files' -d 'Archives: format of streams and of outputs in a folder'
complete -c conv -l images-only -d 'Archives: drop members that are no images'
complete -c conv -l progress -x -a 'auto always never' -d 'Show progress'
complete -c conv -s q -l quiet -d 'Print failures only'
complete -c conv -s v -l verbose -d 'Print each image and the kernel variant'
complete -c conv -l json -d 'Print JSON on standard output'
complete -c conv -l report -r -d 'Write JSON lines into a file'
complete -c conv -l trace -r -d 'Write a timeline of every thread and stream'
complete -c conv -l html -r -d 'Write a page about the run or the benchmark'
complete -c conv -n '__conv_of layer' -l stride -x -d 'Compute every nth output'
complete -c conv -n '__conv_of layer' -l padding -x -a 'valid same' -d 'Samples around the input'
complete -c conv -n '__conv_of layer' -l activation -x -a 'none relu tanh abs' -d 'Applied to each output'
complete -c conv -n '__conv_of layer bench' -l precision -x -a 'exact fast tf32 fp16' -d 'How far a result may be from the definition'
complete -c conv -l output-type -x -a 'same u8 u16 f32 f16' -d 'Type of the output'
complete -c conv -n '__conv_of layer' -l range -x -a '1 255' -d 'Scale of integer samples'
complete -c conv -n '__conv_of layer' -l pool -x -a 'mean std max energy mean,std' -d 'Features of a filter bank'
complete -c conv -l gray -d 'Use the luminance of colour images'
complete -c conv -l mix -x -d 'Percentage of the result in the output'
complete -c conv -l roi -x -d 'Filter this region, WxH+X+Y'
complete -c conv -n '__conv_of bench' -l filter -x -a '(__conv_filters)' -d 'The filter to measure with'
complete -c conv -n '__conv_of bench' -l image-size -x -a 'mix uniform standard' -d 'Size of the images of bench kernels'
complete -c conv -n '__conv_of bench' -l images -x -d 'Number of images'
complete -c conv -n '__conv_of bench' -l depth -x -a '8 16' -d 'Bits per sample of bench kernels'
complete -c conv -n '__conv_of bench' -l stage -x -a 'all device' -d 'What bench streams runs'
complete -c conv -n '__conv_of bench' -l shape -x -a 'lenet-1 lenet-2 net28-1 net64-1 net70-1 net70-2 vgg-1 resnet-1' -d 'Input of bench layers'
complete -c conv -n '__conv_of bench' -l maps -x -d 'Output maps of bench layers'
complete -c conv -n '__conv_of bench' -l csv -d 'Print comma-separated values'
complete -c conv -s h -l help -d 'Print all options'
complete -c conv -s V -l version -d 'Print the version'
