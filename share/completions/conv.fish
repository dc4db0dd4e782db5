# SPDX-License-Identifier: MIT
# fish completion for conv.

# What has been typed that is no option: filter or command first.
function __conv_operands
    set -l with_value --include --exclude --files-from --kernel -k --size --divisor --bias --border \
        --alpha --encoder --compress -z --device --decode-on --encode-on --streams --group --jobs -j --mem-limit \
        --max-pixels --variant --progress --report --trace --html --resume
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
        echo "$before"(string replace -r ' +' \t -- $line)
    end
end

function __conv_at_first
    test (count (__conv_operands)) = 0
end

function __conv_after
    set -l operands (__conv_operands)
    test (count $operands) = 1; and contains -- $operands[1] $argv
end

complete -c conv -n __conv_at_first -a '(__conv_filters)'
complete -c conv -n '__conv_after show verify' -f -a '(__conv_filters)'
complete -c conv -n __conv_at_first -a list -d 'the built-in filters'
complete -c conv -n __conv_at_first -a show -d 'what a filter is and how it would run here'
complete -c conv -n __conv_at_first -a verify -d 'filter on every device, compare byte for byte'
complete -c conv -n __conv_at_first -a bench -d 'speed of the kernels, gain by streams'
complete -c conv -n __conv_at_first -a devices -d 'what can filter here'
complete -c conv -n '__conv_after bench' -f -a 'kernels streams codec'
complete -c conv -n '__conv_after list devices' -f

complete -c conv -s b -l batch -d 'Input and output are folders'
complete -c conv -s r -l recursive -d 'The tree below the input, its shape kept'
complete -c conv -l include -x -d 'Only names that match'
complete -c conv -l exclude -x -d 'Not names that match'
complete -c conv -l files-from -r -d 'Names from a list'
complete -c conv -s 0 -l null -d 'Names in the list end in NUL'
complete -c conv -l skip-existing -d 'Leave out what has an output'
complete -c conv -s u -l update -d 'Leave out what has an output not older than the input'
complete -c conv -l resume -r -d 'Leave out what this journal says is done'
complete -c conv -l dry-run -d 'Say what would be done and why'
complete -c conv -s k -l kernel -r -d 'The kernel of the filter custom'
complete -c conv -l size -x -a '3 5' -d 'The filter of this size'
complete -c conv -l divisor -x -a sum -d 'Divide by a number, or by the sum of the coefficients'
complete -c conv -l bias -x -d 'Add a number, in 8-bit units'
complete -c conv -l flip -d 'Turn the kernel by 180 degrees'
complete -c conv -l border -x -a 'replicate reflect reflect101 wrap constant' -d 'What lies outside the picture'
complete -c conv -l alpha -x -a 'keep filter premultiply' -d 'What happens to alpha'
complete -c conv -l strip -d 'Drop metadata'
complete -c conv -s p -l preserve -d 'Keep mode and times of the input'
complete -c conv -l in-place -d 'Each output replaces its input'
complete -c conv -l fsync -d 'Have each output on the disk before it gets its name'
complete -c conv -l encoder -x -a 'fast libpng stb' -d 'What writes the PNG'
complete -c conv -s z -l compress -x -a '(seq 0 12)' -d '0 is fast, 12 is small'
complete -c conv -l device -x -a 'auto cpu cuda all' -d 'Where to filter'
complete -c conv -l decode-on -x -a 'auto cpu gpu' -d 'Who reads picture data'
complete -c conv -l encode-on -x -a 'auto cpu gpu' -d 'Who writes picture data'
complete -c conv -l streams -x -d 'CUDA streams'
complete -c conv -l group -x -d 'Bytes that travel to the device together'
complete -c conv -s j -l jobs -x -d 'Worker threads'
complete -c conv -l mem-limit -x -d 'Staging memory'
complete -c conv -l max-pixels -x -d 'Refuse larger pictures'
complete -c conv -l variant -x -d 'Force a kernel variant'
complete -c conv -l no-save -d 'Do everything but the write'
complete -c conv -l fail-fast -d 'Stop at the first failure'
complete -c conv -l progress -x -a 'auto always never' -d 'Show progress'
complete -c conv -s q -l quiet -d 'Failures only'
complete -c conv -s v -l verbose -d 'Every picture, and which kernel runs'
complete -c conv -l json -d 'JSON Lines on standard output'
complete -c conv -l report -r -d 'JSON Lines into a file'
complete -c conv -l trace -r -d 'What each thread and stream did when'
complete -c conv -l html -r -d 'A page about the run or benchmark'
complete -c conv -n '__conv_after bench' -l filter -x -a '(__conv_filters)' -d 'What is measured with'
complete -c conv -n '__conv_after bench' -l depth -x -a '8 16' -d 'Bits a sample'
complete -c conv -n '__conv_after bench' -l stage -x -a 'all device' -d 'What bench streams runs'
complete -c conv -n '__conv_after bench' -l csv -d 'Comma-separated values'
complete -c conv -n '__conv_after bench' -l svg -r -d 'A bar chart'
complete -c conv -s h -l help -d 'Summary of all options'
complete -c conv -s V -l version -d 'The version'
