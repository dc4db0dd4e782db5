# SPDX-License-Identifier: MIT
# fish completion for conv; @SOURCE@.

# What has been typed that is not an option: filter or command first.
function __conv_operands
    set -l with_value @WITH_VALUE@
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
@COMMANDS@
@SECOND@
complete -c conv -n '__conv_after help' -f -a '@HELP@'
complete -c conv -n '__conv_after list' -f -a 'filters banks kernels'
complete -c conv -n '__conv_after devices version' -f

@OPTIONS@
