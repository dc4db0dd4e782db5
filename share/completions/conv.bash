# SPDX-License-Identifier: MIT
# bash completion for conv; made by tools/make-manual from src/cli/option_table.c and share/manual/; do not edit.
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
    local with_value='--include --exclude --limit --sample --seed --files-from --format --resume --shard
        --shard-by --shard-of --kernel -k --size --divisor --bias --border --alpha --mix --roi
        --output-type --output -o --suffix --to --quality -Q --encoder --compress -z --device
        --decode-on --encode-on --streams --group --jobs -j --mem-limit --max-pixels --variant
        --on-error --progress --report --trace --html --stride --padding --activation --precision
        --range --pool --filter --image-size --images --depth --compare --stage --shape --maps'
    local options="--batch --recursive --no-ignore --null --watch --images-only --skip-existing --update
        --dry-run --flip --gray --strip --first-frame --preserve --beside --in-place --force --fsync
        --reproducible --no-save --fail-fast --quiet --verbose --json --help --version --csv --svg
        ${with_value// -[koQzj]/}"
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
    --format) values='tar files' ;;
    --shard) values='auto' ;;
    --shard-by) values='bytes name' ;;
    --shard-of) values='archives members' ;;
    --size) values='3 5' ;;
    --divisor) values='sum' ;;
    --border) values='replicate reflect reflect101 wrap constant' ;;
    --alpha) values='keep filter premultiply' ;;
    --output-type) values='same u8 u16 f32 f16' ;;
    --to) values='png jpg' ;;
    -Q | --quality) values='60 75 85 90 95 100' ;;
    --encoder) values='fast libpng stb' ;;
    -z | --compress) values='0 1 2 3 4 5 6 7 8 9 10 11 12' ;;
    --device) values='auto cpu cuda all' ;;
    --decode-on) values='cpu auto gpu' ;;
    --encode-on) values='cpu auto gpu' ;;
    --on-error) values='copy skip stop' ;;
    --progress) values='auto always never' ;;
    --padding) values='valid same' ;;
    --activation) values='none relu tanh abs' ;;
    --precision) values='exact fast tf32 fp16' ;;
    --range) values='1 255' ;;
    --pool) values='mean std max energy mean,std' ;;
    --image-size) values='mix uniform standard' ;;
    --depth) values='8 16' ;;
    --stage) values='all device' ;;
    --shape) values='lenet-1 lenet-2 net28-1 net64-1 net70-1 net70-2 vgg-1 resnet-1' ;;
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
        [[ $word != *,* ]] && commands='list show verify layer report bench devices help version'
        _conv_filters "$1" "$word" "$commands"
        ;;
    1:show | 1:verify) _conv_filters "$1" "$word" '' ;;
    1:help) mapfile -t COMPREPLY < <(compgen -W 'list show verify layer report bench devices version' -- "$word") ;;
    1:report) mapfile -t COMPREPLY < <(compgen -W 'merge' -- "$word") ;;
    1:bench) mapfile -t COMPREPLY < <(compgen -W 'kernels layers streams codec' -- "$word") ;;
    esac
}

complete -o default -F _conv conv
