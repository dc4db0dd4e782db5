#compdef conv
# SPDX-License-Identifier: MIT
# zsh completion for conv; @SOURCE@.

# The last filter of a list with commas.
_conv_filters() {
    local -a filters
    local line
    for line in ${(f)"$(_call_program filters ${(q)program} list 2>/dev/null)"}; do
        # A parametric filter is offered as its example, gaussian:2.5.
        [[ $line == *'(for example '* ]] && line="${${line##*\(for example }%\)} ${${line#* }##[[:space:]]##}"
        filters+=("${${line%% *}/:/\\:}:${${line#* }##[[:space:]]##}")
    done
    filters+=('custom:the kernel of --kernel')
    compset -P '*,'
    _describe -t filters filter filters
}

_conv_commands() {
    local -a commands=(
@COMMANDS@
    )
    _describe -t commands command commands
}

_conv_first() {
    _alternative 'commands:command:_conv_commands' 'filters:filter:_conv_filters' \
        'files:matrix file:_files -g "*.mat"'
}

_conv_second() {
    case $line[1] in
    devices | version) _message 'no more arguments' ;;
    list) compadd filters banks kernels ;;
    help) compadd @HELP@ ;;
    show | verify) _conv_filters ;;
    report) compadd @REPORT@ ;;
    bench) compadd @BENCH@ ;;
    *) _files ;;
    esac
}

_conv_kernel() {
    if compset -P @; then _files; else _message 'WxH: numbers, numbers or @FILE'; fi
}

local curcontext=$curcontext program=$words[1] state line
typeset -A opt_args
_arguments -C -s -S \
@ARGUMENTS@
    '1:filter or command:_conv_first' \
    '2:input:_conv_second' \
    '*:file:_files'
