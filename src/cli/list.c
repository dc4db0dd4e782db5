// SPDX-License-Identifier: MIT
// conv list: the built-in filters, one per line; with --json one object per line. conv list banks:
// the families of filter banks.
#include <string.h>

#include "cli/banks.h"
#include "cli/commands.h"

#include "report/json.h"

int conv_list_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (options->operand_count == 1 && strcmp(options->operands[0], "banks") == 0)
        return conv_banks_list(options);
    if (conv_commands_check_operands(options, &err))
        return conv_commands_fail(&err);
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        if (!options->json) {
            printf("%-12s %s\n", builtins[i].name, builtins[i].summary);
            continue;
        }
        fputs("{\"type\":\"filter\"", stdout);
        conv_json_member(stdout, "name", builtins[i].name);
        conv_json_member(stdout, "family", builtins[i].family);
        conv_json_member(stdout, "summary", builtins[i].summary);
        puts("}");
    }
    return conv_commands_flush();
}
