/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tables that the parser and the help share: one row for each option of each command.
 */
#ifndef WHELP_OPTIONS_TABLE_H
#define WHELP_OPTIONS_TABLE_H

#include <stdbool.h>

#include "vmm/options.h"
#include "vmm/options_value.h"

#define MAX_OPTIONS 32 /* of one command */

struct option {
	const char *name;     /* with its dashes */
	/* What the help calls the value; NULL: there is none. It may be lacking if it is in []. */
	const char *argument;
	const char *help;     /* lines separated by '\n' */
	/* `value` is NULL if `argument` is, or if it is lacking and may be. */
	int (*set)(struct options *options, const char *value, struct complaint *why);
	bool repeatable;
	bool may_be_empty;
};

struct command_info {
	enum command command;
	const char *name;
	const struct option *options;
	unsigned count;
	/* Takes the one argument that is no option; NULL: there is none such. */
	int (*set_operand)(struct options *options, const char *value, struct complaint *why);
};

extern const struct command_info option_commands[];
extern const unsigned option_command_count;

/* Known to every command, and handled before its table: no `set`. */
extern const struct option option_common[];
extern const unsigned option_common_count;

#endif
