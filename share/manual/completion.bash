# SPDX-License-Identifier: MIT
# bash completion for conv; @SOURCE@.
# A word without candidates here is completed as a file name.

# The last filter of the list that is being typed; what stands before it is kept.
_conv_filters()
{
    local done=
    [[ $2 == *,* ]] && done=${2%,*},
    mapfile -t COMPREPLY < <(compgen -P "$done" -W "custom $3 $("$1" list 2>/dev/null | sed 's/[: ].*//' | sort -u)" -- "${2##*,}")
}

# The numbers of a parametric filter: the example of conv list. The colon has ended the word before.
_conv_numbers()
{
    mapfile -t COMPREPLY < <("$1" list 2>/dev/null | sed -n "s/^$2:.*for example $2:\\(.*\\))\$/\\1/p" | grep -F -- "$3")
}

_conv()
{
    local with_value='@WITH_VALUE@'
    local options="@FLAGS@
        ${with_value// -[@LETTERS@]/}"
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()

    # readline breaks --border=wrap into three words.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    # So does a colon: gaussian:2.5.
    if [[ $word == : || $before == : ]]; then
        local colon=$((COMP_CWORD - 1))
        [[ $word == : ]] && colon=$COMP_CWORD word=
        _conv_numbers "$1" "${COMP_WORDS[colon - 1]##*,}" "$word"
        return
    fi

    local values=
    case $before in
@VALUES@
    --filter)
        _conv_filters "$1" "$word" ''
        return
        ;;
    -k | --kernel)
        [[ $word == @* ]] && mapfile -t COMPREPLY < <(compgen -P @ -f -- "${word#@}")
        return
        ;;
    esac
    if [[ $values ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
        return
    fi
    [[ " ${with_value//$'\n'/ } " == *" $before "* ]] && return
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
        return
    fi

    local operands=() i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        = | :) ((i++)) ;;
        -?*) [[ ${COMP_WORDS[i + 1]} != = && " ${with_value//$'\n'/ } " == *" ${COMP_WORDS[i]} "* ]] && ((i++)) ;;
        *) operands+=("${COMP_WORDS[i]}") ;;
        esac
    done
    local commands=
    case ${#operands[@]}:${operands[0]-} in
    0:)
        [[ $word != *,* ]] && commands='@COMMANDS@'
        _conv_filters "$1" "$word" "$commands"
        ;;
    1:show | 1:verify) _conv_filters "$1" "$word" '' ;;
    1:list) mapfile -t COMPREPLY < <(compgen -W 'filters banks kernels' -- "$word") ;;
    1:help) mapfile -t COMPREPLY < <(compgen -W '@HELP@' -- "$word") ;;
    1:report) mapfile -t COMPREPLY < <(compgen -W '@REPORT@' -- "$word") ;;
    1:bench) mapfile -t COMPREPLY < <(compgen -W '@BENCH@' -- "$word") ;;
    esac
}

complete -o default -F _conv conv
